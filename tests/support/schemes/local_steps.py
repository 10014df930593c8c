"""Strategies for local SGD, hierarchical SGD and DiLoCo."""

from __future__ import annotations

from hypothesis import strategies as st

from tests.support.specs import Case

STEPS = st.sampled_from([1, 2, 3, 7])


@st.composite
def local_sgd(draw: st.DrawFn) -> Case:
    workers = draw(st.integers(1, 10))
    return {"local_steps": draw(STEPS), "stragglers": draw(st.integers(0, workers - 1))}, workers


@st.composite
def diloco(draw: st.DrawFn) -> Case:
    return {"local_steps": draw(STEPS)}, draw(st.integers(1, 10))


@st.composite
def hierarchies(draw: st.DrawFn) -> Case:
    """Draw up to three levels of groups, each a multiple of the previous one, in period and size."""
    levels, period, size = [], 1, 1
    for _ in range(draw(st.integers(0, 3))):
        period, size = period * draw(st.integers(1, 3)), size * draw(st.integers(1, 3))
        levels.append((period, size))
    groups = draw(st.integers(1, max(1, 12 // size)))
    return {"local_steps": period * draw(st.integers(1, 3)), "levels": tuple(levels)}, size * groups


CASES = {"LocalSGD": local_sgd(), "DiLoCo": diloco(), "H-SGD": hierarchies()}
