"""Runs on a real Slurm of three virtual nodes: one warm job, its endings, its queue, and clean-up."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import psutil
import pytest

import workbench as wb
from tests.support.clusters.slurm_machine import NODES, TASKS, SlurmMachine
from tests.support.clusters.slurm_runs import PATIENCE, SPEC, UMW, ended, going, job_of, until
from workbench.mpi import clusters
from workbench.mpi.clusters.slurm.queue import look_up
from workbench.mpi.clusters.warm import POOLS
from workbench.mpi.running.real import attach, resume, start_real

pytest_plugins = ["tests.support.clusters.slurm_fixtures"]
pytestmark = [pytest.mark.mpi, pytest.mark.xdist_group("hosts")]


def processes(folder: Path) -> list[str]:
    """Command lines that name a folder: supervisors, daemons of MPI, ranks."""
    found = (" ".join(p.info["cmdline"] or ()) for p in psutil.process_iter(["cmdline"]))
    return [line for line in found if str(folder) in line and "workbench.mpi.launch" in line]


def test_slurm_run_equals_the_simulator(lab: Callable[..., str]) -> None:
    e = wb.Experiment(
        **{**SPEC, "scheme": "CR", "scheme_args": {"children": 2, "layers": 2, "stragglers": 1}, "rounds": 80}
    )
    run = start_real(e, cluster=lab())
    seen: list[int] = []
    until(lambda: seen.append(len(run.rows()["round"])) or run.wait(0), run)
    trace = ended(run)
    assert any(0 < rows < 80 for rows in seen)  # came while the job ran
    np.testing.assert_allclose(trace.model, wb.run(e).model, rtol=1e-9)
    assert trace.info["clean"]
    assert run.pool is not None
    assert [host for _, host in run.pool.places] == [f"n{i // TASKS + 1}" for i in range(NODES * TASKS)]
    again = start_real(wb.Experiment(**SPEC), cluster=lab())
    assert len(ended(again).rounds) == SPEC["rounds"]
    assert job_of(again) == job_of(run)  # the same warm job


def test_slurm_status_shows_nodes(lab: Callable[..., str]) -> None:
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


def test_slurm_stop_keeps_the_job(lab: Callable[..., str]) -> None:
    run = going(lab())
    run.stop()
    trace = ended(run)
    assert run.state == "stopped"
    assert 5 <= len(trace.rounds) < 3000
    again = start_real(wb.Experiment(**SPEC), cluster=lab())
    assert len(ended(again).rounds) == SPEC["rounds"]
    assert (job_of(again) == job_of(run)) == trace.info["clean"]  # ranks that were slow to leave are replaced


def test_slurm_run_continues_without_a_killed_rank(lab: Callable[..., str]) -> None:
    run = going(lab(), rounds=150)
    assert run.pool is not None
    pid, _ = run.pool.places[3]  # the first of the second node
    os.kill(pid, signal.SIGKILL)
    trace = ended(run)
    assert len(trace.rounds) == 150
    assert sorted(trace.info["dead"]) == ["3"]
    np.testing.assert_allclose(trace.model, wb.run(run.experiment).model, rtol=1e-9)


def test_slurm_cancelled_job_is_reported_and_its_run_resumed(
    machine: SlurmMachine, lab: Callable[..., str]
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


def test_slurm_job_that_is_unknown_is_over(machine: SlurmMachine) -> None:
    job = look_up("999999")
    assert job.final
    assert "no longer knows" in job.ending()


def preempt(machine: SlurmMachine) -> None:
    machine.call(
        "sbatch", "--partition=urgent", f"--nodes={NODES}", "--exclusive", "--output=/dev/null", "--wrap=true"
    )


def fail_node(machine: SlurmMachine) -> None:
    machine.call("scontrol", "update", "nodename=n3", "state=down", "reason=test")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("blow", "words"), [(preempt, "a job of higher priority took its nodes"), (fail_node, "a node failed")]
)
def test_slurm_job_endings_are_reported(
    machine: SlurmMachine, lab: Callable[..., str], blow: Callable[[SlurmMachine], None], words: str
) -> None:
    run = going(lab())
    blow(machine)
    with pytest.raises(wb.ClusterError, match=rf"job {job_of(run)}: {words}; wb\.resume"):
        ended(run)
    machine.await_idle()


@pytest.mark.slow
def test_slurm_job_ends_with_a_dead_mpi_daemon(machine: SlurmMachine, lab: Callable[..., str]) -> None:
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
def test_slurm_idle_job_makes_room_for_a_larger_one(machine: SlurmMachine, lab: Callable[..., str]) -> None:
    run = start_real(wb.Experiment(**SPEC), cluster=lab())
    ended(run)
    cluster = lab(nodes=None, tasks_per_node=TASKS)  # changed under its name: the warm job does not fit
    larger = start_real(
        wb.Experiment(**{**SPEC, "workers": 8, "scheme_args": {"stragglers": 2}}), cluster=cluster
    )
    assert len(ended(larger).rounds) == SPEC["rounds"]
    assert job_of(larger) != job_of(run)
    assert machine.jobs() == [job_of(larger)]


@pytest.mark.slow
def test_slurm_command_runs_on_every_node(machine: SlurmMachine, lab: Callable[..., str]) -> None:
    POOLS.close()
    found = clusters.load(lab()).run(["sh", "-c", "hostname; echo \"a 'b'\"; exit 3"])
    assert found == {f"n{i + 1}": (3, f"n{i + 1}\na 'b'\n") for i in range(NODES)}
    assert machine.jobs() == []


def test_slurm_refusal_starts_nothing(machine: SlurmMachine, lab: Callable[..., str]) -> None:
    before = machine.settled()
    for fields, words in [
        ({"partition": "nope"}, "partition = 'nope': Slurm refuses the job"),
        ({"directives": ["--gres=gpu:1"]}, "directives = .*gres"),
    ]:
        with pytest.raises((wb.SettingError, wb.ClusterError), match=words):
            ended(start_real(wb.Experiment(**SPEC), cluster=lab("bad", **fields)))
    assert machine.jobs() == before
    findings = clusters.load(lab("bad", partition="nope", python="/no/such/python")).check()
    assert [finding.what for finding in findings] == ["python", "a trial job"]
    assert clusters.load(lab()).check() == []


def test_slurm_job_that_can_never_start_is_cancelled(machine: SlurmMachine, lab: Callable[..., str]) -> None:
    before = machine.settled()
    with pytest.raises(wb.ClusterError, match=r"time: job \d+ could never start \(Partition"):
        ended(start_real(wb.Experiment(**SPEC), cluster=lab("long", partition="short", time="2:00:00")))
    assert machine.jobs() == before


def test_slurm_queued_job_is_cancelled_by_stop(
    machine: SlurmMachine, lab: Callable[..., str], taken: str
) -> None:
    run = start_real(wb.Experiment(**SPEC), cluster=lab())
    until(lambda: "waits in the queue (Resources" in run.note or "(Priority" in run.note, run)
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


def test_slurm_queued_job_is_cancelled_by_ctrl_c(
    machine: SlurmMachine, lab: Callable[..., str], taken: str
) -> None:
    words = [sys.executable, "-c", CHILD, json.dumps(SPEC), lab()]
    child = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert child.stdout is not None
    assert child.stdout.readline() == b"going\n"  # the job may be in the queue before anybody waits for it
    until(lambda: clusters.load(lab()).status().hosts or child.poll() is not None)
    assert child.poll() is None, child.communicate()
    child.send_signal(signal.SIGINT)
    assert b"KeyboardInterrupt" in child.communicate(timeout=PATIENCE)[1]
    assert machine.jobs() == [taken]


@pytest.mark.slow
def test_slurm_job_ends_at_its_time_limit_and_its_run_is_resumed(lab: Callable[..., str]) -> None:
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
def test_slurm_idle_job_ends_by_itself(machine: SlurmMachine, lab: Callable[..., str]) -> None:
    POOLS.close()
    before = set(machine.settled())
    script = f"{CHILD}\nimport os\nos._exit(0)"  # as a kernel that is killed
    words = [sys.executable, "-c", script, json.dumps(SPEC), lab("idle", idle=0.05)]
    subprocess.run(words, check=True, timeout=PATIENCE)
    until(lambda: not set(machine.jobs()) - before)


def test_slurm_down_leaves_nothing(machine: SlurmMachine, shared: Path, lab: Callable[..., str]) -> None:
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


def test_slurm_local_cluster_inside_an_allocation(machine: SlurmMachine, tmp_path: Path) -> None:
    """On the host where `salloc` was called, whatever nodes the allocation has."""
    POOLS.close()
    until(lambda: not machine.jobs())
    code = (
        "import socket, workbench as wb\n"
        "run = wb.start(wb.Experiment(scheme='UMW', workers=4, rounds=5), engine='mpi')\n"
        "print(len(run.result().rounds), {place.host for place in run.pool.places} == {socket.gethostname()})\n"
    )
    words = ["salloc", "-N", "1", "-n", "1", sys.executable, "-c", code]
    done = subprocess.run(
        words, cwd=tmp_path, env=machine.environment, capture_output=True, text=True, timeout=PATIENCE
    )
    assert done.stdout.split() == ["5", "True"], done.stderr
    assert machine.settled() == []
