"""Rows of the table of runs that were read before: a cache of the folders, which may be deleted at any time.

One SQLite file in the user's cache, with a row for each run that was looked at, or ended in a sweep. A row counts as
long as the files that it was made of have the same times, sizes and numbers on the disk. Rows that may be others
tomorrow for no file's sake are not kept: of runs under way, of damaged ones, of those with classes of the user's own.
"""

import hashlib
import json
import sqlite3
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TypeVar

from workbench.analysis.tables.rows import Place, Row, places, reached, read
from workbench.core.base.files import cache_folder, is_own, private_folder
from workbench.core.base.settings import SettingError
from workbench.core.base.version import __version__

T = TypeVar("T")
_TABLE = "CREATE TABLE IF NOT EXISTS rows (place TEXT, asked TEXT, stamp TEXT, row TEXT, PRIMARY KEY (place, asked))"
_FINAL_STATES = ("done", "stopped", "failed", "interrupted")
# rows after which those that were read are written down: whoever is interrupted has not waited in vain
_ROWS_PER_WRITE = 500


def file_of() -> Path:
    """Where rows are kept; another version of the package may make other rows of the same files."""
    name = hashlib.sha256(f"{__version__} 5".encode()).hexdigest()[:32]
    return cache_folder("index") / f"{name}.sqlite"


def rows(
    root: Path, target: float | None = None, metric: str = "loss", found: Sequence[Place] | None = None
) -> Iterator[tuple[Place, Row]]:
    """All runs below a folder, or those `found` there, each read anew only if it is not what it was."""
    found = list(places(root)) if found is None else found
    home = root.resolve()  # a run's key is the same from whichever folder above it is looked at
    keys = {place: str(home / place.home.relative_to(root)) for place in found}
    plain, aimed = _IndexCache(str(home), "null"), _IndexCache(str(home), json.dumps([target, metric]))
    try:
        for place, key in keys.items():
            stamp = place.stamp()
            row = plain.to(place, key, stamp, partial(read, place), Row)
            if target is not None and row.state == "done":
                ask = partial(reached, place, target, metric)
                try:
                    when: dict[str, float] = aimed.to(place, key, stamp, ask, dict)
                    row = replace(row, results={**row.results, **when})
                except (OSError, ValueError) as error:  # of Arrow as well; not kept: tried again next time
                    row = replace(row, error=f"time_to: {' '.join(str(error).split())}")
            yield place, row
    finally:  # whoever reads no further has not waited in vain either
        for answers in (plain, aimed):
            answers.note(gone=set(answers.known) - set(keys.values()))


class _IndexCache:
    """What was found out about each run below a folder, of one kind."""

    def __init__(self, home: str, kind: str) -> None:
        self.kind, self.known = kind, _known(home, kind)
        self.fresh: dict[str, tuple[str, str]] = {}

    def to(
        self, place: Place, key: str, stamp: str | None, ask: Callable[[], T], make: Callable[..., T]
    ) -> T:
        """As it was found before, where nothing has changed since; else it is asked for."""
        known = self.known.get(key)
        if known is not None and known[0] == stamp:
            with suppress(ValueError, TypeError):
                return make(**json.loads(known[1]))
        found = ask()
        lasts = not isinstance(found, Row) or (found.lasts and found.state in _FINAL_STATES)
        if stamp is not None and lasts and stamp == place.stamp():
            self.fresh[key] = stamp, json.dumps(found, default=vars)
        if len(self.fresh) >= _ROWS_PER_WRITE:
            self.note()
        return found

    def note(self, gone: Collection[str] = ()) -> None:
        """Write down what is new, all or nothing; where that cannot be, it is asked for again next time."""
        fresh, self.fresh = self.fresh, {}
        if not fresh and not gone:
            return
        with suppress(OSError, SettingError, sqlite3.Error):
            private_folder(cache_folder("index"))
            with closing(sqlite3.connect(file_of(), timeout=1)) as base, base:
                base.execute(_TABLE)
                base.executemany("DELETE FROM rows WHERE place = ?", [(place,) for place in gone])
                rows = [(place, self.kind, stamp, text) for place, (stamp, text) in fresh.items()]
                base.executemany("INSERT OR REPLACE INTO rows VALUES (?, ?, ?, ?)", rows)


def _known(home: str, asked: str) -> dict[str, tuple[str, str]]:
    """Stamp and row by place, of all below; none where there is no index, or none that can be read."""
    file, below = file_of(), home.rstrip("/") + "/"
    if is_own(file.parent) and file.exists():
        try:
            with closing(sqlite3.connect(file, timeout=1)) as base:
                wanted = "SELECT place, stamp, row FROM rows WHERE asked = ? AND (place = ? OR place BETWEEN ? AND ?)"
                found = base.execute(wanted, (asked, home, below, below + chr(0x10FFFF)))
                return {place: (stamp, row) for place, stamp, row in found}
        except sqlite3.OperationalError:  # locked by somebody else
            return {}
        except sqlite3.DatabaseError:
            with suppress(OSError):
                file.unlink()
    return {}
