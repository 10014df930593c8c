"""Logins that write into the connection to an agent, or read from it: one sentence quotes their output.

A shell replaces sshd and the login shell. It runs a script like a ~/.bashrc, then the command that ssh would run.
"""

from __future__ import annotations

import struct
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from workbench.core.base.errors import ClusterError
from workbench.mpi.launch.gateway import HOST, ConnectionLost, Gateway
from workbench.mpi.launch.package import Package
from workbench.mpi.launch.reports import unreached

ROOT = Path(__file__).parents[3]
LATER = 'while [ ! -e "${0%/*}/connected" ]; do sleep 0.05; done'  # waits until the agent has replied
SILENT = "~/.bashrc and the like must write and read nothing in shells without a terminal"


def gateway(folder: Path, login: str, patience: float = 60.0) -> Gateway:
    """Return a gateway to this machine, through a login that runs this script first."""
    (folder / "login.sh").write_text(f'{login}\neval "$1"\n')
    return Gateway("w1", ("bash", str(folder / "login.sh")), sys.executable, Package(str(ROOT)), patience)


def sentence(folder: Path, login: str, patience: float = 60.0) -> str:
    """Return how a connection through that login ends."""

    def used() -> None:
        with gateway(folder, login, patience).connect(HOST) as link:
            (folder / "connected").touch()
            link.ask("run", command=["sleep", "1"])
            link.ask("facts")

    with pytest.raises(ConnectionLost) as caught:
        used()
    assert str(caught.value).startswith("w1: ")
    assert str(caught.value).isprintable()
    return str(caught.value)


@pytest.mark.parametrize("login", ["", "echo Welcome", "seq 1 10000", "echo Welcome >&2"])
def test_gateway_skips_words_before_the_agent(tmp_path: Path, login: str) -> None:
    with gateway(tmp_path, login).connect(HOST) as link:
        assert link.ask("name")[0]["name"]


@pytest.mark.parametrize(
    ("login", "text"),
    [
        ("seq 1 20000", "its login wrote '1 2 3 4 5"),
        ("head -c 70000 /dev/zero", "its login wrote '???"),
        (f"({LATER}; echo late words of a job) &", "its login wrote 'late words of a job"),
        (f"({LATER}; printf 'hi\\n') &", "its login wrote 'hi"),
        ("echo This account is closed.; exit 1", "exit code 1): its login wrote 'This account is closed.'"),
        ("read -t 9 answer", "the login read what is meant for the workbench"),
        ("read -n 5 -t 9 answer", "the login read what is meant for the workbench"),
        ("echo 'Which project?'; read a; read b", "workbench, and its login wrote 'Which project?'"),
    ],
)
def test_gateway_quotes_a_noisy_login(tmp_path: Path, login: str, text: str) -> None:
    text = sentence(tmp_path, login)
    assert text in text
    assert text.endswith(SILENT)
    assert unreached("w1", text).what == "login shell"


def test_gateway_gives_up_a_login_that_waits_for_input(tmp_path: Path) -> None:
    assert "no answer for 1 s" in sentence(tmp_path, "cat >/dev/null", 1.0)
    assert "its login wrote 'Which project?'" in sentence(
        tmp_path, "echo 'Which project?'; cat >/dev/null", 1.0
    )


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@example(b"workbench-boot have\n" + b"late words of a job\n")
@example(b"workbench-boot have\n" + struct.pack(">QQ", 2**26 + 1, 0))
@example(b"workbench-boot need\n" + struct.pack(">QQ", 4, 0) + b"\xff\xff\xff\xff")
@example(b"workbench-boot have\n" + struct.pack(">QQ", 4, 0) + b"true")
@example(bytes(2**16 + 1))
@given(
    st.sampled_from([b"", b"workbench-boot have\n"]).flatmap(
        lambda head: st.binary(max_size=300).map(head.__add__)
    )
)
def test_gateway_of_any_bytes_is_a_sentence(tmp_path: Path, noise: bytes) -> None:
    (tmp_path / "noise").write_bytes(noise)
    with pytest.raises(ConnectionLost) as caught:
        Gateway("w1", ("sh", "-c", f"cat {tmp_path}/noise"), "python3", Package(str(ROOT))).connect(HOST)
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 400


def test_gateway_names_a_missing_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    way = Gateway("w1", ("ssh", "--", "w1"), sys.executable, Package(str(ROOT)))
    with pytest.raises(
        ClusterError, match=r"^w1: ssh: not found on this machine's PATH; without it"
    ) as caught:
        way.connect(HOST)
    assert unreached("w1", str(caught.value)).what == "connection"


def test_gateway_reports_a_host_that_cannot_write() -> None:
    text = "w1: OSError: [Errno 30] Read-only file system: '/home/ada/.cache'"
    assert unreached("w1", text).what == "files"
