"""Moments on the processor's clock, and on that of a device, which reaches them later."""

from __future__ import annotations

from typing import Any

import pytest

from workbench.analysis.recorder.clock import Events, Marks


class Event:
    """What a CUDA event promises; there is no device here."""

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
    marks = marked([("data", 0.0), ("forward", 5.0), ("backward", 7.0), ("other", 27.0)], Events(Event))
    assert marks.on_device
    assert not marks.is_reached
    assert marks.seconds() == pytest.approx({"data": 0.005, "forward": 0.002, "backward": 0.02})
    assert marks.is_reached


def test_marks_without_an_event_for_each_moment_take_the_clock_of_the_processor() -> None:
    marks = marked([("data", 0.0), ("forward", 5e6)], Events(Event))
    marks.add("other")
    assert not marks.on_device
    assert marks.is_reached
    assert sum(marks.seconds().values()) == pytest.approx(marks.moments[-1] - marks.moments[0])


def test_events_are_used_again() -> None:
    made: list[Any] = []

    def make(enable_timing: bool) -> Event:
        made.append(Event(enable_timing))
        return made[-1]

    events = Events(make)
    for _ in range(5):
        events.release([events.recorded(), events.recorded()])
    assert len(made) == 2
