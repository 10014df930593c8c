"""Resumed runs: only with the spec and data of the start, and without missing rounds."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import workbench as wb
from tests.support.foreign_folders import forged
from tests.support.held_opening import held_opening
from tests.support.sampled_cases import sampled_cases
from tests.support.specs import quick
from workbench.core.base.arrays import from_bytes, to_bytes
from workbench.core.contract.problem import gradient_of_rows
from workbench.core.trace import records
from workbench.core.trace.checkpoint import read_checkpoint
from workbench.core.trace.layout import GRADIENTS
from workbench.mpi.launch.task import begun_with, check_begun
from workbench.mpi.running.real import RealRun, attach, resume, start_real
from workbench.mpi.running.replay import replay_arrivals

pytestmark = [pytest.mark.mpi, pytest.mark.xdist_group("mpi"), pytest.mark.usefixtures("cache")]
DELAYS: dict[str, Any] = {"kind": "constant", "shift": 1e-4}


def table(path: Path, scale: float) -> Path:
    X = np.random.default_rng(0).standard_normal((60, 4))
    np.save(path, np.c_[X, scale * X.sum(axis=1)])
    return path


def recorded(path: Path, seconds: float) -> Path:
    rows = [f"{worker},{i},{seconds}" for worker in range(4) for i in range(5)]
    path.write_text("\n".join(["worker,iteration,seconds", *rows]))
    return path


def experiment(data: Path, **fields: Any) -> wb.Experiment:
    args = {"data": str(data)}
    spec = {"scheme": "UMW", "workers": 4, "rounds": 200, "problem": "least_squares", "problem_args": args}
    return wb.Experiment(**{**spec, "optimiser_args": {"step": 0.01}, "delays": DELAYS, **fields})


def stopped(e: wb.Experiment, home: Path) -> RealRun:
    run = start_real(e, folder=home)
    while len(run.rows()["round"]) < 5:
        assert not run.wait(0.01), run
    run.stop()
    run.result()
    return run


def contents(home: Path) -> dict[str, bytes]:
    return {str(p.relative_to(home)): p.read_bytes() for p in home.rglob("*") if p.is_file()}


def test_resume_refuses_a_changed_spec(tmp_path: Path) -> None:
    data = table(tmp_path / "own.npy", 1.0)
    run = stopped(experiment(data), tmp_path / "run")
    spec = run.home / "spec.json"
    before, kept = contents(run.home), spec.read_text()
    for says, change in [
        ("optimiser_args.step = 0.02, and the run began with 0.01", {"optimiser_args": {"step": 0.02}}),
        ("rounds = 300, and the run began with 200", {"rounds": 300}),
        ("scheme = 'SGD', and the run began with 'UMW'", {"scheme": "SGD"}),
        ("delays.shift = 0.0002, and", {"delays": {**DELAYS, "shift": 2e-4}}),
    ]:
        spec.write_text(json.dumps({**json.loads(kept), **change}))
        for each in ("run.json", "SHA256SUMS"):  # so that only the checkpoint reveals the change
            (run.home / each).unlink(missing_ok=True)
        with pytest.raises(wb.SettingError, match=says):
            resume(run.home).result()
    spec.write_text(json.dumps(json.loads(kept)))  # the same experiment, formatted differently
    now = {k: v for k, v in contents(run.home).items() if k not in ("spec.json", "run.json", "SHA256SUMS")}
    assert now == {k: v for k, v in before.items() if k in now}
    assert len(resume(run.home).result().rounds) == 200


def test_resume_refuses_changed_data(tmp_path: Path) -> None:
    data = table(tmp_path / "own.npy", 1.0)
    run = stopped(experiment(data), tmp_path / "run")
    table(data, 2.0)
    with pytest.raises(
        wb.SettingError, match=r"data: '.*own.npy' holds something else than when the run began"
    ):
        resume(run.home).result()
    table(data, 1.0)
    assert len(resume(run.home).result().rounds) == 200


def test_resume_refuses_a_changed_task(tmp_path: Path) -> None:
    run = stopped(experiment(table(tmp_path / "own.npy", 1.0)), tmp_path / "run")
    task = run.home / "task.json"
    kept = json.loads(task.read_text())
    for change in ({"emulate": "nothing"}, {"gradients": True}):
        task.write_text(json.dumps({**kept, **change}))
        with pytest.raises(
            wb.SettingError, match=rf"task.json: {next(iter(change))} = .* the run began with"
        ):
            resume(run.home).result()
    task.write_text(json.dumps(kept))
    assert len(resume(run.home).result().rounds) == 200


def test_resume_refuses_changed_recorded_delays(tmp_path: Path) -> None:
    times = recorded(tmp_path / "times.csv", 1e-3)
    e = experiment(table(tmp_path / "own.npy", 1.0), delays={"kind": "replay", "path": str(times)})
    begun = begun_with(e)
    check_begun(e, begun, {})
    recorded(times, 2e-3)
    with pytest.raises(wb.SettingError, match=r"delays: '.*times.csv' holds something else"):
        check_begun(e, begun, {})


def test_resume_from_a_checkpoint_of_an_older_version(tmp_path: Path) -> None:
    """The checkpoint of an older version lacks its origin and its hash, and the folder lacks hashes and a lock."""
    run = stopped(experiment(table(tmp_path / "own.npy", 1.0)), tmp_path / "run")
    path = run.home / records.CHECKPOINT
    held = from_bytes(path.read_bytes())
    path.write_bytes(to_bytes({k: v for k, v in held.items() if k != "sum" and not k.startswith("begun_")}))
    for name in ("run.json", "SHA256SUMS", ".lock"):
        (run.home / name).unlink()
    assert len(resume(run.home).result().rounds) == 200


@pytest.mark.parametrize("name", [records.ROWS, records.MODELS])
def test_resume_refuses_missing_rounds(tmp_path: Path, name: str) -> None:
    run = stopped(experiment(table(tmp_path / "own.npy", 1.0)), tmp_path / "run")
    path = run.home / name
    for each in ("run.json", "SHA256SUMS"):
        (run.home / each).unlink()
    path.write_bytes(path.read_bytes()[:-9])
    before = contents(run.home)
    with pytest.raises(
        wb.SettingError, match=rf"{name} has \d+ rounds, and the checkpoint was written after"
    ):
        resume(run.home).result()
    assert contents(run.home) == before


def test_resume_refuses_a_changed_model(tmp_path: Path) -> None:
    run = stopped(experiment(table(tmp_path / "own.npy", 1.0)), tmp_path / "run")
    path = run.home / records.MODELS
    whole = bytearray(path.read_bytes())
    whole[7] ^= 1
    path.write_bytes(whole)
    with pytest.raises(wb.SettingError, match=r"models.f64 is not what was written"):
        resume(run.home).result()


def test_resume_refuses_a_damaged_checkpoint(tmp_path: Path) -> None:
    run = stopped(experiment(table(tmp_path / "own.npy", 1.0)), tmp_path / "run")
    (run.home / records.CHECKPOINT).write_bytes(b"PK no archive")
    with pytest.raises(wb.SettingError, match=r"checkpoint.npz: is damaged \(.*\); run it again"):
        resume(run.home).result()


# ---------------------------------------------------------------- runs stopped by the user


def test_resume_a_run_stopped_before_it_started(tmp_path: Path) -> None:
    e = experiment(table(tmp_path / "own.npy", 1.0))
    busy = start_real(e.replace(rounds=3000))
    while len(busy.rows()["round"]) < 2:
        assert not busy.wait(0.01), busy
    waiting = start_real(e, folder=tmp_path / "run")
    waiting.stop()
    assert waiting.wait(30.0), "waits for the run before it"
    assert not busy.wait(0.0)
    assert waiting.state == "stopped"
    assert waiting.error is None
    assert len(waiting.result().rounds) == 0
    assert len(wb.Trace.load(waiting.home).rounds) == 0
    row = wb.runs(tmp_path / "run").table.iloc[0]
    assert (row["state"], row["scheme"], row["error"][-20:]) == (
        "stopped",
        e.scheme,
        "wb.resume resumes it",
    )
    busy.stop()
    assert len(resume(waiting.home).result().rounds) == 200


def test_resume_a_run_stopped_while_its_data_are_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run ends although the data are still being opened. Its folder is complete, and the run can be resumed."""
    e, home = experiment(table(tmp_path / "own.npy", 1.0), rounds=4), tmp_path / "run"
    with monkeypatch.context() as patched:
        opening, gate = held_opening(patched)
        run = start_real(e, folder=home)
        assert opening.wait(60)
        run.stop()
        assert run.wait(60)
        gate.set()
    assert (run.state, run.note, len(run.result().rounds)) == ("stopped", "stopped before the first round", 0)
    (row,) = wb.runs(home).table.to_dict("records")
    assert (row["state"], row["error"]) == ("stopped", "stopped before its first round; wb.resume resumes it")
    assert len(wb.Trace.load(home).rounds) == 0
    assert len(attach(home).result().rounds) == 0
    np.testing.assert_allclose(resume(home).result().model, wb.run(e).model, rtol=1e-12)


@pytest.mark.parametrize("seconds", sampled_cases("after a stop", 2, [0.0, 0.02, 0.1, 0.3]))
def test_resume_right_after_stop(tmp_path: Path, seconds: float) -> None:
    e = experiment(table(tmp_path / "own.npy", 1.0))
    run = start_real(e.replace(rounds=3000), folder=tmp_path / "run")
    assert not run.wait(seconds)
    run.stop()
    again = resume(run.home)  # without waiting for the end of the first run
    while len(again.rows()["round"]) < 200:
        assert not again.wait(0.01), again
    again.stop()
    again.result()
    assert run.state == "stopped"
    assert run.error is None
    whole = wb.run(e).model
    models = records.read_models(run.home, whole.size)
    np.testing.assert_allclose(models[199], whole, rtol=1e-9)
    assert records.read_rows(run.home)[:, 0].tolist() == list(range(len(models)))


def test_resume_stopped_early_keeps_the_rounds(tmp_path: Path) -> None:
    run = stopped(experiment(table(tmp_path / "own.npy", 1.0), rounds=3000), tmp_path / "run")
    done = len(run.result().rounds)
    again = resume(run.home)
    again.stop()
    kept = again.result()
    assert again.state == "stopped"
    assert len(kept.rounds) >= done
    np.testing.assert_array_equal(kept.rounds["loss"][:done], run.result().rounds["loss"])


# ------------------------------------------------------------------ files lost during a run, or after it


def cut_rows(home: Path) -> None:
    os.truncate(home / "live.f64", 3 * 64)


def remove_rows(home: Path) -> None:
    (home / "live.f64").unlink()


def cut_models(home: Path) -> None:
    os.truncate(home / "models.f64", 0)


def make_again(home: Path) -> None:
    home.rename(home.with_name("away"))
    shutil.copytree(home.with_name("away"), home, ignore=shutil.ignore_patterns(".*.tmp"))


def make_again_empty(home: Path) -> None:
    home.rename(home.with_name("away"))
    home.mkdir()


LOSSES = [cut_rows, remove_rows, cut_models, make_again, make_again_empty]


@pytest.mark.parametrize("lose", sampled_cases("losses in mid-run", 2, LOSSES))
def test_resume_a_run_that_lost_rounds(tmp_path: Path, lose: Any) -> None:
    """An earlier version reported "finished, all 26 rounds" of 30."""
    run = start_real(
        wb.Experiment(**quick("UMW", rounds=120, samples=120, features=20)), folder=tmp_path / "run"
    )
    while len(run.rows()["round"]) < 5:
        assert not run.wait(0.001), run
    lose(run.home)
    with pytest.raises(wb.RunError, match=r"\d+ of the 120 rounds that were done are there") as caught:
        run.result()
    assert "\n" not in str(caught.value)
    assert run.state == "failed"
    if (run.home / "task.json").is_file():  # other functions raise the same error
        for again in (attach, wb.resume):
            with pytest.raises((wb.RunError, wb.SettingError), match="of the 120 rounds"):
                again(run.home).result()
        table = wb.runs(tmp_path).table.set_index("run")
        assert table["state"]["run"] == "damaged"
        assert "of the 120 rounds" in table["error"]["run"]


def test_load_refuses_a_trace_shorter_than_its_run(tmp_path: Path) -> None:
    """The trace is checked even without hashes."""
    folder = wb.run(wb.Experiment(**quick("UMW", rounds=10, samples=120, features=20))).save(tmp_path / "run")
    rounds = pd.read_parquet(folder / "rounds.parquet")
    rounds[:7].to_parquet(folder / "rounds.parquet")
    forged(folder)
    with pytest.raises(wb.SettingError, match=r"rounds.parquet has 7 of 10 rounds"):
        wb.Trace.load(folder)
    (row,) = wb.runs(tmp_path).table.to_dict("records")
    assert row["state"] == "damaged"
    assert "7 of 10 rounds" in row["error"]


ALTERED = {
    "a blank more": lambda text: text + b" ",
    "other words": lambda text: text.replace(b'"clean": true', b'"clean": false'),
    "other blanks": lambda text: text.replace(b": ", b":"),
    "cut": lambda text: text[:-5],
    "another list": lambda text: b"[]",
    "gone": lambda text: None,
}


@pytest.fixture(scope="module")
def over(tmp_path_factory: pytest.TempPathFactory, cache: Path) -> Path:
    run = start_real(
        wb.Experiment(**quick("UMW", rounds=12, samples=120, features=20)),
        folder=tmp_path_factory.mktemp("over") / "run",
    )
    run.result()
    return run.home


@pytest.mark.parametrize("how", ALTERED)
@pytest.mark.parametrize("name", ["ended.json", "SHA256SUMS"])
def test_resume_checks_every_file(name: str, how: str, over: Path, tmp_path: Path) -> None:
    """In an earlier version, a shortened replay had no error, and `attach` wrote new hashes."""
    folder = shutil.copytree(over, tmp_path / "run")
    text = ALTERED[how]((folder / name).read_bytes())
    if text == (folder / name).read_bytes():
        pytest.skip("changes nothing")
    (folder / name).unlink()
    if text is not None:
        (folder / name).write_bytes(text)
    os.truncate(folder / "live.f64", 8 * 64)
    before = {
        path.name: path.read_bytes() for path in folder.iterdir() if path.is_file() and path.name[0] != "."
    }
    for read in (replay_arrivals, lambda home: attach(home).result()):
        with pytest.raises((wb.SettingError, wb.RunError)) as caught:
            read(folder)
        assert "\n" not in str(caught.value)
    after = {
        path.name: path.read_bytes() for path in folder.iterdir() if path.is_file() and path.name[0] != "."
    }
    assert after == before


def test_replay_arrivals_refuses_a_missing_hash(over: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(over, tmp_path / "run")
    sums = (folder / "SHA256SUMS").read_text().splitlines(keepends=True)
    kept = ("live.f64", "models.f64", "ledgers.npz", "ended.json", "arrivals/0.i64")
    for gone in [*((name,) for name in kept), kept]:
        (folder / "SHA256SUMS").write_text("".join(s for s in sums if s.split("  ")[1].strip() not in gone))
        with pytest.raises(wb.SettingError, match="is not in SHA256SUMS"):
            replay_arrivals(folder)


def test_resumed_run_invalidates_earlier_hashes(tmp_path: Path) -> None:
    run = start_real(
        wb.Experiment(**quick("UMW", rounds=400, samples=120, features=20)),
        folder=tmp_path / "run",
        checkpoint_every=0,
    )
    while len(run.rows()["round"]) < 5:
        assert not run.wait(0.001), run
    run.stop()
    run.wait()
    assert (run.home / "run.json").is_file()
    again = wb.resume(run.home)
    trace = again.result()
    assert (again.state, len(trace.rounds)) == ("finished", 400)
    assert wb.Trace.load(run.home).same(trace)
    replay_arrivals(run.home)


BATCHES: dict[str, Any] = {
    "workers": 3,
    "batch": 60,
    "problem": "logistic",
    "problem_args": {"samples": 240, "features": 3},
    "optimiser_args": {"step": 0.02},
}


def resumed(e: wb.Experiment, home: Path) -> tuple[wb.Trace, int, tuple[int, ...]]:
    """Return a resumed run's trace, the round of its stop, and the steps of its workers at that time."""
    run = start_real(e, folder=home, gradients=True)
    while len(run.rows()["round"]) < 5:
        assert not run.wait(0.01), run
    run.stop()
    run.result()
    last = read_checkpoint(home)
    return resume(home).result(), last.rounds, last.steps


@pytest.mark.parametrize("scheme", ["UMW", "GC", "LocalSGD"])
def test_resume_continues_with_the_batches_of_its_rounds(scheme: str, tmp_path: Path) -> None:
    e = wb.Experiment(scheme=scheme, rounds=150, delays=DELAYS, **BATCHES)
    trace, stopped_at, _ = resumed(e, tmp_path / "run")
    assert 5 <= stopped_at < 150
    np.testing.assert_allclose(trace.model, wb.run(e).model, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    ("scheme", "args"),
    [
        ("M-SGC", {"burst": 1, "window": 3, "stragglers": 2}),
        ("SR-SGC", {"burst": 2, "window": 5, "stragglers": 2}),
    ],
)
def test_resume_continues_with_the_batches_of_its_jobs(
    scheme: str, args: dict[str, Any], tmp_path: Path
) -> None:
    """A job uses the model of two commits before.

    The checkpoint stores one model, so no job after the stop uses an older one.
    """
    bursts = {"kind": "markov", "factor": 10.0, "p_slow": 0.15, "shift": 5e-5}
    e = wb.Experiment(scheme=scheme, scheme_args=args, rounds=150, delays=bursts, **{**BATCHES, "workers": 4})
    trace, stopped_at, _ = resumed(e, tmp_path / "run")
    assert 5 <= stopped_at < 150
    plain, sampler = e.replace(batch=None).build_problem(), e.sampler
    assert sampler is not None
    models = [plain.start()]
    for job in range(e.rounds):
        rows = sampler.rows(job)
        model = models[max(0 if job < stopped_at else stopped_at, job - 2)]
        gradient = gradient_of_rows(plain, rows, np.full(len(rows), 1 / len(rows)), model)
        models.append(models[-1] - BATCHES["optimiser_args"]["step"] * gradient)
    np.testing.assert_allclose(trace.model, models[-1], rtol=1e-9, atol=1e-12)


def test_resume_continues_with_the_batches_of_each_workers_steps(tmp_path: Path) -> None:
    e = wb.Experiment(scheme="ASGD", scheme_args={"damping": 0.0}, rounds=150, delays=DELAYS, **BATCHES)
    trace, stopped_at, steps = resumed(e, tmp_path / "run")
    assert 5 <= sum(steps) == stopped_at < 150
    plain, plan, gone = e.replace(batch=None).build_problem(), e.plan, dict.fromkeys(range(1, 4), 0)
    models = [plain.start(), *records.read_models(tmp_path / "run", trace.model.size)]
    gradients = np.fromfile(tmp_path / "run" / GRADIENTS).reshape(len(models) - 1, -1)
    assert e.sampler is not None
    answers = records.arrivals_of(tmp_path / "run", 0)
    for (version, rank, _), gradient in zip(answers, gradients, strict=True):
        (part,), batch = plan.work[rank].parts, e.sampler.rows(gone[rank])
        own = batch[(batch >= plan.bounds[part]) & (batch < plan.bounds[part + 1])]
        weights = np.full(len(own), plan.parts * plan.samples / len(batch))
        wanted = gradient_of_rows(plain, own, weights, models[version])
        np.testing.assert_allclose(gradient, wanted, rtol=1e-9, atol=1e-9)
        gone[rank] += 1
    assert min(gone.values()) > e.sampler.batches_per_epoch


def test_checkpoint_counts_the_answers_of_commits_only(tmp_path: Path) -> None:
    e = wb.Experiment(scheme="FedBuff", scheme_args={"buffer": 2}, rounds=150, delays=DELAYS, **BATCHES)
    trace, stopped_at, steps = resumed(e, tmp_path / "run")
    assert (len(steps), sum(steps)) == (3, 2 * stopped_at)
    assert sum(read_checkpoint(tmp_path / "run").steps) == 2 * len(trace.rounds)


@pytest.mark.parametrize(
    ("optimiser", "args"),
    [
        ("sgd", {"step": 0.01, "momentum": 0.9, "nesterov": True, "weight_decay": 0.01, "clip": 1.0}),
        ("adam", {"rate": 0.01, "max_square": True}),
        ("adamw", {"rate": 0.01}),
    ],
)
def test_resumed_run_has_the_optimiser_state_of_an_undisturbed_one(
    tmp_path: Path, optimiser: str, args: dict[str, Any]
) -> None:
    """Checkpoints have moments and velocity, and the schedule depends on the round. Losses are equal bit for bit."""
    args |= {"schedule": {"kind": "cosine", "warmup": 20}}
    e = experiment(table(tmp_path / "own.npy", 1.0), optimiser=optimiser, optimiser_args=args)
    run = stopped(e, tmp_path / "run")
    assert run.rows()["round"][-1] < 199
    resumed = resume(run.home).result().columns["loss"]
    undisturbed = wb.run(e, engine="mpi", folder=str(tmp_path / "whole")).columns["loss"]
    np.testing.assert_array_equal(resumed, undisturbed)
    np.testing.assert_allclose(wb.run(e).columns["loss"], undisturbed, rtol=1e-9)
