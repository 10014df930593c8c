"""Graph codes: random regular graphs, and decoding in linear time compared with least squares."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.core.base.settings import SettingError
from workbench.core.codes import GraphCode, random_regular


@st.composite
def codes(draw: st.DrawFn) -> GraphCode:
    degree = draw(st.integers(1, 7))
    parts = draw(st.integers(degree + 1, 24).filter(lambda parts: parts * degree % 2 == 0))
    return random_regular(parts * degree // 2, degree, draw(st.integers(0, 20)))


@given(codes(), st.data())
def test_graph_code_decoding_is_least_squares(code: GraphCode, data: st.DataObject) -> None:
    answered = tuple(
        sorted(data.draw(st.sets(st.integers(0, len(code.edges) - 1), min_size=1), label="answered"))
    )
    held = code.matrix()[list(answered)]
    best = np.linalg.lstsq(held.T, np.ones(code.parts), rcond=None)[0] @ held
    weights, residual = code.decode(answered)
    np.testing.assert_allclose(weights @ held, best, atol=1e-12)
    np.testing.assert_allclose(code.totals(np.array(answered)), best, atol=1e-12)
    assert residual == pytest.approx(((best - 1) ** 2).sum(), abs=1e-12)


@given(codes())
def test_graphs_are_regular_without_repeated_edges(code: GraphCode) -> None:
    held = code.matrix()
    assert (held.sum(axis=1) == 2).all()
    assert len(set(held.sum(axis=0))) == 1
    assert len(np.unique(held, axis=0)) == len(held)


@pytest.mark.parametrize(("degree", "late"), [(2, 0.3), (4, 0.2), (4, 0.6), (8, 0.5)])
def test_random_regular_decodes_a_hundred_thousand_workers(degree: int, late: float) -> None:
    """The residuals of all parts satisfy the normal equations, so the weights are the least-squares ones."""
    code = random_regular(100_000, degree)
    answered = np.flatnonzero(np.random.default_rng(degree).random(100_000) > late)
    weights, residual = code.decode(tuple(answered.tolist()))
    edges = code.edges[answered]
    totals = np.bincount(edges.ravel(), np.repeat(weights, 2), minlength=code.parts)
    np.testing.assert_allclose((1 - totals)[edges].sum(axis=1), 0, atol=1e-12)
    assert residual == pytest.approx(((totals - 1) ** 2).sum(), rel=1e-9, abs=1e-12)


def test_random_graphs_are_expanders() -> None:
    """The second eigenvalue of a random 4-regular graph is about 2 sqrt(3)."""
    code = random_regular(2000, 4)
    held = code.matrix()
    adjacent = held.T @ held - 4 * np.eye(code.parts)
    assert np.linalg.eigvalsh(adjacent)[-2] < 2 * 3**0.5 + 0.1


def test_random_regular_refuses_impossible_graphs() -> None:
    with pytest.raises(
        SettingError, match=r"replication = 5: 12 workers are not the edges .*; take 1, 2, 3, 4"
    ):
        random_regular(12, 5)
