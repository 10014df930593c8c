"""Parts of a round: none is negative, and their sum is the round time."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.plans import advise, measured
from workbench.analysis.planning.breakdown import monotone_parts
from workbench.analysis.planning.linkfit import Work
from workbench.analysis.planning.measurements import Fitted

FACTORS = ["stragglers", "latency", "transfers"]


@given(st.lists(st.floats(0.0, 1e6), min_size=8, max_size=8))
def test_parts_are_not_negative_and_sum_to_the_round(times: list[float]) -> None:
    """Draw any time for each subset of the causes, even a shorter one with stragglers than without."""

    def seconds(on: frozenset[str]) -> float:
        return times[sum(2**k for k, name in enumerate(FACTORS) if name in on)]

    parts = monotone_parts("computing", FACTORS, seconds)
    assert list(parts) == ["computing", *FACTORS]
    assert all(part >= 0 for part in parts.values())
    assert sum(parts.values()) == pytest.approx(times[-1], rel=1e-9, abs=1e-6)


def test_parts_count_a_fixed_cost_once() -> None:
    """With a start-up cost of 200 samples and a load of 40, computing takes the time of 240 samples."""
    steady = measured(6, "steady", 0.0, None)
    fitted: Fitted = steady.fitted
    whole = fitted.work.seconds(40, 50)
    costly = fitted.replace(work=Work(fixed=5 * whole, per_sample=whole / 40))
    profile = steady.replace(fitted=costly)
    for choice in advise(profile, schemes=["UMW", "SGD", "GC"]).schemes:
        assert all(part >= 0 for part in choice.parts.values())
        assert sum(choice.parts.values()) == pytest.approx(choice.per_round)
        assert choice.parts["computing"] == pytest.approx(choice.per_round, rel=0.1)
