"""Supervisor of mpiexec: `python -m workbench.mpi.launch.head.supervisor FOLDER`.

It starts mpiexec, reports the progress of the start, and ends everything when the pool ends (TERM, 5 s, KILL). It does
not rely on mpiexec's own exit. If the supervisor is killed, mpiexec dies with it, and the ranks with mpiexec. The
supervisor has its own session, so a restart of the notebook does not end a run.

Its settings are in ``pool.json``: `command` (command line of mpiexec), `ranks`, and optionally `environment` (further
variables), `ways` (connections to the other hosts, see `HostMonitor`) and `alone`. With `alone`, all ranks are on this
machine and need no network. The files of their shared memory are then kept in one folder, which is removed at the end.

Open MPI's mpiexec listens on all interfaces for daemons on other hosts, and has no setting against that. A pool on one
machine has no such daemons. In its own network namespace, the ports of mpiexec cannot be reached.
"""

import contextlib
import ctypes
import json
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from workbench.core.base.errors import ClusterError, sentence_of
from workbench.mpi.launch.gateway import HOST, Gateway
from workbench.mpi.launch.poolfolder import PROGRESS_PREFIX, PoolFolder, kept_in, shared
from workbench.mpi.launch.processes import die_with_parent, end_daemons

END_TIMEOUT_S = 5.0  # s between TERM and KILL
# max number of ranks that compile modules themselves; for more ranks, modules are compiled once in advance
MAX_RANKS_THAT_COMPILE = 16
HOST_POLL_INTERVAL_S = 0.5  # s between polls of other hosts
MAX_CONNECTION_TRIES = 2  # max number of attempts per connection, so that a broken one is made once more
CLEANUP_TIMEOUT_S = 25.0  # max time for the cleanup of all hosts together, s
NEW_USER, NEW_NET = 0x10000000, 0x40000000  # flags of unshare, see sched.h
SET_FLAGS, UP, RUNNING = 0x8914, 0x1, 0x40  # flags of interfaces, see ioctls.h and if.h
COMPILE = "import mpi4py; mpi4py.rc.initialize = False; import workbench.mpi.launch.rank.serving"


@dataclass
class HostMonitor:
    """Monitor of the other hosts of a pool. It keeps one connection to each until the pool ends.

    MPI reports neither dead ranks nor lost hosts. The supervisor finds both through these connections, and rank 0 reads
    them in the pool's folder. At the end, the process on the other host ends what is left of the pool there. It also
    does so when it receives nothing for a while.

    `gateways`: `ways` of pool.json. `daemon`: text in the command lines of MPI's daemons.
    """

    pool: PoolFolder
    gateways: list[dict[str, Any]]
    daemon: str
    ending: threading.Event = field(default_factory=threading.Event)
    lost: set[int] = field(default_factory=set)  # ranks that died
    gone: list[str] = field(default_factory=list)  # hosts that were lost

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self._threads = [
            threading.Thread(target=self._guard, args=(gateway,), daemon=True) for gateway in self.gateways
        ]
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """Clean up on all hosts."""
        self.ending.set()
        until = time.monotonic() + CLEANUP_TIMEOUT_S
        for thread in self._threads:
            thread.join(max(0.0, until - time.monotonic()))

    def _guard(self, gateway_fields: dict[str, Any]) -> None:
        gateway, cache = Gateway.of(gateway_fields["gateway"]), gateway_fields["cache"]
        ours: dict[str, Any] = {"pool": self.pool.path.name, "daemon": self.daemon}
        name = None
        for _ in range(MAX_CONNECTION_TRIES):
            try:
                with gateway.connect(HOST, **ours, cache=cache) as link:
                    name = link.ask("name")[0]["name"]
                    while not self.ending.wait(HOST_POLL_INTERVAL_S):
                        ranks = self._places(name)
                        asked = [pid for pid, rank in ranks.items() if rank not in self.lost]
                        self._report(ranks[pid] for pid in link.ask("look", pids=asked)[0]["gone"])
                    link.ask("sweep", **ours)
                    return
            except ClusterError:
                continue  # perhaps only the connection is broken
        self.gone.append(gateway.host)
        self._report(self._places(name).values())

    def _places(self, host: str | None) -> dict[int, int]:
        """Return the ranks on a host by process id. Empty before all ranks are up."""
        try:
            return {place.pid: rank for rank, place in enumerate(self.pool.places()) if place.host == host}
        except OSError:
            return {}

    def _report(self, ranks: Iterable[int]) -> None:
        with self._lock:
            if self.lost.issuperset(ranks := list(ranks)):
                return
            self.lost.update(ranks)
            self.pool.lose(self.lost)


class Supervisor:
    """Supervisor of one mpiexec."""

    def __init__(self, folder: Path) -> None:
        self.pool = PoolFolder(folder)
        self.settings = self.pool.settings()
        self.up = self.done = 0
        self.reason: str | None = None
        self.ending = threading.Event()

    def run(self) -> None:
        """Start mpiexec, watch it, clean up, and write why it ended."""
        signal.signal(signal.SIGTERM, lambda *_: self.ending.set())
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        os.environ.update(self.settings.get("environment", {}))
        # all files of mpiexec and the ranks on this machine are in one folder, which can be removed
        if self.settings.get("alone"):
            os.environ.update(kept_in(shared(self.pool.path)))
        with self.pool.log.open("ab", buffering=0) as log:
            forked = self.settings.get("alone") and sys.platform == "linux"
            # compile modules once, instead of in every rank
            if self.settings["ranks"] > MAX_RANKS_THAT_COMPILE and not forked:
                subprocess.run([sys.executable, "-P", "-c", COMPILE], stderr=log, stdin=subprocess.DEVNULL)
            process = self._mpiexec(log)
            assert process.stdout is not None
            reader = threading.Thread(target=self._read, args=(process.stdout, log), daemon=True)
            reader.start()
            gateways, daemon = self.settings.get("ways"), f"prterun-{socket.gethostname()}-{process.pid}@"
            guards = HostMonitor(self.pool, gateways, daemon) if gateways else None
            self._watch(process)
            end(process)
            reader.join(1.0)
            gone = self._cleared(guards)
        shutil.rmtree(shared(self.pool.path), ignore_errors=True)
        self.pool.end(reason=self.reason, code=process.returncode, up=self.up, done=self.done, gone=gone)

    def _mpiexec(self, log: IO[bytes]) -> subprocess.Popen[bytes]:
        """Start mpiexec, without a network if it needs none and the system allows that."""

        def start(before: Callable[[], None]) -> subprocess.Popen[bytes]:
            streams: Any = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": log}
            command = self.settings["command"]
            return subprocess.Popen(command, **streams, start_new_session=True, preexec_fn=before)

        if self.settings.get("alone"):
            with contextlib.suppress(subprocess.SubprocessError):
                return start(_die_enclosed)
        return start(die_with_parent)

    def _cleared(self, guards: HostMonitor | None) -> list[str]:
        """Clean up on the other hosts. Return the lost hosts."""
        if guards is None:
            return []
        end_daemons(guards.daemon)  # mpiexec's connections to silent hosts outlive it
        guards.close()
        if guards.gone and not self.done and not self.pool.quitting:
            self.reason = self.reason or f"{', '.join(guards.gone)} is gone, and mpiexec ended with it"
        return list(guards.gone)

    def _watch(self, process: subprocess.Popen[bytes]) -> None:
        """Wait until mpiexec ends, or the pool should end."""
        asked: float | None = None
        while process.poll() is None and self.reason is None and not self.ending.is_set():
            if asked is None and (self.done or self.pool.quitting):
                asked = time.monotonic()
            if asked is not None and time.monotonic() - asked > (1.0 if self.done else END_TIMEOUT_S):
                return
            self.ending.wait(0.05)

    def _read(self, stream: IO[bytes], log: IO[bytes]) -> None:
        for line in stream:
            pieces = line.decode(errors="replace").split(maxsplit=2)
            if pieces[:1] != [PROGRESS_PREFIX]:
                log.write(line)
            elif pieces[1] == "up":
                self.up += 1
                self._count(log)
            elif pieces[1] == "done":
                self.done += 1
            elif pieces[1] == "failed":
                self.reason = self.reason or json.loads(pieces[2])

    def _count(self, log: IO[bytes]) -> None:
        """Write the number of ranks that are up. If that fails, the pool cannot be used and is ended."""
        try:
            self.pool.count(self.up)
        except OSError as error:
            self.reason = self.reason or sentence_of(error)
            with contextlib.suppress(OSError):
                log.write(f"{self.reason}\n".encode())


def end(process: subprocess.Popen[bytes]) -> None:
    """End a process: TERM, wait, KILL. Then kill what is left of its session."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


def unshare_network() -> None:
    """Move this process permanently into a network namespace with only a loopback. Call it between fork and exec.

    Open files stay open, and files and signals work as before. A user other than root gets a user namespace with the
    same user id. (There, root would lose its rights on the files of others.)

    Raises OSError if the system forbids it. The change may then be half done, and this process should end.
    """
    if sys.platform != "linux":
        raise OSError("network namespaces are Linux's")
    user, group = os.geteuid(), os.getegid()
    if ctypes.CDLL(None, use_errno=True).unshare(NEW_NET | (NEW_USER if user else 0)):
        raise OSError(ctypes.get_errno(), "unshare")
    if user:
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
        Path("/proc/self/gid_map").write_text(f"{group} {group} 1")
    _start_loopback()


def _start_loopback() -> None:
    import fcntl  # not on every system

    with socket.socket() as server, socket.socket() as client:
        fcntl.ioctl(server, SET_FLAGS, struct.pack("16sh14x", b"lo", UP | RUNNING))
        server.bind(("127.0.0.1", 0))
        server.listen()
        client.connect(server.getsockname())


def _die_enclosed() -> None:
    unshare_network()
    die_with_parent()


if __name__ == "__main__":
    supervisor = Supervisor(Path(sys.argv[1]))
    supervisor.run()
    if supervisor.ending.is_set():  # exit code as from a shell, by which batch systems see a TERM
        sys.exit(128 + signal.SIGTERM)
