"""A login host: all communication uses one ssh connection, and the run folder is copied home during the job."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import psutil
import pytest

import workbench as wb
from tests.support.clusters import login_host
from tests.support.clusters.batch_runs import SPEC, UMW, Machine, ended, going, until
from tests.support.clusters.login_host import LoginHost
from tests.support.clusters.slurm_machine import NODES, TASKS
from tests.support.sampled_cases import rotated
from workbench.mpi import clusters
from workbench.mpi.clusters.warm import POOLS
from workbench.mpi.running.real import attach, start_real

WHY_NOT = login_host.missing()
pytest_plugins = ["tests.support.clusters.batch_fixtures"]
pytestmark = [
    pytest.mark.mpi,
    pytest.mark.xdist_group("hosts"),
    pytest.mark.skipif(WHY_NOT is not None, reason=str(WHY_NOT)),
]


@pytest.fixture(scope="module")
def far(machine: Machine, lab: Callable[..., str]) -> Iterator[Callable[..., str]]:
    """Return a function that writes the same cluster's file, with a login host and another shared folder."""
    host = LoginHost(machine.folder / "login", **machine.variables)
    folder = machine.folder / "far"
    folder.mkdir()
    try:
        host.up()
        yield lambda **fields: lab("far", folder=str(folder), **{**host.fields, **fields})
    finally:
        POOLS.close()
        host.down()


def folder_of(file: str) -> Path:
    return Path(json.loads(Path(file).read_text())["folder"])


@rotated
def test_login_host_run_is_mirrored_during_the_job(machine: Machine, far: Callable[..., str]) -> None:
    POOLS.close()
    cluster = far()
    e = wb.Experiment(**{**SPEC, "rounds": 80, "problem": "softmax", "problem_args": {"data": "iris"}})
    run = start_real(e, cluster=cluster)
    seen: list[int] = []
    until(lambda: seen.append(len(run.rows()["round"])) or run.wait(0), run)
    trace = ended(run)
    assert any(0 < rows < 80 for rows in seen)
    np.testing.assert_allclose(trace.model, wb.run(e).model, rtol=1e-9)
    jobs = machine.jobs()
    assert len(ended(start_real(wb.Experiment(**SPEC), cluster=cluster)).rounds) == SPEC["rounds"]
    assert machine.jobs() == jobs  # the same job
    shown = clusters.load(cluster).status()
    assert [(host.host, host.ranks) for host in shown.hosts] == [(f"n{i + 1}", TASKS) for i in range(NODES)]
    clusters.load(cluster).down()
    assert machine.jobs() == []
    left = [path for path in folder_of(cluster).rglob("*") if path.is_file() and "data" not in path.parts]
    assert left == []


@pytest.mark.slow
def test_login_host_errors_are_one_line(machine: Machine, far: Callable[..., str]) -> None:
    nowhere = {"partition" if machine.flavour == "slurm" else "queue": "nope"}
    cluster = clusters.load(far(**nowhere))
    assert [finding.what for finding in cluster.check()] == ["a trial job"]
    with pytest.raises(wb.ClusterError, match=r"(partition|queue) = 'nope'"):
        ended(start_real(wb.Experiment(**SPEC), cluster=far(**nowhere)))
    lost = clusters.load(far(login="nowhere.invalid"))
    assert [finding.host for finding in lost.check()] == ["nowhere.invalid"]


@pytest.mark.slow
def test_login_host_queued_job_is_cancelled_by_stop(
    machine: Machine, far: Callable[..., str], taken: str
) -> None:
    run = start_real(wb.Experiment(**SPEC), cluster=far())
    until(lambda: "waits in the queue (" in run.note, run)
    run.stop()
    assert len(ended(run).rounds) == 0
    assert run.state == "stopped"
    assert machine.jobs() == [taken]


@pytest.mark.slow
def test_login_host_run_survives_a_lost_connection(machine: Machine, far: Callable[..., str]) -> None:
    run = going(far(), rounds=150, spec=UMW)
    for process in psutil.process_iter(["cmdline"]):
        if process.info["cmdline"] and "workbench.mpi.clusters.agent" in process.info["cmdline"][-1]:
            os.kill(process.pid, signal.SIGKILL)
    assert len(ended(run).rounds) == 150
    assert len(ended(attach(run.home)).rounds) == 150
    (job,) = machine.jobs()  # idle, but unreachable
    going(far()).stop()
    assert job not in machine.jobs()


@pytest.mark.slow
def test_login_host_cancelled_job_is_reported_and_its_run_resumed(
    machine: Machine, far: Callable[..., str]
) -> None:
    run = going(far(), rounds=150, spec=UMW)
    for job in machine.jobs():
        machine.cancel(job)
    with pytest.raises(wb.ClusterError, match=r"it was cancelled; wb\.resume"):
        ended(run)
    trace = ended(wb.resume(run.home))
    assert len(trace.rounds) == 150
    np.testing.assert_allclose(trace.model, wb.run(run.experiment).model, rtol=1e-9)
