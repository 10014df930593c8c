"""Commands of batch systems that print unexpected output, are missing, or cannot be run: the error is one sentence.

Small scripts replace the commands, and are really executed.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from workbench.core.base.errors import ClusterError
from workbench.core.base.settings import SettingError
from workbench.mpi.clusters.base import rebuilt
from workbench.mpi.clusters.batch.kind import BatchCluster
from workbench.mpi.clusters.batch.queue import JobStatusCache

COMMANDS = {"slurm": ("sbatch", "squeue", "sacct", "scontrol", "scancel"), "pbs": ("qsub", "qstat", "qdel")}
PAGE = b"<html><body>Wartungsarbeiten bis 12 Uhr: \xe4\xf6\xfc</body></html>\n"
ROW = b"7|RUNNING|None|1:00:00|0:10|2|8|n[1-2]|2026-01-01T00:00:00\n"
FULL = b"Job Id: 7.pbs\n    Job_Name = workbench-lab\n    job_state = R\n    Resource_List.ncpus = 8\n"
FULL += b"    exec_host = n1/0*4+n2/0*4\n"
ROWS = {"slurm": ROW, "pbs": FULL}
ASK = {"slurm": "squeue", "pbs": "qstat"}


@pytest.fixture(params=list(COMMANDS))
def batch(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Commands:
    monkeypatch.setenv("PATH", str(tmp_path))
    return Commands(tmp_path, request.param)


class Commands:
    """Folder of scripts in place of a batch system's commands."""

    def __init__(self, folder: Path, kind: str) -> None:
        self.folder, self.kind = folder, kind
        fields = {"kind": kind, "name": "lab", "folder": str(folder / "shared"), "tasks_per_node": 2}
        cluster = rebuilt(fields)
        assert isinstance(cluster, BatchCluster)
        self.cluster = cluster
        self.answer(b"")

    def answer(self, output: bytes, status: int = 0, *names: str) -> None:
        """Let commands (by default all) print this text."""
        (self.folder / f"output-{'-'.join(names)}").write_bytes(output)
        for name in names or COMMANDS[self.kind]:
            script = self.folder / name
            text = shlex.quote(str(self.folder / f"output-{'-'.join(names)}"))
            script.write_text(f"#!/bin/sh\n/bin/cat {text}\nexit {status}\n")
            script.chmod(0o755)

    def asked(self) -> dict[str, Callable[[], Any]]:
        """Return all queries of a batch system, by name."""
        site = self.cluster.here()
        return {
            "open": lambda: site.open(4),
            "status": site.status,
            "down": site.down,
            "run": lambda: site.run(["true"]),
            "job": lambda: self.cluster.look_up("7"),
        }


def sentence(ask: Callable[[], Any]) -> str:
    """Return the error of a query, which has to be a `ClusterError` or a `SettingError` of one sentence."""
    with pytest.raises((ClusterError, SettingError)) as caught:
        ask()
    assert str(caught.value).isprintable()
    assert "Traceback" not in str(caught.value)
    return str(caught.value)


def test_batch_command_refuses_an_html_page(batch: Commands) -> None:
    batch.answer(PAGE)
    for name, ask in batch.asked().items():
        assert "answered with" in sentence(ask) or "answered without" in sentence(ask), name
    assert list(batch.cluster.pools.iterdir()) == []


def test_job_status_cache_ignores_an_html_page(batch: Commands) -> None:
    status = JobStatusCache("7", batch.cluster.look_up)
    batch.answer(ROWS[batch.kind], 0, ASK[batch.kind])
    assert status.job(fresh=True).state == "RUNNING"
    for output in (PAGE, ROWS[batch.kind][:9]):
        batch.answer(output)
        assert not status.job(fresh=True).over
        assert f"{ASK[batch.kind]}: it answered with something that" in status.trouble


def test_look_up_skips_notices(batch: Commands) -> None:
    batch.answer(b"Wartung am Montag\n" + ROWS[batch.kind], 0, ASK[batch.kind])
    job = batch.cluster.look_up("7")
    assert job.cores == 8
    if batch.kind == "slurm":
        batch.answer(b"n1\nn2\n", 0, "scontrol")
    assert batch.cluster.node_names(job) == ["n1", "n2"]


@pytest.mark.parametrize("batch", ["slurm"], indirect=True)
def test_look_up_of_sacct_that_prints_a_page(batch: Commands) -> None:
    batch.answer(PAGE, 0, "sacct")
    assert batch.cluster.look_up("7").state == "FORGOTTEN"
    batch.answer(b"CANCELLED by 1000\n", 0, "sacct")
    assert batch.cluster.look_up("7").state == "CANCELLED"


def test_batch_command_that_is_missing_is_named(batch: Commands) -> None:
    for name in COMMANDS[batch.kind]:
        (batch.folder / name).unlink()
    for ask in batch.asked().values():
        assert "not found on this machine" in sentence(ask)
    for name in COMMANDS[batch.kind]:
        (batch.folder / name).mkdir()
    assert [found.what for found in batch.cluster.check()] == ["a trial job"]


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@example(ROW.replace(b"1:00:00", b"9" * 400), 0)
@example(ROW.replace(b"|8|", "|²|".encode()), 0)
@example(b"\xb2|RUNNING|||||||\n", 0)
@example(b"7|RUNNING|||||||\n" * 3, 0)
@example(FULL.replace(b"= 8", "= ²".encode()), 0)
@example(FULL.replace(b"= R", b"= Z"), 0)
@example(FULL.replace(b"job_state = R", b"job_state ="), 0)
@example(FULL + b"    Resource_List.walltime = " + b"9" * 400 + b"\n", 0)
@example(FULL + b"    resources_used.walltime = soon\n", 0)
@example(FULL + b"    resources_used.walltime = 2:00:00\n    Resource_List.walltime = 1:00:00\n", 0)
@example(b"7.pbs ada workq lab\n" + FULL, 0)
@given(
    st.binary(max_size=80)
    | st.text("7|RUNING:-\n", max_size=60).map(str.encode)
    | st.lists(st.sampled_from(FULL.splitlines(keepends=True)), max_size=5).map(b"".join),
    st.sampled_from([0, 0, 1]),
)
def test_batch_command_any_output_is_a_sentence_or_a_status(
    batch: Commands, output: bytes, status: int
) -> None:
    batch.answer(output, status)
    text = ""
    for name in ("job", "status"):
        try:
            batch.asked()[name]()
        except (ClusterError, SettingError) as error:
            text += str(error)
    assert text == "" or text.isprintable()
