"""A job of any batch system: its script, its states, and the intervals of queries. No batch system is needed."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.core.base.errors import ClusterError
from workbench.mpi.clusters.batch.job import END_TEXTS, Job, JobSpec, script
from workbench.mpi.clusters.batch.queue import JobStatusCache
from workbench.mpi.clusters.slurm import Slurm


def job_script(tmp_path: Path, *command: str, path: str = "", modules: tuple[str, ...] = ()) -> str:
    """Return the text of a script that writes its log into a folder of the test."""
    return script(JobSpec("lab", str(tmp_path), command, 1, 1, path), [], modules)


def runs(text: str, folder: Path) -> str:
    """Run a script, which must print nothing. Return its log."""
    path = folder / "job.sh"
    path.write_text(text)
    texts = ["bash", str(path)]
    done = subprocess.run(texts, capture_output=True, text=True, check=False, env={"PATH": "/usr/bin:/bin"})
    assert done.stdout + done.stderr == ""
    return (folder / "log.txt").read_text()


WORDS = st.text(st.characters(blacklist_characters="\0", blacklist_categories=["Cs"]), min_size=1)


@given(st.lists(WORDS, max_size=4))
def test_script_quotes_the_command(tmp_path_factory: pytest.TempPathFactory, argv: list[str]) -> None:
    command, folder = (
        ("python3", "-c", "import sys; print(ascii(sys.argv[1:]))", *argv),
        tmp_path_factory.mktemp("job"),
    )
    text = job_script(folder, *command, path="/a folder/with 'quotes'")
    assert runs(text, folder).strip() == ascii(argv)


def test_script_makes_the_package_importable(tmp_path: Path) -> None:
    command = ("python3", "-c", "import os; print(os.environ['PYTHONPATH'])")
    assert runs(job_script(tmp_path, *command, path="/opt/it's here"), tmp_path) == "/opt/it's here\n"


@pytest.mark.parametrize(
    ("profile", "argv"),
    [
        ('echo "$not_set"; module() { echo "loaded $2"; }', ["loaded", "gcc", "begun"]),
        ('module() { echo "no $2"; return 1; }', ["no", "gcc"]),  # the job ends
    ],
)
def test_script_loads_modules_that_are_defined_late(tmp_path: Path, profile: str, argv: list[str]) -> None:
    text = job_script(tmp_path, "echo", "begun", modules=("gcc",))
    (tmp_path / "profile").write_text(profile)
    assert runs(text.replace("/etc/profile", str(tmp_path / "profile")), tmp_path).split() == argv


@pytest.mark.parametrize(("ranks", "shape"), [(2, (1, 2)), (8, (1, 8)), (9, (2, 5)), (157, (20, 8))])
def test_batch_job_has_room_for_its_ranks(ranks: int, shape: tuple[int, int]) -> None:
    assert Slurm(folder="/shared", tasks_per_node=8).shape(ranks) == shape


def test_batch_refuses_more_workers_than_tasks() -> None:
    with pytest.raises(
        ClusterError, match=r"workers = 8: cluster '' has 2 nodes of 4 tasks, room for 7 workers"
    ):
        Slurm(folder="/shared", tasks_per_node=4, nodes=2).shape(9)


@pytest.mark.parametrize("state", sorted(END_TEXTS))
def test_job_endings_have_a_sentence(state: str) -> None:
    job = Job("5", state)
    assert job.over
    assert job.final
    assert job.ending().startswith("job 5: ")


def test_job_that_is_completing_is_not_gone() -> None:
    assert Job("5", "COMPLETING").over
    assert not Job("5", "COMPLETING").final


def test_job_status_cache_keeps_the_last_status() -> None:
    answers: list[Job | ClusterError] = [
        Job("5", "RUNNING"),
        ClusterError("squeue: no contact"),
        Job("5", "TIMEOUT"),
    ]

    def ask(number: str) -> Job:
        answer = answers.pop(0)
        if isinstance(answer, ClusterError):
            raise answer
        return answer

    status = JobStatusCache("5", ask)
    assert status.job(fresh=True).state == "RUNNING"
    assert (status.job(fresh=True).state, status.trouble) == ("RUNNING", "squeue: no contact")
    assert (status.job(fresh=True).state, status.trouble) == ("TIMEOUT", "")
    assert status.job().state == "TIMEOUT"  # the batch system is not queried for an ended job


def test_job_status_cache_limits_queries() -> None:
    asked: list[str] = []

    def ask(number: str) -> Job:
        asked.append(number)
        return Job(number, "RUNNING")

    status = JobStatusCache("5", ask)
    for _ in range(1000):
        status.job()
    assert len(asked) < 100
