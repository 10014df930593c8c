"""What mpiexec starts in a rank's place, see `workbench.mpi.launch.rank.forkserver`: `python -I -S stub.py FOLDER`.

It is there as long as the rank is, and then kills itself: MPI notices a killed process, one that exits, it does
not. It imports next to nothing, as there may be hundreds.
"""

import _socket  # not `socket`, which takes as long to import as all of this to run
import os
import sys

LISTENER = "forkserver"  # the fork server's socket, in the pool's folder

if __name__ == "__main__":
    try:
        os.chdir(sys.argv[1])  # an address has room for 100 characters, a folder's path may be longer
        forkserver = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
        forkserver.connect(LISTENER)
        forkserver.recv(1)  # nothing, once the rank or the fork server has ended
    finally:
        os.kill(os.getpid(), 9)
