"""IS-GC: the largest independent sets against all sets, unbiased weights, and refusals."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import workbench as wb
from tests.support.approximate_runs import N, experiment, simulated
from workbench.core.schemes.is_gc import largest_apart


def far(chosen: tuple[int, ...], apart: int, around: int) -> bool:
    return all(apart <= (b - a) % around <= around - apart for a, b in combinations(chosen, 2))


@given(st.data())
def test_largest_apart_is_maximal(data: st.DataObject) -> None:
    around = data.draw(st.integers(1, 14))
    apart = data.draw(st.integers(1, around))
    places = sorted(data.draw(st.sets(st.integers(0, around - 1), min_size=1)))
    first = data.draw(st.integers(0, len(places) - 1))
    found = [places[i] for i in largest_apart(places, apart, around, first)]
    assert far(tuple(found), apart, around)
    assert found == sorted(set(found))
    sizes = [
        k for k in range(1, len(places) + 1) if any(far(c, apart, around) for c in combinations(places, k))
    ]
    assert len(found) == max(sizes)


@pytest.mark.parametrize(("workers", "apart", "waits"), [(7, 2, 4), (8, 3, 3), (9, 3, 6), (6, 4, 2)])
def test_is_gc_weights_are_one_on_average(workers: int, apart: int, waits: int) -> None:
    """Over all sets of w answers and all answers to start from, exactly."""
    window = (np.arange(workers)[:, None] + np.arange(apart)) % workers
    mean, from_first = np.zeros(workers), np.zeros(workers)
    for answered in combinations(range(workers), waits):
        for first in range(waits):
            chosen = [answered[i] for i in largest_apart(answered, apart, workers, first)]
            weights = np.bincount(window[chosen].ravel(), minlength=workers) * workers / (apart * len(chosen))
            assert weights.max() == weights[weights > 0].min()  # nothing is counted twice
            mean += weights / waits
            from_first += weights * (first == 0)
    sets = len(list(combinations(range(workers), waits)))
    np.testing.assert_allclose(mean / sets, 1.0, atol=1e-12)
    if (workers, apart) == (7, 2):
        assert np.ptp(from_first / sets) > 1e-3  # as the authors' program has it, which favours some parts


@pytest.mark.parametrize("placement", ["cyclic", "fractional"])
def test_is_gc_run_is_unbiased_and_reports_its_error(placement: str) -> None:
    args = {"replication": 2, "wait_for": 3, "placement": placement}
    e = experiment("IS-GC", 2000, delays={"kind": "exponential", "mean": 1.0}, **args)
    line, commits = simulated(e)
    weights = np.array([np.ones(N) if w is None else w for w in commits.weights])
    spread = weights.std(axis=0) / 2000**0.5
    assert (np.abs(weights.mean(axis=0) - 1) < 4.5 * spread).all()
    assert set(np.array(line.residuals).round(9)) == {round(N * (N / covered - 1), 9) for covered in (4, 6)}
    assert wb.forecast(e).mean == pytest.approx(line.times[-1] / 2000)


def test_is_gc_refuses_wrong_parameters() -> None:
    with pytest.raises(
        wb.SettingError, match=r"scheme_args.replication = 3: .*take 1, 2, 4, 8; or placement"
    ):
        wb.Experiment(scheme="IS-GC", scheme_args={"replication": 3, "placement": "fractional"}, workers=8)
    with pytest.raises(wb.SettingError, match=r"scheme_args.wait_for = 9: .*the nearest is 8"):
        wb.Experiment(scheme="IS-GC", scheme_args={"wait_for": 9}, workers=8)
