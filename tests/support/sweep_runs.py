"""What the tests of sweeps share: quick settings, sweeps as processes, kernels to kill."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import yaml

from workbench.core.trace.layout import LOG, TRACE

QUICK = {"scheme": "UMW", "workers": 4, "rounds": 5, "problem_args": {"samples": 40, "features": 3}}
DEATHS = [{"worker": 1, "round": 1}, {"worker": 2, "round": 1}]
SLOW_ROUNDS = 1500  # about a second
# Ctrl-C counts even where the tests run in the background of a script, which would have it ignored.
MAIN = (
    "import signal; signal.signal(2, signal.default_int_handler); from workbench.cli.main import main; main()"
)


def start(folder: Path, plan: Path | None = None, *words: str) -> subprocess.Popen[str]:
    """A sweep as a user starts it."""
    command = [sys.executable, "-c", MAIN]
    command += ["sweep", str(plan or folder), "-o", str(folder), *words]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def write(path: Path, **sweep: Any) -> Path:
    path.write_text(yaml.safe_dump(sweep))
    return path


def wait_for(what: Callable[[], Any], seconds: float = 120) -> Any:
    """The first answer that is something; a sweep needs its time on a busy machine."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if found := what():
            return found
        time.sleep(0.02)
    raise AssertionError(f"waited {seconds} s in vain")


def kernels(sweep: subprocess.Popen[str]) -> list[psutil.Process]:
    """Kernels of a sweep: what its nursery has forked."""
    try:
        return [kernel for nursery in psutil.Process(sweep.pid).children() for kernel in nursery.children()]
    except psutil.NoSuchProcess:
        return []


def held(sweep: subprocess.Popen[str]) -> list[psutil.Process]:
    """Stop the kernels of a sweep that are in the midst of a run, so that it cannot end before the test goes on."""
    return [kernel for kernel in kernels(sweep) if _stopped(kernel)]


def _stopped(kernel: psutil.Process) -> bool:
    with suppress(psutil.NoSuchProcess):
        kernel.suspend()
        if _computes(kernel):
            return True
        kernel.resume()
    return False


def _computes(kernel: psutil.Process) -> bool:
    """It writes to its run's log already, and its run folder is not there yet."""
    try:
        log = Path(f"/proc/{kernel.pid}/fd/1").readlink()
    except OSError:
        return False
    return log.name == LOG and not (log.parent / TRACE).exists()
