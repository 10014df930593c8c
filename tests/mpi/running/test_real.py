"""Real runs from a notebook: live rows, stop, a second run, attach, resume."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

import workbench as wb
from tests.support.fault_injection import damaging
from tests.support.sampled_cases import rotated, sampled_cases
from workbench.core.trace import records
from workbench.core.trace.layout import STREAM
from workbench.core.trace.stream import Stream
from workbench.mpi.running.real import RealRun, attach, resume, start_real
from workbench.mpi.running.replay import replay_arrivals

pytestmark = [pytest.mark.mpi, pytest.mark.xdist_group("mpi")]

SPEC: dict[str, Any] = {
    "scheme": "GC",
    "scheme_args": {"stragglers": 2},
    "workers": 8,
    "rounds": 25,
    "problem": "least_squares",
    "problem_args": {"samples": 240, "features": 60},
    "delays": {"kind": "shifted_exponential", "shift": 1e-4, "rate": 1e4},
}


def long_run(**fields: Any) -> RealRun:
    run = start_real(wb.Experiment(**{**SPEC, "rounds": 3000, **fields}))
    while len(run.rows()["round"]) < 5:
        assert not run.wait(0.01), run
    return run


def test_real_run_equals_the_simulator(tmp_path: Path) -> None:
    e = wb.Experiment(**SPEC)
    trace = wb.run(e, engine="mpi", folder=tmp_path / "run")
    sim = wb.run(e)
    np.testing.assert_allclose(trace.model, sim.model, rtol=1e-9)
    assert trace.engine == "mpi"
    assert trace.info["measured"]
    assert list(trace.rounds["round"]) == list(range(25))
    assert trace.rounds["time"].is_monotonic_increasing
    loaded = wb.Trace.load(tmp_path / "run")
    assert loaded.same(trace)
    assert loaded.info["overrun_share"] == trace.info["overrun_share"]


def test_real_run_stream_is_complete() -> None:
    run = long_run()
    other = attach(run.folder or "")  # as in another kernel
    live, new = Stream(run.experiment), other.watcher()
    while run.state == "running" and len(live) < 40:
        live.add(new())
        time.sleep(0.02)
    assert len(live) >= 40
    assert abs(len(live) - len(run.rows()["round"])) <= 40
    seen, until = len(live), time.monotonic() + 2.0  # reports of the leaves come 0.25 s later
    while run.state == "running" and time.monotonic() < until:
        live.add(new())
        time.sleep(0.02)
    run.stop()
    whole = Stream.of(run.result())
    np.testing.assert_allclose(live.ends[:seen], whole.ends[:seen], rtol=1e-9)
    np.testing.assert_array_equal(live.grid[:seen], whole.grid[:seen])
    assert not (run.home / STREAM).exists()


def test_real_run_rows_appear_and_survive_a_stop() -> None:
    run = long_run()
    first = len(run.rows()["round"])
    assert run.state == "running"
    while not np.isfinite(run.rows()["loss"]).any():
        assert not run.wait(0.01), run
    run.stop()
    assert run.wait(60.0)
    trace = run.result()
    assert run.state == "stopped"
    assert first <= len(trace.rounds) < 3000
    assert trace.info["clean"]
    pool = run.pool
    again = start_real(wb.Experiment(**SPEC))
    assert again.result().info["state"] == "finished"
    assert again.pool is pool  # the same ranks


def test_real_run_losses_are_lazy() -> None:
    run = start_real(wb.Experiment(**{**SPEC, "rounds": 3000}))
    while run.rounds_done < 100:
        assert not run.wait(0.01), run
    assert not run.losses
    run.stop()
    trace = run.result()
    assert np.isfinite(trace.rounds["loss"]).all()
    assert run.rounds_done == len(trace.rounds)


def test_attach_to_a_run_by_its_folder() -> None:
    run = long_run()
    other = attach(run.home)
    while not len(other.rows()["round"]):
        assert not other.wait(0.01), other
    other.stop()
    assert other.wait(60.0)
    assert run.wait(60.0)
    assert len(other.result().rounds) == len(run.result().rounds)
    assert len(attach(run.home).result().rounds) == len(run.result().rounds)


def test_real_run_is_stopped_and_resumed() -> None:
    e = wb.Experiment(**{**SPEC, "rounds": 60, "scheme": "UMW", "scheme_args": {}})
    whole = start_real(e).result()
    run = start_real(e)
    while len(run.rows()["round"]) < 10:
        assert not run.wait(0.01), run
    run.stop()
    stopped = run.result()
    assert len(stopped.rounds) < 60
    trace = resume(run.home).result()
    assert len(trace.rounds) == 60
    assert trace.rounds["time"].is_monotonic_increasing
    assert np.array_equal(trace.model, whole.model)
    np.testing.assert_array_equal(trace.rounds["loss"], whole.rounds["loss"])


@pytest.mark.parametrize(
    "name", ["H-SGD", *sampled_cases("arrivals", 2, ["GC", "CR", "FRC", "GC-MMC", "G-CADA", "CEGC"])]
)
def test_replay_arrivals_reproduces_every_model(name: str) -> None:
    """In H-SGD, workers gather answers several times a round, and send averages to their children."""
    args: dict[str, Any] = {
        "CR": {"children": 2, "layers": 2, "stragglers": 1}, "H-SGD": {"local_steps": 4, "levels": ((2, 3),)}
    }.get(name, {})  # fmt: skip
    run = start_real(wb.Experiment(**{**SPEC, "scheme": name, "scheme_args": args, "workers": 6}))
    trace = run.result()
    models = records.read_models(run.home, trace.model.size)
    assert np.array_equal(replay_arrivals(run.home), models)


def test_real_run_survives_a_killed_kernel(tmp_path: Path) -> None:
    script = (
        "import json, sys, time, workbench as wb\n"
        "from workbench.mpi.running.real import start_real\n"
        f"run = start_real(wb.Experiment(**json.loads({json.dumps(json.dumps({**SPEC, 'rounds': 60}))})),"
        f" folder={str(tmp_path / 'run')!r})\n"
        "while not len(run.rows()['round']): time.sleep(0.01)\n"
        "print('going', flush=True)\n"
        "time.sleep(60)\n"
    )
    kernel = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE)
    assert kernel.stdout is not None
    assert kernel.stdout.readline() == b"going\n"
    kernel.kill()
    kernel.wait()
    trace = attach(tmp_path / "run").result()
    assert len(trace.rounds) == 60
    folder = json.loads((tmp_path / "run" / "owner.json").read_text())["pool"]
    until = time.monotonic() + 60
    while any(folder in " ".join(p.info["cmdline"] or ()) for p in psutil.process_iter(["cmdline"])):
        assert time.monotonic() < until, "the ranks outlive their client and its run"
        time.sleep(0.1)


@pytest.mark.parametrize(
    ("options", "fields"),
    [
        ({"cluster": "moon"}, "cluster = 'moon'"),
        ({"emulate": "some"}, "emulate = 'some'"),
        ({"folder": "/proc/no/such"}, "folder = '/proc/no/such'"),
    ],
)
def test_start_real_refuses_wrong_options(options: dict[str, Any], fields: str) -> None:
    with pytest.raises(wb.SettingError, match=fields):
        start_real(wb.Experiment(**SPEC), **options)


def test_real_run_share_of_overruns_needs_no_events() -> None:
    # shorter than any real computation
    e = wb.Experiment(**{**SPEC, "delays": {"kind": "constant", "shift": 1e-9}})
    share = start_real(e, events=False).result().info["overrun_share"]
    assert 0.0 < share <= 1.0


@pytest.mark.parametrize("emulate", sampled_cases("emulated", 1, ["nothing", "delays", "all"]))
def test_real_run_events_end_after_they_begin(emulate: Any) -> None:
    e = wb.Experiment(**{**SPEC, "scheme": "UMW", "scheme_args": {}, "rounds": 60})
    events = start_real(e, emulate=emulate).result().events
    assert len(events) > 60 * 8
    assert (events["end"] >= events["begun"]).all()
    sent = events[events["kind"] == "send"]
    assert (sent["end"] >= sent["start"]).all()


@rotated
def test_real_run_late_workers_equal_the_simulator(tmp_path: Path) -> None:
    """Four workers are fast.

    The answer of the fifth is under way when the next model comes, and the sixth never finishes its work.
    """
    seconds = [0.2, 0.2, 0.2, 0.2, 0.32, 2.0]
    table = tmp_path / "times.csv"
    rows = [f"{worker},0,{time}" for worker, time in enumerate(seconds)]
    table.write_text("\n".join(["worker,iteration,seconds", *rows]))
    delays = {"kind": "replay", "path": str(table), "samples": 3.0}
    spec: dict[str, Any] = {"workers": 6, "rounds": 5, "problem_args": {"samples": 6, "features": 60}}
    e = wb.Experiment(**{**SPEC, **spec, "delays": delays, "link": {"latency": 0.2}})
    sim, real = wb.run(e).rounds[:-1], start_real(e).result()
    for name in ("messages", "stale", "started", "samples"):
        np.testing.assert_array_equal(real.rounds[name][:-1], sim[name], err_msg=name)
    assert (sim["stale"][1:] == 1).all()
    assert (real.rounds["abandoned"][:-1] == 1).all()
    computed = real.events[real.events["kind"] == "compute"]
    assert computed["rank"].nunique() == 5
    np.testing.assert_allclose(computed.groupby("rank")["end"].count(), [5] * 5, atol=1)


def test_real_run_damaged_answer_is_lost_in_its_round() -> None:
    """The round in a damaged message is not trusted, so the answer is missing in the round that the master is in.

    That is its own round, since workers send answers before they are due.
    """
    e = wb.Experiment(**{**SPEC, "scheme": "UMW", "scheme_args": {}, "rounds": 6})
    e = e.replace(delays={"kind": "constant", "shift": 5e-3})
    run = start_real(e, substitutes=damaging({3: {4: "flip"}}))
    assert run.wait(60.0), "hangs"
    with pytest.raises(wb.QuorumLost, match="damaged") as lost:
        run.result()
    assert (lost.value.round, lost.value.missing) == (4, (3,))


def test_real_run_injects_the_faults_of_an_experiment() -> None:
    """This test is the last one, since it kills the ranks that the other tests use."""
    faults = [{"worker": 2, "round": 3, "kind": "exit"}, {"worker": 5, "round": 8}]
    trace = start_real(wb.Experiment(**SPEC, faults=faults)).result()
    assert sorted(trace.info["dead"]) == ["2", "5"]
    assert len(trace.rounds) == 25
    with pytest.raises(wb.QuorumLost) as lost:
        start_real(wb.Experiment(**SPEC, faults=[*faults, {"worker": 7, "round": 12}])).result()
    assert (lost.value.parent, lost.value.missing) == (0, (2, 5, 7))
