"""Rows of the table of runs that were read before: a cache of the folders, which may be deleted at any time.

One SQLite file for each folder of runs, in the user's cache. A row counts as long as the files that it was made of have
the same times, sizes and numbers on the disk. Rows that may be others tomorrow for no file's sake are not kept: of runs
under way, of damaged ones, and of those with classes of the user's own.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Collection, Iterator
from contextlib import closing, suppress
from dataclasses import asdict
from pathlib import Path

import workbench as wb  # its front door, for the version
from workbench.base.files import cache_folder, private_folder
from workbench.trace.rows import Place, Row, places, read

_TABLE = "CREATE TABLE IF NOT EXISTS rows (place TEXT, asked TEXT, stamp TEXT, row TEXT, PRIMARY KEY (place, asked))"
_LASTING = ("done", "failed", "interrupted")
_SOME = 500  # rows after which those that were read are written down: whoever is interrupted has not waited in vain


def file_of(root: Path) -> Path:
    """Where the rows of a folder are kept; another version of the package may make other rows of the same files."""
    name = hashlib.sha256(f"{wb.__version__} 1 {root.resolve()}".encode()).hexdigest()[:32]
    return cache_folder("index") / f"{name}.sqlite"


def rows(
    root: Path, target: float | None, metric: str, progress: bool = False
) -> Iterator[tuple[Place, Row]]:
    """All runs below a folder, each read anew only if it is not what it was. `progress`: show a bar after a second."""
    from tqdm.auto import tqdm

    asked = json.dumps([target, metric] if target is not None else None)
    known, found = _known(root, asked), list(places(root))
    fresh: dict[str, tuple[str, str]] = {}
    for place in tqdm(found, desc="runs", unit=" runs", delay=1.0, disable=not progress, leave=False):
        stamp = place.stamp()
        if (row := _before(known.get(place.name), stamp)) is not None:
            yield place, row
            continue
        row = read(place, target, metric)
        if stamp is not None and row.state in _LASTING and stamp == place.stamp():
            fresh[place.name] = stamp, json.dumps(asdict(row))
        yield place, row
        if len(fresh) >= _SOME:
            _note(root, asked, fresh)
            fresh.clear()
    _note(root, asked, fresh, gone=set(known) - {place.name for place in found})


def _before(known: tuple[str, str] | None, stamp: str | None) -> Row | None:
    """The row as it was read before, where nothing has changed since."""
    if known is not None and known[0] == stamp:
        with suppress(ValueError, TypeError):
            return Row(**json.loads(known[1]))
    return None


def _known(root: Path, asked: str) -> dict[str, tuple[str, str]]:
    """Stamp and row by place; none where there is no index, or none that can be read."""
    file = file_of(root)
    if file.exists():
        try:
            with closing(sqlite3.connect(file, timeout=1)) as base:
                wanted = "SELECT place, stamp, row FROM rows WHERE asked = ?"
                return {place: (stamp, row) for place, stamp, row in base.execute(wanted, (asked,))}
        except sqlite3.OperationalError:  # locked by somebody else
            return {}
        except sqlite3.DatabaseError:
            with suppress(OSError):
                file.unlink()
    return {}


def _note(root: Path, asked: str, fresh: dict[str, tuple[str, str]], gone: Collection[str] = ()) -> None:
    """Write rows down, all or none; where that cannot be, they are read again next time."""
    if not fresh and not gone:
        return
    with suppress(OSError, sqlite3.Error):
        private_folder(cache_folder("index"))
        with closing(sqlite3.connect(file_of(root), timeout=1)) as base, base:
            base.execute(_TABLE)
            base.executemany("DELETE FROM rows WHERE place = ?", [(place,) for place in gone])
            lines = [(place, asked, stamp, row) for place, (stamp, row) in fresh.items()]
            base.executemany("INSERT OR REPLACE INTO rows VALUES (?, ?, ?, ?)", lines)
