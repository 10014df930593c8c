"""Stub: process that mpiexec starts and watches in place of a rank: `python -I -S stub.py FOLDER`.

It lives as long as the rank, and then kills itself, because MPI notices killed processes, but not those that exit. It
imports almost nothing, because there may be hundreds of stubs. See `workbench.mpi.launch.rank.forkserver`.
"""

import _socket  # not `socket`, whose import takes as long as the rest of this file
import os
import sys

LISTENER = "forkserver"  # name of the fork server's socket, in the pool's folder

if __name__ == "__main__":
    try:
        os.chdir(sys.argv[1])  # an address has at most 100 characters, and the folder's path may be longer
        forkserver = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
        forkserver.connect(LISTENER)
        forkserver.recv(1)  # returns at the end of the rank or of the fork server
    finally:
        os.kill(os.getpid(), 9)
