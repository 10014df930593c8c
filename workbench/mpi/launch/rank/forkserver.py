"""Fork server: it imports everything once, and forks a rank for each process that mpiexec starts on this machine.

85 ranks that import everything themselves keep two cores busy for 13 s. 85 forks take one second. mpiexec starts stubs
(`stub.py`), which connect to the fork server and wait. The forked rank takes over the environment of its stub, by
which MPI identifies it, and joins MPI_COMM_WORLD instead of the stub. When the rank ends, the fork server closes the
connection, and the stub dies. When the stub ends, the rank is killed. When the fork server ends, all ranks, stubs and
mpiexec end.

Linux only: it reads the process of a connection, and the environment of that process, from the system.
"""

import contextlib
import gc
import json
import os
import selectors
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from workbench.mpi.launch.poolfolder import say
from workbench.mpi.launch.processes import die_with_parent
from workbench.mpi.launch.rank.stub import LISTENER

# process, user and group at the other end of a connection, see unix(7)
PEER_CREDENTIALS = struct.Struct("3i")


class RankForkServer:
    """Fork server for the ranks of one mpiexec. `run_rank`: code of a rank, which never returns."""

    def __init__(self, folder: Path, run_rank: Callable[[], None]) -> None:
        self.run_rank = run_rank
        self.stubs: dict[int, socket.socket] = {}  # process of a rank -> connection to its stub
        self.waiting = selectors.DefaultSelector()
        self.listener = _listener(folder)
        self.wake, self.alarm = socket.socketpair()
        for end in (self.wake, self.alarm):
            end.setblocking(False)

    def run(self, command: Sequence[str], prepare: Callable[[], object]) -> int:
        """Start mpiexec, import the ranks' modules meanwhile, and serve until it ends. Return its exit code."""
        # A Python handler is needed, so that the wake-up byte is written.
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self.alarm.fileno(), warn_on_full_buffer=False)
        mpiexec = subprocess.Popen(command, preexec_fn=die_with_parent)
        signal.signal(signal.SIGTERM, lambda *_: mpiexec.terminate())
        prepare()
        gc.collect()
        gc.freeze()  # garbage collections in a rank skip these objects, so that their memory stays shared
        for end in (self.listener, self.wake):
            self.waiting.register(end, selectors.EVENT_READ)
        while mpiexec.poll() is None:
            for key, _ in self.waiting.select():
                self._handle(key)
        for pid in self.stubs:
            os.kill(pid, signal.SIGKILL)
        for pid in self.stubs:
            os.waitpid(pid, 0)
        return mpiexec.returncode

    def _handle(self, key: selectors.SelectorKey) -> None:
        if key.fileobj is self.listener:
            self._fork(self.listener.accept()[0])
        elif key.fileobj is self.wake:
            self.wake.recv(4096)
            for pid in [pid for pid in self.stubs if os.waitpid(pid, os.WNOHANG)[0]]:
                stub = self.stubs.pop(pid)
                with contextlib.suppress(KeyError):
                    self.waiting.unregister(stub)
                stub.close()
        elif self.stubs.get(key.data) is key.fileobj:  # the stub was killed before its rank
            self.waiting.unregister(key.fileobj)
            os.kill(key.data, signal.SIGKILL)

    def _fork(self, stub: socket.socket) -> None:
        credentials = stub.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, PEER_CREDENTIALS.size)
        peer, _, _ = PEER_CREDENTIALS.unpack(credentials)
        try:
            variables = Path(f"/proc/{peer}/environ").read_bytes().split(b"\0")
        except OSError:
            variables = []
        if not any(variables):  # the stub was just killed
            stub.close()
            return
        forkserver = os.getpid()
        try:
            pid = os.fork()
        except OSError as error:
            say("failed", json.dumps(f"a rank cannot be forked ({error})"))
            raise
        if not pid:
            environment = dict(variable.split(b"=", 1) for variable in variables if b"=" in variable)
            self._leave(environment, stub, forkserver)
            self.run_rank()
        self.stubs[pid] = stub
        self.waiting.register(stub, selectors.EVENT_READ, pid)

    def _leave(self, environment: dict[bytes, bytes], stub: socket.socket, forkserver: int) -> None:
        """Give the forked process the environment of the stub, in whose place it becomes the rank."""
        signal.set_wakeup_fd(-1)
        for which in (signal.SIGCHLD, signal.SIGTERM):
            signal.signal(which, signal.SIG_DFL)
        die_with_parent()
        if os.getppid() != forkserver:  # the fork server has died already
            os.kill(os.getpid(), signal.SIGKILL)
        for end in (self.listener, self.wake, self.alarm, stub, *self.stubs.values()):
            # inherited copies would keep the sockets open, and stubs would not see their rank end
            end.close()
        self.waiting.close()
        os.environb.clear()
        os.environb.update(environment)
        if "numpy" in sys.modules:  # otherwise all ranks would draw the same unseeded numbers
            sys.modules["numpy"].random.seed()


def _listener(folder: Path) -> socket.socket:
    """Return a socket that listens in the pool's folder, whose path may be too long for an address."""
    listener, place = socket.socket(socket.AF_UNIX), os.open(folder, os.O_RDONLY)
    try:
        listener.bind(f"/proc/self/fd/{place}/{LISTENER}")
    finally:
        os.close(place)
    listener.listen(socket.SOMAXCONN)
    return listener
