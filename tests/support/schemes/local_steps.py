"""Strategies for local SGD and DiLoCo."""

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


CASES = {"LocalSGD": local_sgd(), "DiLoCo": diloco()}
