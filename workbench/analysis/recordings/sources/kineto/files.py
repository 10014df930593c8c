"""Parse one trace file of PyTorch's profiler into steps, collective operations and computing."""

import gzip
import json
import re
import zlib
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cached_property
from math import inf
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np

from workbench.analysis.recordings.fields import Fields
from workbench.core.base.reading import check_json_size, open_regular, read_bytes, read_gzip
from workbench.core.base.settings import SettingError

ENDING = re.compile(r"(\.trace)?\.json(\.gz)?$")
# tensorboard_trace_handler adds .TIME before this ending
HANDLER_ENDING = re.compile(r"(\.\d+)?\.pt\.trace\.json(\.gz)?$")
HEAD_BYTES = 2**20
MAX_QUOTED = 80  # max characters of a name or value in an error
GZIP = b"\x1f\x8b"
_BEFORE_JSON = b"\xef\xbb\xbf\xff\xfe \t\r\n"  # marks of encodings, and spaces
# a file's last step is unfinished if it has fewer operations than this share of any other step
UNFINISHED_SHARE = 0.5

_HOST_PID = re.compile(r"(?P<host>.+)_\d+")
_RANK = re.compile(r"(?<![a-z])(?<!local_)(?<!local-)(?<!local )rank[-_ =.]?(\d+)", re.IGNORECASE)
_STEP = re.compile(r"ProfilerStep#(\d{1,15})")
_MODULE = re.compile(r"nn\.Module: (.+)")  # in profiles with with_stack=True

_ANNOTATION, _OPERATORS, _KERNEL = "user_annotation", ("cpu_op", "operator"), "kernel"
_BACKEND = r"(?:nccl|gloo|mpi|ucc|xccl|hccl)"
_COLLECTIVE = r"\w*(?:reduce|broadcast|gather|scatter|all_?to_?all|barrier|send|recv|coalesced)"
# names that the profiler gives to operations of torch.distributed and to kernels of the backends, by category
_TITLE = re.compile(rf"{_BACKEND}:{_COLLECTIVE}")
_OPERATION = re.compile(rf"record_param_comms\b|_?c10d(?:_functional(?:_autograd)?)?::|{_TITLE.pattern}")
_DEVICE_KERNEL = re.compile(r"(?:void )?(?:nccl|rccl|msccl)[A-Z]")


class Step(NamedTuple):
    """One profiled step; times in microseconds."""

    number: int
    start: float
    end: float


class Operation(NamedTuple):
    """Operation in one thread or stream; times in microseconds."""

    thread: tuple[str, str]
    start: float
    end: float
    name: str
    exchange: bool


@dataclass(frozen=True)
class TraceFile:
    """Trace file: its steps, and its events by purpose.

    rank: rank in distributed training; None if the file has none. base: microseconds to add to all times. unfinished:
    numbers of the incomplete steps.
    """

    path: Path
    rank: int | None
    host_name: str
    base: float
    steps: list[Step]
    unfinished: list[int]
    events: "Events"

    @classmethod
    def read(cls, path: Path) -> Self:
        """Parse a file. Raise `SettingError` with its name, and with the event if one is wrong."""
        fields = _parsed(path)
        events = Events(path, fields["traceEvents"])
        steps, cut = _whole_steps(path, events)
        return cls(
            path=path,
            rank=_rank(path, fields.get("distributedInfo")),
            host_name=host if isinstance(host := fields.get("host_name"), str) else "",
            base=_finite(fields.get("baseTimeNanoseconds"), 0.0) / 1e3,
            steps=steps,
            unfinished=cut,
            events=events,
        )

    @cached_property
    def label(self) -> str:
        """Name without its endings and its time; for files of the handler the worker's name."""
        return HANDLER_ENDING.sub("", ENDING.sub("", self.path.name) if not self._handled else self.path.name)

    @property
    def _handled(self) -> bool:
        return bool(HANDLER_ENDING.search(self.path.name))

    @property
    def named_rank(self) -> int | None:
        """Number N of "rankN" in the name, or None unless there is exactly one such number."""
        found = set(_RANK.findall(self.label))
        return int(found.pop()) if len(found) == 1 else None

    @property
    def is_host_and_process(self) -> bool:
        """Whether the name has the handler's form, HOST_PID."""
        named = self._handled and self.named_rank is None
        return named and bool(_HOST_PID.fullmatch(self.label))

    @property
    def host(self) -> str:
        """Host, from the file or from its name HOST_PID, or "" if it is unknown."""
        match = _HOST_PID.fullmatch(self.label) if self.is_host_and_process else None
        return self.host_name or (match["host"] if match else "")

    @property
    def window(self) -> tuple[float, float]:
        """Start of the first and the end of the last step."""
        return self.base + self.steps[0].start, self.base + self.steps[-1].end


class Events:
    """Events of a file by purpose. Other events are skipped.

    process: id of the process that ran the steps.
    """

    def __init__(self, path: Path, events: list[Any]) -> None:
        self.path = path
        # number of the step, index of its event, start, end or NaN
        self.steps: list[tuple[int, int, float, float]] = []
        self.operators: list[Operation] = []
        self.kernels: list[Operation] = []
        self.titles: list[Operation] = []
        self.modules: list[Operation] = []
        self.endless: list[float] = []  # starts of operations that have no end
        self.process = ""
        for place, event in enumerate(events):
            if isinstance(event, dict) and isinstance(event.get("name"), str):
                self._add(place, event, event["name"], str(event.get("cat") or "").lower())

    def _add(self, place: int, event: dict[str, Any], name: str, category: str) -> None:
        step = _STEP.fullmatch(name)
        if step and category not in ("gpu_user_annotation", "python_function"):
            if event.get("ph") in ("X", "B"):
                start, end = self._times(place, event)
                self.steps.append((int(step[1]), place, start, end))
                self.process = str(event.get("pid"))
        elif event.get("ph") == "X" and (kind := self._kind(name, category)) is not None:
            start, end = self._times(place, event)
            if not np.isfinite(end):
                self.endless.append(start)
                return
            thread = (str(event.get("pid")), str(event.get("tid")))
            exchange = category == _ANNOTATION
            exchange |= category in _OPERATORS and bool(_OPERATION.match(name))
            exchange |= category == _KERNEL and bool(_DEVICE_KERNEL.match(name))
            kind.append(Operation(thread, start, end, name, exchange))

    def _kind(self, name: str, category: str) -> list[Operation] | None:
        if category in _OPERATORS:
            return self.operators
        if category == _KERNEL:
            return self.kernels
        if category == _ANNOTATION and _TITLE.match(name):
            return self.titles
        return self.modules if category == "python_function" and _MODULE.fullmatch(name) else None

    def _times(self, place: int, event: dict[str, Any]) -> tuple[float, float]:
        """Return start and end. The end is NaN if there is no duration."""
        start = self._number(place, event, "ts")
        if event.get("dur") is None:
            return start, np.nan
        took = self._number(place, event, "dur")
        if took < 0:
            raise self._wrong(place, event, "dur", "is negative")
        return start, start + took

    def _number(self, place: int, event: dict[str, Any], key: str) -> float:
        """Parse a field in microseconds, which the file may have as a number or as text."""
        number = _finite(event.get(key), np.nan)
        if np.isnan(number):
            raise self._wrong(place, event, key, "is not a finite number; give microseconds")
        return number

    def _wrong(self, place: int, event: dict[str, Any], key: str, why: str) -> SettingError:
        name, value = str(event["name"])[:MAX_QUOTED], repr(event.get(key))[:MAX_QUOTED]
        return SettingError(
            f"path = {str(self.path)!r}, traceEvents[{place}] ({name}): {key} = {value}: {why}"
        )

    def counts(self, spans: list[tuple[float, float]]) -> list[int]:
        """Return how many operations begin in each span."""
        kinds = (self.operators, self.kernels, self.titles)
        starts = np.sort([each.start for kind in kinds for each in kind])
        return [int(np.searchsorted(starts, end) - np.searchsorted(starts, start)) for start, end in spans]


def _whole_steps(path: Path, events: Events) -> tuple[list[Step], list[int]]:
    """Return the finished steps, in their order, and the numbers of the others.

    A step is unfinished if it has no end, or if one of its operations has none. The last step of a file is also
    unfinished if it has far fewer operations than any other. Training then ended or was interrupted before the next
    call of `step()`.
    """
    first: dict[int, tuple[int, float, float]] = {}
    for number, place, start, end in events.steps:
        place_before, *times = first.setdefault(number, (place, start, end))
        if times != [start, end] and not (np.isnan(end) and np.isnan(times[1])):
            why = f"ProfilerStep#{number} is there twice, in traceEvents[{place_before}] and traceEvents[{place}]"
            raise SettingError(f"path = {str(path)!r}: {why}; give one file for each rank, of one run")
    steps = sorted(
        (Step(number, *times) for number, (_, *times) in first.items()), key=lambda step: step.start
    )
    whole = [s for s in steps if s.end < np.inf and not any(s.start <= m < s.end for m in events.endless)]
    if len(whole) > 1 and whole[-1] is steps[-1]:
        *others, last = events.counts([(step.start, step.end) for step in whole])
        if last < UNFINISHED_SHARE * min(others):
            whole.pop()
    if not whole:
        why = "has no ProfilerStep; give profile() a schedule, and call prof.step() after each"
        raise SettingError(f"path = {str(path)!r}: {'has no finished ProfilerStep' if steps else why}")
    return whole, [step.number for step in steps if step not in whole]


def _finite(value: Any, otherwise: float) -> float:
    """Return a number, also one written as text, or `otherwise` for anything that is not a finite number."""
    known = isinstance(value, (int, float, str)) and not isinstance(value, bool)
    try:
        number = float(value) if known else np.nan
    except (ValueError, OverflowError):
        return otherwise
    return number if np.isfinite(number) else otherwise


def _rank(path: Path, info: Any) -> int | None:
    """Return distributedInfo.rank, None if there is none."""
    checks, where = Fields(path), "distributedInfo"
    rank = None if info is None else checks.object(info, where).get("rank")
    return None if rank is None else checks.whole(f"{where}.rank", rank)


def has_events(path: Path) -> bool:
    """Return whether a JSON file begins as a trace: with the key of the events, or a list of events with phases."""
    head = head_of(path) if ENDING.search(path.name) else b""
    return b'"traceEvents"' in head or (head.lstrip(_BEFORE_JSON)[:1] == b"[" and b'"ph"' in head)


def is_damaged(path: Path) -> bool:
    """Return whether the beginning of a file cannot be read as JSON: it is empty, cut off, or another file."""
    return head_of(path).lstrip(_BEFORE_JSON)[:1] not in (b"{", b"[")


def head_of(path: Path, size: int = HEAD_BYTES) -> bytes:
    """Return the beginning of a file, unpacked and without zero bytes, so that UTF-16 can be read; b"" if damaged."""
    try:
        with open_regular(path) as file:
            packed = file.read(len(GZIP)) == GZIP
            file.seek(0)
            with gzip.GzipFile(fileobj=file) if packed else nullcontext(file) as unpacked:
                return unpacked.read(size).replace(b"\0", b"")
    except (OSError, EOFError, zlib.error, SettingError):
        return b""


def unpacked(path: Path, most: float = inf) -> bytes:
    """Return the content of a file, unpacked if it is a gzip file. `most`: max bytes of the file."""
    raw = read_bytes(path, most)
    if not raw.startswith(GZIP):
        return raw
    try:
        return read_gzip(path)
    except SettingError:
        raise
    except (OSError, EOFError, ValueError) as error:
        raise SettingError(f"path = {str(path)!r}: its compressed data are damaged ({error})") from None


def _parsed(path: Path) -> dict[str, Any]:
    """Return the object of a JSON file, or one with its list. Kineto writes control characters into names."""
    raw = unpacked(path)
    if not raw.strip():
        raise SettingError(f"path = {str(path)!r}: is empty")
    # wrong encodings occur only in names, so invalid characters are replaced
    text = raw.decode(json.detect_encoding(raw), errors="replace")
    check_json_size(text, path)
    try:
        fields = json.loads(text, strict=False)
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}"
        why = "; ".join([f"{error.msg} at {place}", *_hints(error, text)])
        raise SettingError(f"path = {str(path)!r}: is not JSON: {why}") from None
    except (ValueError, RecursionError) as error:
        raise SettingError(f"path = {str(path)!r}: is not JSON that can be read: {error}") from None
    found = fields if isinstance(fields, dict) else {"traceEvents": fields}
    if not isinstance(found.get("traceEvents"), list):
        raise SettingError(
            f"path = {str(path)!r}: has no list of traceEvents, as PyTorch's profiler writes it"
        )
    return found


def _hints(error: json.JSONDecodeError, text: str) -> Iterator[str]:
    if error.msg.startswith("Invalid \\"):
        yield "a backslash is written twice in JSON, as in C:\\\\data"
    elif error.msg.startswith("Unterminated") or len(text.rstrip()) - error.pos < len("false"):
        yield "the file is cut off at its end"
