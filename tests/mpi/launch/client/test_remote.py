"""Pools on another machine, served by an agent on this machine, after the connection is lost."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.sampled_cases import rotated
from workbench.mpi.clusters import LOCAL, load
from workbench.mpi.clusters.ssh import Ssh
from workbench.mpi.launch.client.remote import RemotePool, RemoteSite
from workbench.mpi.launch.gateway import AGENT, HOST, ConnectionLost, Gateway, read_message, write_message
from workbench.mpi.launch.package import Package
from workbench.mpi.launch.processes import SUPERVISOR_MODULE, awaited, is_alive, ours

ROOT = Path(__file__).parents[4]
# Shell script in place of ssh: processes that it started live on when it ends.
BETWEEN = "import subprocess, sys; subprocess.run(['sh', '-c', sys.argv[1]], start_new_session=True)"


def gateway(patience: float = 30.0) -> Gateway:
    return Gateway("next", (sys.executable, "-c", BETWEEN), sys.executable, Package(str(ROOT)), patience)


@pytest.fixture
def pool() -> Iterator[RemotePool]:
    cluster = Ssh(name="next", hosts=("here",), python=sys.executable, path=str(ROOT))
    settings = cluster.model_dump(mode="json")
    found = RemoteSite("next", gateway(), settings, settings, {}, None).open(2)
    try:
        yield found
    finally:
        found.close()


@rotated
@pytest.mark.mpi
@pytest.mark.parametrize("up", [False, True])
def test_remote_pool_close_ends_an_agent_that_is_cut_off(pool: RemotePool, up: bool) -> None:
    if up:
        pool.await_ready()
    agent, _ = pool.opened["agent"]
    assert is_alive(agent)
    assert pool.link.process.stdin is not None
    silent = os.dup(pool.link.process.stdin.fileno())  # the agent's input stays open, so it does not end
    try:
        pool.link.close()
        assert is_alive(agent)
        pool.close()
        assert awaited(lambda: not is_alive(agent), 5.0)
        assert not ours(pool.name)
        assert not ours(pool.name, SUPERVISOR_MODULE)
        assert not Path(pool.opened["fields"]["pool"]).exists()
    finally:
        os.close(silent)


@pytest.mark.parametrize("module", [AGENT, HOST])
def test_remote_pool_gives_up_an_agent_that_stops_mid_answer(module: str) -> None:
    fields: dict[str, Any] = {"cluster": load(LOCAL).model_dump(mode="json"), "files": {}}
    with gateway(patience=20.0).connect(module, **fields) as link:
        assert link.ask("name")[0]["name"]
        object.__setattr__(link.gateway, "patience", 0.2)
        read, write = os.pipe()
        os.write(write, b"\0" * 5)  # 5 of the 16 bytes that begin a message
        with open(read, "rb", buffering=0) as half:  # noqa: PTH123 - a descriptor
            link._out = half
            began = time.monotonic()
            for _ in range(2):  # a second attempt gets no reply either
                with pytest.raises(
                    ConnectionLost, match=r"^next: no whole answer \(11 of 16 bytes are missing\)$"
                ):
                    link.ask("name")
            assert time.monotonic() - began < 15.0
        os.close(write)


@pytest.mark.parametrize("sent", [1, 15, 16, 20])
def test_read_word_detects_silence_mid_message(sent: int, tmp_path: Path) -> None:
    whole = tmp_path / "word"
    with whole.open("wb") as out:
        write_message(out, {"what": "name"}, b"123")
    read, write = os.pipe()
    os.write(write, whole.read_bytes()[:sent])
    given = open(read, "rb", buffering=0)  # noqa: SIM115, PTH123 - a descriptor
    with given, pytest.raises(EOFError, match="bytes are missing"):
        read_message(given, 0.1)
    os.close(write)
