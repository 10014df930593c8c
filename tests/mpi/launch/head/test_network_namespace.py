"""A pool on this machine is in a network namespace with only a loopback, so that nobody can connect to it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from workbench.mpi.clusters import load
from workbench.mpi.launch.head import pools, supervisor

LISTENING = "0A"


def allowed() -> bool:
    """Return whether util-linux and iproute2 can make such a namespace on this system."""
    if sys.platform != "linux" or not (shutil.which("unshare") and shutil.which("ip")):
        return False
    how = ["-n"] if os.geteuid() == 0 else ["-Urn"]
    return not subprocess.run(
        ["unshare", *how, "ip", "link", "set", "lo", "up"], capture_output=True
    ).returncode


needs_namespaces = pytest.mark.skipif(
    not allowed(), reason="this system lets no process have a network of its own"
)

CHILD = """
import ctypes, os, socket, sys
import fcntl  # as nobody, Python's files may be out of reach
from workbench.mpi.launch.head.supervisor import unshare_network

if sys.argv[1] == "nobody":
    os.setgroups([])
    os.setgid(65534), os.setuid(65534)
    ctypes.CDLL(None).prctl(4, 1)  # dumpable, as after a program's start; else its /proc is root's
user = os.geteuid()
unshare_network()
assert os.geteuid() == user and os.stat(f"/proc/{os.getpid()}").st_uid == user
assert [name for _, name in socket.if_nameindex()] == ["lo"]
print("enclosed")
"""


@needs_namespaces
@pytest.mark.parametrize("who", ["oneself", "nobody"])
def test_network_namespace_has_loopback_only(who: str) -> None:
    if who == "nobody" and os.geteuid() != 0:
        pytest.skip("only root can become nobody")
    as_user = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "unshare", "-Urn", "true"]
    if who == "nobody" and subprocess.run(as_user, capture_output=True).returncode:
        pytest.skip("this system gives users no namespaces")
    done = subprocess.run([sys.executable, "-c", CHILD, who], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "enclosed"


def _heard_beyond_loopback() -> Iterator[str]:
    """Yield the inodes of this network's sockets that listen to other machines."""
    for table in ("tcp", "tcp6"):
        for line in Path("/proc/self/net", table).read_text().splitlines()[1:]:
            _, local, _, state, *others = line.split()
            if state == LISTENING and not local.startswith(("0100007F", "0" * 24 + "01000000")):
                yield others[5]


def _sockets(pid: int) -> set[str]:
    """Return the inodes of a process's sockets."""
    links = []
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # closed meanwhile
            links.append(str(entry.readlink()))
    return {link[8:-1] for link in links if link.startswith("socket:[")}


@pytest.mark.mpi
@pytest.mark.xdist_group("mpi")
@needs_namespaces
def test_pool_listens_on_loopback_only() -> None:
    pool = load("local").site.open(3)
    assert isinstance(pool, pools.ChildPool)
    try:
        pool.await_ready()
        family = [process.pid for process in psutil.Process(pool.supervisor.pid).children(recursive=True)]
        assert {pid for pid, _ in pool.places} < set(family)
        held = set().union(*map(_sockets, family))
        assert held  # mpiexec has sockets
        assert not held & set(_heard_beyond_loopback())
    finally:
        pool.close()


def test_mpiexec_starts_without_a_network_namespace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden() -> None:
        raise PermissionError

    monkeypatch.setattr(supervisor, "unshare_network", forbidden)
    folder = pools.make_folder(2, lambda _: ["echo", "started"], os.getpid(), within=tmp_path, alone=True)
    above = supervisor.Supervisor(folder)
    with above.pool.log.open("ab", buffering=0) as log:
        process = above._mpiexec(log)
    assert process.communicate(timeout=30)[0] == b"started\n"
