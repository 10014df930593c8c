"""The cyclic code: its windows, every survivor set, and the digits that decoding loses."""

from __future__ import annotations

from inspect import unwrap
from math import gcd

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.survivor_sets import every, miss, neighbours, some, strides, window
from workbench.core.base.settings import SettingError
from workbench.core.codes import GradientCode, amplification, circulant, cyclic, dual, measured_error
from workbench.core.codes.dual import harmonics
from workbench.core.codes.quality import lost

SMALL = [(n, s) for n in range(1, 10) for s in range(n)]
REQUIRED = 1e-7  # max error for 156 workers and 39 stragglers


@pytest.mark.parametrize(("n", "s"), SMALL)
def test_cyclic_decodes_every_survivor_set_of_a_small_cluster(n: int, s: int) -> None:
    code = cyclic(n, s)
    assert ((code.matrix != 0) == window(n, s + 1)).all()
    assert np.abs(code.matrix).max() == pytest.approx(1)
    assert max(miss(code, answered) for answered in every(code)) < 1e-12


@pytest.mark.parametrize(("n", "s"), SMALL)
def test_cyclic_loses_a_part_with_one_straggler_too_many(n: int, s: int) -> None:
    """Workers n-s, ..., n-1 and 0 hold part 0. If all of these workers are missing, part 0 is lost."""
    assert cyclic(n, s).decode(tuple(range(1, n - s))).residual >= 1 - 1e-9


@pytest.mark.parametrize(("n", "s"), [(6, 1), (9, 2), (12, 3), (156, 12), (156, 38), (5, 0), (7, 6)])
def test_circulant_windows_that_tile_have_unit_weights(n: int, s: int) -> None:
    code = cyclic(n, s)
    assert (code.matrix == circulant(n, s + 1).matrix).all()
    for answered in some(n, s, 20):
        weights = code.decode(answered).weights
        assert set(weights.round(13)) <= {0.0, 1.0}
        assert weights.sum() == pytest.approx(n / (s + 1))


@given(st.integers(2, 60), st.data())
def test_cyclic_decodes_samples_of_larger_clusters(n: int, data: st.DataObject) -> None:
    s = data.draw(st.integers(0, n - 1))
    code = cyclic(n, s, data.draw(st.integers(0, 2)))
    answered = tuple(data.draw(st.permutations(range(n)))[s:])
    # Rounding errors grow with the weights, so some sets lose more digits.
    weights = np.abs(code.decode(answered).weights).sum()
    assert miss(code, answered) < 1e-13 * max(weights, n)
    assert weights < 1e9


def test_cyclic_classes_decode_separately() -> None:
    """There are gcd(12, 3 + 1) = 4 classes of three workers.

    If all workers of one class answer, nobody else is needed.
    """
    code = cyclic(12, 3)
    assert code.decode((2, 6, 10)).residual < 1e-24


def test_cyclic_seed_is_used_and_repeatable() -> None:
    assert gcd(20, 7) == 1
    first = cyclic(20, 6, 1).matrix
    assert (cyclic(20, 6, 2).matrix != first).any()
    assert (unwrap(cyclic)(20, 6, 1).matrix == first).all()  # computed again, not cached


@pytest.mark.parametrize(("n", "s"), [(n, s) for n, s in SMALL if s])
def test_cyclic_textbook_construction_is_as_published(n: int, s: int) -> None:
    """Compare with Algorithm 2 of Tandon et al. 2017: windows, ones on the diagonal, and H B^T = 0."""
    B = cyclic(n, s, 3, "tandon").matrix
    H = np.random.default_rng(3).standard_normal((s, n))
    H[:, -1] = -H[:, :-1].sum(axis=1)
    assert ((B != 0) == window(n, s + 1)).all()
    assert (np.diag(B) == 1).all()
    assert np.abs(H @ B.T).max() < 1e-9 * np.abs(B).max() * np.abs(H).max()


@pytest.mark.parametrize(("n", "s"), SMALL)
def test_cyclic_textbook_construction_decodes_every_survivor_set(n: int, s: int) -> None:
    code = cyclic(n, s, construction="tandon")
    assert max(miss(code, answered) for answered in every(code)) < 1e-7


def worst(code: GradientCode, count: int) -> float:
    n, s = code.workers, code.stragglers
    return max(miss(code, answered) for answered in some(n, s, count, seed=11))


@pytest.mark.parametrize(("n", "s"), [(156, 13), (156, 26), (156, 39), (157, 39), (84, 21), (155, 12)])
def test_cyclic_large_clusters_keep_ten_digits(n: int, s: int) -> None:
    code = cyclic(n, s)
    assert worst(code, 300) < 1e-10 < REQUIRED
    assert measured_error(code, np.float64, 300) < 1e-10
    assert max(miss(code, answered) for answered in neighbours(n, s)) < 1e-11
    assert max(miss(code, answered) for answered in strides(n, s)) < 1e-10


@pytest.mark.slow
@pytest.mark.parametrize(("n", "s"), [(156, 39), (157, 39)])
def test_cyclic_decodes_ten_thousand_survivor_sets(n: int, s: int) -> None:
    code = cyclic(n, s)
    assert worst(code, 10_000) < 1e-8 < REQUIRED
    assert measured_error(code, np.float64, 10_000, np.random.default_rng(5)) < 1e-8


def test_cyclic_single_precision_keeps_three_digits() -> None:
    assert measured_error(cyclic(156, 39), np.float32, 300) < 1e-3


@pytest.mark.parametrize(("n", "s", "factor"), [(20, 6, 30), (157, 39, 1000), (156, 13, 1e5), (156, 39, 1e5)])
def test_cyclic_stable_construction_amplifies_less_than_textbook(n: int, s: int, factor: float) -> None:
    stable, textbook = (amplification(cyclic(n, s, 0, c), 200) for c in ("stable", "tandon"))
    assert factor * stable < textbook


@pytest.mark.parametrize("n", [4, 5, 9, 40])
@pytest.mark.parametrize("first", [1, 2, 3])
def test_harmonics_are_orthonormal(n: int, first: int) -> None:
    for count in range(first, n + 1):
        rows = harmonics(n, count, first)
        assert rows @ rows.T == pytest.approx(np.eye(count), abs=1e-12)


@pytest.mark.parametrize(
    ("n", "s", "sentence"),
    [
        (4, 4, "stragglers = 4: of 4 workers one must answer; take 0 to 3, the nearest is 3"),
        (4, -1, "stragglers = -1: of 4 workers one must answer; take 0 to 3, the nearest is 0"),
        (0, 0, "workers = 0: a code needs at least one; take 1 or more"),
    ],
)
def test_cyclic_refuses_invalid_sizes(n: int, s: int, sentence: str) -> None:
    with pytest.raises(SettingError) as error:
        cyclic(n, s)
    assert str(error.value) == sentence


def test_cyclic_refuses_an_unknown_construction() -> None:
    with pytest.raises(SettingError, match="did you mean 'tandon'"):
        cyclic(4, 1, construction="tandem")


@pytest.mark.parametrize(("n", "s"), [(301, 296), (401, 260)])
def test_cyclic_blockwise_construction_equals_partwise(
    n: int, s: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neighbouring parts share a factorisation. The residual is as small as with one factorisation per part."""
    blocks = unwrap(cyclic)(n, s)
    monkeypatch.setattr(dual, "MIN_BLOCKED_UNKNOWNS", n)
    apart = unwrap(cyclic)(n, s)
    assert ((blocks.matrix != 0) == window(n, s + 1)).all()
    assert blocks.matrix == pytest.approx(apart.matrix, abs=1e-11)
    off = [np.abs(code.spans[0].null @ code.matrix).max() for code in (blocks, apart)]
    assert off[0] < 2 * off[1]


def test_cyclic_a_thousand_workers_keep_ten_digits() -> None:
    code = cyclic(1000, 300)
    assert worst(code, 5) < 1e-10
    assert lost(code) < 7
