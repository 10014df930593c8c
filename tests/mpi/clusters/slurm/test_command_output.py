"""Commands of Slurm that print unexpected output, are missing, or cannot be run: one sentence each.

Small scripts stand for the commands; they are really run.
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
from workbench.mpi.clusters.slurm.kind import Slurm
from workbench.mpi.clusters.slurm.queue import JobStatusCache, look_up, node_names

COMMANDS = ("sbatch", "squeue", "sacct", "scontrol", "scancel")
PAGE = b"<html><body>Wartungsarbeiten bis 12 Uhr: \xe4\xf6\xfc</body></html>\n"
ROW = b"7|RUNNING|None|1:00:00|0:10|2|8|n[1-2]|2026-01-01T00:00:00\n"


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Commands:
    monkeypatch.setenv("PATH", str(tmp_path))
    return Commands(tmp_path)


class Commands:
    """A folder of scripts in the place of Slurm's commands."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.cluster = Slurm(name="lab", folder=str(folder / "shared"), tasks_per_node=2)
        self.answer(b"")

    def answer(self, output: bytes, status: int = 0, *names: str) -> None:
        """Have commands (by default all) answer so."""
        (self.folder / f"output-{'-'.join(names)}").write_bytes(output)
        for name in names or COMMANDS:
            script = self.folder / name
            text = shlex.quote(str(self.folder / f"output-{'-'.join(names)}"))
            script.write_text(f"#!/bin/sh\n/bin/cat {text}\nexit {status}\n")
            script.chmod(0o755)

    def asked(self) -> dict[str, Callable[[], Any]]:
        """Return all queries to Slurm."""
        site = self.cluster.here()
        return {
            "open": lambda: site.open(4),
            "status": site.status,
            "down": site.down,
            "run": lambda: site.run(["true"]),
            "job": lambda: look_up("7"),
            "names": lambda: node_names("n[1-2]"),
        }


def sentence(ask: Callable[[], Any]) -> str:
    """Return the error of a query: a `ClusterError` or a `SettingError` of one sentence."""
    with pytest.raises((ClusterError, SettingError)) as caught:
        ask()
    assert str(caught.value).isprintable()
    assert "Traceback" not in str(caught.value)
    return str(caught.value)


def test_slurm_command_refuses_an_html_page(slurm: Commands) -> None:
    slurm.answer(PAGE)
    for name, ask in slurm.asked().items():
        assert "answered with" in sentence(ask) or "answered without" in sentence(ask), name
    assert list(slurm.cluster.pools.iterdir()) == []


def test_job_status_cache_ignores_an_html_page(slurm: Commands) -> None:
    ticket = JobStatusCache("7")
    slurm.answer(ROW, 0, "squeue")
    assert ticket.job(fresh=True).state == "RUNNING"
    slurm.answer(PAGE)
    assert not ticket.job(fresh=True).over
    assert "squeue: it answered with something that Slurm does not print" in ticket.trouble


def test_look_up_skips_notices(slurm: Commands) -> None:
    slurm.answer(b"Wartung am Montag\n" + ROW, 0, "squeue")
    slurm.answer(b"n1\nn2\n", 0, "scontrol")
    assert look_up("7").cores == 8
    assert [host.host for host in slurm.cluster.status().hosts] == ["n1", "n2"]


def test_look_up_of_sacct_that_prints_a_page(slurm: Commands) -> None:
    slurm.answer(PAGE, 0, "sacct")
    assert look_up("7").state == "FORGOTTEN"
    slurm.answer(b"CANCELLED by 1000\n", 0, "sacct")
    assert look_up("7").state == "CANCELLED"


def test_slurm_command_that_is_missing_is_named(slurm: Commands) -> None:
    for name in COMMANDS:
        (slurm.folder / name).unlink()
    for ask in slurm.asked().values():
        assert "not found on this machine" in sentence(ask)
    for name in COMMANDS:
        (slurm.folder / name).mkdir()
    assert [found.what for found in slurm.cluster.check()] == ["a trial job"]


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@example(ROW.replace(b"1:00:00", b"9" * 400), 0)
@example(ROW.replace(b"|8|", "|²|".encode()), 0)
@example(b"\xb2|RUNNING|||||||\n", 0)
@example(b"7|RUNNING|||||||\n" * 3, 0)
@given(
    st.binary(max_size=80) | st.text("7|RUNING:-\n", max_size=60).map(str.encode), st.sampled_from([0, 0, 1])
)
def test_slurm_any_answer_is_a_sentence_or_a_status(slurm: Commands, output: bytes, status: int) -> None:
    slurm.answer(output, status)
    said = ""
    for name in ("job", "names", "status"):
        try:
            slurm.asked()[name]()
        except (ClusterError, SettingError) as error:
            said += str(error)
    assert said == "" or said.isprintable()
