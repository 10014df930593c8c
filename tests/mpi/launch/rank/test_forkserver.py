"""Forked ranks: they have the identity that mpiexec assigned. When any process of a pool ends, none remains."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from workbench.mpi.launch.mpiexec import STUB
from workbench.mpi.launch.processes import awaited, is_alive, set_timer_slack

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="ranks are forked on Linux only")

RANKS = 3
FORKSERVER = """
import json, os, sys, time
from pathlib import Path
import numpy as np
from workbench.mpi.launch.rank.forkserver import RankForkServer

folder = Path(sys.argv[1])

def rank():
    names = ("NUMBER", "NURSERYS")
    words = {"pid": os.getpid(), "drawn": np.random.random(), **{name: os.environ.get(name) for name in names}}
    words["open"] = len(os.listdir("/proc/self/fd"))
    Path(folder, "aside" + words["NUMBER"]).write_text(json.dumps(words))
    Path(folder, "aside" + words["NUMBER"]).rename(folder / ("rank" + words["NUMBER"]))
    time.sleep(600)

sys.exit(RankForkServer(folder, rank).run(sys.argv[2:], lambda: None))
"""


def family(top: psutil.Process) -> list[psutil.Process]:
    return [top, *top.children(recursive=True)]


@pytest.fixture
def forkserver(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    """Start a fork server whose mpiexec is a shell with three stubs, in a folder with a path too long for a socket."""
    folder = tmp_path / ("deep" * 30)
    folder.mkdir()
    stub = shlex.join([sys.executable, "-I", "-S", STUB, str(folder)])
    stubs = " ".join(f"env -u NURSERYS NUMBER={i} {stub} &" for i in range(RANKS))
    command = [sys.executable, "-c", FORKSERVER, str(folder), "sh", "-c", f"{stubs} wait; exit 7"]
    with subprocess.Popen(command, env={**os.environ, "NURSERYS": "own"}) as process:
        try:
            assert awaited(lambda: len(list(folder.glob("rank*"))) == RANKS, 60.0)
            yield process, folder
        finally:
            for each in family(psutil.Process(process.pid)) if process.poll() is None else []:
                with suppress(psutil.NoSuchProcess):  # it may have ended just now
                    each.kill()


def output_of(folder: Path) -> list[dict[str, Any]]:
    return [json.loads((folder / f"rank{i}").read_text()) for i in range(RANKS)]


def stubs(process: subprocess.Popen[bytes]) -> list[psutil.Process]:
    """Return the stubs that mpiexec has started, in the order of their numbers."""
    found = [p for p in family(psutil.Process(process.pid)) if STUB in p.cmdline()[:4]]
    return sorted(found, key=lambda p: p.environ()["NUMBER"])


def test_forked_rank_has_the_identity_of_its_stub(forkserver: tuple[Any, Path]) -> None:
    ranks = output_of(forkserver[1])
    assert [(r["NUMBER"], r["NURSERYS"]) for r in ranks] == [(str(i), None) for i in range(RANKS)]
    assert len({r["drawn"] for r in ranks}) == RANKS
    assert len({r["open"] for r in ranks}) == 1  # no rank has open files of earlier ranks


@pytest.mark.parametrize("which", ["rank", "stub"])
def test_forked_rank_and_its_stub_end_together(which: str, forkserver: tuple[Any, Path]) -> None:
    process, folder = forkserver
    mine, theirs = output_of(folder), [stub.pid for stub in stubs(process)]
    pairs = [(rank["pid"], stub) for rank, stub in zip(mine, theirs, strict=True)]
    os.kill(pairs[1][which == "stub"], signal.SIGKILL)
    assert awaited(lambda: not any(map(is_alive, pairs[1])), 10.0)
    assert all(map(is_alive, pairs[0] + pairs[2]))
    for rank, _ in (pairs[0], pairs[2]):
        os.kill(rank, signal.SIGKILL)
    assert process.wait(10.0) == 7  # exit code of mpiexec, once its last process has ended


@pytest.mark.parametrize(("who", "how"), [(0, signal.SIGKILL), (0, signal.SIGTERM), (1, signal.SIGKILL)])
def test_forkserver_leaves_no_process(who: int, how: int, forkserver: tuple[Any, Path]) -> None:
    everybody = family(psutil.Process(forkserver[0].pid))
    assert len(everybody) == 2 + 2 * RANKS
    mpiexec = next(p for p in everybody[0].children() if p.cmdline()[0] == "sh")
    os.kill((everybody[0], mpiexec)[who].pid, how)
    assert awaited(lambda: not any(is_alive(p.pid) for p in everybody[1:]), 10.0)
    forkserver[0].wait(10.0)


def test_forked_rank_resets_the_timer_slack() -> None:
    def slack() -> int:
        return int(Path("/proc/self/timerslack_ns").read_text())

    before = slack()
    with set_timer_slack(0.02):
        assert slack() == 20_000_000
    assert slack() == before
