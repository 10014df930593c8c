"""Strategies for CEGC."""

from __future__ import annotations

from hypothesis import strategies as st

from tests.support.specs import Case


@st.composite
def cegc(draw: st.DrawFn) -> Case:
    late, reduction = draw(st.integers(0, 4)), draw(st.integers(1, 4))
    load = late + reduction + draw(st.integers(0, 2))
    construction = draw(st.sampled_from(["auto", "polynomial", "gaussian", "stable"]))
    args = {"stragglers": late, "reduction": reduction, "load": load, "construction": construction}
    return args, load + draw(st.integers(0, 4))


CASES = {"CEGC": cegc()}
