"""Rows of the table of runs that were read before: a cache of the folders, which may be deleted at any time.

One SQLite file for each folder of runs, in the user's cache. A row counts as long as the files that it was made of have
the same times, sizes and numbers on the disk. Rows that may be others tomorrow for no file's sake are not kept: of runs
under way, of damaged ones, and of those with classes of the user's own.
"""

import hashlib
import json
import sqlite3
from collections.abc import Callable, Collection, Iterator
from contextlib import closing, suppress
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import TypeVar

import workbench as wb  # its front door, for the version
from workbench.base.files import cache_folder, private_folder
from workbench.trace.rows import Place, Row, places, reached, read

T = TypeVar("T")
_TABLE = "CREATE TABLE IF NOT EXISTS rows (place TEXT, asked TEXT, stamp TEXT, row TEXT, PRIMARY KEY (place, asked))"
_LASTING = ("done", "failed", "interrupted")
_SOME = 500  # rows after which those that were read are written down: whoever is interrupted has not waited in vain


def file_of(root: Path) -> Path:
    """Where the rows of a folder are kept; another version of the package may make other rows of the same files."""
    name = hashlib.sha256(f"{wb.__version__} 2 {root.resolve()}".encode()).hexdigest()[:32]
    return cache_folder("index") / f"{name}.sqlite"


def rows(
    root: Path, target: float | None, metric: str, progress: bool = False
) -> Iterator[tuple[Place, Row]]:
    """All runs below a folder, each read anew only if it is not what it was. `progress`: show a bar after a second."""
    from tqdm.auto import tqdm

    found = list(places(root))
    told, aimed = _Answers(root, "null"), _Answers(root, json.dumps([target, metric]))
    for place in tqdm(found, desc="runs", unit=" runs", delay=1.0, disable=not progress, leave=False):
        stamp = place.stamp()
        row = told.to(place, stamp, partial(read, place), Row)
        if target is not None and row.state == "done":
            when: dict[str, float] = aimed.to(place, stamp, partial(reached, place, target, metric), dict)
            row = replace(row, results={**row.results, **when})
        yield place, row
    for answers in (told, aimed):
        answers.note(gone=set(answers.known) - {place.name for place in found})


class _Answers:
    """What was found out about each run below a folder, of one kind."""

    def __init__(self, root: Path, kind: str) -> None:
        self.root, self.kind, self.known = root, kind, _known(root, kind)
        self.fresh: dict[str, tuple[str, str]] = {}

    def to(self, place: Place, stamp: str | None, ask: Callable[[], T], make: Callable[..., T]) -> T:
        """As it was found before, where nothing has changed since; else it is asked for."""
        known = self.known.get(place.name)
        if known is not None and known[0] == stamp:
            with suppress(ValueError, TypeError):
                return make(**json.loads(known[1]))
        found = ask()
        lasts = not isinstance(found, Row) or found.state in _LASTING
        if stamp is not None and lasts and stamp == place.stamp():
            self.fresh[place.name] = stamp, json.dumps(found, default=asdict)
        if len(self.fresh) >= _SOME:
            self.note()
        return found

    def note(self, gone: Collection[str] = ()) -> None:
        """Write down what is new, all or nothing; where that cannot be, it is asked for again next time."""
        fresh, self.fresh = self.fresh, {}
        if not fresh and not gone:
            return
        with suppress(OSError, sqlite3.Error):
            private_folder(cache_folder("index"))
            with closing(sqlite3.connect(file_of(self.root), timeout=1)) as base, base:
                base.execute(_TABLE)
                base.executemany("DELETE FROM rows WHERE place = ?", [(place,) for place in gone])
                lines = [(place, self.kind, stamp, text) for place, (stamp, text) in fresh.items()]
                base.executemany("INSERT OR REPLACE INTO rows VALUES (?, ?, ?, ?)", lines)


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
