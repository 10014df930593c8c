"""Strategies for asynchronous SGD."""

from __future__ import annotations

from hypothesis import strategies as st

from tests.support.specs import Case

DAMPING = st.sampled_from([0.0, 0.5, 1.0])


@st.composite
def asgd(draw: st.DrawFn) -> Case:
    return {"damping": draw(DAMPING)}, draw(st.integers(1, 12))


@st.composite
def fedbuff(draw: st.DrawFn) -> Case:
    return {"damping": draw(DAMPING), "buffer": draw(st.integers(1, 15))}, draw(st.integers(1, 12))


CASES = {"ASGD": asgd(), "FedBuff": fedbuff()}
