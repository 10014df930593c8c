"""Phases of a step: every moment belongs to one phase, for any order of the calls."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.analysis.recorder.steps import FORWARD_EXCHANGE, PHASES
from workbench.analysis.recorder.timeline import Timeline

CALLS = st.lists(
    st.sampled_from(["data", "backward", "interrupted", "exchange", "optimiser", "step"]),
    min_size=1,
    max_size=40,
)


def call(timeline: Timeline, what: str) -> None:
    if what == "data":
        timeline.data_begins()
        timeline.data_ends()
    elif what in ("backward", "interrupted"):
        timeline.backward_begins()
        if what == "backward":
            timeline.gradients_are_done()
        timeline.backward_ends()
    elif what == "exchange":
        timeline.exchange_begins()
        timeline.leave()
    else:
        timeline.optimiser_begins()


@given(CALLS)
def test_timeline_phases_fill_every_step(calls: list[str]) -> None:
    timeline, steps = Timeline(), []
    for what in calls:
        if what == "step":
            steps.append(timeline.step_ends())
        else:
            call(timeline, what)
    steps.append(timeline.step_ends())
    for marks in steps:
        assert set(marks.phases) <= {*PHASES, FORWARD_EXCHANGE}
        assert sum(marks.seconds().values()) == pytest.approx(marks.moments[-1] - marks.moments[0])
    for before, after in pairwise(steps):
        assert before.moments[-1] == after.moments[0]


def test_timeline_counts_what_precedes_a_backward_pass_as_forward() -> None:
    timeline = Timeline()
    for _ in range(2):  # two micro-batches from one batch
        call(timeline, "backward")
    phases = timeline.step_ends().phases
    assert phases == [
        "forward",
        "backward",
        "exchange",
        "forward",
        "backward",
        "exchange",
        "optimiser",
        "other",
    ]


def test_timeline_step_may_end_within_a_backward_pass() -> None:
    timeline = Timeline()
    timeline.backward_begins()
    timeline.optimiser_begins()
    assert timeline.step_ends().phases[-1] == "backward"
    timeline.gradients_are_done()
    timeline.backward_ends()
    assert timeline.step_ends().phases == ["backward", "exchange", "optimiser", "other"]


def test_timeline_ignores_gradients_outside_a_backward_pass() -> None:
    timeline = Timeline()
    timeline.gradients_are_done()
    assert timeline.step_ends().phases == ["other", "other"]


def test_timeline_names_an_exchange_in_the_forward_pass() -> None:
    timeline = Timeline()
    timeline.data_begins()
    timeline.data_ends()
    for _ in range(2):
        timeline.exchange_begins()
        timeline.leave()
        call(timeline, "backward")
    phases = timeline.step_ends().phases
    assert phases[2:6] == ["forward", "exchange: forward", "forward", "backward"]
    assert phases.count("exchange: forward") == 1  # after a backward pass, the optimiser may follow
