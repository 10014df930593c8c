"""Fractional repetition, cyclic MDS, 0/1 circulants, Bernoulli codes."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.survivor_sets import every, miss, some, window
from workbench.core.base.settings import SettingError
from workbench.core.codes import bernoulli, circulant, cyclic, fractional, mds
from workbench.core.codes.mds import generator

MDS = [(n, s) for n in range(1, 10) for s in range(n) if s == 0 or (n - s) % 2]
GROUPS = [(n, s) for n in range(1, 10) for s in range(n) if n % (s + 1) == 0]


@pytest.mark.parametrize(("n", "s"), MDS)
def test_mds_decodes_every_survivor_set(n: int, s: int) -> None:
    code = mds(n, s)
    assert ((code.matrix != 0) == window(n, s + 1)).all()
    assert (code.matrix > 0).sum() == n * (s + 1)
    assert max(miss(code, answered) for answered in every(code)) < 1e-11


@pytest.mark.parametrize(("n", "s"), [(5, 2), (9, 4), (12, 5), (21, 14), (40, 9)])
def test_mds_generator_is_the_product_of_its_factors(n: int, s: int) -> None:
    roots = np.exp(2j * np.pi * ((n - s + 1) // 2 + np.arange(s)) / n)
    product = np.poly(roots)
    assert generator(n, s) == pytest.approx(product / np.abs(product).max(), abs=1e-6)


def test_mds_is_circulant() -> None:
    B = mds(8, 3).matrix
    assert (np.roll(B, (1, 1), (0, 1)) == B).all()


def test_mds_at_forty_workers() -> None:
    assert max(miss(mds(40, 9), answered) for answered in some(40, 9, 200)) < 1e-8


def test_mds_refuses_complex_numbers() -> None:
    with pytest.raises(SettingError) as error:
        mds(156, 12)
    assert str(error.value).startswith("stragglers = 12: the cyclic MDS code of 156 workers is complex")
    assert str(error.value).endswith("take 11, 13")


@pytest.mark.parametrize(("n", "s"), GROUPS)
def test_fractional_decodes_every_survivor_set(n: int, s: int) -> None:
    code = fractional(n, s)
    assert max(miss(code, answered) for answered in every(code)) < 1e-13


def test_fractional_decodes_iff_every_group_answered() -> None:
    code = fractional(8, 1)
    for answered in every(code, most=8):
        groups = {row // 2 for row in answered}
        assert code.decode(answered).residual == pytest.approx(2 * (4 - len(groups)), abs=1e-12)


def test_fractional_refusal_names_valid_values() -> None:
    with pytest.raises(SettingError) as error:
        fractional(12, 4)
    assert str(error.value) == "stragglers = 4: groups of 5 do not divide 12 workers; take 1, 2, 3, 5"


@pytest.mark.parametrize("n", range(1, 10))
def test_circulant_tolerates_the_stated_stragglers(n: int) -> None:
    for replication in range(1, n + 1):
        code = circulant(n, replication)
        assert (code.matrix == window(n, replication)).all()
        assert max(miss(code, answered) for answered in every(code)) < 1e-12
        if code.stragglers + 1 < n:
            more = every(code, most=code.stragglers + 1)
            assert max(code.decode(answered).residual for answered in more) > 1e-3


def test_circulant_of_eight_with_two_has_the_expected_error_of_theorem_2() -> None:
    """See docs/evidence/errata.md, paper 4: 0.6244 at p_slow 0.3, p_ss 0.8, p_as 0.01 and a random order."""
    q, code = 0.3 * 0.8 + 0.7 * 0.01, circulant(8, 2)
    expected = sum(
        code.decode(f).residual * (1 - q) ** len(f) * q ** (8 - len(f)) for f in every(code, most=8)
    )
    assert expected == pytest.approx(0.6244, abs=5e-5)


def test_fractional_of_eight_with_two_has_the_expected_error_of_theorem_1() -> None:
    q, code = 0.3 * 0.8 + 0.7 * 0.01, fractional(8, 1)
    expected = sum(
        code.decode(f).residual * (1 - q) ** len(f) * q ** (8 - len(f)) for f in every(code, most=8)
    )
    assert expected == pytest.approx(0.4881, abs=5e-5)


def test_random_circulant_is_the_textbook_code() -> None:
    assert (circulant(9, 4, "random", 2).matrix == cyclic(9, 3, 2, "tandon").matrix).all()
    assert circulant(9, 4, "random").stragglers == 3


def test_bernoulli_load_and_seed() -> None:
    code = bernoulli(200, 300, load=30, seed=4)
    assert set(np.unique(code.matrix)) == {0.0, 1.0}
    assert code.matrix.sum(axis=1).mean() == pytest.approx(30, abs=1.5)
    assert code.matrix.sum(axis=1).std() == pytest.approx(np.sqrt(30 * 0.9), rel=0.2)
    assert (bernoulli(200, 300, load=30, seed=5).matrix != code.matrix).any()


def test_bernoulli_full_and_empty() -> None:
    assert bernoulli(3, 4, load=4).decode((1,)).weights == pytest.approx([1])
    assert bernoulli(3, 4, load=0).decode((0, 1, 2)).residual == pytest.approx(4)


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (
            lambda: circulant(5, 6),
            "replication = 6: each part is stored by some of the 5 workers; take 1 to 5",
        ),
        (lambda: bernoulli(5, 6, 7.5), "load = 7.5: a worker stores some of the 6 parts; take 0 to 6"),
        (lambda: bernoulli(5, 0, 0), "parts = 0: a code needs at least one; take 1 or more"),
        (lambda: circulant(5, 2, "one"), "coefficients = 'one': no such name; did you mean 'ones'"),
    ],
)
def test_bernoulli_and_circulant_refuse_invalid_sizes(make: object, sentence: str) -> None:
    with pytest.raises(SettingError) as error:
        make()  # type: ignore[operator]
    assert str(error.value).startswith(sentence)
