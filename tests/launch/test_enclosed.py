"""A pool on this machine listens to nobody: it has no network but a loopback of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from workbench.clusters import load
from workbench.launch import enclosed, pools

needs_namespaces = pytest.mark.skipif(
    not enclosed.can_enclose(), reason="this system lets no process have a network of its own"
)
LISTENING = "0A"

CHILD = """
import ctypes, fcntl, os, socket, sys
from workbench.launch.enclosed import can_enclose, enclose
from pathlib import Path

if sys.argv[1] == "nobody":
    os.setgroups([])
    os.setgid(65534), os.setuid(65534)
    ctypes.CDLL(None).prctl(4, 1)  # dumpable, as after a program's start; else its /proc is root's
user, outside = os.geteuid(), os.readlink("/proc/self/ns/net")
if not can_enclose():
    print("forbidden")
    sys.exit()
assert os.readlink("/proc/self/ns/net") == outside  # trying changes nothing
enclose()
assert os.geteuid() == user and os.stat(f"/proc/{os.getpid()}").st_uid == user
assert [name for _, name in socket.if_nameindex()] == ["lo"]
with socket.socket() as server, socket.socket() as client:
    server.bind(("127.0.0.1", 0)), server.listen()
    client.connect(server.getsockname())
print("enclosed")
"""


@pytest.mark.skipif(sys.platform != "linux", reason="namespaces are Linux's")
@pytest.mark.parametrize("who", ["oneself", "nobody"])
def test_there_is_a_loopback_and_nothing_else(who: str) -> None:
    if who == "nobody" and os.geteuid() != 0:
        pytest.skip("only root can become nobody")
    done = subprocess.run([sys.executable, "-c", CHILD, who], capture_output=True, text=True, check=True)
    if done.stdout.strip() == "forbidden":
        pytest.skip("this system lets no such process have a network of its own")
    assert done.stdout.strip() == "enclosed"


def test_where_it_is_forbidden_nothing_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden() -> None:
        raise PermissionError

    monkeypatch.setattr(enclosed, "enclose", forbidden)
    assert not enclosed.can_enclose()


def _heard_beyond_loopback() -> Iterator[str]:
    """Inodes of sockets of this network that listen to other machines."""
    for table in ("tcp", "tcp6"):
        for line in Path("/proc/self/net", table).read_text().splitlines()[1:]:
            _, local, _, state, *others = line.split()
            if state == LISTENING and not local.startswith(("0100007F", "0" * 24 + "01000000")):
                yield others[5]


def _sockets(pid: int) -> set[str]:
    """Inodes of a process's sockets."""
    links = [str(entry.readlink()) for entry in Path(f"/proc/{pid}/fd").iterdir()]
    return {link[8:-1] for link in links if link.startswith("socket:[")}


def _family(pid: int) -> list[int]:
    below = psutil.Process(pid).children(recursive=True)
    return [pid, *(process.pid for process in below)]


@pytest.mark.mpi
@pytest.mark.xdist_group("mpi")
@needs_namespaces
def test_a_pool_listens_to_no_other_machine() -> None:
    pool = load("local").open_here(3)
    assert isinstance(pool, pools.ChildPool)
    try:
        pool.await_ready()
        family = _family(pool.supervisor.pid)
        assert {pid for pid, _ in pool.places} < set(family)
        held = set().union(*map(_sockets, family))
        assert held  # mpiexec has some
        assert not held & set(_heard_beyond_loopback())
    finally:
        pool.close()
