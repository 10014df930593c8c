"""PBS: its options, and what qsub, qstat and qdel print, in the forms of PBS Pro and of Torque."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.clusters.pbs_commands import wrapped
from workbench.core.base.errors import ClusterError
from workbench.core.base.settings import SettingError
from workbench.mpi.clusters.batch.job import JobSpec, refusal
from workbench.mpi.clusters.pbs import Pbs, fields_of

PRO = """\
Job Id: 4711.pbs
    Job_Name = workbench-lab
    Job_Owner = ada@login
    resources_used.walltime = 00:10:05
    job_state = R
    queue = workq
    exec_host = n1/0*4+n2/1*4
    exec_vnode = (n1:ncpus=4)+(n2:ncpus=4)
    Resource_List.ncpus = 8
    Resource_List.walltime = 01:00:00
    comment = Job run at Wed Nov 25 at 18:00 on (n1:ncpus=4)+(n2:ncpus=4)
"""
TORQUE = """\
Job Id: 4711.master.example.org
    Job_Name = workbench-lab
    Job_Owner = ada@login.example.org
    resources_used.walltime = 00:10:05
    job_state = R
    queue = batch
    exec_host = n1/0+n1/1+n1/2+n1/3+n2/0+n2/1+n2/2+n2/3
    Resource_List.nodes = 2:ppn=4
    Resource_List.walltime = 01:00:00
"""
Answer = Callable[..., None]


@pytest.fixture
def answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Answer:
    """Return a function that writes a qstat with given output and exit status.

    `history`: output of `qstat -x`. Default: the output of a plain qstat, with its exit status.
    """
    monkeypatch.setenv("PATH", str(tmp_path))

    def write(plain: str, status: int = 0, history: str | None = None) -> None:
        (tmp_path / "plain").write_text(plain)
        (tmp_path / "history").write_text(plain if history is None else history)
        lines = (
            "#!/bin/sh",
            f'case "$1" in -x) /bin/cat {tmp_path}/history; exit {status if history is None else 0};; esac',
            f"/bin/cat {tmp_path}/plain >&{2 if status else 1}; exit {status}",
        )
        (tmp_path / "qstat").write_text("\n".join(lines))
        (tmp_path / "qstat").chmod(0o755)

    return write


def lab(**fields: object) -> Pbs:
    return Pbs(**{"name": "lab", "folder": "/shared", "tasks_per_node": 4, **fields})


def test_pbs_options_have_every_field_once() -> None:
    spec = JobSpec("workbench-lab", "/shared/pools/1", ("true",), nodes=3, tasks=4)
    cluster = lab(time="90", queue="gpu", account="maths", directives=("-l mem=8gb",))
    assert [line.removeprefix("#PBS ") for line in cluster.options(spec)] == [
        *("-N workbench-lab", "-l nodes=3:ppn=4", "-l walltime=1:30:00", "-r n", "-S /bin/bash", "-j oe"),
        *("-o /shared/pools/1/pbs.txt", "-q gpu", "-A maths", "-l mem=8gb"),
    ]
    chunks = lab(resources="select={nodes}:ncpus={tasks}:mpiprocs={tasks}").options(spec)
    assert "#PBS -l select=3:ncpus=4:mpiprocs=4" in chunks


@given(st.lists(st.from_regex(r"[a-z0-9-]{1,40}", fullmatch=True), min_size=2, max_size=2, unique=True))
def test_pbs_job_names_are_short_and_differ(names: list[str]) -> None:
    labels = [lab(name=name).label for name in names]
    assert all(len(label) <= 15 for label in labels)
    assert labels[0] != labels[1]


@pytest.mark.parametrize("text", [PRO, TORQUE], ids=["pro", "torque"])
def test_pbs_running_job_is_parsed(answer: Answer, text: str) -> None:
    answer(text)
    job = lab().look_up("4711")
    assert (job.state, job.left, job.used, job.nodes, job.cores) == ("RUNNING", 2995.0, 605.0, 2, 8)
    assert job.number == text.split()[2]
    assert lab().node_names(job) == ["n1", "n2"]


@given(st.integers(1, 400))
def test_pbs_wrapped_lists_of_hosts_are_parsed(count: int) -> None:
    hosts = "+".join(f"node{i}/0" for i in range(count))
    found = fields_of(f"Job Id: 1.pbs\n    job_state = R\n{wrapped(f'    exec_host = {hosts}')}\n")
    assert found["exec_host"] == hosts


@pytest.mark.parametrize(
    ("lines", "state"),
    [
        ("job_state = Q", "PENDING"),
        ("job_state = H", "PENDING"),
        ("job_state = E", "COMPLETING"),
        ("job_state = S", "SUSPENDED"),
        ("job_state = F\n    Exit_status = 0\n    substate = 92", "COMPLETED"),
        ("job_state = F\n    Exit_status = 0\n    substate = 91", "CANCELLED"),
        ("job_state = F\n    substate = 91", "CANCELLED"),  # the job ended in the queue
        ("job_state = F\n    Exit_status = 271", "CANCELLED"),
        ("job_state = F\n    Exit_status = -29", "TIMEOUT"),
        ("job_state = F\n    Exit_status = -27", "OUT_OF_MEMORY"),
        ("job_state = F\n    Exit_status = 1", "FAILED"),
        ("job_state = C\n    exit_status = -11", "TIMEOUT"),
        ("job_state = C\n    exit_status = -10", "OUT_OF_MEMORY"),
        ("job_state = C\n    exit_status = 271", "CANCELLED"),
        (
            "job_state = C\n    exit_status = 271\n    resources_used.walltime = 01:00:03\n"
            "    Resource_List.walltime = 01:00:00",
            "TIMEOUT",
        ),
    ],
)
def test_pbs_states_and_endings_are_parsed(answer: Answer, lines: str, state: str) -> None:
    answer(f"Job Id: 7.pbs\n    {lines}\n")
    job = lab().look_up("7")
    assert job.state == state
    assert job.ending().startswith("job 7.pbs: ")


def test_pbs_reason_of_a_queued_job_is_quoted(answer: Answer) -> None:
    answer(
        "Job Id: 7.pbs\n    job_state = Q\n    comment = Not Running: Insufficient amount of resource: ncpus\n"
    )
    assert lab().look_up("7").waiting() == (
        "job 7.pbs waits in the queue (Insufficient amount of resource: ncpus)"
    )
    answer(
        "Job Id: 7.pbs\n    job_state = Q\n    comment = Can Never Run: can't fit in the largest placement set\n"
    )
    never = lab().look_up("7").never()
    assert never is not None
    assert never.startswith(
        "queue, nodes, tasks_per_node or time: job 7.pbs could never start (Can Never Run"
    )


def test_pbs_finished_job_is_looked_up_in_the_history(answer: Answer) -> None:
    gone = "qstat: 7.pbs Job has finished, use -x or -H to obtain historical job information\n"
    answer(gone, 35, history="Job Id: 7.pbs\n    job_state = F\n    Exit_status = -29\n")
    assert lab().look_up("7.pbs").state == "TIMEOUT"
    for text in ("qstat: Unknown Job Id 7.pbs\n", "qstat: Unknown Job Id Error 7.master.example.org\n"):
        answer(text, 153)
        assert lab().look_up("7.pbs").state == "FORGOTTEN"


def test_pbs_server_without_an_answer_is_not_an_ended_job(answer: Answer) -> None:
    answer("Connection refused\nqstat: cannot connect to server pbs (errno=111)\n", 255)
    with pytest.raises(ClusterError, match="cannot connect to server pbs"):
        lab().look_up("7.pbs")
    for text in (
        "",
        "Job Id: 7.pbs\n",
        "Job Id: 7.pbs\n    job_state = Z\n",
        "Job Id: 7.pbs\n    job_state = \n",
    ):
        answer(text)
        with pytest.raises(ClusterError, match="something that PBS does not print"):
            lab().look_up("7.pbs")
    answer("")
    with pytest.raises(ClusterError, match="something that PBS does not print"):
        lab().look_up("7.pbs")


@pytest.mark.parametrize(
    ("message", "text"),
    [
        ("qsub: Unknown queue", "queue = 'gpu': PBS refuses the job \\(.?unknown queue"),
        ("qsub: submit error (Unknown queue MSG=cannot locate queue)", "queue = 'gpu'"),
        ("qsub: Access to queue is denied", "queue = 'gpu'"),
        ("qsub: Invalid account string", "account = 'maths'"),
        ("qsub: submit error (Job exceeds queue resource limits MSG=cannot satisfy queue max walltime requirement)",
         "time = '1:00:00'"),
        ("qsub: Job violates queue and/or server resource limits: nodes", "resources = 'nodes=.nodes"),
        ("qsub: Unknown resource: gpus", "directives = ..-l gpus=1"),
        ("qsub: invalid option -- 'y'\nusage: qsub [-a date_time] ...", "directives"),
        ("qsub: Bad UID for job execution", "PBS refuses the job \\(.?Bad UID"),
        ("", "it gave no reason"),
    ],
)  # fmt: skip
def test_refusal_of_qsub_names_the_field(message: str, text: str) -> None:
    cluster = lab(queue="gpu", account="maths", directives=("-l gpus=1",))
    with pytest.raises(SettingError, match=text) as refused:
        raise refusal("PBS", message, Pbs.refusals, cluster.model_dump())
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("message", "number"),
    [
        ("12.pbs\n", "12.pbs"),
        ("note 5\n12.master.example.org\n", "12.master.example.org"),
        ("12\n", "12"),
        ("", None),
    ],
)
def test_the_jobs_number_is_found(message: str, number: str | None) -> None:
    assert lab().number_in(message) == number
