"""Paper 3: the selection bound against the rule itself, times against Monte Carlo, loads, published totals."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.monte_carlo import agrees
from workbench.core.theory import (
    cada_selected,
    cada_time,
    communication_ratio,
    dadam_time,
    exponential_order_mean,
    gcada_communication,
    gcada_computation,
    gcada_time,
    grouped_order_mean,
    max_of_minima_mean,
)


def selections(models: list[float], smoothness: float, c: float, max_age: int) -> list[int]:
    """Return the iterations in which rule (7) and the age limit of algorithm 1 select a worker.

    The first iteration is included, since each worker has the first model.
    """
    chosen, last = [0], 0
    for k in range(1, len(models)):
        recent = sum((models[k + 1 - d] - models[k - d]) ** 2 for d in range(1, max_age + 1) if k - d >= 0)
        if smoothness**2 * (models[k] - models[last]) ** 2 > c * recent or k - last >= max_age:
            chosen.append(k)
            last = k
    return chosen


@given(
    steps=st.lists(st.integers(-1000, 1000), min_size=30, max_size=60),
    smoothness=st.floats(0, 3),
    c=st.floats(0.1, 5),
    max_age=st.integers(1, 8),
)
def test_cada_selected_is_the_maximal_frequency(
    steps: list[int], smoothness: float, c: float, max_age: int
) -> None:
    """For any models, two selections are at least as far apart as the bound assumes."""
    models = np.cumsum([0, *steps]).astype(float).tolist()
    # just above c, since rounding decides at equality
    chosen = selections(models, smoothness, c * (1 + 1e-9), max_age)
    least = 1 / cada_selected([smoothness], c, max_age)
    assert all(gap >= least - 1e-9 for gap in np.diff(chosen))


def test_cada_selected_exceeds_the_published_bound() -> None:
    """Equations (12) and (15) as printed, compared with the rule on a straight path of 200 iterations."""
    straight = [float(k) for k in range(201)]
    smooth = [0.01, 0.01, 0.01]  # selected only at the maximum age, in every 10th iteration
    average = sum(len(selections(straight, L, 2.0, 10)) - 1 for L in smooth) / 200
    assert average == pytest.approx(0.3)
    assert cada_selected(smooth, 2.0, 10) == pytest.approx(0.3)
    assert cada_selected(smooth, 2.0, 10, form="published") == pytest.approx(3 / 11)

    rough = [5.0, 5.0, 5.0]  # selected in every iteration; class 0 is empty, since Lbar_0 = 0
    average = sum(len(selections(straight, L, 2.0, 10)) - 1 for L in rough) / 200
    assert average == cada_selected(rough, 2.0, 10) == 3
    assert cada_selected(rough, 2.0, 10, form="published") == 0


@given(
    smoothness=st.lists(st.floats(0, 10), min_size=1, max_size=12),
    c=st.floats(0.01, 10),
    max_age=st.integers(1, 20),
)
def test_cada_selected_is_between_its_limits(smoothness: list[float], c: float, max_age: int) -> None:
    """The bound is between M / D and M. A larger c never increases it, and a rougher loss never decreases it."""
    workers = len(smoothness)
    selected = cada_selected(smoothness, c, max_age)
    assert workers / max_age - 1e-9 <= selected <= workers + 1e-9
    assert cada_selected(smoothness, 2 * c, max_age) <= selected + 1e-9
    assert cada_selected([2 * L for L in smoothness], c, max_age) >= selected - 1e-9
    assert 0 <= cada_selected(smoothness, c, max_age, form="published") <= workers


def test_cada_selected_published_form_by_hand() -> None:
    """M = 2, c = 8, D = 2: Lbar_1^2 = 2, Lbar_2^2 = 1, Lbar_3 = 0, with all limits excluded."""
    assert cada_selected([1.2, 0.5], 8.0, 2, form="published") == pytest.approx(1 / 2 + 1 / 3)
    assert cada_selected([1.0, 2.0], 8.0, 2, form="published") == 0


@pytest.mark.parametrize(("groups", "size"), [(1, 1), (3, 4), (4, 3), (12, 1)])
def test_times_against_monte_carlo(groups: int, size: int) -> None:
    draws = np.random.default_rng(7).exponential(1e-4, (40_000, groups, size)).min(2).max(1)
    agrees(draws, gcada_time(groups, size, 1e-4))
    agrees(draws, max_of_minima_mean(groups, size, 1e-4))


@given(groups=st.integers(1, 12), size=st.integers(1, 12), mean=st.floats(1e-5, 10))
def test_cada_time_equation_14(groups: int, size: int, mean: float) -> None:
    """The time is the integral of 1 - F_G(x)^a, F_G(x) = sum over j >= 1 of C(M_G, j) F^j (1-F)^(M_G-j).

    a: number of groups, M_G: workers per group, F: distribution of a worker's time.
    """
    integral = grouped_order_mean(lambda t: np.exp(-t / mean), groups, 1, size)
    assert gcada_time(groups, size, mean) == pytest.approx(integral, rel=1e-9)
    assert cada_time(groups, mean) == pytest.approx(exponential_order_mean(groups, groups, mean))
    assert dadam_time(groups, mean) == pytest.approx(cada_time(groups, mean))


@pytest.mark.parametrize("size", [1, 3])
def test_gcada_time_with_varying_selection_is_shorter(size: int) -> None:
    """Equations (13) and (16) insert the mean number of selected groups into H, which is concave.

    The result is an upper bound of the mean time.
    """
    rng = np.random.default_rng(8)
    selected = rng.binomial(6, 0.5, 40_000)
    times = rng.exponential(1.0, (40_000, 6, size)).min(2)
    draws = np.where(np.arange(6) < selected[:, None], times, 0.0).max(1)
    exact = np.mean([gcada_time(int(g), size) for g in selected])
    agrees(draws, float(exact))
    assert exact < gcada_time(3.0, size)


@given(selected=st.floats(0, 100), size=st.integers(1, 20), batch=st.floats(1, 1000))
def test_gcada_computation_and_communication(selected: float, size: int, batch: float) -> None:
    assert gcada_communication(selected, size) == pytest.approx(selected * size + selected)
    assert gcada_computation(selected, size, batch) == pytest.approx(selected * size * batch)
    assert gcada_communication(12) == 24
    assert communication_ratio(size) == pytest.approx((size + 1) / size)


def test_gcada_is_faster_at_equal_cost_for_each_worker() -> None:
    """Compared with CADA with equally many downloading workers: less time, fewer messages, equal computing."""
    for size in (2, 3, 4):
        assert gcada_time(12 / size, size) < cada_time(12)
        assert gcada_communication(12 / size, size) < gcada_communication(12)
        assert gcada_computation(12 / size, size) == gcada_computation(12)


def test_published_totals_mean_groups_of_three() -> None:
    """The totals are communication 12292 and computation 9219 at loss 0.1.

    These totals imply groups of M_G = 3 workers and 3073 uploads, not the stated M_G = 4.
    """
    assert pytest.approx(communication_ratio(3)) == 12292 / 9219
    assert gcada_communication(3073, 3) == 12292
    assert gcada_computation(3073, 3) == 9219
    assert 12292 % (4 + 1) == 2  # no whole number of uploads gives 12292 for M_G = 4
    assert gcada_communication(9646) == 19292  # CADA: 9646 uploads
    assert gcada_computation(9646) == 9646


def test_published_times_are_possible_with_groups_of_three_only() -> None:
    """H_g <= g, so a run with U uploads takes at most U eta / M_G on average: 0.068 s is possible for M_G = 3 only."""
    assert 3073 * gcada_time(1, 3, 1e-4) > 0.068
    assert 12292 / 5 * gcada_time(1, 4, 1e-4) < 0.068
    assert 9646 * cada_time(1, 1e-4) > 0.380
