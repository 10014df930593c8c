"""Runs in jobs on three virtual nodes: a job that serves several runs, dead ranks, the queue, and cleanup.

The same tests run on a real Slurm, and on stand-ins for PBS Pro and Torque.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import psutil
import pytest
from click.testing import CliRunner, Result

import workbench as wb
from tests.support.clusters.batch_runs import PATIENCE, SPEC, UMW, Machine, ended, going, job_of, until
from tests.support.clusters.slurm_machine import NODES, TASKS
from tests.support.sampled_cases import rotated
from workbench.cli.main import cli
from workbench.mpi import clusters
from workbench.mpi.clusters.batch.kind import BatchCluster
from workbench.mpi.clusters.warm import POOLS
from workbench.mpi.running.real import attach, resume, start_real

pytest_plugins = ["tests.support.clusters.batch_fixtures"]
pytestmark = [pytest.mark.mpi, pytest.mark.xdist_group("hosts")]


def processes(folder: Path) -> list[str]:
    """Return the command lines that contain a folder: supervisors, MPI daemons, ranks."""
    found = (" ".join(p.info["cmdline"] or ()) for p in psutil.process_iter(["cmdline"]))
    return [line for line in found if str(folder) in line and "workbench.mpi.launch" in line]


@rotated
def test_batch_run_equals_the_simulator(lab: Callable[..., str]) -> None:
    e = wb.Experiment(
        **{**SPEC, "scheme": "CR", "scheme_args": {"children": 2, "layers": 2, "stragglers": 1}, "rounds": 80}
    )
    run = start_real(e, cluster=lab())
    seen: list[int] = []
    until(lambda: seen.append(len(run.rows()["round"])) or run.wait(0), run)
    trace = ended(run)
    assert any(0 < rows < 80 for rows in seen)  # rows appeared during the job
    np.testing.assert_allclose(trace.model, wb.run(e).model, rtol=1e-9)
    assert trace.info["clean"]
    assert run.pool is not None
    assert [host for _, host in run.pool.places] == [f"n{i // TASKS + 1}" for i in range(NODES * TASKS)]
    again = start_real(wb.Experiment(**SPEC), cluster=lab())
    assert len(ended(again).rounds) == SPEC["rounds"]
    assert job_of(again) == job_of(run)  # the same job


def test_batch_command_line(machine: Machine, lab: Callable[..., str], tmp_path: Path) -> None:
    def called(*text: object) -> Result:
        return CliRunner().invoke(cli, [str(word) for word in text])

    def cluster(*text: object) -> Result:
        return called("cluster", *text)

    assert cluster("check", lab()).exit_code == 0
    bad = cluster("check", lab("bad", **refused(machine.fields["kind"])[0][0]))
    assert bad.exit_code == 1
    assert "refuses the job" in bad.stdout
    run = ("run", "--engine", "mpi", "--cluster", lab(), "--workers", 6, "--rounds", 5, "--scheme", "UMW")
    text = called(*run, "-o", tmp_path / "run")
    assert text.exit_code == 0, text.output
    assert len(wb.Trace.load(tmp_path / "run").rounds) == 5
    assert "running" in cluster("status", lab()).stdout
    done = cluster("down", lab())
    assert done.exit_code == 0, done.output
    assert machine.settled() == []


@rotated
def test_batch_status_shows_nodes(lab: Callable[..., str]) -> None:
    run = start_real(wb.Experiment(**SPEC), cluster=lab())
    ended(run)
    status = clusters.load(lab()).status()
    mine = [host for host in status.hosts if job_of(run) in host.note]
    assert [(host.host, host.state, host.ranks, host.cores) for host in mine] == [
        (f"n{i + 1}", "running", TASKS, TASKS) for i in range(NODES)
    ]
    assert all(" left" in host.note for host in mine)
    assert status.hours is not None
    assert status.cost == pytest.approx(2.0 * status.hours)


def test_batch_stop_keeps_the_job(lab: Callable[..., str]) -> None:
    run = going(lab())
    run.stop()
    trace = ended(run)
    assert run.state == "stopped"
    assert 5 <= len(trace.rounds) < 3000
    again = start_real(wb.Experiment(**SPEC), cluster=lab())
    assert len(ended(again).rounds) == SPEC["rounds"]
    # a job is replaced if its ranks left too slowly
    assert (job_of(again) == job_of(run)) == trace.info["clean"]


def test_batch_run_continues_without_a_killed_rank(lab: Callable[..., str]) -> None:
    run = going(lab(), rounds=150)
    assert run.pool is not None
    pid, _ = run.pool.places[3]  # the first rank on the second node
    os.kill(pid, signal.SIGKILL)
    trace = ended(run)
    assert len(trace.rounds) == 150
    assert sorted(trace.info["dead"]) == ["3"]
    np.testing.assert_allclose(trace.model, wb.run(run.experiment).model, rtol=1e-9)


@rotated
def test_batch_cancelled_job_is_reported_and_its_run_resumed(
    machine: Machine, lab: Callable[..., str]
) -> None:
    run = going(lab(), rounds=150, spec=UMW)
    other = attach(run.home)
    machine.cancel(job_of(run))
    for follower in (run, other):
        with pytest.raises(wb.ClusterError, match=rf"job {job_of(run)}: it was cancelled; wb\.resume"):
            ended(follower)
    again = resume(run.home)
    trace = ended(again)
    assert job_of(again) != job_of(run)
    assert len(trace.rounds) == 150
    np.testing.assert_allclose(trace.model, wb.run(run.experiment).model, rtol=1e-9)


def batch(file: str) -> BatchCluster:
    found = clusters.load(file)
    assert isinstance(found, BatchCluster)
    return found


def test_batch_job_that_is_not_listed_is_over(lab: Callable[..., str]) -> None:
    job = batch(lab()).look_up("999999")
    assert job.final
    assert "no longer lists" in job.ending()


@pytest.mark.slow
def test_batch_job_ends_with_a_dead_mpi_daemon(machine: Machine, lab: Callable[..., str]) -> None:
    run = going(lab())
    assert run.pool is not None
    pid, host = run.pool.places[NODES * TASKS - 1]
    daemon = psutil.Process(pid).parent()
    assert daemon is not None
    assert (daemon.name(), host) == ("prted", f"n{NODES}")
    daemon.kill()
    with pytest.raises(wb.ClusterError, match="resume"):
        ended(run)
    until(lambda: job_of(run) not in machine.jobs())


@pytest.mark.slow
def test_batch_idle_job_makes_room_for_a_larger_one(machine: Machine, lab: Callable[..., str]) -> None:
    run = start_real(wb.Experiment(**SPEC), cluster=lab())
    ended(run)
    # the cluster has changed, so the existing job does not fit
    cluster = lab(nodes=None, tasks_per_node=TASKS)
    larger = start_real(
        wb.Experiment(**{**SPEC, "workers": 8, "scheme_args": {"stragglers": 2}}), cluster=cluster
    )
    assert len(ended(larger).rounds) == SPEC["rounds"]
    assert job_of(larger) != job_of(run)
    assert machine.jobs() == [job_of(larger)]


@pytest.mark.slow
def test_batch_command_runs_on_every_node(machine: Machine, lab: Callable[..., str]) -> None:
    POOLS.close()
    found = clusters.load(lab()).run(["sh", "-c", "hostname; echo \"a 'b'\"; exit 3"])
    assert found == {f"n{i + 1}": (3, f"n{i + 1}\na 'b'\n") for i in range(NODES)}
    assert machine.jobs() == []


def refused(system: str) -> list[tuple[dict[str, object], str]]:
    """Return fields that a batch system refuses, with the error."""
    if system == "slurm":
        gres = "directives = .*gres"
        return [
            ({"partition": "nope"}, "partition = 'nope': Slurm refuses"),
            ({"directives": ["--gres=gpu:1"]}, gres),
        ]
    unknown = r"directives = .*: PBS refuses the job \(.?unknown resource: gpus"
    return [({"queue": "nope"}, "queue = 'nope': PBS refuses"), ({"directives": ["-l gpus=1"]}, unknown)]


def test_batch_refusal_starts_nothing(machine: Machine, lab: Callable[..., str]) -> None:
    before = machine.settled()
    kind = machine.fields["kind"]
    for fields, text in refused(kind):
        with pytest.raises((wb.SettingError, wb.ClusterError), match=text) as caught:
            ended(start_real(wb.Experiment(**SPEC), cluster=lab("bad", **fields)))
        assert "\n" not in str(caught.value)
    assert machine.jobs() == before
    findings = clusters.load(lab("bad", **refused(kind)[0][0], python="/no/such/python")).check()
    assert [finding.what for finding in findings] == ["python", "a trial job"]
    assert clusters.load(lab()).check() == []
    until(lambda: machine.jobs() == before)  # the trial job is removed


def test_batch_job_that_can_never_start_is_cancelled(machine: Machine, lab: Callable[..., str]) -> None:
    before = machine.settled()
    fields = {
        "slurm": r"time: job \d+ could never start \(Partition",
        "pbs": r"time: job \d+\.pbs could never start \(Can Never Run",
        "torque": r"time = '2:00:00': PBS refuses the job \(.*walltime",
    }[machine.flavour]
    queue = {"slurm": "partition", "pbs": "queue"}[machine.fields["kind"]]
    long = lab("long", **{queue: "short"}, time="2:00:00")
    with pytest.raises((wb.ClusterError, wb.SettingError), match=fields):
        ended(start_real(wb.Experiment(**SPEC), cluster=long))
    until(lambda: machine.jobs() == before)


def test_batch_queued_job_is_cancelled_by_stop(machine: Machine, lab: Callable[..., str], taken: str) -> None:
    run = start_real(wb.Experiment(**SPEC), cluster=lab())
    until(lambda: "waits in the queue (" in run.note, run)
    reasons = {
        "slurm": r"Resources|Priority|None|no reason",
        "pbs": "Insufficient",
        "torque": "no reason given",
    }
    until(lambda: re.search(reasons[machine.flavour], run.note), run)
    number = job_of(run)
    shown = clusters.load(lab()).status().hosts
    assert [(host.host, host.state) for host in shown] == [("(queue)", "pending")]
    assert number in machine.jobs()
    run.stop()
    assert len(ended(run).rounds) == 0
    assert run.state == "stopped"
    assert machine.jobs() == [taken]


CHILD = """
import json, sys
import workbench as wb
from workbench.core.running.run import watched
from workbench.mpi.running.real import start_real
run = start_real(wb.Experiment(**json.loads(sys.argv[1])), cluster=sys.argv[2])
print("going", flush=True)
watched(run, progress=False)
"""


@rotated
def test_batch_queued_job_is_cancelled_by_ctrl_c(
    machine: Machine, lab: Callable[..., str], taken: str
) -> None:
    texts = [sys.executable, "-c", CHILD, json.dumps(SPEC), lab()]
    child = subprocess.Popen(texts, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert child.stdout is not None
    assert child.stdout.readline() == b"going\n"  # submitted before the program waits for it
    until(lambda: clusters.load(lab()).status().hosts or child.poll() is not None)
    assert child.poll() is None, child.communicate()
    child.send_signal(signal.SIGINT)
    assert b"KeyboardInterrupt" in child.communicate(timeout=PATIENCE)[1]
    assert machine.jobs() == [taken]


@pytest.mark.slow
def test_batch_job_ends_at_its_time_limit_and_its_run_is_resumed(lab: Callable[..., str]) -> None:
    run = going(lab("brief", time="1"), rounds=10**5, spec=UMW)
    assert run.wait(4 * PATIENCE)
    with pytest.raises(wb.ClusterError, match="reached its time limit"):
        run.result()
    done = len(run.rows()["round"])
    again = resume(run.home)
    until(lambda: len(again.rows()["round"]) > done, again)
    again.stop()
    assert len(ended(again).rounds) > done


@pytest.mark.slow
def test_batch_idle_job_ends_by_itself(machine: Machine, lab: Callable[..., str]) -> None:
    POOLS.close()
    before = set(machine.settled())
    script = f"{CHILD}\nimport os\nos._exit(0)"  # ends like a killed kernel
    texts = [sys.executable, "-c", script, json.dumps(SPEC), lab("idle", idle=0.05)]
    subprocess.run(texts, check=True, timeout=PATIENCE)
    until(lambda: not set(machine.jobs()) - before)


@rotated
def test_batch_down_leaves_nothing(machine: Machine, shared: Path, lab: Callable[..., str]) -> None:
    run = going(lab())
    assert processes(shared)
    clusters.load(lab()).down()
    with pytest.raises(wb.ClusterError, match="was cancelled"):
        ended(run)
    POOLS.close()
    clusters.load(lab()).down()
    assert machine.jobs() == []
    assert list((shared / "pools").iterdir()) == []
    until(lambda: not processes(shared))
