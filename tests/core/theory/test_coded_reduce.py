"""Paper 1: loads against the allocation itself, resiliency, gains, and theorem 2 with its limits."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.core.theory import (
    cr_load,
    cr_parallelisation,
    cr_resiliency,
    cr_stragglers,
    cr_time,
    cr_time_bounds,
    cr_workers,
    gc_load,
    parallelisation_order,
    rar_parallelisation,
)

trees = st.integers(1, 30).flatmap(lambda n: st.tuples(st.just(n), st.integers(1, 5), st.integers(0, n - 1)))


def allocated(n: int, layers: int, s: int, r: Fraction) -> Fraction:
    """Return the samples left for the leaves' children if each node keeps r of its subtree's samples."""
    subtree = Fraction(1)
    for _ in range(layers):
        subtree = subtree * (s + 1) / n - r
    return subtree


@given(tree=trees)
def test_cr_load_uses_the_whole_data_set(tree: tuple[int, int, int]) -> None:
    """Each child gets (s+1)/n of the samples and keeps r. With r = r_CR, nothing is left below the leaves."""
    n, layers, s = tree
    q = Fraction(n, s + 1)
    exact = 1 / sum(q**layer for layer in range(1, layers + 1))
    assert allocated(n, layers, s, exact) == 0
    assert cr_load(n, layers, s) == float(exact)


@pytest.mark.parametrize(
    ("tree", "load"),
    [
        ((3, 2, 1), Fraction(4, 15)),
        ((12, 2, 5), Fraction(1, 6)),
        ((4, 3, 1), Fraction(1, 14)),
        ((5, 1, 4), Fraction(1)),
    ],
)
def test_cr_load_of_published_trees(tree: tuple[int, int, int], load: Fraction) -> None:
    assert cr_load(*tree) == float(load)


@given(tree=trees)
def test_loads_grow_with_stragglers_and_shrink_with_layers(tree: tuple[int, int, int]) -> None:
    n, layers, s = tree
    assert s == 0 or cr_load(n, layers, s) > cr_load(n, layers, s - 1)
    assert cr_load(n, layers + 1, s) < cr_load(n, layers, s)
    assert cr_load(n, 1, s) == gc_load(n, s)
    assert cr_load(n, layers, 0) == pytest.approx(1 / cr_workers(n, layers))


@given(tree=trees)
def test_stragglers_for_a_load(tree: tuple[int, int, int]) -> None:
    n, layers, s = tree
    assert cr_stragglers(n, layers, cr_load(n, layers, s)) == s
    if s > 0:
        between = (cr_load(n, layers, s) + cr_load(n, layers, s - 1)) / 2
        assert cr_stragglers(n, layers, between) == s - 1


@given(alpha=st.sampled_from([0.125, 0.25, 0.5]), layers=st.integers(1, 4))
def test_resiliency_with_many_children(alpha: float, layers: int) -> None:
    """Table I has alpha = r^(1/L) in the limit, up to lower powers of 1/alpha, which the table omits."""
    n = 100_000
    q = 1 / alpha
    limit = 1 / sum(q**layer for layer in range(1, layers + 1))
    assert cr_load(n, layers, int(alpha * n)) == pytest.approx(limit, rel=1e-3)
    assert cr_resiliency(limit, layers) <= alpha * (1 + 1e-12)
    assert cr_resiliency(alpha**layers, layers) == pytest.approx(alpha)


def test_published_load_reduction() -> None:
    """Remark 2: from one layer to three, with alpha = 0.5, the load decreases by a factor of 7."""
    n = 1_000_000
    assert cr_load(n, 1, n // 2) / cr_load(n, 3, n // 2) == pytest.approx(7, rel=1e-5)


@given(n=st.integers(2, 20), layers=st.integers(1, 5))
def test_parallelisation(n: int, layers: int) -> None:
    """There are N / n parents, of the order N^(1 - 1/L).

    With one layer, there is 1 parent, as in GC. There are never more than N, as in the ring.
    """
    workers = cr_workers(n, layers)
    parents = cr_parallelisation(n, layers)
    assert parents * n == workers
    assert cr_parallelisation(workers, 1) == parallelisation_order(workers, 1) == 1
    assert 1 / 2 <= parents / parallelisation_order(workers, layers) <= 2
    assert parents <= rar_parallelisation(workers) == workers


def test_cr_workers_of_published_trees() -> None:
    """The paper's text has the tree (12, 2) for both clusters, but 84 workers form the tree (4, 3)."""
    assert cr_workers(12, 2) == 156
    assert cr_workers(4, 3) == 84


@given(tree=trees.filter(lambda tree: tree[2] > 0), transfer=st.floats(0, 1))
def test_cr_time_bounds_are_in_order(tree: tuple[int, int, int], transfer: float) -> None:
    n, layers, s = tree
    lower, upper = cr_time_bounds(n, layers, s, 1000, 1e-4, 1e4, transfer)
    gap = (n * layers - (n - s + layers - 1)) * transfer
    assert upper - lower == pytest.approx(gap, abs=1e-9)


@pytest.mark.parametrize("layers", [1, 2])
def test_cr_time_bounds_are_the_limit_of_the_exact_mean(layers: int) -> None:
    """Without transfer times, both bounds are equal, and the exact mean converges to them."""
    errors = []
    for n in (8, 64, 512, 4096):
        setting = (n, layers, n // 4, 1e4, 1e-4, 1e4)
        lower, upper = cr_time_bounds(*setting, transfer=0.0)
        assert lower == upper
        errors.append(abs(cr_time(*setting) / lower - 1))
    assert errors == sorted(errors, reverse=True)
    assert errors[-1] < 0.03  # of the order n^(-1/2)


def test_printed_lower_bound_is_not_a_bound_at_the_papers_own_size() -> None:
    """CR of figure 13: the leading terms of (7) are at least 1.1802 s, and the exact mean is 1.1350 s."""
    setting = {
        "children": 12,
        "layers": 2,
        "stragglers": 5,
        "samples": 49920,
        "shift": 5e-5,
        "rate": 2e4,
        "transfer": 0.05,
    }
    lower, upper = cr_time_bounds(**setting)
    assert (lower, upper) == (pytest.approx(1.1802, abs=1e-4), pytest.approx(1.9802, abs=1e-4))
    assert cr_time(**setting) == pytest.approx(1.1350, abs=1e-4)


def test_printed_lower_bound_is_not_a_bound_for_one_layer() -> None:
    """The exact mean is H_12 - H_3 = 1.270, and the printed bound is log(12 / 3) = 1.386."""
    setting = (12, 1, 3, 12.0, 0.0, 4.0)
    assert cr_time(*setting) == pytest.approx(1.2699, abs=1e-4)
    assert cr_time_bounds(*setting, transfer=0.0)[0] == pytest.approx(1.3863, abs=1e-4)
