"""Paper 5: completion times against Monte Carlo, enumeration, each other, and the setting of figure 1."""

from collections.abc import Sequence
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from tests.support.monte_carlo import agrees
from workbench.core.theory import (
    clustered_gc_completion,
    frc_time,
    gc_completion,
    gc_time,
    lcc_completion,
    lcc_threshold,
    mmc_completion,
)
from workbench.core.theory.multi_message import _too_few, _uncovered

FIGURE_1 = {"workers": 40, "load": 10, "shift": 0.01, "rate": 10.0}

# (order, clusters, hybrid): mean of 40000 simulated iterations, standard error below 0.3 %
SIMULATED = [
    (1, 1, False, 0.169),
    (6, 4, False, 0.272),
    ([6, 8, 10], 4, False, 0.439),
    ([6, 8, 10], 4, True, 0.304),
]


def per_part(draws: int, workers: int, shift: float, rate: float) -> NDArray[np.float64]:
    """Return the drawn seconds per part of each worker (X_i in the paper), (draws, workers)."""
    return shift + np.random.default_rng(workers).exponential(1 / rate, (draws, workers))


def cluster_times(
    x: NDArray[np.float64], load: int, order: int | Sequence[int], hybrid: bool
) -> NDArray[np.float64]:
    """Return the seconds until a cluster is done, (draws,), message by message.

    `x`: seconds per part of the cluster's workers, (draws, size).
    """
    draws, size = x.shape
    if isinstance(order, int):
        first = np.full((draws, size), np.inf)  # when each c_i first came
        for j in range(load - order + 1):
            first = np.minimum(first, np.roll((order + j) * x, j, axis=1))
        done = np.sort(first, axis=1)[:, size - order]
    else:
        sent = np.concatenate([m * x for m in order], axis=1)
        done = np.sort(sent, axis=1)[:, len(order) * size - sum(order)]
    return np.minimum(done, load * x.min(1)) if hybrid else done


def test_mmc_completion_figure_1() -> None:
    """The formulas give the simulated means at the paper's setting, with one message per worker and with several."""
    assert gc_completion(**FIGURE_1) == pytest.approx(1.548, rel=0.003)
    assert clustered_gc_completion(**FIGURE_1, clusters=4) == pytest.approx(0.309, rel=0.003)
    assert lcc_completion(**FIGURE_1) == pytest.approx(0.290, rel=0.003)
    for order, clusters, hybrid, mean in SIMULATED:
        value = mmc_completion(**FIGURE_1, order=order, clusters=clusters, hybrid=hybrid)
        assert value == pytest.approx(mean, rel=0.003)


def test_mmc_completion_supports_the_papers_claims() -> None:
    """GC-MMC-1 is faster than LCC. GC-MMC-2 is within 5 % of LCC only with the hybrid rule."""
    lcc = lcc_completion(**FIGURE_1)
    assert mmc_completion(**FIGURE_1, order=6, clusters=4) < lcc
    assert mmc_completion(**FIGURE_1, order=[6, 8, 10], clusters=4) > 1.5 * lcc
    assert mmc_completion(**FIGURE_1, order=[6, 8, 10], clusters=4, hybrid=True) == pytest.approx(
        lcc, rel=0.05
    )


@pytest.mark.parametrize(
    ("workers", "load", "clusters"), [(1, 1, 1), (6, 3, 1), (6, 3, 2), (12, 4, 2), (40, 10, 4)]
)
def test_one_message_against_monte_carlo(workers: int, load: int, clusters: int) -> None:
    x = per_part(40_000, workers, 0.05, 3.0).reshape(40_000, clusters, -1)
    needed = workers // clusters - load + 1
    done = load * np.sort(x, axis=2)[:, :, needed - 1].max(1)
    agrees(done, clustered_gc_completion(workers, load, clusters, 0.05, 3.0))
    if clusters == 1:
        agrees(done, gc_completion(workers, load, 0.05, 3.0))


@pytest.mark.parametrize(("workers", "load"), [(1, 1), (4, 2), (10, 3), (40, 10)])
def test_lcc_against_monte_carlo(workers: int, load: int) -> None:
    x = np.sort(per_part(40_000, workers, 0.05, 3.0), axis=1)
    agrees(load * x[:, lcc_threshold(workers, load) - 1], lcc_completion(workers, load, 0.05, 3.0))


@pytest.mark.parametrize(
    ("workers", "load", "order", "clusters", "hybrid"),
    [
        (5, 3, 1, 1, False),
        (6, 3, 2, 1, False),
        (6, 3, [3, 2], 1, False),
        (6, 3, [3, 2], 2, True),
        (6, 3, 2, 2, True),
        (3, 3, 1, 1, False),
        (8, 4, 3, 2, False),
        (12, 3, [1, 2, 3], 4, False),
        (8, 3, [3, 1], 2, False),
        (40, 10, 1, 1, False),
        (40, 10, 6, 4, False),
        (40, 10, [6, 8, 10], 4, True),
    ],
)
def test_several_messages_against_monte_carlo(
    workers: int, load: int, order: int | list[int], clusters: int, hybrid: bool
) -> None:
    x = per_part(20_000, workers, 0.05, 3.0)
    parts = np.split(x, clusters, axis=1)
    done = np.max([cluster_times(part, load, order, hybrid) for part in parts], axis=0)
    agrees(done, mmc_completion(workers, load, order, clusters, 0.05, 3.0, hybrid))


@given(
    size=st.integers(1, 5),
    chances=st.lists(st.floats(0.05, 1), min_size=4, max_size=4),
    data=st.data(),
)
def test_uncovered_and_too_few_against_enumeration(
    size: int, chances: list[float], data: st.DataObject
) -> None:
    """Enumerate all ways in which `size` workers on a circle can have sent 0 to `most` messages each."""
    most = data.draw(st.integers(1, min(size, 3)))
    m, needed = data.draw(st.integers(1, size)), data.draw(st.integers(1, most * size))
    sent = np.array(chances[: most + 1]) / sum(chances[: most + 1])
    uncovered = too_few = 0.0
    for counts in product(range(most + 1), repeat=size):
        chance = sent[list(counts)].prod()
        covered = {(i + j) % size for i, count in enumerate(counts) for j in range(count)}
        uncovered += chance * (size - len(covered) >= m)
        too_few += chance * (sum(counts) < needed)
    assert _uncovered(sent[None], size, m)[0] == pytest.approx(uncovered, abs=1e-12)
    assert _too_few(sent[None], size, needed)[0] == pytest.approx(too_few, abs=1e-12)


clusterings = st.tuples(st.integers(1, 4), st.integers(1, 6)).flatmap(
    lambda shape: st.tuples(st.just(shape[0] * shape[1]), st.just(shape[0]), st.integers(1, shape[1]))
)


@given(case=clusterings, shift=st.floats(0, 1), rate=st.floats(0.1, 10))
def test_completion_formulas_agree(case: tuple[int, int, int], shift: float, rate: float) -> None:
    """With order r, all functions give gradient coding. With r = 1, all give the uncoded scheme."""
    workers, clusters, load = case
    one = clustered_gc_completion(workers, load, clusters, shift, rate)
    for order in (load, [load]):
        assert mmc_completion(workers, load, order, clusters, shift, rate) == pytest.approx(one, rel=1e-8)
    assert gc_completion(workers, load, shift, rate) == pytest.approx(
        gc_time(workers, load - 1, samples=workers, shift=shift, rate=rate)
    )
    if load == workers // clusters:
        same = frc_time(workers, load - 1, samples=workers, shift=shift, rate=rate)
        assert one == pytest.approx(same, rel=1e-8)


@given(case=clusterings, shift=st.floats(0, 1), rate=st.floats(0.1, 10))
def test_completion_limits(case: tuple[int, int, int], shift: float, rate: float) -> None:
    """Messages in between and the hybrid rule never cost time.

    With one message per worker, clusters never cost time either. Times scale linearly.
    """
    workers, clusters, load = case
    setting = (clusters, shift, rate)
    gc = clustered_gc_completion(workers, load, *setting)
    assert mmc_completion(workers, load, 1, *setting) <= gc * (1 + 1e-9)
    assert gc <= gc_completion(workers, load, shift, rate) * (1 + 1e-9)
    assert mmc_completion(workers, load, load, clusters, 3 * shift, rate / 3) == pytest.approx(
        3 * gc, rel=1e-8
    )
    if load == workers // clusters:
        for order in (1, sorted({1, load})):
            plain = mmc_completion(workers, load, order, *setting)
            assert mmc_completion(workers, load, order, *setting, hybrid=True) <= plain * (1 + 1e-9)


@given(workers=st.integers(1, 200), data=st.data())
def test_lcc_threshold(workers: int, data: st.DataObject) -> None:
    """The threshold is at most the number of workers. If each worker stores all parts, one is enough."""
    load = data.draw(st.integers(1, workers))
    threshold = 2 * int(np.ceil(workers / load)) - 1
    if threshold <= workers:
        assert lcc_threshold(workers, load) == threshold
    else:
        with pytest.raises(ValueError, match="must answer"):
            lcc_threshold(workers, load)
    assert lcc_threshold(workers, workers) == 1


def test_uncovered_published_example_1() -> None:
    """K = 6, m = 2: section III-A prints K - m - 1 = 5, but 5 is K - m + 1. Five of the six messages are enough."""
    sent = np.array([[0.5, 0.5]])  # each worker sends its only message with probability 1/2
    one_missing_at_most = (1 + 6) / 2**6
    assert _uncovered(sent, 6, 2)[0] == pytest.approx(1 - one_missing_at_most)


def test_mmc_completion_published_speedup() -> None:
    """The paper's "on average 10 partial gradients per second" omits alpha: 1 / (alpha + 1 / mu) = 9.09."""
    assert mmc_completion(1, 1, 1, 1, 0.01, 10.0) == pytest.approx(0.11)
    assert pytest.approx(9.09, abs=1e-3) == 1 / 0.11
