"""Moments at which the phases of a step begin, on the processor's clock and in the stream of a CUDA device."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import pairwise
from time import perf_counter
from typing import Any

MS_PER_SECOND = 1e3


class Marks:
    """Moments at which the phases of one step begin. The last one is the end of the step.

    With a device, an event is recorded in its current stream beside each moment. The stream reaches the event when all
    work before it is done. The time between two events is therefore what the phase takes on the device.

    >>> marks = Marks(moments=(0.0, 1.0, 4.0), phases=("data", "forward", "other"))
    >>> marks.seconds()
    {'data': 1.0, 'forward': 3.0}
    """

    __slots__ = ("events", "moments", "phases")

    def __init__(self, moments: Sequence[float] = (), phases: Sequence[str] = ()) -> None:
        self.moments, self.phases = list(moments), list(phases)
        self.events: list[Any] = []

    def add(self, phase: str, event: Any = None) -> None:
        """Record that a phase begins now. `event`: event recorded in the stream of the device, if there is one."""
        self.moments.append(perf_counter())
        self.phases.append(phase)
        if event is not None:
            self.events.append(event)

    @property
    def on_device(self) -> bool:
        """Whether every moment has an event. Otherwise the clock of the processor is used."""
        return len(self.events) == len(self.moments)

    @property
    def is_reached(self) -> bool:
        """Whether the device has reached the end of the step."""
        if not self.on_device:
            return True
        try:
            return bool(self.events[-1].query())
        except RuntimeError:  # the event belongs to a graph, or the device has failed
            self.events.clear()
            return True

    def seconds(self) -> dict[str, float]:
        """Return the seconds of each phase. Waits until the device has reached the end of the step."""
        found: dict[str, float] = {}
        for phase, took in zip(self.phases, self._spans(), strict=False):
            found[phase] = found.get(phase, 0.0) + took
        return found

    def _spans(self) -> list[float]:
        if self.on_device:
            with suppress(RuntimeError):  # the event is unusable, so the clock of the processor counts
                self.events[-1].synchronize()
                pairs = pairwise(self.events)
                return [max(before.elapsed_time(after), 0.0) / MS_PER_SECOND for before, after in pairs]
        return [after - before for before, after in pairwise(self.moments)]


class Events:
    """Pool of CUDA events, because making an event costs more than recording it.

    `make`: class of the events. `is_ready`: returns whether the program uses the device yet. If an event cannot be
    recorded, no further events are used, and the training continues.
    """

    def __init__(self, make: Any, is_ready: Callable[[], bool]) -> None:
        self._make, self._is_ready = make, is_ready
        self._free: list[Any] = []
        self.are_used = True

    def recorded(self) -> Any:
        """Return an event that is recorded in the current stream now, or None if no device is in use."""
        if not self.are_used or not self._is_ready():
            return None
        event = self._free.pop() if self._free else self._make(enable_timing=True)
        try:
            event.record()
        except RuntimeError:  # for example, because the process now uses another device
            self.are_used = False
            return None
        return event

    def release(self, events: list[Any]) -> None:
        """Take back events whose times have been read."""
        self._free.extend(events)
