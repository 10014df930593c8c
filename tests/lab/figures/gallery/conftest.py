"""Repeated runs, shared by the tests of both kinds of bands."""

from __future__ import annotations

import pytest

import workbench as wb
from tests.support.figure_runs import RATES


@pytest.fixture(scope="module")
def many() -> list[wb.Trace]:
    common = {"workers": 6, "rounds": 10, "problem_args": {"samples": 60, "features": 3}}
    return wb.compare(
        [
            wb.Experiment(
                **common, scheme=scheme, seed=seed, delays={"kind": "shifted_exponential", "rate": rate}
            )
            for scheme in ("UMW", "SGD")
            for rate in RATES
            for seed in range(4)
        ]
    )
