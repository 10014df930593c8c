"""The direction of a metric, and when it reaches a target."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import workbench as wb
from workbench.core.trace.metrics import SMOOTHED_EVALUATIONS, best_of, first_reached, rises, smoothed

VALUES = st.lists(st.one_of(st.just(np.nan), st.floats(-9, 9)), min_size=1, max_size=30)


def test_rises_accuracy_and_auc_of_training_and_test() -> None:
    assert all(map(rises, ("accuracy", "test_accuracy", "auc", "test_auc")))
    assert not any(map(rises, ("loss", "test_loss", "relative_error", "model_error", "residual", "time")))


@given(VALUES, st.floats(-9, 9))
def test_first_reached_without_batches_is_the_first_value_at_the_target(
    values: list[float], target: float
) -> None:
    down = next((i for i, value in enumerate(values) if value <= target), None)
    up = next((i for i, value in enumerate(values) if value >= target), None)
    assert first_reached(values, target, "test_loss") == down
    assert first_reached(values, target, "test_auc") == up


@given(VALUES)
def test_smoothed_is_the_mean_of_the_last_evaluated_values(values: list[float]) -> None:
    found, seen = smoothed(values, 16), []
    for value, mean in zip(values, found, strict=True):
        if np.isnan(value):
            assert np.isnan(mean)
            continue
        seen.append(value)
        assert mean == pytest.approx(np.mean(seen[-SMOOTHED_EVALUATIONS:]), abs=1e-12)


@given(VALUES, st.sampled_from(["loss", "accuracy"]), st.sampled_from([None, 16]))
def test_best_of_is_reached_and_nothing_better(values: list[float], metric: str, batch: int | None) -> None:
    best = best_of(values, metric, batch)
    if np.isnan(values).all():
        assert np.isnan(best)
        return
    assert first_reached(values, best, metric, batch) is not None
    beyond = np.nextafter(best, np.inf if rises(metric) else -np.inf)
    assert first_reached(values, beyond, metric, batch) is None


def test_time_to_of_a_run_with_batches_passes_over_one_lucky_evaluation() -> None:
    e = wb.Experiment(scheme="UMW", workers=4, rounds=6, problem_args={"samples": 80}, batch=20)
    trace = wb.run(e)
    columns = {**trace.columns, "loss": np.array([0.9, 0.4, 0.8, 0.5, 0.4, 0.3])}
    lucky = replace(trace, columns=columns)
    plain = replace(lucky, experiment=e.replace(batch=None))
    assert plain.time_to(0.45) == trace.columns["time"][1]
    assert lucky.time_to(0.49) == trace.columns["time"][5]  # (0.4 + 0.8 + 0.5 + 0.4 + 0.3) / 5
    assert np.isnan(lucky.time_to(0.45))
