"""GGC: the least-squares estimate, and sparse messages that are summed like full rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given

import workbench as wb
from tests.support.approximate_runs import experiment, simulated
from tests.support.sampled_cases import rotated
from tests.support.strategies import experiments


@given(experiments(["CR", "FRC", "GC", "GGC", "IS-GC", "LCC", "RAR", "SGD", "UC-MMC", "UMW"]))
def test_ggc_sparse_messages_commit_what_full_rows_commit(spec: dict[str, Any]) -> None:
    e = wb.Experiment(**spec)
    line, rows = simulated(e)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("workbench.core.engine.virtual.arithmetic.MIN_DENSE_PARTS", 0)
        other, few = simulated(e)
    assert line.times == other.times
    np.testing.assert_allclose(line.residuals, other.residuals, atol=1e-9)
    for one, two in zip(rows.weights, few.weights, strict=True):
        assert (one is None) == (two is None)
        if one is not None:
            np.testing.assert_allclose(one, two, atol=1e-9)


def test_ggc_error_decreases_with_the_number_of_holders() -> None:
    delay_model = {"kind": "exponential", "mean": 1.0}
    means = []
    for degree in (2, 4, 8):
        fields = {"workers": 240, "problem_args": {"samples": 480}, "delays": delay_model}
        line, _ = simulated(experiment("GGC", 30, replication=degree, wait_for=180, **fields))
        means.append(np.mean(line.residuals) / (480 / degree))
    assert means[0] > 4 * means[1] > 16 * means[2]


@rotated
def test_ggc_with_a_hundred_thousand_workers() -> None:
    """With a full row for each worker, the messages would have 40 GB."""
    e = experiment(
        "GGC", 1, workers=100_000, replication=4, wait_for=80_000, problem_args={"samples": 50_000}
    )
    trace = wb.run(e.replace(delays={"kind": "exponential", "mean": 1.0}), events=False)
    assert 0 < trace.columns["residual"][0] < 50_000 * 0.01
    assert trace.columns["messages"][0] == 80_000


def test_ggc_refuses_wrong_parameters() -> None:
    with pytest.raises(wb.SettingError, match=r"scheme_args.replication = 5: .*; take 1, 2, 3, 4"):
        wb.Experiment(scheme="GGC", scheme_args={"replication": 5}, workers=12)
