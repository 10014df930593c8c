"""Files that ranks write into the run folder during a run, so that other processes can follow and resume it.

Rank 0 writes one row of values per round (see LIVE_COLUMNS), and the model after each round. It writes a checkpoint
every few seconds, and the reason for the end of the run last. `layout` has the names of the files.
"""

import os
import shutil
import time
from array import array
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from workbench.core.base.arrays import to_bytes
from workbench.core.base.errors import RunError
from workbench.core.base.files import SUMS, check_sums, read_sums, write_file, write_json
from workbench.core.base.grouping import grouped
from workbench.core.base.locks import Lock
from workbench.core.base.reading import check_size, open_regular
from workbench.core.base.settings import SettingError
from workbench.core.base.text import read_json
from workbench.core.base.types import Array
from workbench.core.contract.optimisers import State
from workbench.core.contract.protocol import NO_RANK
from workbench.core.engine.timeline import EVENT_COLUMNS, Event
from workbench.core.trace.checkpoint import read_arrays, sum_of
from workbench.core.trace.layout import (
    ARRIVALS,
    CHANGES,
    CHECKPOINT,
    ENDED,
    GRADIENTS,
    LEDGERS,
    MODELS,
    RANKS_LOCK,
    ROWS,
    RUN,
    SEGMENTS,
    STOP,
    STREAM,
    ledgers_path,
)

LIVE_COLUMNS = ("round", "time", "messages", "bytes", "stale", "rejected", "dead", "residual")
MAX_CHECKPOINT_SHARE = 0.05  # max share of the time in which checkpoints are written
SCHEME_CHANGED = "turned"  # reason for the end of a segment after which the run continues with another scheme
WATCH_INTERVAL_S = 0.1  # s between checks whether the run is followed
EVENTS_PER_BATCH = 20_000  # max number of events that are passed on at a time
EVENT_KINDS = ("compute", "send", "drop", "decode", "commit", "dead", "fault")
MAX_WRITE_DELAY_S = 0.02  # max time from the end of a round until it is written, s
LONG_MODEL_BYTES = 2**14  # models and gradients of more bytes are written one by one


class RunRecorder:
    """Files of one run, which are appended to round by round."""

    def __init__(
        self,
        folder: Path,
        first: int,
        every: float,
        gradients: bool = False,
        offset: float = 0.0,
        begun: Mapping[str, str] | None = None,
    ) -> None:
        self.folder, self.first, self.every, self.offset = folder, first, every, offset
        self.begun = begun or {}  # fields that describe the start of the run
        names = (ROWS, MODELS, GRADIENTS) if gradients else (ROWS, MODELS)
        self.files = {name: (folder / name).open("ab", buffering=0) for name in names}
        self.lock = Lock(folder / RANKS_LOCK)
        self.lock.take()  # the lock is held until the run ends, even without its client
        self.waiting: dict[str, list[bytes]] = {name: [] for name in self.files}
        self.arrivals: ArrivalLog | None = None  # log of this rank
        self.answers: list[tuple[int, int, int]] = []  # answers to be written into the log
        self.saved = self.written = time.monotonic()
        self.took = 0.0  # seconds that the newest checkpoint took
        self.round = first  # number of finished rounds
        self.steps: NDArray[np.int64] | None = None  # steps of each worker in these rounds, see `Node.step`

    def add(self, row: dict[str, float], model: Array, gradient: Array | None, state: State) -> None:
        """Add a finished round. Raise `RunError` if it cannot be written."""
        self._append(MODELS, model)
        if GRADIENTS in self.files and gradient is not None:
            self._append(GRADIENTS, gradient)
        if model.nbytes > LONG_MODEL_BYTES:
            self._drain(MODELS, GRADIENTS)
        values = [row[name] + self.offset * (name == "time") for name in LIVE_COLUMNS]
        self.waiting[ROWS].append(array("d", values).tobytes())
        self.round = int(row["round"]) + 1
        now = time.monotonic()
        self.keep_up(now)
        if now - self.saved > max(self.every, self.took / MAX_CHECKPOINT_SHARE):
            self.save(model, state)
            self.took = time.monotonic() - now

    def _append(self, name: str, numbers: Array) -> None:
        self.waiting[name].append(np.ascontiguousarray(numbers, dtype=np.float64).tobytes())

    def keep_up(self, now: float) -> None:
        """Write rounds that have waited long enough."""
        if now - self.written > MAX_WRITE_DELAY_S:
            self.flush()

    def flush(self) -> None:
        """Write all finished rounds. Raise `RunError` if that fails."""
        # before the rows, so that readers of a row find its arrivals
        if self.arrivals is not None and self.answers:
            self.arrivals(self.answers)
            self.answers.clear()
        self._drain(MODELS, GRADIENTS, ROWS)  # rows are written last, so that readers of a row find its model
        self.written = time.monotonic()

    def _drain(self, *names: str) -> None:
        try:
            for name in filter(self.waiting.get, names):
                rest = b"".join(self.waiting[name])
                while rest:
                    rest = rest[self.files[name].write(rest) :]
                    self.waiting[name] = [rest] if rest else []  # written again after a full disk
        except OSError as error:
            with _writing(self.folder):
                raise error

    def save(self, model: Array, state: State) -> None:
        """Write all rounds and sync them to disk, then a checkpoint. Raise `RunError` if that fails."""
        self.flush()
        with _writing(self.folder):
            for file in self.files.values():  # synced, because the checkpoint refers to their content
                os.fsync(file.fileno())
            self.checkpoint(model, state)

    def checkpoint(self, model: Array, state: State) -> None:
        """Replace the checkpoint atomically."""
        write_file(self.folder / CHECKPOINT, self.packed(model, state))
        self.saved = time.monotonic()

    def packed(self, model: Array, state: State) -> bytes:
        """Return the content of a checkpoint."""
        states = {f"state_{name}": value for name, value in state.items()}
        begun = {f"begun_{name}": np.array(text) for name, text in self.begun.items()}
        held = {"model": np.asarray(model), "round": np.array(self.round), **states, **begun}
        if self.steps is not None and len(self.steps):
            held["steps"] = self.steps
        return to_bytes({"sum": sum_of(held), **held})  # a damaged archive may end after the hash

    def stop_wanted(self) -> bool:
        """Return whether the end of the run was requested."""
        return (self.folder / STOP).exists()

    def end(self, fields: dict[str, Any], ledgers: Iterable[bytes]) -> None:
        """Write the ranks' ledgers, then how the run ended. Raise `RunError` if that fails."""
        try:
            with _writing(self.folder):
                self.flush()
                for file in self.files.values():
                    os.fsync(file.fileno())
                    file.close()
                self.lock.release()
                write_end(self.folder, fields, ledgers)
        finally:
            self.lock.release()


def write_end(folder: Path, fields: dict[str, Any], ledgers: Iterable[bytes]) -> None:
    """Write the ranks' ledgers, then how the run ended."""
    packed = {f"book{i}": np.frombuffer(ledger, dtype=np.uint8) for i, ledger in enumerate(ledgers)}
    write_file(folder / LEDGERS, to_bytes(packed))
    write_json(folder / ENDED, fields)


def write_unstarted(
    folder: Path, emulate: str, first: int, committers: Iterable[int], ledgers: Iterable[bytes]
) -> None:
    """Write the end of a run that was stopped before any rank had received it.

    `first`: first round of this segment of the run.
    """
    fields: dict[str, Any] = {"state": "stopped", "error": None, "emulate": emulate, "first": first}
    fields |= {"rounds": first, "clean": True, "zero": None, "setup": 0.0, "dead": {}}
    write_end(folder, {**fields, "committers": list(committers)}, ledgers)


LARGE_FILES = (MODELS, GRADIENTS)  # files that may be larger than memory
_SAVED = (ROWS, MODELS, GRADIENTS, CHANGES, SEGMENTS, LEDGERS, ENDED)


def kept(folder: Path) -> list[str]:
    """Return the names of the files that remain after a run has ended."""
    there = [name for name in _SAVED if (folder / name).is_file()]
    return there + sorted(f"{ARRIVALS}/{path.name}" for path in (folder / ARRIVALS).glob("*.i64"))


def check_kept(folder: Path, rounds: int, floats: int) -> None:
    """Raise `SettingError` if a file differs from its hash, or is longer than `rounds` rounds.

    A run that has ended must have hashes, unless its version wrote none. `reopen` removes the hashes before a run is
    resumed, so existing hashes cover all files.
    """
    for name, width in _widths(floats):
        size = (folder / name).stat().st_size if (folder / name).is_file() else 0
        if size > 8 * width * rounds:
            why = f"{name} is longer than {rounds} rounds; run it again"
            raise SettingError(f"folder = {str(folder)!r}: {why}")
    listed = [name for name in read_sums(folder) or () if name in _SAVED or name.startswith(f"{ARRIVALS}/")]
    if listed or ((folder / RUN).is_file() and (folder / ENDED).exists()):
        for name in dict.fromkeys([*listed, *kept(folder)]):
            check_sums(folder, [name], whole=name not in LARGE_FILES)


def reopen(folder: Path, rounds: int, floats: int) -> None:
    """Remove run.json and the hashes from the folder of a resumed run, because they describe its old end.

    Raises `SettingError`, and changes nothing, if files lack rounds (`check_long_enough`).
    """
    check_long_enough(folder, rounds, floats)
    for name in (RUN, SUMS):  # in this order: a folder without hashes would count as one of an older version
        (folder / name).unlink(missing_ok=True)


def check_rounds(folder: Path, floats: int | None = None) -> None:
    """Raise `SettingError` if rows, or models of `floats` numbers, of finished rounds are missing."""
    if not (folder / ENDED).is_file():
        return
    done, numbers = read_json(folder / ENDED).get("rounds"), read_rows(folder)[:, LIVE_COLUMNS.index("round")]
    if not isinstance(done, int):
        return
    wrong = np.flatnonzero(numbers[:done] != np.arange(min(done, len(numbers))))
    there = int(wrong[0]) if len(wrong) else len(numbers)
    there = there if floats is None else min(there, models_kept(folder, floats))
    if there < done:
        found = f"{there} of the {done} rounds that were done are there"
        why = f"as {ROWS} or {MODELS} was cut or replaced while the run went on; run it again"
        raise SettingError(f"folder = {str(folder)!r}: {found}, {why}")


def read_changes(folder: Path) -> list[dict[str, Any]]:
    """Return the changes of scheme so far, each with a state ("memory"); the last also with measured times."""
    path = folder / CHANGES
    return list(read_json(path, "changes")["changes"]) if path.is_file() else []


def note_change(folder: Path, rounds: int) -> list[dict[str, Any]]:
    """Record the change with which a segment ended, if any. Return the changes of the first `rounds` rounds."""
    ended = read_json(folder / ENDED) if (folder / ENDED).is_file() else {}
    known = read_changes(folder)
    if ended.get("state") == SCHEME_CHANGED:
        place = {name: ended[name] for name in ("memory", "first", "zero", "offset")}
        known = [change | {"memory": change["memory"] | {"rows": []}} for change in known]
        known.append({**ended["change"], "books": _set_aside(folder).name, **place})
    kept = [change for change in known if change["round"] <= rounds]
    if kept or known:
        write_json(folder / CHANGES, {"changes": kept})
    return kept


@dataclass(frozen=True)
class Stretch:
    """Earlier segment of a run: rounds `first` up to `end`. `zero`: clock reading at its start, s."""

    first: int
    end: int
    zero: float
    ledgers: str


def read_stretches(folder: Path) -> list[Stretch]:
    """Return the segments before the last one, which ended with a change of scheme or were resumed."""
    path = folder / SEGMENTS
    resumed = read_json(path, "stretches")["stretches"] if path.is_file() else []
    turned = [{**change, "end": change["round"]} for change in read_changes(folder)]
    each = ((s["first"], s["end"], (s["zero"] or 0.0) - s["offset"], s["books"]) for s in (*turned, *resumed))
    return sorted((Stretch(*values) for values in each), key=lambda stretch: stretch.first)


def _note_stretch(folder: Path, rounds: int) -> None:
    """Record a segment that ended without a change of scheme, limited to the first `rounds` rounds."""
    ended = read_json(folder / ENDED) if (folder / ENDED).is_file() else {}
    path = folder / SEGMENTS
    known = list(read_json(path, "stretches")["stretches"]) if path.is_file() else []
    if "first" in ended and ended.get("state") != SCHEME_CHANGED and ledgers_path(folder).is_file():
        place = {"first": ended["first"], "zero": ended["zero"], "offset": ended.get("offset", 0.0)}
        known.append({**place, "end": rounds, "books": _set_aside(folder).name})
    kept = [{**each, "end": min(each["end"], rounds)} for each in known if each["first"] < rounds]
    if kept or path.is_file():
        write_json(path, {"stretches": kept})


class ArrivalLog:
    """Log of the answers that one rank's program took, in order: enough to replay the run (see `replay_arrivals`).

    `folder`: the run folder, or None on a host without it. Without a folder, answers are in `kept` until the rank sends
    its ledgers.
    """

    def __init__(self, folder: Path | None, rank: int) -> None:
        self.folder, self.kept = folder, bytearray()
        if folder is not None:
            (folder / ARRIVALS).mkdir(exist_ok=True)
            self.file = (folder / ARRIVALS / f"{rank}.i64").open("ab", buffering=0)

    def __call__(self, answers: list[tuple[int, int, int]]) -> None:
        """Append answers. Raise `RunError` if that fails."""
        self.add(np.array(answers, dtype=np.int64).tobytes())

    def add(self, packed: bytes) -> None:
        """Append answers as bytes, in the format of `kept`."""
        if self.folder is None:
            self.kept += packed
            return
        with _writing(self.folder):
            rest = memoryview(packed)
            while rest:  # on a nearly full disk, a write may be incomplete
                rest = rest[self.file.write(rest) :]


class LiveEventWriter:
    """Writer of one rank's events during the run. It writes only while the folder STREAM exists, which a reader makes.

    `events`: the rank's own list, which grows. Events that cannot be written are dropped, because the run does not need
    them.
    """

    def __init__(self, folder: Path, rank: int, events: list[Event]) -> None:
        self.path, self.events = folder / STREAM / f"{rank}.f64", events
        self.sent, self.due, self.off = 0, 0.0, False
        self.deaths: list[Event] = []  # deaths that this rank has been notified of

    def keep_up(self, now: float, zero: float | None) -> None:
        """Append new events, a few times per second. `zero`: time of the start of the run, on this rank's clock."""
        if now < self.due or zero is None or self.off:
            return
        self.due = now + WATCH_INTERVAL_S
        own = self.events[self.sent : self.sent + EVENTS_PER_BATCH]
        new = [*self.deaths, *own]
        if not new or not self.path.parent.is_dir():
            return
        table = np.array([[*row[:2], EVENT_KINDS.index(row[2]), *row[3:]] for row in new], dtype=np.float64)
        table[:, 3:6] -= zero
        try:
            with self.path.open("ab", buffering=0) as file:
                self.off = file.write(table.tobytes()) != table.nbytes
        except OSError:
            self.off = True
        self.sent += len(own)
        self.deaths = []


class LiveEventReader:
    """Reader of the live events of ranks. A call returns the new events, as columns."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / STREAM
        self.read: dict[str, int] = {}  # number of rows that were read, by file
        with suppress(OSError):  # a read-only folder has events only if another reader has requested them
            self.folder.mkdir(exist_ok=True)

    def __call__(self) -> dict[str, NDArray[Any]]:
        """Return the columns of the events that came since the last call."""
        width, tables = len(EVENT_COLUMNS), []
        for path in sorted(self.folder.glob("*.f64")):
            with suppress(OSError):
                tables.append(_read(path, width, self.read.get(path.name, 0), EVENTS_PER_BATCH))
                self.read[path.name] = self.read.get(path.name, 0) + len(tables[-1])
        table = np.concatenate(tables) if tables else np.zeros((0, width))
        columns: dict[str, NDArray[Any]] = dict(zip(EVENT_COLUMNS, table.T, strict=True))
        return {**columns, "kind": np.array(EVENT_KINDS)[columns["kind"].astype(int)]}


def unwatched(folder: Path) -> None:
    """Remove the live events of a run that has ended."""
    shutil.rmtree(folder / STREAM, ignore_errors=True)


def read_arrivals(folder: Path, rank: int) -> dict[int, list[tuple[int, int]]]:
    """Return (rank, number) of the answers by round, in order."""
    arrivals = arrivals_of(folder, rank)
    return grouped((round, (src, number)) for round, src, number in arrivals if src != NO_RANK)


def arrivals_of(folder: Path, rank: int) -> list[tuple[int, int, int]]:
    """Return round, rank and number of all answers in order.

    Deadlines of plans that mix models have the rank `NO_RANK`.
    """
    return [(int(a), int(b), int(c)) for a, b, c in _arrivals(folder / ARRIVALS / f"{rank}.i64")]


def _arrivals(path: Path) -> NDArray[np.int64]:
    """Return whole rows (round, rank, number)."""
    rows = _numbers(path, np.int64) if path.is_file() else np.zeros(0, dtype=np.int64)
    return rows[: len(rows) // 3 * 3].reshape(-1, 3)


@contextmanager
def _writing(folder: Path) -> Iterator[None]:
    """Convert errors such as a full disk to one sentence."""
    try:
        yield
    except OSError as error:
        raise RunError(
            f"folder = {str(folder)!r}: cannot be written ({error.strerror}); free some space or choose another folder,"
            " then resume from the last checkpoint, which is intact"
        ) from None


def check_long_enough(folder: Path, rounds: int, floats: int) -> None:
    """Raise `SettingError` if a file lacks some of the first `rounds` rounds."""
    for name, width in _widths(floats):
        kept = (folder / name).stat().st_size // (8 * width) if (folder / name).is_file() else 0
        if kept < rounds and (name != GRADIENTS or (folder / name).is_file()):
            why = f"{name} has {kept} rounds, and the checkpoint was written after {rounds}; run it again"
            raise SettingError(f"folder = {str(folder)!r}: {why}")


def _widths(floats: int) -> tuple[tuple[str, int], ...]:
    return (ROWS, len(LIVE_COLUMNS)), (MODELS, floats), (GRADIENTS, floats)


def rewind(folder: Path, rounds: int, floats: int) -> float:
    """Cut the files back to `rounds` rounds, and remove the record of the old end. Return these rounds' duration, s.

    Raises `SettingError`, and changes nothing, if files have fewer rounds.
    """
    check_long_enough(folder, rounds, floats)
    for name, width in _widths(floats):
        if (folder / name).is_file():
            os.truncate(folder / name, 8 * width * rounds)
    for path in (folder / ARRIVALS).glob("*.i64"):
        rows = _arrivals(path)
        write_file(path, rows[rows[:, 0] < rounds].tobytes())  # later rounds will be written again
    _note_stretch(folder, rounds)
    if ledgers_path(folder).is_file():
        ledgers_path(folder).rename(_set_aside(folder))
    for path in [folder / ENDED, folder / STOP, *folder.glob(".*.tmp")]:
        path.unlink(missing_ok=True)
    unwatched(folder)  # times of live events refer to the start of the previous segment
    return float(read_rows(folder)[-1, LIVE_COLUMNS.index("time")]) if rounds else 0.0


def _set_aside(folder: Path) -> Path:
    """Return the path of a segment's ledgers after the run has continued."""
    return folder / f"ledgers-{len(list(folder.glob('ledgers-*.npz')))}.npz"


def read_rows(folder: Path, first: int = 0) -> Array:
    """Return the complete rows of live.f64, without the first `first` of them, shape (rows, columns)."""
    return _read(folder / ROWS, len(LIVE_COLUMNS), first)


def read_next(folder: Path, first: int) -> Array:
    """Return the new rows of a run in progress, or no rows if a round is missing among them (see `check_rounds`)."""
    rows = read_rows(folder, first)
    return rows if np.array_equal(rows[:, 0], np.arange(first, first + len(rows))) else rows[:0]


def read_models(folder: Path, floats: int, first: int = 0, count: int | None = None) -> Array:
    """Return the models after each round, without the first `first`, at most `count`, shape (models, p)."""
    return _read(folder / MODELS, floats, first, count)


def models_kept(folder: Path, floats: int) -> int:
    """Return the number of models. Rows may arrive from another machine before their models."""
    path = folder / MODELS
    return path.stat().st_size // (8 * floats) if path.is_file() else 0


def read_gradients(folder: Path, floats: int) -> Array:
    """Return committed gradients, shape (rounds, p), of a run that kept them."""
    return _read(folder / GRADIENTS, floats, 0)


def _read(path: Path, width: int, first: int, count: int | None = None) -> Array:
    if not path.is_file():
        return np.zeros((0, width))
    whole = path.stat().st_size // (8 * width) - first
    rows = max(0, whole if count is None else min(whole, count))
    found = _numbers(path, np.float64, rows * width, 8 * width * first)  # fewer, if the file is being cut
    return found[: len(found) // width * width].reshape(-1, width)


def _numbers(path: Path, kind: type, count: int = -1, offset: int = 0) -> NDArray[Any]:
    """Read `count` values of a file, from byte `offset` on."""
    with open_regular(path) as file:
        left = os.fstat(file.fileno()).st_size - offset
        check_size(path, left if count < 0 else min(left, np.dtype(kind).itemsize * count))
        return np.fromfile(file, kind, count, offset=offset)


def read_ledgers(folder: Path, name: str = "") -> list[bytes]:
    """Return the ranks' ledgers; `name`: file of an earlier segment."""
    return [x.tobytes() for x in read_arrays(folder / name if name else ledgers_path(folder)).values()]
