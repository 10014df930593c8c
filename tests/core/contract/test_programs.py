"""Sums over the messages of children: in pieces, equal to the plain weighted sum."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from workbench.core.contract import programs as subprograms
from workbench.core.contract.programs import weighted_sum


@example(17, 3, 0)  # the last piece has one value
@given(st.integers(1, 70), st.integers(1, 30), st.integers(0, 2**32 - 1))
def test_subprograms_sum_to_the_whole(count: int, floats: int, seed: int) -> None:
    """There are up to five pieces. With values that fill the memory, 16 are summed at a time."""
    rng = np.random.default_rng(seed)
    weights, values = rng.standard_normal(count), list(rng.standard_normal((count, floats)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(subprograms, "MAX_BLOCK_BYTES", 1)
        found = weighted_sum(weights, values)
    np.testing.assert_allclose(found, weights @ np.stack(values), rtol=0, atol=1e-12 * (1 + count))


def test_weighted_sum_of_long_vectors_is_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []

    def stack(values: list[np.ndarray]) -> np.ndarray:
        sizes.append(len(values))
        return np.array(values)

    monkeypatch.setattr(np, "stack", stack)
    values = [np.full(5001, float(k)) for k in range(40)]
    np.testing.assert_array_equal(weighted_sum(np.ones(40), values), np.full(5001, 780.0))
    assert sizes == [16, 16, 8]
