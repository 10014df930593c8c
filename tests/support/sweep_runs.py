"""Helpers for the tests of sweeps: short settings, sweeps as processes, kernels to kill."""

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
SLOW_ROUNDS = 1500  # these rounds take about a second
# Restores the handling of Ctrl-C, which processes in the background of a script ignore.
MAIN = (
    "import signal; signal.signal(2, signal.default_int_handler); from workbench.cli.main import main; main()"
)


def start(folder: Path, plan: Path | None = None, *text: str) -> subprocess.Popen[str]:
    """Start a sweep as a user does."""
    command = [sys.executable, "-c", MAIN]
    command += ["sweep", str(plan or folder), "-o", str(folder), *text]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def write(path: Path, **sweep: Any) -> Path:
    path.write_text(yaml.safe_dump(sweep))
    return path


def wait_for(what: Callable[[], Any], seconds: float = 120) -> Any:
    """Return the first true result of a function. A sweep may need time on a busy machine."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if found := what():
            return found
        time.sleep(0.02)
    raise AssertionError(f"waited {seconds} s in vain")


def kernels(sweep: subprocess.Popen[str]) -> list[psutil.Process]:
    """Return the kernels of a sweep, which its fork server has forked."""
    try:
        return [kernel for nursery in psutil.Process(sweep.pid).children() for kernel in nursery.children()]
    except psutil.NoSuchProcess:
        return []


def held(sweep: subprocess.Popen[str]) -> list[psutil.Process]:
    """Pause and return kernels of a sweep that are in a run, so that it cannot end before the test continues."""
    return [kernel for kernel in kernels(sweep) if _stopped(kernel)]


def _stopped(kernel: psutil.Process) -> bool:
    with suppress(psutil.NoSuchProcess):
        kernel.suspend()
        if computes(kernel):
            return True
        kernel.resume()
    return False


def computes(kernel: psutil.Process) -> bool:
    """Return whether a kernel has begun its run's log but has no run folder yet."""
    try:
        log = Path(f"/proc/{kernel.pid}/fd/1").readlink()
    except OSError:
        return False
    return log.name == LOG and not (log.parent / TRACE).exists()
