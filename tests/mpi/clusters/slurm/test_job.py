"""The job script and the parsing of Slurm's commands, without Slurm."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.core.base.errors import ClusterError
from workbench.core.base.settings import SettingError
from workbench.mpi import clusters
from workbench.mpi.clusters.slurm.job import (
    ENDINGS,
    Job,
    JobSpec,
    check_directive,
    queue,
    refusal,
    script,
    seconds,
    submitted,
)
from workbench.mpi.clusters.slurm.kind import Slurm
from workbench.mpi.clusters.slurm.queue import JobStatusCache

WISH: dict[str, Any] = {
    "name": "workbench-lab",
    "folder": "/shared/pools/1",
    "command": ("python3", "-m", "workbench.mpi.launch.head.supervisor", "/shared/pools/1"),
    "time": "1:00:00",
    "nodes": 3,
    "tasks": 4,
}


def runs(text: str, folder: Path) -> str:
    """Return the output of a script."""
    path = folder / "job.sh"
    path.write_text(text)
    done = subprocess.run(
        ["bash", str(path)], capture_output=True, text=True, check=False, env={"PATH": "/usr/bin:/bin"}
    )
    return done.stdout + done.stderr


def test_script_has_every_field_once() -> None:
    wish = JobSpec(
        **WISH, partition="gpu", account="maths", modules=("gcc/12", "openmpi"), directives=("--qos=high",)
    )
    lines = script(wish).splitlines()
    assert lines[0] == "#!/bin/bash"
    options = [line.removeprefix("#SBATCH ") for line in lines if line.startswith("#SBATCH")]
    assert options == [
        *(
            "--job-name=workbench-lab",
            "--partition=gpu",
            "--account=maths",
            "--nodes=3",
            "--ntasks-per-node=4",
        ),
        *(
            "--time=1:00:00",
            "--output=/shared/pools/1/log.txt",
            "--open-mode=append",
            "--no-requeue",
            "--qos=high",
        ),
    ]
    assert [line for line in lines if line.startswith("module")] == [
        "module load gcc/12",
        "module load openmpi",
    ]
    assert lines[-1] == "exec python3 -m workbench.mpi.launch.head.supervisor /shared/pools/1"
    assert not set(lines) & {"set +eu"} or lines.index("set +eu") < lines.index("module load gcc/12")


@given(
    st.lists(
        st.text(st.characters(blacklist_characters="\0", blacklist_categories=["Cs"]), min_size=1), max_size=4
    )
)
def test_script_quotes_the_command(tmp_path_factory: pytest.TempPathFactory, words: list[str]) -> None:
    command = ("python3", "-c", "import sys; print(ascii(sys.argv[1:]))", *words)
    wish = JobSpec(**{**WISH, "command": command}, path="/a folder/with 'quotes'")
    assert runs(script(wish), tmp_path_factory.mktemp("job")).strip() == ascii(words)


def test_script_makes_the_package_importable(tmp_path: Path) -> None:
    command = ("python3", "-c", "import os; print(os.environ['PYTHONPATH'])")
    assert (
        runs(script(JobSpec(**{**WISH, "command": command}, path="/opt/it's here")), tmp_path)
        == "/opt/it's here\n"
    )


def test_script_loads_modules_that_are_defined_late(tmp_path: Path) -> None:
    text = script(JobSpec(**{**WISH, "command": ("echo", "begun")}, modules=("gcc",)))
    profile = tmp_path / "profile"
    profile.write_text('echo "$not_set"; module() { echo "loaded $2"; }')
    assert runs(text.replace("/etc/profile", str(profile)), tmp_path).split() == ["loaded", "gcc", "begun"]


def test_script_ends_without_a_missing_module(tmp_path: Path) -> None:
    text = script(JobSpec(**{**WISH, "command": ("echo", "begun")}, modules=("gcc",)))
    profile = tmp_path / "profile"
    profile.write_text('module() { echo "no $2"; return 1; }')
    assert runs(text.replace("/etc/profile", str(profile)), tmp_path).split() == ["no", "gcc"]


@pytest.mark.parametrize(
    "text", ["--qos=high", "--mem=4G", "--exclusive", "--constraint=a&b", "--time-min=5", "--gres=gpu:1"]
)
def test_check_directive_accepts_other_directives(text: str) -> None:
    assert check_directive(text) == text


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("-p debug", "begins with --"),
        ("qos=high", "begins with --"),
        ("--qos=high\n#SBATCH --uid=0", "in one line"),
        ("--qos=high\rx", "in one line"),
        ("--comment=a # b", "one option"),
        ("--", "one option"),
        ("--partition=gpu", "--partition is set"),
        ("--part=gpu", "--partition is set"),  # sbatch takes beginnings
        ("--nodes 4", "--nodes is set"),
        ("--time=5", "--time is set"),
        ("--array=1-5", "--array is set"),
        ("--requeue", "--requeue is set"),
        ("--wrap=rm", "--wrap is set"),
    ],
)
def test_slurm_refuses_impossible_directives(text: str, words: str) -> None:
    with pytest.raises(SettingError, match=words):
        Slurm(folder="/shared", tasks_per_node=2, directives=(text,))


YAML = "kind: slurm\nfolder: /shared\ntasks_per_node: 4\n"


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ("partion: gpu", "partion: Slurm has no such field; did you mean 'partition'"),
        ("nodes: many", "nodes = 'many'"),
        ("nodes: 0", "nodes = 0"),
        ("time: soon", "time: 'soon': write minutes, hours:minutes:seconds"),
        ("partition: --help", "partition: '--help': use letters"),
        ("account: a b", "account: 'a b'"),
        ("modules: [gcc, 'x; rm -rf /']", "modules.1: 'x; rm"),
        ("directives: ['--nodes=5']", "directives.0: '--nodes=5': --nodes is set"),
        ("python: -c", "python: '-c' begins with a hyphen"),
        ("login: -oProxyCommand=x", "login: '-oProxyCommand=x' begins with a hyphen"),
        ("folder: shared", "folder: 'shared': give an absolute path"),
        ("folder: /a b", "folder: '/a b': give an absolute path"),
        ("folder: /%j", "folder: '/%j': give an absolute path"),
        ("idle: 0", "idle = 0"),
    ],
)
def test_slurm_file_errors_have_name_and_key(tmp_path: Path, more: str, words: str) -> None:
    path = tmp_path / "lab.yaml"
    kept = [line for line in YAML.splitlines() if line.split(":")[0] != more.split(":")[0]]
    path.write_text("\n".join([*kept, more]))
    with pytest.raises(SettingError, match=words) as refused:
        clusters.load(path)
    assert str(refused.value).startswith(f"{path}: {more.partition(':')[0]}")
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(("written", "time"), [("1:30:00", "1:30:00"), ("90", "90"), ("'2-12'", "2-12")])
def test_slurm_file_keeps_times_as_written(tmp_path: Path, written: str, time: str) -> None:
    path = tmp_path / "lab.yaml"
    kept = [line for line in YAML.splitlines() if not line.startswith("time:")]
    path.write_text("\n".join([*kept, f"time: {written}"]))
    assert clusters.load(path).model_dump()["time"] == time


EXAMPLE = Path(__file__).parents[4] / "clusters" / "examples" / "slurm.yaml"


def test_slurm_example_file_loads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".ssh").mkdir()
    for name in ("id_ed25519", "config", "known_hosts"):
        (tmp_path / ".ssh" / name).touch()
    cluster = clusters.load(EXAMPLE)
    assert isinstance(cluster, Slurm)
    head, _, fields = EXAMPLE.read_text().partition("kind:")
    assert head.startswith("#")
    path = tmp_path / "all.yaml"
    path.write_text("kind:" + fields.replace("\n# ", "\n"))
    whole = clusters.load(path)
    assert isinstance(whole, Slurm)
    assert whole.model_fields_set >= set(Slurm.model_fields)
    assert whole.gateway is not None
    assert "login" not in [name for name, value in whole.carried().items() if value is not None]


@pytest.mark.parametrize("key", ["folder", "tasks_per_node"])
def test_slurm_file_names_missing_fields(tmp_path: Path, key: str) -> None:
    path = tmp_path / "lab.yaml"
    path.write_text("\n".join(line for line in YAML.splitlines() if not line.startswith(key)))
    with pytest.raises(SettingError, match=f"{key}: is missing"):
        clusters.load(path)


@pytest.mark.parametrize(("ranks", "shape"), [(2, (1, 2)), (8, (1, 8)), (9, (2, 5)), (157, (20, 8))])
def test_slurm_job_has_room_for_its_ranks(ranks: int, shape: tuple[int, int]) -> None:
    assert Slurm(folder="/shared", tasks_per_node=8).shape(ranks) == shape


def test_slurm_refuses_more_workers_than_tasks() -> None:
    with pytest.raises(
        ClusterError, match=r"workers = 8: cluster '' has 2 nodes of 4 tasks, room for 7 workers"
    ):
        Slurm(folder="/shared", tasks_per_node=4, nodes=2).shape(9)


def test_queue_is_parsed() -> None:
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


@pytest.mark.parametrize("state", sorted(ENDINGS))
def test_job_endings_have_a_sentence(state: str) -> None:
    job = Job("5", state)
    assert job.over
    assert job.final
    assert job.ending().startswith("job 5: ")


def test_job_that_is_completing_is_not_gone() -> None:
    assert Job("5", "COMPLETING").over
    assert not Job("5", "COMPLETING").final


@pytest.mark.parametrize(
    ("said", "words"),
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
def test_refusal_of_sbatch_names_the_field(said: str, words: str) -> None:
    fields = {
        "partition": "gpu",
        "account": "maths",
        "time": "1:00:00",
        "nodes": 4,
        "directives": ("--foo=abc",),
    }
    with pytest.raises(SettingError, match=words):
        raise refusal(said, fields)


@given(st.integers(0, 99), st.integers(0, 23), st.integers(0, 59), st.integers(0, 59))
def test_seconds_reads_slurm_times(days: int, hours: int, minutes: int, secs: int) -> None:
    total = ((days * 24 + hours) * 60 + minutes) * 60 + secs
    assert seconds(f"{days}-{hours:02d}:{minutes:02d}:{secs:02d}") == total
    assert seconds(f"{hours + 24 * days}:{minutes:02d}:{secs:02d}") == total
    assert seconds(f"{minutes}:{secs:02d}") == 60 * minutes + secs


@pytest.mark.parametrize(
    ("said", "number"), [("12\n", "12"), ("12;alps\n", "12"), ("note 5\n12\n", "12"), ("", None)]
)
def test_submitted_finds_the_job_number(said: str, number: str | None) -> None:
    assert submitted(said) == number


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

    ticket = JobStatusCache("5", ask)
    assert ticket.job(fresh=True).state == "RUNNING"
    assert (ticket.job(fresh=True).state, ticket.trouble) == ("RUNNING", "squeue: no contact")
    assert (ticket.job(fresh=True).state, ticket.trouble) == ("TIMEOUT", "")
    assert ticket.job().state == "TIMEOUT"  # what is over is not asked about again


def test_job_status_cache_limits_queries() -> None:
    asked: list[str] = []

    def ask(number: str) -> Job:
        asked.append(number)
        return Job(number, "RUNNING")

    ticket = JobStatusCache("5", ask)
    for _ in range(1000):
        ticket.job()
    assert len(asked) < 100
