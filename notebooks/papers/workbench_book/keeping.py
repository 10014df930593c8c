"""Cache of finished entries, used while the hash of their inputs is the same."""

from __future__ import annotations

import json
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import workbench
from workbench.core.base.files import atomic_write
from workbench.core.base.files import sha256 as sha256_of_file
from workbench.core.trace.trace import versions
from workbench_book.catalogue import Entry
from workbench_book.setting import Setting
from workbench_book.values import Result

# Modules of the book that affect no number.
LAYOUT = {"command.py", "notebook.py", "page.py", "running.py", "verdicts.py", "texts.py"}
APART = {"cli", "lab/batch", "lab/widgets"}  # packages that the book does not use


def key(entry: Entry, setting: Setting) -> str:
    """Return the hash of an entry's inputs: code, library versions, settings, recorded data, facts used.

    >>> from workbench_book.catalogue import get
    >>> key(get("table3"), Setting(quick=True)) == key(get("table3"), Setting(quick=False))
    False
    """
    fields = {
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
    return sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()[:16]


@lru_cache(maxsize=1)
def code_digest() -> str:
    """Return the hash of the source of the package and of the book, without code that does not affect numbers."""
    folder, package = Path(__file__).parent, Path(workbench.__file__).parent
    digest = sha256()
    for root, left_out in ((package, APART), (folder, LAYOUT)):
        for file in sorted(root.rglob("*.py")):
            name = file.relative_to(root)
            if left_out.isdisjoint({name.parts[0], "/".join(name.parts[:2])}):
                digest.update(f"{root.name}/{name.as_posix()}".encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()


@lru_cache(maxsize=1)
def _torch_version() -> str | None:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("torch")
    except PackageNotFoundError:
        return None


def place(folder: Path, entry: Entry, key: str) -> Path:
    """Return the path of a cached entry."""
    return folder / f"{entry.name}-{key}.json"


def read(path: Path) -> dict[str, Any] | None:
    """Return a cached entry, or None if there is none that can be read."""
    try:
        fields = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return fields if isinstance(fields, dict) and "result" in fields else None


def write(path: Path, result: Result, seconds: float) -> None:
    """Write an entry atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fields = {"seconds": seconds, "versions": versions(), "result": result.to_json()}
    with atomic_write(path, "w") as out:
        json.dump(fields, out, sort_keys=False)
