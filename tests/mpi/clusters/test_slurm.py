"""Slurm: its options, the answers of its commands, and what it does to jobs."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import workbench as wb
from tests.support.clusters.batch_runs import PATIENCE, ended, going, job_of, until
from tests.support.clusters.slurm_machine import NODES, SlurmMachine
from tests.support.sampled_cases import rotated
from workbench.core.base.settings import SettingError
from workbench.mpi.clusters.batch.job import JobSpec, refusal, seconds
from workbench.mpi.clusters.slurm import Slurm, check_directive, queue
from workbench.mpi.clusters.warm import POOLS

pytest_plugins = ["tests.support.clusters.batch_fixtures"]
SLURM = Slurm(name="lab", folder="/shared", tasks_per_node=4)
SYSTEM = pytest.mark.parametrize("machine", ["slurm"], indirect=True, scope="session")


def preempt(machine: SlurmMachine) -> None:
    machine.call(
        "sbatch", "--partition=urgent", f"--nodes={NODES}", "--exclusive", "--output=/dev/null", "--wrap=true"
    )


def fail_node(machine: SlurmMachine) -> None:
    machine.call("scontrol", "update", "nodename=n3", "state=down", "reason=test")


@SYSTEM
@pytest.mark.mpi
@pytest.mark.xdist_group("hosts")
@pytest.mark.slow
@pytest.mark.parametrize(
    ("blow", "text"), [(preempt, "a job of higher priority took its nodes"), (fail_node, "a node failed")]
)
def test_slurm_job_endings_are_reported(
    machine: SlurmMachine, lab: Callable[..., str], blow: Callable[[SlurmMachine], None], text: str
) -> None:
    run = going(lab())
    blow(machine)
    with pytest.raises(wb.ClusterError, match=rf"job {job_of(run)}: {text}; wb\.resume"):
        ended(run)
    machine.await_idle()


@rotated
@SYSTEM
@pytest.mark.mpi
@pytest.mark.xdist_group("hosts")
def test_slurm_local_cluster_inside_an_allocation(machine: SlurmMachine, tmp_path: Path) -> None:
    """`salloc` was called on this host, so runs stay here, whatever nodes the allocation has."""
    POOLS.close()
    until(lambda: not machine.jobs())
    code = (
        "import socket, workbench as wb\n"
        "run = wb.start(wb.Experiment(scheme='UMW', workers=4, rounds=5), engine='mpi')\n"
        "print(len(run.result().rounds), {place.host for place in run.pool.places} == {socket.gethostname()})\n"
    )
    texts = ["salloc", "-N", "1", "-n", "1", sys.executable, "-c", code]
    done = subprocess.run(
        texts, cwd=tmp_path, env=machine.environment, capture_output=True, text=True, timeout=PATIENCE
    )
    assert done.stdout.split() == ["5", "True"], done.stderr
    assert machine.settled() == []


def test_slurm_options_have_every_field_once() -> None:
    cluster = Slurm(
        folder="/shared", tasks_per_node=4, partition="gpu", account="maths", directives=("--qos=high",)
    )
    spec = JobSpec("workbench-lab", "/shared/pools/1", ("true",), nodes=3, tasks=4)
    assert [line.removeprefix("#SBATCH ") for line in cluster.options(spec)] == [
        *(
            "--job-name=workbench-lab",
            "--partition=gpu",
            "--account=maths",
            "--nodes=3",
            "--ntasks-per-node=4",
        ),
        *("--time=1:00:00", "--output=/shared/pools/1/log.txt", "--open-mode=append", "--no-requeue"),
        "--qos=high",
    ]


@pytest.mark.parametrize(
    "text", ["--qos=high", "--mem=4G", "--exclusive", "--constraint=a&b", "--time-min=5", "--gres=gpu:1"]
)
def test_check_directive_accepts_other_directives(text: str) -> None:
    assert check_directive(text) == text


@pytest.mark.parametrize(
    ("text", "found_text"),
    [
        ("-p debug", "begins with --"),
        ("qos=high", "begins with --"),
        ("--qos=high\n#SBATCH --uid=0", "in one line"),
        ("--qos=high\rx", "in one line"),
        ("--comment=a # b", "one option"),
        ("--", "one option"),
        ("--partition=gpu", "--partition is set"),
        ("--part=gpu", "--partition is set"),  # sbatch accepts prefixes of names
        ("--nodes 4", "--nodes is set"),
        ("--time=5", "--time is set"),
        ("--array=1-5", "--array is set"),
        ("--requeue", "--requeue is set"),
        ("--wrap=rm", "--wrap is set"),
    ],
)
def test_slurm_refuses_impossible_directives(text: str, found_text: str) -> None:
    with pytest.raises(SettingError, match=found_text):
        Slurm(folder="/shared", tasks_per_node=2, directives=(text,))


def test_queue_of_slurm_is_parsed() -> None:
    text = (
        "7|RUNNING|None|59:58|0:02|3|9|n[1-3]|2026-01-02T03:04:05\n"
        "8|PENDING|Resources|1-00:00:00|0:00|2|8||2026-01-02T05:00:00\n"
        "9|PENDING|PartitionTimeLimit|UNLIMITED|0:00|2|8||N/A\n"
        "slurm_load_jobs error: something\n"
    )
    runs, waits, never = queue(text)
    assert (runs.number, runs.names, runs.left, runs.used, runs.nodes, runs.cores) == (
        "7",
        "n[1-3]",
        3598.0,
        2.0,
        3,
        9,
    )
    assert (runs.waits, runs.over, runs.never()) == (False, False, None)
    assert waits.waiting() == "job 8 waits in the queue (Resources, expected to start at 2026-01-02 05:00:00)"
    assert (waits.waits, waits.over, waits.never(), waits.left) == (True, False, None, 86400.0)
    assert never.left == float("inf")
    assert str(never.never()).startswith("time: job 9 could never start (PartitionTimeLimit)")


@pytest.mark.parametrize(
    ("message", "text"),
    [
        ("sbatch: error: invalid partition specified: nope\nsbatch: error: Batch job submission failed: Invalid"
         " partition name specified", "partition = 'gpu'.*invalid partition specified"),
        ("sbatch: error: Batch job submission failed: Invalid account or account/partition combination specified",
         "account = 'maths'"),
        ("sbatch: error: Batch job submission failed: Requested time limit is invalid (missing or exceeds some limit)",
         "time = '1:00:00'"),
        ("sbatch: error: Batch job submission failed: Requested node configuration is not available", "nodes = 4"),
        ("sbatch: unrecognized option '--foo=abc'\nTry \"sbatch --help\" for more information", "directives"),
        ("sbatch: error: Invalid generic resource (gres) specification", "directives"),
        ("sbatch: error: Batch job submission failed: Invalid qos specification", "directives"),
        ("sbatch: error: the moon is full", "Slurm refuses the job .the moon is full"),
        ("", "it gave no reason"),
    ],
)  # fmt: skip
def test_refusal_of_sbatch_names_the_field(message: str, text: str) -> None:
    fields = {
        "partition": "gpu",
        "account": "maths",
        "time": "1:00:00",
        "nodes": 4,
        "directives": ("--foo=abc",),
    }
    with pytest.raises(SettingError, match=text):
        raise refusal("Slurm", message, Slurm.refusals, fields)


@given(st.integers(0, 99), st.integers(0, 23), st.integers(0, 59), st.integers(0, 59))
def test_seconds_reads_slurm_times(days: int, hours: int, minutes: int, secs: int) -> None:
    total = ((days * 24 + hours) * 60 + minutes) * 60 + secs
    assert seconds(f"{days}-{hours:02d}:{minutes:02d}:{secs:02d}") == total
    assert seconds(f"{hours + 24 * days}:{minutes:02d}:{secs:02d}") == total
    assert seconds(f"{minutes}:{secs:02d}") == 60 * minutes + secs


@pytest.mark.parametrize(
    ("message", "number"), [("12\n", "12"), ("12;alps\n", "12"), ("note 5\n12\n", "12"), ("", None)]
)
def test_submitted_finds_the_job_number(message: str, number: str | None) -> None:
    assert SLURM.number_in(message) == number
