"""Runs that are kept: run folders with a name, a note and tags, below one folder."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from workbench.base.files import atomic_write, temporary_name
from workbench.base.settings import SettingError
from workbench.base.text import read_json
from workbench.trace.layout import RUN, SPEC, STATUS
from workbench.trace.rows import places
from workbench.trace.trace import Trace

ABOUT = "about.json"


@dataclass(frozen=True)
class Kept:
    """A run folder and what is said about it."""

    folder: Path
    name: str
    note: str = ""
    tags: tuple[str, ...] = ()
    when: str = ""  # ISO 8601, local time
    scheme: str = ""
    engine: str = ""
    workers: int = 0
    rounds: int = 0


def keep(trace: Trace, root: str | Path, name: str, note: str = "", tags: Sequence[str] = ()) -> Kept:
    """Write a run folder below `root`; its name there is made from `name`.

    Raises `SettingError` where the name is empty or there is a run of that name.

    >>> import tempfile, workbench as wb
    >>> root = tempfile.mkdtemp()
    >>> _ = keep(wb.run(wb.Experiment(rounds=3)), root, "First try", tags=["tree"])
    >>> [(run.name, run.tags, run.folder.name) for run in kept_runs(root)]
    [('First try', ('tree',), 'first-try')]
    """
    slug = _slug(name)
    folder = Path(root) / slug
    if folder.exists():
        raise SettingError(f"name = {name!r}: there is a run of that name already; choose another")
    trace.save(folder)
    describe(folder, name, note, tags, datetime.now().isoformat(timespec="seconds"))
    return _kept(folder, slug)


def _slug(name: str) -> str:
    slug = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
    if not slug:
        raise SettingError(f"name = {name!r}: has no letter or digit; give the run a name")
    return slug[:80]


def describe(folder: Path, name: str, note: str, tags: Sequence[str], when: str | None = None) -> None:
    """Write what is said about a run; its folder's name stays."""
    _slug(name)
    before = _json(folder / ABOUT)
    words = {"name": name.strip(), "note": note.strip(), "tags": [t.strip() for t in tags if t.strip()]}
    with atomic_write(folder / ABOUT, "w") as out:
        out.write(json.dumps({**words, "when": when or before.get("when", "")}, indent=2) + "\n")


def kept_runs(root: str | Path) -> list[Kept]:
    """All run folders below a folder, the newest first; none where there is no such folder.

    One that cannot be read has a line that says so.
    """
    there = (place for place in places(Path(root)) if place.status.state in ("done", "damaged"))
    found = [_kept(place.folder, place.name) for place in there]
    return sorted(found, key=lambda run: run.when, reverse=True)


def _kept(folder: Path, name: str) -> Kept:
    try:
        about, spec, run = (_json(folder / file) for file in (ABOUT, SPEC, RUN))
        written = datetime.fromtimestamp(folder.stat().st_mtime).isoformat(timespec="seconds")
        return Kept(
            folder=folder,
            name=str(about.get("name") or name),
            note=str(about.get("note", "")),
            tags=tuple(map(str, about.get("tags", ()))),
            when=str(about.get("when") or written),
            scheme=str(spec.get("scheme", "")) if spec and run else "damaged",
            engine=str(run.get("engine", "")),
            workers=int(spec.get("workers", 0)),
            rounds=int(spec.get("rounds", 0)),
        )
    except Exception as error:  # whatever lies there, the other runs are to be seen
        text = " ".join(str(error).split())
        return Kept(folder, name, note=f"cannot be read ({type(error).__name__}: {text})", scheme="damaged")


def _json(path: Path) -> dict[str, Any]:
    """A file's content; nothing where it is missing or damaged."""
    try:
        return read_json(path)
    except (OSError, SettingError):
        return {}


def delete(run: Kept) -> None:
    """Remove a run folder for good, whole or not at all; raises `SettingError` where it is not one, or a sweep's."""
    folder = run.folder
    if (folder.parent / STATUS).exists():
        raise SettingError(
            f"run = {run.name!r}: belongs to a sweep, which would run it again; delete the sweep's folder"
        )
    if not (folder / SPEC).is_file() or not (folder / RUN).is_file():
        raise SettingError(f"run = {run.name!r}: its folder is no run folder any more; nothing was deleted")
    doomed = temporary_name(folder)
    folder.rename(doomed)  # gone at once, even if removing the files takes a while or is cut short
    shutil.rmtree(doomed)
