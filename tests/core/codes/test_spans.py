"""Spans of a code: the stated decoding weights are correct, so that the fast method applies."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.survivor_sets import every, some
from workbench.core.codes import (
    GradientCode,
    base,
    correlated,
    cyclic,
    fractional,
    lagrange,
    mds,
    uncorrelated,
    ye_abbe,
)

CODES = {
    "cyclic, one class": cyclic(9, 4),
    "cyclic, two classes": cyclic(10, 3),
    "cyclic, tiles": cyclic(9, 2),
    "textbook": cyclic(9, 4, construction="tandon"),
    "mds, odd": mds(9, 4),
    "mds, even": mds(10, 3),
    "fractional": fractional(9, 2),
    "polynomial": ye_abbe(9, 5, 2, 3, "polynomial"),
    "gaussian": ye_abbe(9, 5, 2, 3, "gaussian"),
    "stable": ye_abbe(9, 5, 2, 3, "stable"),
    "stable, classes": ye_abbe(9, 3, 1, 2, "stable"),
    "correlated": correlated(9, 6, 5),
    "joint": uncorrelated(5, (5, 3)),
    "separate": uncorrelated(5, (2, 3), construction="separate"),
    "lagrange": lagrange(4, 9, 2),
}


@pytest.mark.parametrize("name", CODES)
def test_spans_hold_solutions(name: str) -> None:
    code = CODES[name]
    rows = np.concatenate([span.rows for span in code._spans])
    assert len(set(rows.tolist())) == len(rows)
    for span in code._spans:
        taken = code.matrix[span.rows]
        assert span.particular @ taken == pytest.approx(code.goal, abs=1e-9)
        assert span.null @ taken == pytest.approx(np.zeros((len(span.null), taken.shape[1])), abs=1e-9)
        assert span.null @ span.null.T == pytest.approx(np.eye(len(span.null)), abs=1e-9)
        assert span.null @ span.particular.T == pytest.approx(0, abs=1e-9 * np.abs(span.particular).max())


@pytest.mark.parametrize("name", CODES)
def test_every_promised_set_decodes_in_a_span(name: str) -> None:
    code = CODES[name]
    for answered in every(code):
        if len(answered) >= code.workers - len(answered):  # with fewer answers, the full problem is smaller
            quick = code._from_span(np.array(answered))
            assert quick is not None
            assert quick.residual < 1e-16


def test_large_codes_do_not_fall_back(monkeypatch: pytest.MonkeyPatch) -> None:
    code: GradientCode = cyclic(156, 39)
    sizes = []
    real = base.least_squares
    monkeypatch.setattr(base, "least_squares", lambda A, b: sizes.append(A.shape) or real(A, b))
    for answered in some(156, 39, 300, seed=3):
        code.decode(answered)
    assert max(rows * columns for rows, columns in sizes) <= 9 * 9
