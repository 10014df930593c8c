"""What a post office takes in, over real MPI: a process that writes to itself."""

from __future__ import annotations

import subprocess
import sys

from workbench.launch.mpiexec import environment

SCRIPT = """
import time
import numpy as np
from mpi4py import MPI
from workbench.engines.real.post import Post
from workbench.engines.real.wire import Envelope

refused, letters = [], []
post = Post(MPI.COMM_SELF.Dup(), 7, [0], {floats}, lambda *what: refused.append(what))
for round in range(4):
    post.send([0], Envelope(7, round, 0, 0, 0, 0, 0.0, 0.0, "coded"), np.full({floats}, float(round)))
if {twice}:
    post.comm.Send([post.outputs[-1][1], MPI.BYTE], 0, 1)
post.farewell()
until = time.monotonic() + 20
while not post.quiet and time.monotonic() < until:
    letters += post.poll()
post.free()
print([envelope.round for envelope, _ in letters], [set(value.tolist()) for _, value in letters], refused)
"""


def found(floats: int, twice: bool = False) -> str:
    script = SCRIPT.format(floats=floats, twice=twice)
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment(), capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_all_messages_come_in_order_and_none_lends_its_buffer_to_another() -> None:
    for floats in (3, 20_000):
        assert found(floats) == "[0, 1, 2, 3] [{0.0}, {1.0}, {2.0}, {3.0}] []"


def test_what_comes_twice_is_refused_once() -> None:
    assert found(3, twice=True) == "[0, 1, 2, 3] [{0.0}, {1.0}, {2.0}, {3.0}] [(0, -1, 'sent twice')]"
