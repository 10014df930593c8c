"""One process that imports everything once, and forks a rank for each process that mpiexec starts on this machine.

85 ranks that each import what they need take two cores 13 s, 85 forks one. What mpiexec starts is a stub (`stub.py`):
it connects to the fork server and waits. The forked rank takes over the stub's environment, by which MPI knows it, and
joins the world in its place. Where the rank ends, the fork server hangs up, and the stub dies; where the stub ends, the
rank is killed; where the fork server ends, however that is, all ranks, stubs and mpiexec do.

Linux only: it asks the system whose connection it is, and what that process was started with.
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
    """Forks ranks while mpiexec runs. `run_rank`: what each does; it never returns."""

    def __init__(self, folder: Path, run_rank: Callable[[], None]) -> None:
        self.run_rank = run_rank
        self.stubs: dict[int, socket.socket] = {}  # connection to its stub, by rank's process
        self.waiting = selectors.DefaultSelector()
        self.listener = _listener(folder)
        self.wake, self.alarm = socket.socketpair()
        for end in (self.wake, self.alarm):
            end.setblocking(False)

    def run(self, command: Sequence[str], prepare: Callable[[], object]) -> int:
        """Start mpiexec, import what the ranks need while it starts, serve until it ends; returns its exit code."""
        # A handler of ours, so that the wake-up is written.
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self.alarm.fileno(), warn_on_full_buffer=False)
        mpiexec = subprocess.Popen(command, preexec_fn=die_with_parent)
        signal.signal(signal.SIGTERM, lambda *_: mpiexec.terminate())
        prepare()
        gc.collect()
        gc.freeze()  # a collection in a rank touches none of this, so that it stays shared
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
        elif self.stubs.get(key.data) is key.fileobj:  # the stub was killed; else its rank has ended, too
            self.waiting.unregister(key.fileobj)
            os.kill(key.data, signal.SIGKILL)

    def _fork(self, stub: socket.socket) -> None:
        peer = PEER_CREDENTIALS.unpack(
            stub.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, PEER_CREDENTIALS.size)
        )[0]
        try:
            variables = Path(f"/proc/{peer}/environ").read_bytes().split(b"\0")
        except OSError:
            variables = []
        if not any(variables):  # it was killed in this moment
            stub.close()
            return
        forkserver = os.getpid()
        try:
            pid = os.fork()
        except OSError as error:
            say("failed", json.dumps(f"a rank cannot be forked ({error})"))
            raise
        if not pid:
            self._leave(
                dict(variable.split(b"=", 1) for variable in variables if b"=" in variable), stub, forkserver
            )
            self.run_rank()
        self.stubs[pid] = stub
        self.waiting.register(stub, selectors.EVENT_READ, pid)

    def _leave(self, environment: dict[bytes, bytes], stub: socket.socket, forkserver: int) -> None:
        """In the forked process: become what the stub would have been."""
        signal.set_wakeup_fd(-1)
        for which in (signal.SIGCHLD, signal.SIGTERM):
            signal.signal(which, signal.SIG_DFL)
        die_with_parent()
        if os.getppid() != forkserver:  # it died before
            os.kill(os.getpid(), signal.SIGKILL)
        for end in (self.listener, self.wake, self.alarm, stub, *self.stubs.values()):
            end.close()  # a stub has to see at once that its own rank has ended
        self.waiting.close()
        os.environb.clear()
        os.environb.update(environment)
        if "numpy" in sys.modules:  # else all ranks would draw the same numbers where they ask for any
            sys.modules["numpy"].random.seed()


def _listener(folder: Path) -> socket.socket:
    """A socket that listens in the pool's folder, whose path may be longer than an address."""
    door, place = socket.socket(socket.AF_UNIX), os.open(folder, os.O_RDONLY)
    try:
        door.bind(f"/proc/self/fd/{place}/{LISTENER}")
    finally:
        os.close(place)
    door.listen(socket.SOMAXCONN)
    return door
