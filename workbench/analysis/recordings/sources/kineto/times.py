"""Compute the seconds of each phase of a file's steps."""

from bisect import bisect_left

from workbench.analysis.recordings.recording import LAYER_PREFIX
from workbench.analysis.recordings.sources.kineto.files import Operation, Step, TraceFile
from workbench.analysis.recordings.sources.kineto.spans import Cover

SECONDS_PER_MICROSECOND = 1e-6


class Phases:
    """Split steps of a file into exchange, computing, and the forward pass of each module.

    Exchange is the time in collective operations without other computing. So an all-reduce that overlaps the backward
    pass delays nothing. If there are device kernels, they are the computing, otherwise the operators are.
    """

    def __init__(self, file: TraceFile) -> None:
        events = file.events
        every = [*events.operators, *events.kernels, *events.titles]
        exchange = [each for each in every if each.exchange]
        kernels = [each for each in events.kernels if not each.exchange]
        computing = kernels if events.kernels else _waitless(every)
        self._computing = Cover((each.start, each.end) for each in computing)
        self._either = Cover((each.start, each.end) for each in [*exchange, *computing])
        self._modules = self._alone(events.modules)
        self._begins = [start for start, _, _ in self._modules]

    def of(self, step: Step) -> dict[str, float]:
        """Return seconds by phase."""
        took = {"exchange": self._exchange(step.start, step.end)}
        first, end = bisect_left(self._begins, step.start), bisect_left(self._begins, step.end)
        for _, name, seconds in self._modules[first:end]:
            took[LAYER_PREFIX + name] = took.get(LAYER_PREFIX + name, 0.0) + seconds
        whole = (step.end - step.start) * SECONDS_PER_MICROSECOND
        return took | {"compute": max(whole - sum(took.values()), 0.0)}

    def _exchange(self, start: float, end: float) -> float:
        waited = self._either.within(start, end) - self._computing.within(start, end)
        return max(waited, 0.0) * SECONDS_PER_MICROSECOND

    def _alone(self, modules: list[Operation]) -> list[tuple[float, str, float]]:
        """Return the start, the name and the seconds of each module, without exchange and the modules within it."""
        found: list[tuple[float, str]] = []
        seconds: list[float] = []
        open_: list[tuple[float, int]] = []  # enclosing modules: time of the end, index in `found`
        for each in sorted(modules, key=_order):
            while open_ and open_[-1][0] <= each.start:
                open_.pop()
            whole = (each.end - each.start) * SECONDS_PER_MICROSECOND
            own_seconds = whole - self._exchange(each.start, each.end)
            if open_:
                seconds[open_[-1][1]] -= own_seconds
            open_.append((each.end, len(found)))
            found.append((each.start, each.name.partition(": ")[2]))
            seconds.append(own_seconds)
        return [
            (start, name, max(own_seconds, 0.0))
            for (start, name), own_seconds in zip(found, seconds, strict=True)
        ]


def _order(operation: Operation) -> tuple[float, float]:
    return operation.start, -operation.end


def _waitless(operations: list[Operation]) -> list[Operation]:
    """Return the operators that are not collective operations and do not enclose one in their thread."""
    waiting: set[int] = set()
    open_: list[tuple[Operation, int]] = []
    for place, each in enumerate(ordered := sorted(operations, key=lambda one: (one.thread, *_order(one)))):
        while open_ and (open_[-1][0].thread != each.thread or open_[-1][0].end <= each.start):
            open_.pop()
        open_.append((each, place))
        if each.exchange:
            waiting |= {outer for _, outer in open_}
    return [each for place, each in enumerate(ordered) if place not in waiting]
