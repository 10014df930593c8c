"""Moments at which the phases of a step begin, on the processor's clock and in the stream of a CUDA device."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from time import perf_counter
from typing import Any

MS_PER_SECOND = 1e3


class Marks:
    """Moments at which phases of one step begin; the last one is the end of the step.

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
        """Note that a phase begins now. `event`: recorded in the stream of the device, if there is one."""
        self.moments.append(perf_counter())
        self.phases.append(phase)
        if event is not None:
            self.events.append(event)

    @property
    def on_device(self) -> bool:
        """Whether every moment has an event; otherwise the clock of the processor counts."""
        return len(self.events) == len(self.moments)

    @property
    def is_reached(self) -> bool:
        """Whether the device has reached the end of the step."""
        return not self.on_device or bool(self.events[-1].query())

    def seconds(self) -> dict[str, float]:
        """Return the seconds of each phase. Waits for the device, unless it `is_reached`."""
        found: dict[str, float] = {}
        for phase, took in zip(self.phases, self._spans(), strict=False):
            found[phase] = found.get(phase, 0.0) + took
        return found

    def _spans(self) -> list[float]:
        if not self.on_device:
            return [after - before for before, after in pairwise(self.moments)]
        self.events[-1].synchronize()
        pairs = pairwise(self.events)
        return [max(before.elapsed_time(after), 0.0) / MS_PER_SECOND for before, after in pairs]


class Events:
    """CUDA events that are used again, because making one costs more than recording it."""

    def __init__(self, make: Any) -> None:
        self._make = make
        self._free: list[Any] = []

    def recorded(self) -> Any:
        """Return an event that is recorded in the current stream now."""
        event = self._free.pop() if self._free else self._make(enable_timing=True)
        event.record()
        return event

    def release(self, events: list[Any]) -> None:
        """Take back events whose times have been read."""
        self._free.extend(events)
