"""Jobs of torchrun with real processes: every scheme trains, deaths and late ranks, checkpoints, and refusals."""

from __future__ import annotations

import csv
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.ddp.torchrun import JOB_TIMEOUT_S, SCRIPT, Done, environment, one_process, torchrun
from tests.support.sampled_cases import sampled_test
from workbench.ddp import launcher
from workbench.ddp.record import STEPS, TIMES, saved_state

pytest.importorskip("torch")
pytestmark = pytest.mark.mpi

GC = ("--scheme", "GC", "--set", "stragglers=1")
ALWAYS = ("--check-every", "1")


def equal(done: Done, ranks: int) -> None:
    """Assert that all ranks have ended with the same model and optimiser, to the bit."""
    assert len(done.ranks) == ranks, done.text
    assert len({report["state"] for report in done.ranks.values()}) == 1
    assert len({report["step"] for report in done.ranks.values()}) == 1


EXACT = {
    "uncoded": ("--scheme", "UMW"),
    "cyclic": (),  # the default
    "cyclic, 2 stragglers": ("--scheme", "GC", "--set", "stragglers=2"),
    "fractional": (*GC, "--set", "code=fractional"),
}


@sampled_test("jobs of torchrun", 0, 5, 1)
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name != "cyclic")) for name in EXACT]
)
def test_exact_schemes_train_as_one_process_does(name: str, tmp_path: Path) -> None:
    alone = one_process(tmp_path / "alone").losses()
    done = torchrun(tmp_path / "job", *EXACT[name], *ALWAYS)
    equal(done, 4)
    assert done.losses() == pytest.approx(alone, rel=1e-4)


INEXACT = {
    "IS-GC": ("--scheme", "IS-GC", "--set", "replication=2", "--set", "wait_for=3"),
    "backup": ("--scheme", "Backup", "--set", "stragglers=1"),
    "local": ("--scheme", "LocalSGD", "--set", "local_steps=4", "--set", "stragglers=1"),
    "of a user file": ("--scheme", f"{SCRIPT.with_name('plugin_scheme.py')}:Half"),
    "hierarchical": ("--scheme", "H-SGD", "--set", "local_steps=4", "--set", "levels=[[2, 2]]"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", INEXACT)
def test_other_schemes_train_and_all_ranks_end_equal(name: str, tmp_path: Path) -> None:
    done = torchrun(tmp_path, *INEXACT[name], *ALWAYS, steps=40)
    equal(done, 4)
    losses = done.losses()
    assert losses[-1] < losses[0]


@pytest.mark.parametrize("name", ["IS-GC", "backup", "local", "hierarchical"])
def test_other_schemes_survive_a_killed_rank(name: str, tmp_path: Path) -> None:
    """A short job of each scheme, in which the script of a rank is killed after it took part."""
    done = torchrun(tmp_path, *INEXACT[name], *ALWAYS, fault="rank=3 kill=6", steps=24)
    equal(done, 3)
    assert [report["step"] for report in done.ranks.values()] == [24] * 3
    losses = done.losses()
    assert losses[-1] < losses[0]


CAUGHT = """
import sys
from tests.support.ddp.threads import losses, small
from workbench import ddp

model, optimiser, loader = small(5)
job = ddp.prepare(model, optimiser, loader)
try:
    for x, y in job:
        optimiser.zero_grad()
        job.backward(losses(model, x, y))
        if job.step == 2:
            raise ValueError("a fault of the test")
        optimiser.step()
except ValueError:
    sys.exit(3)
"""


def test_script_that_exits_with_an_error_has_not_finished(tmp_path: Path) -> None:
    """The checkpoint has the steps that the optimiser has made."""
    (tmp_path / "train.py").write_text(CAUGHT)
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "workbench.ddp",
            "--folder",
            str(tmp_path / "log"),
            str(tmp_path / "train.py"),
        ],
        env=environment(RANK="0", WORLD_SIZE="1", LOCAL_WORLD_SIZE="1"),
        capture_output=True,
        text=True,
        timeout=JOB_TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 3, done.stderr
    assert "the job is not complete: rank 0: ended with status 3" in done.stderr
    state = saved_state(tmp_path / "log")
    assert state is not None
    assert state.step == 2


@sampled_test("jobs of torchrun", 1, 5, 1)
def test_job_with_a_killed_rank_does_all_steps_and_ends_with_status_0(tmp_path: Path) -> None:
    done = torchrun(
        tmp_path, *GC, *ALWAYS, "--folder", str(tmp_path / "log"), fault="rank=2 kill=3 pace=0.1", steps=20
    )
    equal(done, 3)
    assert "rank 2: killed by SIGKILL; the other ranks continue" in done.text
    rows = list(csv.DictReader((tmp_path / "log" / STEPS).open()))
    assert [int(row["step"]) for row in rows] == list(range(1, 21))
    assert rows[-1]["ranks"] == "0 1 3"


@pytest.mark.slow
@pytest.mark.parametrize("rank", [0, 3])
def test_exception_in_one_script_is_a_death(rank: int, tmp_path: Path) -> None:
    done = torchrun(tmp_path, *GC, *ALWAYS, fault=f"rank={rank} raise=3 pace=0.1")
    equal(done, 3)
    assert "a fault of the test" in done.text


@pytest.mark.slow
def test_killed_rank_is_started_again_and_takes_part(tmp_path: Path) -> None:
    log = tmp_path / "log"
    fault = "rank=1 kill=3 pace=0.3"
    done = torchrun(tmp_path, *GC, *ALWAYS, "--restarts", "1", "--folder", str(log), fault=fault, steps=400)
    equal(done, 4)
    assert "its script is started again" in done.text
    rows = list(csv.DictReader((log / TIMES).open()))
    assert max(int(row["step"]) for row in rows if row["worker"] == "1") > 3


@sampled_test("jobs of torchrun", 2, 5, 1)
@pytest.mark.parametrize("scheme", [GC, pytest.param(INEXACT["local"], marks=pytest.mark.slow)])
def test_late_rank_drops_rounds_and_takes_the_newest_state(scheme: tuple[str, ...], tmp_path: Path) -> None:
    log = tmp_path / "log"
    fault = "rank=3 late=4 seconds=1.5 pace=0.1"
    done = torchrun(tmp_path, *scheme, *ALWAYS, "--folder", str(log), fault=fault, steps=40)
    equal(done, 4)
    rows = [row for row in csv.DictReader((log / TIMES).open()) if row["worker"] == "3"]
    assert any(row["used"] == "0" for row in rows)
    answered = {int(row["step"]) for row in rows}
    assert len(answered) < 40 // (4 if "LocalSGD" in scheme else 1)
    assert len(done.ranks[3]["losses"]) < 40
    assert done.ranks[3]["step"] == 40


@pytest.mark.slow
def test_resumed_job_continues_as_an_uninterrupted_one(tmp_path: Path) -> None:
    whole = torchrun(tmp_path / "whole", *GC, steps=24)
    log = ("--folder", str(tmp_path / "log"), "--checkpoint-every", "4")
    torchrun(tmp_path / "first", *GC, *log, steps=12)
    second = torchrun(tmp_path / "second", *GC, *log, "--resume", steps=24)
    assert min(int(step) for report in second.ranks.values() for step in report["losses"]) == 12
    assert second.losses() == pytest.approx(whole.losses()[12:], rel=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("rank", [0, 2])
def test_killed_launcher_restarts_the_job_from_its_checkpoint(rank: int, tmp_path: Path) -> None:
    log = tmp_path / "log"
    keep = ("--folder", str(log), "--checkpoint-every", "4", "--resume")
    done = torchrun(
        tmp_path, *GC, *ALWAYS, *keep, fault=f"rank={rank} orphan=10 pace=0.1", steps=20, restarts=1
    )
    equal(done, 4)
    assert min(int(step) for report in done.ranks.values() for step in report["losses"]) in (4, 8)
    assert done.ranks[1]["step"] == 20


DISAGREE = {
    "noise=unseeded": "its inputs differ between ranks",
    "layer=batch_norm": "BatchNorm1d '1': depends on random numbers or on the other samples",
    "layer=dropout": "Dropout '1': depends on random numbers",
}


@sampled_test("jobs of torchrun", 3, 5, 1)
@pytest.mark.parametrize(
    "fault", [pytest.param(fault, marks=[pytest.mark.slow] * (i > 0)) for i, fault in enumerate(DISAGREE)]
)
def test_replicas_that_disagree_are_named_in_the_first_step(fault: str, tmp_path: Path) -> None:
    done = torchrun(tmp_path, *GC, fault=fault, status=1)
    assert "first step: sample" in done.text
    assert DISAGREE[fault] in done.text
    assert not done.ranks


@pytest.mark.slow
@pytest.mark.parametrize("workers", [0, 1])
def test_seeded_augmentation_is_equal_on_replicas(workers: int, tmp_path: Path) -> None:
    equal(torchrun(tmp_path, *GC, *ALWAYS, fault=f"noise=seeded workers={workers}"), 4)


@pytest.mark.slow
def test_changed_model_is_named(tmp_path: Path) -> None:
    done = torchrun(tmp_path, *GC, *ALWAYS, fault="rank=2 change=5 pace=0.1", status=1)
    assert "model.0.weight" in done.text
    assert "differs between ranks" in done.text


@pytest.mark.slow
def test_two_groups_of_launchers_find_the_master_through_the_store(tmp_path: Path) -> None:
    """Two torchrun commands on this machine, as on two hosts: the master listens on the interface of MASTER_ADDR."""
    import socket

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    start = [sys.executable, "-m", "torch.distributed.run", "--nnodes=2", "--nproc-per-node=2"]
    start += ["--master-addr=127.0.0.1", f"--master-port={port}"]
    jobs = [
        subprocess.Popen(
            [*start, f"--node-rank={node}", "-m", "workbench.ddp", *GC, *ALWAYS, str(SCRIPT)],
            env=environment(OUT=str(tmp_path), FAULT="rank=3 kill=5"),
        )
        for node in range(2)
    ]
    assert [job.wait(JOB_TIMEOUT_S) for job in jobs] == [0, 0]
    assert len(list(tmp_path.glob("rank-*.json"))) == 3


def test_launcher_refuses_what_cannot_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("RANK", raising=False)
    assert launcher.main(["train.py"]) == 2
    assert "start the job with torchrun" in capsys.readouterr().err
    for name, value in {"RANK": "0", "WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "4"}.items():
        monkeypatch.setenv(name, value)
    assert launcher.main(["--scheme", "GC", "--set", "stragglers=4", "train.py"]) == 2
    assert "scheme_args.stragglers = 4" in capsys.readouterr().err
    (tmp_path / "file").touch()
    assert launcher.main(["--folder", str(tmp_path), "train.py"]) == 2
    assert "is not empty" in capsys.readouterr().err


def test_default_tolerates_one_straggler(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"RANK": "1", "WORLD_SIZE": "8", "LOCAL_WORLD_SIZE": "8"}.items():
        monkeypatch.setenv(name, value)
    found = launcher.environment_of(launcher.parser().parse_args(["train.py", "--lr", "0.1"]))
    assert (found.scheme, found.scheme_args, found.rank) == ("GC", {"stragglers": 1}, 1)
    assert str(os.geteuid()) in found.address
