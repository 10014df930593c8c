"""Share of the data that a round uses, and the verdict by passes over the data."""

from __future__ import annotations

import numpy as np
import pytest

import workbench as wb
from workbench.core.forecasting import Forecast
from workbench.lab.figures.passes import data_share, pass_times, verdict


def sampled(share: float, seconds: float) -> Forecast:
    return Forecast(np.full(4, seconds), load=share, messages=1.0, bytes=8.0)


@pytest.mark.parametrize("scheme", ["UMW", "CR", "GC", "SGD", "Backup", "ASGD", "FedBuff", "PGC", "CADA"])
def test_data_share_of_a_run_is_that_of_its_forecast(scheme: str) -> None:
    e = wb.Experiment(scheme=scheme, workers=12, rounds=40)
    assert data_share(wb.run(e)) == pytest.approx(data_share(wb.forecast(e)))


def test_data_share_of_a_lazy_run_counts_old_gradients() -> None:
    """CADA sends few messages, and commits the old gradients of the other workers."""
    trace = wb.run(wb.Experiment(scheme="CADA", workers=12, rounds=40))
    assert sum(trace.columns["messages"]) < 12 * 40 / 2
    assert data_share(trace) == 1.0


def test_verdict_compares_rounds_that_use_all_data() -> None:
    assert verdict({"UMW": sampled(1.0, 2.0), "CR": sampled(1.0, 0.5)}) == (
        "CR has the shortest rounds: 500 ms on average",
        [],
    )


def test_verdict_compares_passes_if_some_rounds_use_less_data() -> None:
    """The shortest round is not the winner if it uses so little data that a pass takes longer."""
    known = {"CR": sampled(1.0, 0.5), "ASGD": sampled(0.1, 0.1)}
    assert pass_times(known) == pytest.approx({"CR": 0.5, "ASGD": 1.0})
    head, notes = verdict(known)
    assert head == "CR is the fastest over the data: 500 ms a pass"
    assert notes == ["ASGD has shorter rounds, 100 ms", "ASGD uses 10 % of the data in a round"]


@pytest.mark.parametrize("workers", [84, 156])
def test_data_share_uses_the_mean_load(workers: int) -> None:
    """1000 samples on 156 workers: some have 7, most have 6. Answers of S fewer workers are the rest of the data."""
    e = wb.Experiment(scheme="SGD", workers=workers, rounds=6, scheme_args={"stragglers": workers // 12})
    expected = 1 - (workers // 12) / workers
    assert data_share(wb.forecast(e)) == pytest.approx(expected)
    assert data_share(wb.run(e)) == pytest.approx(expected)
