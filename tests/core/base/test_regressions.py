"""Regression tests of edge cases in runs, forecasts, files and messages."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import workbench as wb
from workbench.core.base.settings import SettingError, user_path
from workbench.core.problems.data.cache import root


def test_run_reads_a_changed_data_file_again(tmp_path: Path) -> None:
    X = np.random.default_rng(0).standard_normal((30, 3))
    losses = []
    for scale in (1.0, 3.0):
        np.save(tmp_path / "own.npy", np.c_[X, scale * X.sum(axis=1)])
        args = {"data": str(tmp_path / "own.npy"), "scale": False}
        e = wb.Experiment(scheme="UMW", problem="least_squares", problem_args=args, rounds=1)
        losses.append(wb.run(e).initial["loss"])
    assert losses[1] == pytest.approx(9 * losses[0])


def test_forecast_reads_a_changed_recording_again(tmp_path: Path) -> None:
    path = tmp_path / "times.csv"
    means = []
    for seconds in ("1", "20"):
        path.write_text(f"worker,iteration,seconds\n0,0,{seconds}\n")
        delays = {"kind": "replay", "path": str(path)}
        e = wb.Experiment(scheme="UMW", workers=1, problem="unit", problem_args={"samples": 1}, delays=delays)
        means.append(wb.forecast(e).mean)
    assert means == [1.0, 20.0]


@pytest.mark.parametrize("options", [{"numeric": True}, {"events": False}, {}])
def test_replay_equals_the_run(tmp_path: Path, options: dict[str, bool]) -> None:
    trace = wb.run(wb.Experiment(rounds=3), **options)
    loaded = wb.Trace.load(trace.save(tmp_path / "run"))
    assert loaded.replay().same(loaded)


@pytest.mark.parametrize("name", ["UMW", "GC", "RAR", "CR", "FRC", "CEGC"])
@pytest.mark.parametrize("samples", [1, 5])
def test_run_with_fewer_samples_than_workers(name: str, samples: int) -> None:
    common: dict[str, Any] = {"problem": "unit", "problem_args": {"samples": samples}, "rounds": 2}
    assert len(wb.run(wb.Experiment(scheme=name, workers=12, **common)).rounds) == 2


def test_preset_round_trips_through_a_file(tmp_path: Path) -> None:
    for preset in wb.presets.values():
        for e in preset:
            for suffix in (".json", ".yaml"):
                assert wb.Experiment.read(e.write(tmp_path / f"spec{suffix}")) == e


def test_forecast_table_3_on_the_unit_problem() -> None:
    """A gradient of 8 values is not a multiple of m = 3, so messages are padded.

    In the paper, a message takes 1/m of the sending time of a whole gradient, without padding.
    """
    delays = {"kind": "two_part", "t1": 1.6, "lambda1": 0.8, "t2": 6.0, "lambda2": 0.1}
    args = {"load": 4, "stragglers": 1, "reduction": 3}
    common: dict[str, Any] = {
        "problem": "unit",
        "problem_args": {"samples": 8},
        "delays": delays,
        "rounds": 4000,
    }
    f = wb.forecast(wb.Experiment(scheme="CEGC", scheme_args=args, workers=8, **common))
    assert abs(f.mean - 21.3697) < 4 * f.error


def test_compare_a_ring_of_one_worker() -> None:
    assert len(wb.compare(wb.baselines(1, 1, 0, rounds=2))) == 5


def test_run_reports_divergence() -> None:
    e = wb.Experiment(problem="least_squares", optimiser_args={"step": 1e9}, rounds=60)
    with pytest.warns(RuntimeWarning, match=r"CR: the loss is not finite from round \d+ on"):
        wb.run(e)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (
            lambda: wb.Experiment.model_validate_json('{"workerz": 3}'),
            "workerz: Experiment has no such field",
        ),
        (lambda: wb.Experiment.model_validate_json('{"workers":'), "Experiment = .*JSON"),
        (lambda: wb.Experiment.model_validate([1]), r"Experiment = \[1\]"),
        (lambda: wb.Experiment(workers=True), "workers = True: is not a number"),
        (lambda: wb.Experiment(scheme_args={"stragglers": True}), r"scheme_args\.stragglers = True"),
        (lambda: wb.baselines(0, 2, 1), "children = 0"),
        (lambda: wb.presets["fig8"]["XX"], "scheme = 'XX'"),
        (lambda: wb.forecast(wb.presets["fig8"]), "give a wb.Experiment"),  # type: ignore[arg-type]
        (lambda: wb.forecast(wb.Experiment(), 0), "rounds = 0"),
        (lambda: wb.forecast(wb.Experiment(faults=[{"worker": 1, "round": 0}])), "faults.kind = "),
        (lambda: wb.Experiment(scheme_args={"children": 10**6}), "workers = 12: the .1000000,2. tree"),
        (
            lambda: wb.Experiment(
                scheme_args={"children": 2, "layers": 1, "stragglers": 0, "matrix": [[1, 1], [0, 0]]},
                workers=2,
            ),
            "a row of zeros",
        ),
        (
            lambda: wb.Experiment(scheme="GC-MMC", scheme_args={"order": 2.5}),
            r"scheme_args\.order = 2\.5",
        ),
    ],
)
def test_experiment_errors_are_one_sentence(call: Any, text: str) -> None:
    with pytest.raises(SettingError, match=text) as error:
        call()
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("content", ["", "worker,iteration,seconds\n0,0,soon\n", "a\n\x00"])
def test_forecast_refuses_a_broken_recording(tmp_path: Path, content: str) -> None:
    path = tmp_path / "times.csv"
    path.write_text(content)
    delays = {"kind": "replay", "path": str(path)}
    with pytest.raises(SettingError, match=r"delays\.path"):
        wb.forecast(wb.Experiment(delays=delays))


@pytest.mark.parametrize("name", ["run.json", "rounds.parquet", "model.npy"])
def test_trace_load_refuses_a_damaged_run_folder(tmp_path: Path, name: str) -> None:
    folder = wb.run(wb.Experiment(rounds=2)).save(tmp_path / "run")
    (folder / name).write_bytes(b"no")
    with pytest.raises(SettingError, match=rf"{name} is not what was written"):
        wb.Trace.load(folder)


def test_user_path_of_an_unknown_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the field with a path that cannot be resolved."""
    monkeypatch.setenv("HOME", str(tmp_path))
    assert user_path("~/times.csv", "delays.path") == tmp_path / "times.csv"
    e = wb.Experiment(delays={"kind": "replay", "path": "~no-such-user/times.csv"})
    with pytest.raises(
        SettingError, match=r"^delays\.path = '~no-such-user/times\.csv': there is no such user's home; write"
    ):
        wb.run(e)
    monkeypatch.setenv("WORKBENCH_CACHE", "~no-such-user")
    with pytest.raises(
        SettingError, match=r"^WORKBENCH_CACHE = '~no-such-user': there is no such user's home"
    ):
        root()


def test_setting_out_of_range_gives_the_range_once() -> None:
    with pytest.raises(SettingError) as error:
        wb.Experiment(rounds=0)
    assert str(error.value) == "rounds = 0: take 1 or more"
