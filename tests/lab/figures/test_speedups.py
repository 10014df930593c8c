"""The table of speedups, compared with a computation by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import workbench as wb
from tests.support.figure_runs import experiment
from workbench.core.base.settings import SettingError
from workbench.lab.figures import speedups
from workbench.lab.figures.speedups import common_target


def made(scheme: str, times: list[float], losses: list[float], **columns: Any) -> wb.Trace:
    base = wb.run(experiment("UMW", rounds=1))
    numbers = {"round": np.arange(len(times)), "time": np.array(times), "loss": np.array(losses), **columns}
    return replace(base, columns=numbers, experiment=base.experiment.replace(scheme=scheme))


def test_speedups_by_hand() -> None:
    fast = made("CR", [1.0, 2.0, 3.0], [0.9, 0.5, 0.1])
    slow = made("UMW", [10.0, 20.0, 30.0], [0.9, 0.6, 0.4])
    never = made("SGD", [1.0, 2.0, 3.0], [0.9, 0.8, 0.7])
    table = speedups([slow, never, fast], target=0.5)
    assert list(table.columns) == ["scheme", "seconds", "times_as_long", "follows", "reference"]
    assert table["scheme"].tolist() == ["UMW", "SGD", "CR"]
    np.testing.assert_array_equal(table["seconds"], [30.0, np.nan, 2.0])
    np.testing.assert_array_equal(table["times_as_long"], [15.0, np.nan, 1.0])
    assert table["reference"].tolist() == ["CR"] * 3
    other = speedups([slow, never, fast], target=0.5, reference="UMW")
    np.testing.assert_allclose(other["times_as_long"], [1.0, np.nan, 2 / 30])


def test_speedups_of_accuracy_are_reached_from_below() -> None:
    trace = made("CR", [1.0, 2.0, 3.0], [0.0] * 3, accuracy=np.array([0.7, 0.9, 0.8]))
    assert speedups([trace], target=0.85, metric="accuracy")["seconds"].tolist() == [2.0]


def test_speedups_reference_without_cr_is_the_fastest() -> None:
    slow, fast = made("UMW", [4.0], [0.1]), made("GC", [2.0], [0.1])
    assert speedups([slow, fast], target=0.1)["times_as_long"].tolist() == [2.0, 1.0]
    tree = made("CR", [8.0], [0.1])
    assert speedups([slow, fast, tree], target=0.1)["times_as_long"].tolist() == [0.5, 0.25, 1.0]
    late = made("CR", [1.0], [0.9])
    assert speedups([slow, fast, late], target=0.1)["times_as_long"].tolist()[:2] == [2.0, 1.0]


def test_speedups_of_rounds_without_duration() -> None:
    table = speedups([made("UMW", [1.0], [0.1]), made("CR", [0.0], [0.1])], target=0.5)
    assert table["times_as_long"].iloc[0] == np.inf
    assert np.isnan(table["times_as_long"].iloc[1])


@settings(max_examples=20)
@given(st.floats(0.3, 0.7))
def test_speedups_seconds_equal_time_to(traces: list[wb.Trace], target: float) -> None:
    table = speedups(traces, target)
    np.testing.assert_array_equal(table["seconds"], [t.time_to(target) for t in traces])


def test_speedups_refuse_wrong_input(traces: list[wb.Trace]) -> None:
    with pytest.raises(SettingError, match=r"^reference = 'XY': no such name; .*UMW, GC, RAR, SGD, CR$"):
        speedups(traces, 0.5, reference="XY")
    with pytest.raises(SettingError, match=r"^target = inf: must be a finite number"):
        speedups(traces, float("inf"))
    with pytest.raises(SettingError, match=r"^traces = \[\]: is empty"):
        speedups([], 0.5)


def test_speedups_over_seeds_are_means_with_their_interval() -> None:
    seconds = {"CR": (1.0, 2.0, 3.0), "UMW": (8.0, 10.0, 12.0), "GC": (1.0, np.nan, 1.0)}
    found = []
    for scheme, times in seconds.items():
        for seed, at in enumerate(times):
            trace = made(scheme, [at], [0.1]) if at == at else made(scheme, [5.0], [0.9])
            found.append(replace(trace, experiment=trace.experiment.replace(seed=seed)))
    table = speedups(found, target=0.2, over_seeds=True)
    assert table["scheme"].tolist() == ["CR", "UMW", "GC"]
    assert table["runs"].tolist() == [3, 3, 3]
    np.testing.assert_array_equal(table["seconds"], [2.0, 10.0, np.nan])
    np.testing.assert_array_equal(table["times_as_long"], [1.0, 5.0, np.nan])
    half = 4.302652729911275 / np.sqrt(3)  # Student's t with two degrees of freedom
    np.testing.assert_allclose(table["high"][:2], [2 + half, 10 + 2 * half])
    np.testing.assert_allclose(table["low"][:2], [2 - half, 10 - 2 * half])


def test_common_target_of_an_accuracy_is_reached_by_all() -> None:
    traces = [
        made(scheme, [1.0, 2.0], [0.0] * 2, accuracy=np.array(values))
        for scheme, values in (("CR", [0.7, 0.9]), ("UMW", [0.8, 0.6]))
    ]
    target = common_target(traces, "accuracy")
    assert target == 0.8
    assert speedups(traces, target, "accuracy")["seconds"].tolist() == [2.0, 1.0]


@pytest.mark.parametrize(("metric", "sign"), [("loss", 1), ("accuracy", -1)])
def test_common_target_ignores_runs_that_never_improve(metric: str, sign: int) -> None:
    """Otherwise, the run that only gets worse would be the first at the target."""
    curves = {"CR": [0.6, 0.4], "UMW": [0.7, 0.5], "ASGD": [1.3, 1.2]}
    traces = [
        replace(
            made(scheme, [1.0, 2.0], [0.0] * 2, **{metric: sign * np.array(values)}),
            initial={metric: sign * 1.0},
        )
        for scheme, values in curves.items()
    ]
    target = common_target(traces, metric)
    assert target == sign * 0.5
    assert np.isnan(speedups(traces, target, metric)["seconds"].tolist()[2])
    assert common_target(traces[2:], metric) == sign * 1.2  # alone, it has a target too


def test_common_target_ignores_runs_without_a_finite_value() -> None:
    good, bad = (made(name, [1.0], [loss]) for name, loss in (("CR", 0.5), ("SGD", np.nan)))
    assert common_target([replace(each, initial={"loss": 1.0}) for each in (good, bad)]) == 0.5
