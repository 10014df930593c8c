"""Paper 1: exact round times against enumeration, Monte Carlo, simple bounds and figure 13."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from tests.support.monte_carlo import agrees
from workbench.core.theory import (
    cr_load,
    cr_time,
    exponential_order_mean,
    frc_time,
    gc_load,
    gc_time,
    grouped_order_mean,
    rar_time,
    sgd_time,
    umw_time,
)
from workbench.core.theory.round_times import through

FIGURE_13 = {"samples": 49920, "shift": 5e-5, "rate": 2e4}


def port(arrivals: NDArray[np.float64], k: int, transfer: float) -> NDArray[np.float64]:
    """Return when the first k messages (last axis) have left a port that takes one at a time."""
    busy = np.full(arrivals.shape[:-1], -np.inf)
    for j in range(k):
        busy = np.maximum(busy, np.sort(arrivals, axis=-1)[..., j]) + transfer
    return busy


@given(
    chances=st.lists(st.floats(0.05, 1), min_size=4, max_size=4),
    n=st.integers(1, 4),
    data=st.data(),
)
def test_through_port_against_enumeration(chances: list[float], n: int, data: st.DataObject) -> None:
    """Sum over all outcomes with arrivals at 0, 0.5, 1.5 or 4 and transfers of 1, weighted with their probabilities."""
    k = data.draw(st.integers(1, n))
    times, p = np.array([0.0, 0.5, 1.5, 4.0]), np.array(chances) / sum(chances)
    for t in (1.0, 1.5, 2.0, 2.5, 3.5, 4.0, 5.0, 7.0):
        exact = sum(
            p[list(outcome)].prod()
            for outcome in product(range(4), repeat=n)
            if port(times[list(outcome)], k, 1.0) <= t
        )
        arrived = [min(p[times <= t - i].sum(), 1.0) for i in range(k, 0, -1)]
        assert through(np.array([arrived]), n)[0] == pytest.approx(exact, abs=1e-12)


def simulated(n: int, layers: int, s: int, load: float, transfer: float, draws: int) -> NDArray[np.float64]:
    """Draw round times of a tree."""
    rng = np.random.default_rng(n * layers + s)

    def parents(layer: int) -> NDArray[np.float64]:
        own = 1e-4 * load + rng.standard_exponential((draws, n ** (layer + 1))) * load / 5e3
        ready = own if layer + 1 == layers else np.maximum(own, parents(layer + 1))
        return port(ready.reshape(draws, -1, n), n - s, transfer)

    return parents(0)[:, 0]


@pytest.mark.parametrize(
    ("n", "layers", "s"), [(1, 1, 0), (5, 1, 2), (12, 1, 0), (3, 2, 1), (4, 3, 1), (2, 4, 0), (1, 3, 0)]
)
@pytest.mark.parametrize("transfer", [0.0, 0.003, 0.03, 0.3])
def test_cr_time_against_monte_carlo(n: int, layers: int, s: int, transfer: float) -> None:
    load = cr_load(n, layers, s) * 1000
    times = simulated(n, layers, s, load, transfer, 20_000)
    agrees(times, cr_time(n, layers, s, 1000, 1e-4, 5e3, transfer))


@given(
    n=st.integers(1, 8),
    layers=st.integers(1, 3),
    data=st.data(),
    transfer=st.sampled_from([0.0, 0.001, 0.02, 1.0]),
)
def test_cr_time_is_between_simple_bounds(n: int, layers: int, data: st.DataObject, transfer: float) -> None:
    """The time is at least the shortest computing time plus L (n-s) transfers.

    It is at most the time of the slowest group plus these transfers.
    """
    s = data.draw(st.integers(0, n - 1))
    load = cr_load(n, layers, s) * 1000
    mean, shift, k = load / 5e3, 1e-4 * load, n - s
    groups = (n**layers - 1) // (n - 1) if n > 1 else layers
    slowest = grouped_order_mean(lambda t: np.exp(-np.maximum(t - shift, 0) / mean), groups, k, n)
    value = cr_time(n, layers, s, 1000, 1e-4, 5e3, transfer)
    messages = layers * k * transfer
    floor = max(shift + messages, exponential_order_mean(k, n, mean, shift) + transfer)
    assert floor * (1 - 1e-9) <= value <= (slowest + messages) * (1 + 1e-9)


@given(n=st.integers(1, 40), data=st.data(), shift=st.floats(0, 1e-2), rate=st.floats(10, 1e4))
def test_star_times_without_transfers(n: int, data: st.DataObject, shift: float, rate: float) -> None:
    """GC, UMW and SGD are order statistics. A tree of one layer is GC."""
    s = data.draw(st.integers(0, n - 1))
    setting = {"samples": 500.0, "shift": shift, "rate": rate}
    load = 500 * gc_load(n, s)
    assert gc_time(n, s, **setting) == pytest.approx(
        exponential_order_mean(n - s, n, load / rate, load * shift)
    )
    assert cr_time(n, 1, s, **setting) == gc_time(n, s, **setting)
    assert umw_time(n, **setting) == gc_time(n, 0, **setting)
    assert sgd_time(n, s, **setting) == pytest.approx(gc_time(n, s, **setting) / (s + 1))


@pytest.mark.parametrize(("n", "s"), [(6, 1), (40, 9)])
def test_frc_time_against_monte_carlo(n: int, s: int) -> None:
    load = gc_load(n, s) * 100
    draws = load * (0.01 + np.random.default_rng(3).standard_exponential((50_000, n // (s + 1), s + 1)) / 20)
    agrees(draws.min(2).max(1), frc_time(n, s, 100, 0.01, 20))
    assert frc_time(n, s, 100, 0.01, 20) <= gc_time(n, s, 100, 0.01, 20)


@pytest.mark.parametrize("n", [1, 2, 7])
def test_rar_time_against_a_stepwise_ring(n: int) -> None:
    """A step takes `step` s, and begins after the neighbour's previous step.

    After 2 (N-1) steps, all workers have the sum.
    """
    times = (50 / n) * (0.01 + np.random.default_rng(4).standard_exponential((20_000, n)) / 20)
    for _ in range(2 * (n - 1)):
        times = np.maximum(times, np.roll(times, 1, axis=1)) + 0.02
    agrees(times.max(1), rar_time(n, 50, 0.01, 20, step=0.02))


def test_cr_time_of_large_transfers() -> None:
    """Each layer transfers n - s messages one after another.

    The lower bound of theorem 2 counts only n - s + L - 1 transfers.
    """
    assert cr_time(6, 3, 2, 1.0, 1.0, 1.0, 1e6) / 1e6 == pytest.approx(3 * 4, rel=1e-6)


def test_round_times_of_figure_13() -> None:
    """Round times divided by CR's are published as 6.6 (UMW), 4.8 (GC), 4.0 (SGD).

    The ring's published ratio of 1.8 needs about 6 ms per step.
    """
    cr = cr_time(12, 2, 5, **FIGURE_13, transfer=0.05)
    assert umw_time(156, **FIGURE_13, transfer=0.05) / cr == pytest.approx(6.886, abs=1e-3)
    assert gc_time(156, 65, **FIGURE_13, transfer=0.05) / cr == pytest.approx(4.945, abs=1e-3)
    assert sgd_time(156, 65, **FIGURE_13, transfer=0.05) / cr == pytest.approx(4.023, abs=1e-3)
    assert rar_time(156, **FIGURE_13, step=0.05 / 156) / cr == pytest.approx(0.181, abs=1e-3)
    assert rar_time(156, **FIGURE_13, step=0.00625) / cr == pytest.approx(1.8, abs=0.01)


@pytest.mark.parametrize("transfer", [0.0, 0.05])
def test_gc_time_of_figure_13_against_monte_carlo(transfer: float) -> None:
    """The star has 156 workers, and does not wait for 65 of them."""
    load = 49920 * gc_load(156, 65)
    draws = load * (5e-5 + np.random.default_rng(5).standard_exponential((4000, 156)) / 2e4)
    agrees(port(draws, 91, transfer), gc_time(156, 65, **FIGURE_13, transfer=transfer))


@given(s=st.integers(0, 9), transfer=st.floats(0.001, 0.1))
def test_gc_time_includes_transfers(s: int, transfer: float) -> None:
    assert gc_time(10, s, 100, 1e-3, 1e3) < gc_time(10, s, 100, 1e-3, 1e3, transfer)
    assert gc_time(10, s, 100, 1e-3, 1e3, transfer) < gc_time(10, s, 100, 1e-3, 1e3, 1.01 * transfer)
