"""Runs on two hosts by ssh: the simulator's models and order of schemes, real links, stop, resume, attach."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import workbench as wb
from tests.support.clusters.ssh_hosts import Hosts, write_yaml
from tests.support.clusters.ssh_runs import SCHEMES, experiment, started, until
from tests.support.sampled_cases import rotated, sampled_cases
from workbench.core.trace import records
from workbench.mpi.clusters.warm import POOLS
from workbench.mpi.running.real import attach, resume
from workbench.mpi.running.replay import replay_arrivals

pytestmark = [pytest.mark.mpi, pytest.mark.xdist_group("hosts")]


@rotated
@pytest.mark.parametrize(("scheme", "args"), sampled_cases("two hosts", 2, SCHEMES))
def test_ssh_run_on_two_hosts_equals_the_simulator(two: Hosts, scheme: str, args: dict[str, Any]) -> None:
    e = experiment(scheme, args)
    run = started(two, e, gradients=True)
    trace, sim = run.result(), wb.run(e)
    np.testing.assert_allclose(trace.model, sim.model, rtol=1e-9)
    problem, size = e.build_problem(), len(trace.model)
    models = np.concatenate([[problem.start()], records.read_models(run.home, size)])
    for model, committed in zip(models[:-1], records.read_gradients(run.home, size), strict=True):
        full = problem.gradient([(0, problem.samples, 1.0)], model)
        np.testing.assert_allclose(committed, full, rtol=1e-8, atol=1e-8 * np.abs(full).max())
    assert trace.info["hosts"] == 2
    assert 0 < trace.info["clock_error"] < 0.5
    assert run.pool is not None
    assert {host for _, host in run.pool.places} == {"w1", "w2"}
    starts = trace.events["start"]  # on the master's clock, although the hosts' clocks differ by 1000 s
    assert starts.between(-1.0, trace.rounds["time"].max() + 1.0).all()
    assert list(trace.rounds["round"]) == list(range(8))


def test_ssh_run_arrivals_reproduce_every_model(two: Hosts) -> None:
    run = started(two, experiment("CR", {"children": 2, "layers": 2, "stragglers": 1}))
    trace = run.result()
    models = records.read_models(run.home, trace.model.size)
    assert np.array_equal(replay_arrivals(run.home), models)


@rotated
def test_ssh_run_links_order_the_schemes_as_the_simulator(two: Hosts) -> None:
    """All workers are behind a link of 8 Mbit/s, so the bytes that the master receives determine the order."""
    path = write_yaml(
        two, "behind", hosts=f"[{{host: {two.hosts[0].address}, slots: 0}}, {two.hosts[1].address}]"
    )
    big = {
        "problem_args": {"samples": 60, "features": 5000},
        "rounds": 3,
        "link": {"latency": 0.0, "bandwidth": 1e6},
        "optimiser_args": {"step": 1e-6},
    }
    experiments = [experiment(name, args, **big) for name, args in SCHEMES]
    two.hosts[1].limit(8e6)
    try:
        real = wb.compare(experiments, engine="mpi", cluster=str(path), emulate="nothing")
    finally:
        two.hosts[1].limit(None)
    simulated = wb.compare(experiments)
    order = [[t.label for t in sorted(traces, key=_length)] for traces in (real, simulated)]
    assert order[0] == order[1]
    assert all(trace.info["emulate"] == "nothing" for trace in real)


def _length(trace: wb.Trace) -> float:
    return float(trace.rounds["time"].iloc[-1])


def test_ssh_run_sends_data_files_to_the_hosts(two: Hosts, tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    np.savez(tmp_path / "mine.npz", X=generator.normal(size=(120, 7)), y=generator.normal(size=120))
    e = experiment("GC", {"stragglers": 1}, problem_args={"data": str(tmp_path / "mine.npz")})
    trace, sim = started(two, e).result(), wb.run(e)
    np.testing.assert_allclose(trace.model, sim.model, rtol=1e-9)


FAULTS = [{"worker": 1, "round": 2}, {"worker": 3, "round": 3, "kind": "exit"}]
DYING: dict[str, Any] = {"rounds": 10, "delays": {"kind": "shifted_exponential", "shift": 1e-2, "rate": 1e4}}


@rotated
def test_ssh_run_survives_deaths_on_another_host(two: Hosts) -> None:
    trace = started(two, experiment("GC", {"stragglers": 2}, faults=FAULTS, **DYING)).result()
    assert len(trace.rounds) == 10
    assert sorted(trace.info["dead"]) == ["1", "3"]
    assert all("w2" in place for place in trace.info["dead"].values())


@pytest.mark.slow
def test_ssh_run_names_too_many_deaths(two: Hosts) -> None:
    more = [*FAULTS, {"worker": 2, "round": 5}]
    run = started(two, experiment("GC", {"stragglers": 2}, faults=more, **DYING))
    with pytest.raises(wb.QuorumLost) as lost:
        run.result()
    assert (lost.value.parent, lost.value.missing) == (0, (1, 2, 3))


@rotated
def test_ssh_run_is_stopped_and_resumed(two: Hosts) -> None:
    e = experiment("UMW", {}, rounds=120)
    run = started(two, e)
    until(lambda: len(run.rows()["round"]) >= 5, run)
    until(lambda: np.isfinite(run.rows()["loss"]).any(), run)
    # like another machine that follows the folder
    with pytest.raises(wb.SettingError, match="still under way"):
        resume(run.home)
    run.stop()
    stopped = run.result()
    assert 5 <= len(stopped.rounds) < 120
    trace = resume(run.home).result()
    assert len(trace.rounds) == 120
    np.testing.assert_allclose(trace.model, wb.run(e).model, rtol=1e-9)


@rotated
def test_ssh_run_is_attached_after_its_client_died(two: Hosts, tmp_path: Path) -> None:
    e = experiment("UMW", {}, rounds=60)
    script = (
        "import json, time, workbench as wb\n"
        "from workbench.mpi.running.real import start_real\n"
        f"e = wb.Experiment(**json.loads({json.dumps(e.model_dump_json())}))\n"
        f"run = start_real(e, cluster={str(write_yaml(two))!r}, folder={str(tmp_path / 'run')!r})\n"
        "while not len(run.rows()['round']):\n"
        "    time.sleep(0.05)\n"
        "    assert run.state in ('waiting', 'running'), run\n"
        "print('going', flush=True)\n"
        "time.sleep(600)\n"
    )
    POOLS.close()  # the pool at the end is the client's
    client = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE)
    assert client.stdout is not None
    assert client.stdout.readline() == b"going\n"
    client.kill()
    client.wait()
    run = attach(tmp_path / "run")
    trace = run.result()
    assert len(trace.rounds) == 60
    np.testing.assert_allclose(trace.model, wb.run(e).model, rtol=1e-9)
    until(lambda: not any(host.commands() for host in two.hosts))
