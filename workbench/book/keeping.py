"""Finished entries are kept and used again as long as what they depend on has the same hash."""

from __future__ import annotations

import json
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Any

from workbench.book.catalogue import Entry
from workbench.book.setting import Setting
from workbench.book.values import Result
from workbench.files import atomic_write
from workbench.files import sha256 as sha256_of_file
from workbench.trace import versions

LAYOUT = {
    "page.py",
    "words.py",
    "notebook.py",
    "running.py",
    "verdicts.py",
}  # of the book: no number depends on it
APART = {"batch", "widgets"}  # rooms that the book does not use


def key(entry: Entry, setting: Setting) -> str:
    """Hash of what an entry depends on: the code, library versions, its settings, recorded data, facts used.

    >>> from workbench.book.catalogue import get
    >>> key(get("table3"), Setting(quick=True)) == key(get("table3"), Setting(quick=False))
    False
    """
    words = {
        "entry": entry.name,
        "code": code_digest(),
        "versions": {name: v for name, v in versions().items() if name != "straggler-workbench"},
        "quick": setting.quick,
        "seed": setting.seed,
        "download": setting.download,
        "measure": setting.measure and entry.measured,
        "traces": sha256_of_file(setting.traces) if setting.traces else None,
        "torch": _torch_version(),
        "facts": {need: setting.facts.get(need) for need in entry.needs},
    }
    return sha256(json.dumps(words, sort_keys=True).encode()).hexdigest()[:16]


@lru_cache(maxsize=1)
def code_digest() -> str:
    """Hash of the package's source, without what no number can depend on."""
    root = Path(__file__).resolve().parents[1]
    digest = sha256()
    for file in sorted(root.rglob("*.py")):
        if _counts(file.relative_to(root)):
            digest.update(file.relative_to(root).as_posix().encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()


def _counts(file: Path) -> bool:
    if file.parts[0] == "book":
        return file.name not in LAYOUT
    return file.parts[0] not in APART and not file.name.startswith("cli")


@lru_cache(maxsize=1)
def _torch_version() -> str | None:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("torch")
    except PackageNotFoundError:
        return None


def place(folder: Path, entry: Entry, key: str) -> Path:
    """Where an entry is kept."""
    return folder / f"{entry.name}-{key}.json"


def read(path: Path) -> dict[str, Any] | None:
    """What is kept there; None where nothing is, or nothing that can be read."""
    try:
        words = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return words if isinstance(words, dict) and "result" in words else None


def write(path: Path, result: Result, seconds: float) -> None:
    """Keep an entry, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    words = {"seconds": seconds, "versions": versions(), "result": result.to_json()}
    with atomic_write(path, "w") as out:
        json.dump(words, out, sort_keys=False)
