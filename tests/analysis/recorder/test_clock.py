"""Moments on the clock of the processor, and on that of a device, which reaches the same call later."""

from __future__ import annotations

from typing import Any

import pytest

from workbench.analysis.recorder.clock import Events, Marks


class Event:
    """Stand-in for a CUDA event, without a device."""

    clock = 0.0
    reached = False

    def __init__(self, enable_timing: bool) -> None:
        assert enable_timing
        self.at = 0.0

    def record(self) -> None:
        self.at = Event.clock

    def query(self) -> bool:
        return Event.reached

    def synchronize(self) -> None:
        Event.reached = True

    def elapsed_time(self, end: Event) -> float:
        return end.at - self.at


def marked(times: list[tuple[str, float]], events: Events) -> Marks:
    marks = Marks()
    for phase, at in times:
        Event.clock = at
        marks.add(phase, events.recorded())
    return marks


def test_marks_with_events_take_the_time_of_the_device() -> None:
    Event.reached = False
    marks = marked(
        [("data", 0.0), ("forward", 5.0), ("backward", 7.0), ("other", 27.0)], Events(Event, lambda: True)
    )
    assert marks.on_device
    assert not marks.is_reached
    assert marks.seconds() == pytest.approx({"data": 0.005, "forward": 0.002, "backward": 0.02})
    assert marks.is_reached


def test_marks_without_an_event_for_each_moment_take_the_clock_of_the_processor() -> None:
    marks = marked([("data", 0.0), ("forward", 5e6)], Events(Event, lambda: True))
    marks.add("other")
    assert not marks.on_device
    assert marks.is_reached
    assert sum(marks.seconds().values()) == pytest.approx(marks.moments[-1] - marks.moments[0])


def test_events_are_used_again() -> None:
    made: list[Any] = []

    def make(enable_timing: bool) -> Event:
        made.append(Event(enable_timing))
        return made[-1]

    events = Events(make, lambda: True)
    for _ in range(5):
        events.release([events.recorded(), events.recorded()])
    assert len(made) == 2


def test_events_begin_when_the_device_is_in_use() -> None:
    ready = False
    events = Events(Event, lambda: ready)
    assert events.recorded() is None
    ready = True
    assert events.recorded() is not None


def test_events_that_fail_leave_the_clock_of_the_processor() -> None:
    class Failing(Event):
        fails = ""

        def record(self) -> None:
            self._fail("record")

        def query(self) -> bool:
            self._fail("query")
            return True

        def elapsed_time(self, end: Event) -> float:
            self._fail("elapsed_time")
            return 1.0

        def _fail(self, what: str) -> None:
            if Failing.fails == what:
                raise RuntimeError(what)

    for what in ("query", "elapsed_time"):
        events, Failing.fails = Events(Failing, lambda: True), what
        marks = marked([("data", 0.0), ("other", 1.0)], events)
        assert marks.is_reached
        assert marks.seconds()["data"] == marks.moments[1] - marks.moments[0]
    events, Failing.fails = Events(Failing, lambda: True), "record"
    assert events.recorded() is None
    Failing.fails = ""
    assert events.recorded() is None
    assert not events.are_used
