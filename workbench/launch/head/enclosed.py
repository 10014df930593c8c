"""Processes without a network: mpiexec and the ranks of a pool that is all on this machine.

Open MPI's mpiexec listens on all interfaces for daemons on other hosts, and no setting of it says otherwise. A pool on
one machine has none of these; in a network namespace of its own, what mpiexec opens leads nowhere.
"""

from __future__ import annotations

import ctypes
import os
import socket
import struct
import sys
from pathlib import Path

NEW_USER, NEW_NET = 0x10000000, 0x40000000  # of unshare, see sched.h
SET_FLAGS, UP, RUNNING = 0x8914, 0x1, 0x40  # of interfaces, see ioctls.h and if.h


def enclose() -> None:
    """Leave the machine's networks for a loopback of one's own, for good; between fork and exec.

    What was open before stays so; files and signals are as ever. Who is not root does it within a user namespace, in
    which he is who he was (root would lose his power over others' files there).

    Raises OSError where the system forbids it; then half of it may be done, and this process should end.
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
    import fcntl  # not everywhere

    with socket.socket() as server, socket.socket() as client:
        fcntl.ioctl(server, SET_FLAGS, struct.pack("16sh14x", b"lo", UP | RUNNING))
        server.bind(("127.0.0.1", 0))
        server.listen()
        client.connect(server.getsockname())
