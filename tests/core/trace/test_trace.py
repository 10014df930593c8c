"""Traces: bit-identical repetition, saving and loading."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import workbench as wb
from workbench.core.base.settings import SettingError
from workbench.core.contract.adaptive import Change
from workbench.core.trace.layout import ATTEMPTS
from workbench.core.trace.trace import name_of_run

SPEC: dict[str, Any] = {
    "problem": "softmax",
    "problem_args": {"data": "iris", "l2": 1e-3, "intercept": True},
    "rounds": 12,
    "link": {"latency": 1e-3, "bandwidth": 1e5},
}


def five(**changes: Any) -> tuple[wb.Experiment, ...]:
    return wb.baselines(3, 2, 1, **{**SPEC, **changes})


@settings(max_examples=10)
@given(st.integers(0, 2**32))
def test_run_repeated_with_its_seed_is_bit_identical(seed: int) -> None:
    together = wb.compare(five(seed=seed))
    for trace in together:
        assert trace.same(wb.run(trace.experiment))  # also if it ran together with others
    other = wb.run(five(seed=seed + 1)[0])
    assert not other.same(together[0])


def test_trace_of_exact_schemes_ends_at_the_same_model() -> None:
    together = {t.label: t.model for t in wb.compare(five())}
    alone = {e.scheme: wb.run(e, numeric=True).model for e in five()}
    reference = together["UMW"]
    for name in ("GC", "RAR", "CR"):
        np.testing.assert_allclose(together[name], reference, rtol=1e-9)
        np.testing.assert_allclose(alone[name], reference, rtol=0, atol=1e-9 * np.abs(reference).max())
    np.testing.assert_allclose(alone["SGD"], together["SGD"], rtol=0, atol=1e-9 * np.abs(reference).max())
    assert np.abs(together["SGD"] - reference).max() > 1e-6


def test_trace_of_numeric_and_coefficient_runs_is_equal() -> None:
    for e in five():
        a, b = wb.run(e).rounds, wb.run(e, numeric=True).rounds
        assert list(a.columns) == list(b.columns)
        np.testing.assert_allclose(a.drop(columns="residual"), b.drop(columns="residual"), rtol=1e-7)


def test_trace_rounds_table() -> None:
    trace = wb.run(five()[-1])
    assert list(trace.rounds["round"]) == list(range(12))
    assert {
        "time",
        "loss",
        "accuracy",
        "relative_error",
        "messages",
        "bytes",
        "samples",
        "residual",
        "stale",
    } <= set(trace.rounds.columns)
    assert trace.rounds["time"].is_monotonic_increasing
    assert trace.initial["loss"] == pytest.approx(np.log(3))
    assert trace.rounds["loss"].iloc[0] < trace.initial["loss"]
    assert trace.model.shape == (5 * 3,)
    assert trace.time_to(trace.rounds["loss"].iloc[4]) == trace.rounds["time"].iloc[4]
    assert np.isnan(trace.time_to(-1.0))


def test_trace_load_and_replay_are_bit_equal(tmp_path: Path) -> None:
    for trace in wb.compare(five()):
        folder = trace.save(tmp_path / trace.label)
        assert {p.name for p in folder.iterdir()} == {
            "spec.json", "run.json", "rounds.parquet", "events.parquet", "model.npy", "SHA256SUMS",
        }  # fmt: skip
        again = wb.Trace.load(folder)
        assert again.same(trace)
        assert again.experiment == trace.experiment
        assert again.replay().same(trace)
        assert again.info["versions"]["numpy"] == np.__version__
        assert again.info["seed"] == 0


def test_trace_repr_is_one_line(tmp_path: Path) -> None:
    trace = wb.run(five()[0])
    assert re.fullmatch(r"<Trace: UMW, \d+ workers, sim: \d+ rounds in [\d.]+ s, loss [\d.]+>", repr(trace))


def test_trace_time_to_refuses_an_unknown_metric() -> None:
    with pytest.raises(SettingError, match="metric = 'lass': this trace has round, time, loss"):
        wb.run(five()[0]).time_to(0.3, "lass")


def test_trace_save_does_not_make_an_attempt_again_that_its_sweep_has_removed(tmp_path: Path) -> None:
    trace = wb.run(five()[0])
    with pytest.raises(SettingError, match="its sweep has removed this attempt"):
        trace.save(tmp_path / ATTEMPTS / "host-1-0a" / "run" / "trace")
    assert not list(tmp_path.iterdir())
    (attempt := tmp_path / ATTEMPTS / "host-1-0b" / "run").mkdir(parents=True)
    assert trace.save(attempt / "trace").is_dir()


def test_trace_save_never_overwrites(tmp_path: Path) -> None:
    trace = wb.run(five()[0])
    (tmp_path / "a").mkdir()
    with pytest.raises(SettingError, match="exists already"):
        trace.save(tmp_path / "a")


def test_trace_load_refuses_what_is_not_a_run_folder(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match=r"spec\.json"):
        wb.Trace.load(tmp_path)


def test_run_refuses_an_unknown_engine() -> None:
    with pytest.raises(SettingError, match="engine = 'simulator'"):
        wb.run(five()[0], engine="simulator")


def test_name_of_an_adaptive_run_has_its_schemes() -> None:
    e = wb.Experiment(scheme="GC", adaptive=True)
    schemes = ["UMW", "GC", "UMW", "SGD", "CEGC", "FRC"]
    changes = [Change(i, float(i), "", "", scheme, {}, 0.0, 0, "") for i, scheme in enumerate(schemes)]
    assert name_of_run(e, changes[:1]) == "adaptive (GC, then UMW)"
    assert name_of_run(e, changes[:4]) == "adaptive (GC, then UMW, SGD)"
    assert name_of_run(e, changes) == "adaptive (GC, then 4 other schemes)"
    assert name_of_run(e.replace(adaptive=False)) == "GC"
