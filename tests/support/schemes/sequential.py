"""Strategies for sequential gradient codes."""

from __future__ import annotations

from hypothesis import strategies as st

from tests.support.specs import Case

TOLERANCES = st.sampled_from([0.0, 0.2, 1.0]) | st.floats(0, 4)


@st.composite
def selective(draw: st.DrawFn) -> Case:
    burst, workers = draw(st.integers(1, 3)), draw(st.integers(1, 9))
    window = burst * draw(st.integers(1, 3)) + 1
    stragglers = draw(st.integers(0, workers if workers > 1 else 0))
    args = {"burst": burst, "window": window, "stragglers": stragglers, "tolerance": draw(TOLERANCES)}
    return args, workers


@st.composite
def multiplexed(draw: st.DrawFn) -> Case:
    window, workers = draw(st.integers(2, 5)), draw(st.integers(1, 9))
    burst = draw(st.integers(1, window - 1))
    stragglers = draw(st.integers(0, workers if workers > 1 else 0))
    args = {"burst": burst, "window": window, "stragglers": stragglers, "tolerance": draw(TOLERANCES)}
    return args, workers


CASES = {"SR-SGC": selective(), "M-SGC": multiplexed()}
