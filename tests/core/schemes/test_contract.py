"""Properties of every scheme, for any delays, links and shapes, as in `wb.check`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import workbench as wb
from tests.support.specs import LEAST_SQUARES
from tests.support.strategies import CASES, experiments
from workbench.core.checking.property import Property
from workbench.core.checking.scheme import PROPERTIES
from workbench.core.engine.virtual.arithmetic import Coefficients
from workbench.core.running.simulated import timeline


def test_every_scheme_has_a_case() -> None:
    assert sorted(CASES) == wb.schemes.names()


@pytest.mark.parametrize("checked", PROPERTIES, ids=lambda checked: checked.name)
@given(data=st.data())
def test_every_scheme_passes_the_property(checked: Property[Any], data: st.DataObject) -> None:
    spec = data.draw(experiments([name for name in CASES if not checked.but(wb.schemes.get(name))]))
    checked.test(wb.schemes.get(spec["scheme"]), spec)


@given(experiments(LEAST_SQUARES))
def test_approximate_schemes_commit_the_least_squares_decoding_vector(spec: dict[str, Any]) -> None:
    e = wb.Experiment(**spec)
    coefficients = Coefficients(e.plan)
    simulated = timeline(e, coefficients, events=True)
    for r, committed in enumerate(coefficients.weights):
        matrix = e.built_scheme.encoding(e.plan, r)
        came = sorted(
            {row[1] for row in simulated.events if row[0] == r and row[2] == "send" and row[6] == 0}
        )
        best = np.linalg.lstsq(matrix[came].T, np.ones(e.plan.parts), rcond=None)[0] @ matrix[came]
        np.testing.assert_allclose(np.ones(e.plan.parts) if committed is None else committed, best, atol=1e-8)
