"""The decoder: least squares for any number of answers, cached within bounds."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.survivor_sets import every
from workbench.core.codes import GradientCode, Span, base, cyclic, fractional
from workbench.core.codes.base import least_squares

B = np.array([[0.5, 1, 0], [0, 1, -1], [0.5, 0, 1]])
A = np.array([[0, 1, 2], [1, 0, 1], [2, -1, 0]])


def test_gradient_code_worked_example_of_coded_reduce() -> None:
    code = GradientCode(B, stragglers=1)
    for row in A:
        answered = tuple(np.flatnonzero(row).tolist())
        weights, residual = code.decode(answered)
        assert weights == pytest.approx(row[list(answered)], abs=1e-12)
        assert residual < 1e-24


def test_gradient_code_worked_example_of_relays_and_master() -> None:
    """A relay has weights 2 and -1 for the messages of children 1 and 2.

    The master has weights 1 and 1 for the messages of children 1 and 3.
    """
    code = GradientCode(B, stragglers=1)
    assert code.decode((0, 1)).weights == pytest.approx([2, -1])
    assert code.decode((0, 2)).weights == pytest.approx([1, 1])


@pytest.mark.parametrize("order", [(3, 1, 0), (0, 1, 3), (1, 3, 0)])
def test_decode_weights_follow_the_order_of_the_answers(order: tuple[int, ...]) -> None:
    code = cyclic(4, 1, construction="tandon")
    sorted_weights = dict(zip((0, 1, 3), code.decode((0, 1, 3)).weights, strict=True))
    assert code.decode(order).weights == pytest.approx([sorted_weights[row] for row in order])


@given(
    st.integers(1, 7),
    st.integers(1, 7),
    st.integers(0, 7),
    st.integers(0, 10**6),
    st.floats(0.2, 1),
)
def test_decode_of_any_matrix_is_least_squares(
    rows: int, columns: int, answers: int, seed: int, density: float
) -> None:
    rng = np.random.default_rng(seed)
    matrix = rng.standard_normal((rows, columns)) * (rng.random((rows, columns)) < density)
    code = GradientCode(matrix, 0)
    answered = tuple(rng.permutation(rows)[:answers].tolist())
    weights, residual = code.decode(answered)
    taken = matrix[list(answered)]
    best = np.linalg.lstsq(taken.T, np.ones(columns), rcond=1e-12)[0] if answered else np.zeros(0)
    off = best @ taken - 1
    assert weights.shape == (len(answered),)
    assert residual == pytest.approx(off @ off, rel=1e-6, abs=1e-12)
    assert residual == pytest.approx(np.sum((weights @ taken - 1) ** 2), rel=1e-9, abs=1e-18)


def test_decode_with_spare_answers_has_minimal_norm() -> None:
    code = cyclic(7, 3, construction="tandon")
    for answered in combinations(range(7), 5):
        shortest = np.linalg.pinv(code.matrix[list(answered)].T) @ np.ones(7)
        assert code.decode(answered).weights == pytest.approx(shortest, abs=1e-8)


def test_fractional_groups_decode_separately() -> None:
    assert fractional(6, 2).decode((0, 1, 4)).weights == pytest.approx([0.5, 0.5, 1])


def test_spans_decode_the_same_sets_as_one_span() -> None:
    """Classes of workers only save time: the plain decoder decodes the same sets."""
    code = cyclic(12, 3)
    plain = GradientCode(code.matrix, 3)
    for answered in every(code, most=5):
        assert (code.decode(answered).residual < 1e-16) == (plain.decode(answered).residual < 1e-16)


def test_decode_detects_a_wrong_span() -> None:
    """The residual is computed and found too large. The full problem is then solved."""
    span = Span(np.arange(3), np.ones((1, 3)), np.array([[1.0, 0.0, 0.0]]))
    assert GradientCode(B, 1, spans=(span,)).decode((1, 2)).weights == pytest.approx([1, 2])


def test_decode_without_answers() -> None:
    weights, residual = cyclic(5, 2).decode(())
    assert weights.shape == (0,)
    assert residual == 5.0


def test_decode_caches_repeated_sets() -> None:
    code = cyclic(6, 2)
    assert code.decode((0, 1, 2, 3)) is code.decode((0, 1, 2, 3))


def test_decode_cache_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "MAX_CACHED_NUMBERS", 100)
    code = GradientCode(np.eye(5), 0)
    for answered in every(code, most=3):
        code.decode(answered)
        assert len(code._known) * 2 * 5 <= 100
    assert len(code._known) > 1


def test_a_code_too_large_for_the_memory_still_decodes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "MAX_CACHED_NUMBERS", 1)
    code = GradientCode(np.eye(4), 0)
    assert [code.decode((i, 3)).residual for i in range(3)] == pytest.approx([2, 2, 2])


@given(st.integers(1, 6), st.integers(1, 6), st.integers(1, 3), st.integers(0, 10**6))
def test_least_squares_is_the_pseudo_inverse(rows: int, columns: int, rank: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    system = rng.standard_normal((rows, rank)) @ rng.standard_normal((rank, columns))
    right = rng.standard_normal((rows, 2))
    expected = np.linalg.pinv(system, rcond=1e-10) @ right
    assert least_squares(system, right) == pytest.approx(
        expected, rel=1e-6, abs=1e-8 * np.abs(expected).max()
    )
