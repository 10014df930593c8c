"""Cache of the rows of the table of runs. The cache may be deleted at any time.

It is one SQLite file in the user's cache, with a row for each run that was read. A row is valid as long as the times,
sizes and inodes of its files do not change. Rows that may change for other reasons are not stored: those of active or
damaged runs, and of runs with user-defined classes.
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

from workbench.analysis.tables.rows import Place, Row, has_rounds, places, reached, read
from workbench.core.base.files import cache_folder, is_own, private_folder
from workbench.core.base.settings import SettingError
from workbench.core.base.version import __version__

T = TypeVar("T")
_TABLE = "CREATE TABLE IF NOT EXISTS rows (place TEXT, asked TEXT, stamp TEXT, row TEXT, PRIMARY KEY (place, asked))"
_FINAL_STATES = ("done", "stopped", "failed", "interrupted")
# number of new rows after which they are written, so that an interrupted reader does not lose them
_ROWS_PER_WRITE = 500


def file_of() -> Path:
    """Return the file of the cache. Each version of the package has its own file, because rows may differ."""
    name = hashlib.sha256(f"{__version__} 6".encode()).hexdigest()[:32]
    return cache_folder("index") / f"{name}.sqlite"


def rows(
    root: Path, target: float | None = None, metric: str = "loss", found: Sequence[Place] | None = None
) -> Iterator[tuple[Place, Row]]:
    """Yield all runs below a folder, or those `found` there. A run is read only if it is not in the cache."""
    found = list(places(root)) if found is None else found
    home = root.resolve()  # a run's key does not depend on the folder from which it is found
    keys = {place: str(home / place.home.relative_to(root)) for place in found}
    plain, aimed = _IndexCache(str(home), "null"), _IndexCache(str(home), json.dumps([target, metric]))
    try:
        for place, key in keys.items():
            stamp = place.stamp()
            row = plain.to(place, key, stamp, partial(read, place), Row)
            if target is not None and has_rounds(row.results):
                ask = partial(reached, place, target, metric)
                try:
                    when: dict[str, float] = aimed.to(place, key, stamp, ask, dict)
                    row = replace(row, results={**row.results, **when})
                # includes Arrow's errors; the row is not stored, so it is read again next time
                except (OSError, ValueError) as error:
                    row = replace(row, error=f"time_to: {' '.join(str(error).split())}")
            yield place, row
    finally:  # also if the reader of this generator stops early
        for answers in (plain, aimed):
            answers.note(gone=set(answers.known) - set(keys.values()))


class _IndexCache:
    """Cached results of one kind for each run below a folder."""

    def __init__(self, home: str, kind: str) -> None:
        self.kind, self.known = kind, _known(home, kind)
        self.fresh: dict[str, tuple[str, str]] = {}

    def to(
        self, place: Place, key: str, stamp: str | None, ask: Callable[[], T], make: Callable[..., T]
    ) -> T:
        """Return the cached result if the stamp has not changed, else compute it."""
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
        """Write new results atomically. If that fails, they are computed again next time."""
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
    """Return the cached stamp and row of all runs below a folder, by name; empty without a readable cache."""
    file, below = file_of(), home.rstrip("/") + "/"
    if is_own(file.parent) and file.exists():
        try:
            with closing(sqlite3.connect(file, timeout=1)) as base:
                wanted = "SELECT place, stamp, row FROM rows WHERE asked = ? AND (place = ? OR place BETWEEN ? AND ?)"
                found = base.execute(wanted, (asked, home, below, below + chr(0x10FFFF)))
                return {place: (stamp, row) for place, stamp, row in found}
        except sqlite3.OperationalError:  # locked by another process
            return {}
        except sqlite3.DatabaseError:
            with suppress(OSError):
                file.unlink()
    return {}
