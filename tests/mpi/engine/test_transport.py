"""The transport over real MPI: a process that sends to itself, and two that send to each other."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from workbench.mpi.launch.mpiexec import environment, find_mpiexec

SCRIPT = """
import time
import numpy as np
from mpi4py import MPI
from workbench.mpi.engine.transport import Transport
from workbench.mpi.engine.wire import Envelope

refused, received = [], []
transport = Transport(MPI.COMM_SELF.Dup(), 7, [0], {floats}, lambda *what: refused.append(what))
for round in range(4):
    transport.send([0], Envelope(7, round, 0, 0, 0, 0, 0.0, 0.0, "coded"), np.full({floats}, float(round)))
if {twice}:
    transport.comm.Send([transport.outputs[-1][1], MPI.BYTE], 0, 1)
transport.send_goodbye()
until = time.monotonic() + 20
while not transport.drained and time.monotonic() < until:
    received += transport.poll()
transport.free()
print([envelope.round for envelope, _ in received], [set(value.tolist()) for _, value in received], refused)
"""


def found(floats: int, twice: bool = False) -> str:
    script = SCRIPT.format(floats=floats, twice=twice)
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment(), capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_transport_keeps_order_and_buffers_separate() -> None:
    for floats in (3, 20_000):
        assert found(floats) == "[0, 1, 2, 3] [{0.0}, {1.0}, {2.0}, {3.0}] []"


def test_transport_refuses_a_duplicate_once() -> None:
    assert found(3, twice=True) == "[0, 1, 2, 3] [{0.0}, {1.0}, {2.0}, {3.0}] [(0, -1, 'sent twice')]"


PAIR = """
import sys
from pathlib import Path
import numpy as np
from mpi4py import MPI
from workbench.mpi.engine.wakeup import WakeupPipe
from workbench.mpi.engine.transport import Transport
from workbench.mpi.engine.wire import Envelope

folder, floats, messages = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
comm = MPI.COMM_WORLD
me, other = comm.rank, 1 - comm.rank
wakeup = WakeupPipe(folder, me)
transport = Transport(comm.Dup(), 7, [other], floats, lambda *what: sys.exit(str(what)), wakeup)
comm.Barrier()
late = []
for number in range(me, 2 * messages, 2):
    if number:
        while not wakeup.sleep(20.0):
            sys.exit("not notified")
        received, polls = transport.poll(), 1
        while not received and polls < 100_000:
            received, polls = transport.poll(), polls + 1
        if polls > 1:
            late.append(number)
    transport.send([other], Envelope(7, number, me, 0, 0, 0, 0.0, 0.0, "coded"), np.zeros(floats))
print(late, flush=True)
comm.Barrier()
"""


@pytest.mark.parametrize("floats", [3, 2048, 20_000])
def test_transport_finds_the_message_after_a_wakeup(floats: int, tmp_path: Path) -> None:
    """One poll after a wake-up receives the message. A rank that misses it would sleep.

    After about 16 messages, Open MPI changes to a faster protocol, in which one poll may miss a message.
    """
    (tmp_path / "pair.py").write_text(PAIR)
    run = [find_mpiexec(), "-n", "2", sys.executable, "pair.py", str(tmp_path), str(floats), "60"]
    done = subprocess.run(run, cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split("\n")[:2] == ["[]", "[]"]
