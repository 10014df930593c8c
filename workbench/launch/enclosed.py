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
    """Leave the machine's networks for a loopback of one's own, for good.

    What was open before stays so; files and signals are as ever. Who is not root may do it with a user namespace, in
    which everybody is who he was, and only while he has a single thread.

    Raises OSError where the system forbids it; then half of it may be done (see `can_enclose`).
    """
    import fcntl  # not everywhere

    unshare = ctypes.CDLL(None, use_errno=True).unshare
    if unshare(NEW_NET):
        user, group = os.geteuid(), os.getegid()
        if unshare(NEW_USER | NEW_NET):
            raise OSError(ctypes.get_errno(), "unshare")
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
        Path("/proc/self/gid_map").write_text(f"{group} {group} 1")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, SET_FLAGS, struct.pack("16sh14x", b"lo", UP | RUNNING))


def can_enclose() -> bool:
    """Does it work here? A process that is ended at once has tried; to be called by a process of one thread."""
    if sys.platform != "linux":
        return False
    if (pid := os.fork()) == 0:
        try:
            enclose()
        except BaseException:
            os._exit(1)
        os._exit(0)
    return os.waitpid(pid, 0)[1] == 0
