"""Measures of conditioning of codes, and the warnings made from them."""

from __future__ import annotations

import numpy as np
import pytest

import workbench as wb
from workbench.core.codes import (
    GradientCode,
    amplification,
    bernoulli,
    correlated,
    cyclic,
    fractional,
    lagrange,
    mds,
    measured_error,
    quality,
    uncorrelated,
    warning,
    ye_abbe,
)
from workbench.core.codes.quality import lost
from workbench.core.running.precision import lost_digits

CODES = [
    cyclic(12, 4),
    cyclic(12, 4, construction="tandon"),
    fractional(12, 3),
    mds(12, 3),
    ye_abbe(12, 5, 2, 3),
    correlated(12, 5, 3),
    uncorrelated(6, (3, 2)),
    lagrange(12, 12, 4),
]


@pytest.mark.parametrize("code", CODES)
def test_error_is_rounding_times_amplification(code: GradientCode) -> None:
    amplified = amplification(code, 100, np.random.default_rng(2))
    double = measured_error(code, np.float64, 100, np.random.default_rng(2))
    single = measured_error(code, np.float32, 100, np.random.default_rng(2))
    assert 0 < double < 100 * amplified * np.finfo(np.float64).eps
    assert 1e6 * double < single < 100 * amplified * np.finfo(np.float32).eps


def test_amplification_of_known_weights() -> None:
    code = GradientCode(np.array([[0.5, 1, 0], [0, 1, -1], [0.5, 0, 1]]), 1)
    assert amplification(code, [(1, 2)]) == pytest.approx(3)
    assert amplification(code, [(0, 2)]) == pytest.approx(2)
    assert amplification(code, [(1, 2), (0, 2)]) == pytest.approx(3)


def test_amplification_counts_each_coordinate_on_its_own() -> None:
    code = ye_abbe(4, 2, 0, 2, "stable")
    weights = code.decode((0, 1, 2, 3)).weights
    assert weights.shape == (2, 4)
    assert amplification(code, 1) == pytest.approx(
        np.abs(weights).sum(axis=1).max() * np.abs(code.matrix).max()
    )


def test_amplification_with_equal_seeds_is_equal() -> None:
    code = cyclic(20, 6)
    draw = [amplification(code, 5, np.random.default_rng(seed)) for seed in (1, 1, 2)]
    assert draw[0] == draw[1] != draw[2]


def test_warning_names_a_better_code() -> None:
    sentence = warning(cyclic(156, 13, construction="tandon"))
    assert sentence is not None
    assert sentence.startswith("decoding from 143 of 156 messages may lose ")
    assert sentence.endswith("of 16 digits; take code = 'cyclic'")
    assert warning(cyclic(156, 13)) is None


def test_lost_digits_samples_enough_sets_for_a_heavy_tail() -> None:
    """Take the textbook code of 156 workers and 39 stragglers.

    Fifty random sets lose 5 to 7 of its digits, and rare sets lose more than 8.
    """
    args = {"stragglers": 39, "code": "tandon", "least_digits": 5}
    assert "take code = 'cyclic'" in "".join(lost_digits(wb.schemes.get("GC")(**args), 156))
    assert lost_digits(wb.schemes.get("GC")(stragglers=39), 156) == ()


def test_warning_includes_sets_of_neighbours() -> None:
    """Fifty random sets lose 4 digits of this code, and sets of neighbours lose 7."""
    code = mds(40, 9)
    assert warning(code, share=0.4, sets=50) is not None
    assert np.log10(amplification(code, 50)) < 0.4 * 15


def test_warning_depends_on_the_precision_and_the_share() -> None:
    code = cyclic(20, 5, construction="tandon")
    assert warning(code) is None
    assert warning(code, share=0.1) is not None
    assert "of 7 digits" in str(warning(code, dtype=np.float32))


@pytest.mark.parametrize(
    ("poor", "better"),
    [
        (ye_abbe(20, 5, 2, 3, "polynomial"), ye_abbe(20, 5, 2, 3, "stable")),
        (uncorrelated(10, (6, 8, 10)), uncorrelated(10, (6, 8, 10), construction="separate")),
        (mds(41, 10), cyclic(41, 10)),
        (lagrange(40, 40, 5), lagrange(40, 40, 10)),
        (cyclic(12, 4, construction="tandon"), cyclic(12, 4)),
    ],
)
def test_warning_recommends_a_better_code(poor: GradientCode, better: GradientCode) -> None:
    assert amplification(better) < amplification(poor)
    assert str(warning(poor, share=0.01)).endswith(poor.instead)


@pytest.mark.parametrize("limit", [1e3, 1e6, 1e9])
def test_lost_of_few_sets_estimates_that_of_many(limit: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """The largest of k draws of a tail P(size > x) ~ C/x, times sets / k, estimates the largest of all sets."""
    monkeypatch.setattr(quality, "MAX_MULTIPLICATIONS", limit)
    code = cyclic(61, 20)
    looked = []
    real = GradientCode.decode
    monkeypatch.setattr(
        GradientCode, "decode", lambda self, answered: looked.append(1) or real(self, answered)
    )
    assert lost(code) == pytest.approx(np.log10(amplification(code, 500)), abs=2)
    assert len(looked) < 2 * (3 * max(quality.MIN_SURVIVOR_SETS, limit / quality.cost(code)) + 5) + 1000


def test_lost_of_a_wrong_span_is_all_digits() -> None:
    """Small decoding weights are not enough: without row 2 of the identity, part 2 is lost."""
    assert lost(GradientCode(np.eye(3), 1)) > 15
    assert lost(GradientCode(np.eye(3), 0)) == pytest.approx(np.log10(3))


def test_parts_without_a_holder_lose_no_digits() -> None:
    """A code without a guarantee is compared with the parts that all its rows decode."""
    assert lost(bernoulli(3, 4, load=0)) == 0
