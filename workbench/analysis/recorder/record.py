"""Recorder of one rank: collects the seconds of its steps by phase, and writes them while the job runs."""

from __future__ import annotations

import atexit
import os
import socket
import sys
import threading
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

import numpy as np

from workbench.analysis.recorder.callbacks import lightning_callback, transformers_callback
from workbench.analysis.recorder.clock import Events, Marks
from workbench.analysis.recorder.instruments import Instruments
from workbench.analysis.recorder.links import probe
from workbench.analysis.recorder.steps import (
    FORMAT,
    FORWARD_EXCHANGE,
    PHASES,
    ROW,
    SEGMENT_STEPS,
    WORK,
    Place,
    next_attempt,
    write_steps,
)
from workbench.analysis.recorder.timeline import PROBE, Timeline
from workbench.analysis.recorder.work import work_of
from workbench.core.base.files import private_folder
from workbench.core.base.settings import SettingError, check_kind, user_path

WRITE_EVERY_S = 5.0  # s between two writes, unless a file is full earlier
MAX_PROBES = 100  # max number of probes of a link that are kept
MIN_EVERY_S = 0.05  # min time between two writes, s, because more frequent ones would slow the job down
# environment variables of torchrun, Slurm and MPI with the rank
RANK_VARIABLES = ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK")
_UNKNOWN = float("nan")
_open: list[Recorder] = []  # the recorder of this process


class _Step(NamedTuple):
    """Step that has ended, whose times on the device may not be known yet."""

    number: int
    ended: float
    marks: Marks
    processor: float
    work: Mapping[str, float]


class Recorder:
    """Context manager that records the steps of this process into a folder: see `record`."""

    def __init__(self, folder: Path, every: float, work: Callable[[Any], Any] | None) -> None:
        self.folder, self.every = folder, every
        self.steps = 0
        self._work_of = work or work_of
        self._measures_batches = True
        self._manual = False  # whether calls of `step` end the steps, instead of the optimiser
        self._optimiser: Any = None  # id of the optimiser whose step ends a training step
        self._work: dict[str, float] = {}
        self._pending: deque[_Step] = deque()
        self._rows: list[tuple[float, ...]] = []  # steps that are not in a full segment yet
        self._processor = 0.0
        self._events: Events | None = None
        # step and times of a probe, the overlap of the exchange with the backward pass, and its last all-reduce's share
        self._links: deque[tuple[int, float, float, float, float]] = deque(maxlen=MAX_PROBES)
        self.rank, self._segment = 0, 0
        self._attempt: int | None = None  # known when the first segment is written
        self._wake = threading.Event()
        self._closed = False
        self._instruments: Instruments | None = None

    def __enter__(self) -> Self:
        """Begin to record. Raise `SettingError` if this process records already."""
        if _open:
            raise SettingError(
                f"folder = {str(self.folder)!r}: this process records into {_open[0].folder} already"
            )
        private_folder(self.folder)
        if self._closed:  # a second use of this recorder writes another attempt
            Recorder.__init__(self, self.folder, self.every, self._work_of)
        self._events = _events()
        self._timeline = Timeline(self._events.recorded if self._events else lambda: None)
        self._processor = time.process_time()
        try:
            instruments = Instruments(self._timeline, self._batch, self._optimiser_ended)
            instruments.install()
            self._instruments = instruments
        except ImportError:  # without PyTorch, the user's calls mark steps and phases
            self._manual = True
        _open.append(self)
        atexit.register(self.close)
        self._writer = threading.Thread(target=self._write_often, name="recorder", daemon=True)
        self._writer.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Write the remaining steps, and end the recording."""
        if self._closed or self not in _open:
            return
        self._closed = True
        _open.remove(self)
        atexit.unregister(self.close)
        if self._instruments is not None:
            self._instruments.remove()
        self._wake.set()
        self._writer.join()
        self._resolve(wait=True)
        self._write()

    def step(self, **work: float) -> None:
        """End a step. From the first call on, steps end here, and not with the optimiser.

        `work`: samples, tokens and squares (sum of the squared lengths of the sequences) of this step.
        """
        self._manual = True
        self._add_work(work)
        self._end_step()

    def probe_links(self) -> None:
        """Measure the link to the next rank.

        All ranks must call it in the same step, for example in every thousandth step. Its time is not part of the step.
        A step's exchange ends for all ranks at once, so its time does not show which link is slow.
        """
        with self.phase(PROBE):
            before = time.process_time()
            overlap, buckets = self._instruments.exchanges() if self._instruments else (0.0, [])
            last = buckets[-1] / sum(buckets) if buckets else 1.0
            self._links.append((self.steps, *probe(buckets), overlap, last))
            self._processor += time.process_time() - before

    def lightning(self) -> Any:
        """Return a callback for Lightning: ``Trainer(callbacks=[wb.record(FOLDER).lightning()])``."""
        return lightning_callback(self)

    def transformers(self) -> Any:
        """Return a callback for Hugging Face: ``Trainer(callbacks=[wb.record(FOLDER).transformers()])``."""
        return transformers_callback(self)

    def batches(self, data: Iterable[Any]) -> Iterator[Any]:
        """Yield the batches of data that no DataLoader loads, and record the time that they take."""
        source = iter(data)
        while True:
            self._timeline.data_begins()
            try:
                batch = next(source)
            except StopIteration:
                return
            finally:
                self._timeline.data_ends()
            self._batch(batch)
            yield batch

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Record the time of the block as a phase: data, forward, backward, exchange, optimiser or other.

        The block of "probe" is not part of the step. Raises `SettingError` for another name.
        """
        if name not in (known := (*PHASES, PROBE)):
            raise SettingError(f"name = {name!r}: choose one of {', '.join(map(repr, known))}")
        self._timeline.enter(name)
        try:
            yield
        finally:
            self._timeline.leave()

    def measure(self, inputs: Any) -> None:
        """Add the work of a batch to the step.

        From the first call on, batches of DataLoaders are not measured, because they may be loaded in an earlier step.
        """
        if self._measures_batches:
            self._measures_batches, self._work = False, {}
        self._add_work(self._amounts(inputs))

    def _batch(self, batch: Any) -> None:
        if self._measures_batches:
            self._add_work(self._amounts(batch))

    def _amounts(self, batch: Any) -> Mapping[str, float]:
        found = self._work_of(batch)
        return found if isinstance(found, Mapping) else {"tokens": float(found)}

    def _add_work(self, work: Mapping[str, float]) -> None:
        for name, amount in work.items():
            if name not in WORK:
                raise SettingError(f"work: {name!r} is not an amount of work; give {', '.join(WORK)}")
            self._work[name] = self._work.get(name, 0.0) + float(amount)

    def _optimiser_ended(self, optimiser: Any) -> None:
        if self._optimiser is None:
            self._optimiser = id(optimiser)
        if not self._manual and id(optimiser) == self._optimiser:
            self._end_step()

    def _end_step(self) -> None:
        if not self.steps:
            self.rank = rank_of_process()
        processor, before = time.process_time(), self._processor
        self._processor = processor
        marks = self._timeline.step_ends()
        self._pending.append(_Step(self.steps, time.time(), marks, processor - before, self._work))
        self._work = {}
        self.steps += 1
        self._resolve()

    def _resolve(self, wait: bool = False) -> None:
        """Store the rows of steps that the device has finished."""
        while self._pending and (wait or self._pending[0].marks.is_reached):
            self._note(self._pending.popleft())

    def _note(self, step: _Step) -> None:
        seconds, work = step.marks.seconds(), step.work
        phases = [seconds.get(phase, 0.0) for phase in (*PHASES, FORWARD_EXCHANGE)]
        amounts = [work.get(name, _UNKNOWN) for name in WORK]
        self._rows.append((step.number, step.ended, *phases, step.processor, *amounts))
        if self._events is not None:
            self._events.release(step.marks.events[:-1])

    def _write_often(self) -> None:
        while not self._wake.wait(self.every):
            self._write()

    def _write(self) -> None:
        """Write all full segments and the current one. Training continues if this fails."""
        try:
            while len(self._rows) >= SEGMENT_STEPS:
                self._write_segment(self._rows[:SEGMENT_STEPS])
                del self._rows[:SEGMENT_STEPS]  # rows that were appended during the write stay
                self._segment += 1
            if self._rows:
                self._write_segment(self._rows[:])
        except OSError as error:
            why = f"{self.folder}: the recorder cannot write ({error}); training continues"
            warnings.warn(why, stacklevel=2)

    def _write_segment(self, rows: list[tuple[float, ...]]) -> None:
        if self._attempt is None:
            self._attempt = next_attempt(self.folder, self.rank)
        place = Place(self.rank, self._attempt, self._segment)
        write_steps(self.folder, place, np.array(rows, ROW), self._about())

    def _about(self) -> dict[str, Any]:
        cpus = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
        return {
            "format": FORMAT,
            "rank": self.rank,
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "cores": len(cpus) or os.cpu_count(),
            "cpus": cpus,  # those on which this rank may run; ranks of a host may have different ones
            "clock": "device" if self._events is not None and self._events.are_used else "processor",
            "complete": self._closed,
            "probes": [each[:3] for each in self._links],
            "overlap": float(np.median([each[3] for each in self._links] or [0.0])),
            "last": float(np.median([each[4] for each in self._links] or [1.0])),
            "gradient_bytes": self._instruments.gradient_bytes if self._instruments else 0.0,
        }


def record(
    folder: str | Path, *, every: float = WRITE_EVERY_S, work: Callable[[Any], Any] | None = None
) -> Recorder:
    """Record the phases of every training step of this process into a folder, which `wb.diagnose` can read meanwhile.

    Put the training loop of every rank into `with record(...)`. PyTorch's DataLoader, backward passes, collective
    operations and optimisers are recognised. A step ends with the step of the first optimiser. Phases are data,
    forward, backward, exchange (waiting for other ranks and for links), optimiser and other. With a CUDA device, times
    are those of its current stream.

    Parameters
    ----------
    folder
        Folder of the recording, the same for all ranks. A job that starts again writes another attempt into it.
    every
        Seconds between two writes.
    work
        Function of a batch that returns its number of tokens, or a mapping with samples, tokens or squares. By default,
        these amounts are taken from the shapes of the batch.

    Raises
    ------
    SettingError
        The folder cannot be used, `every` is too small, or (at the beginning of `with`) this process records already.

    Examples
    --------
    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> with record(folder) as recorder:
    ...     for batch in recorder.batches([1, 2, 3]):
    ...         recorder.step(samples=1)
    >>> recorder.steps
    3
    """
    check_kind("every", every, float)
    if every < MIN_EVERY_S:
        raise SettingError(f"every = {every}: take {MIN_EVERY_S} s or more")
    return Recorder(user_path(folder, "folder"), every, work)


def rank_of_process() -> int:
    """Return the rank of this process: that of torch.distributed, else of its launcher, else 0."""
    distributed = getattr(sys.modules.get("torch"), "distributed", None)
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return int(distributed.get_rank())
    found = (os.environ.get(name, "") for name in RANK_VARIABLES)
    return next((int(text) for text in found if text.isdecimal()), 0)


def _events() -> Events | None:
    """Return events of the CUDA device, None if there is none."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_available():
        return None
    return Events(torch.cuda.Event, torch.cuda.is_initialized)
