"""What the tests of sweeps share: quick settings, sweeps as processes, kernels to kill."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import yaml

QUICK = {"scheme": "UMW", "workers": 4, "rounds": 5, "problem_args": {"samples": 40, "features": 3}}
DEATHS = [{"worker": 1, "round": 1}, {"worker": 2, "round": 1}]
SLOW_ROUNDS = 4000  # seconds


def start(folder: Path, plan: Path | None = None, *words: str) -> subprocess.Popen[str]:
    """A sweep as a user starts it."""
    command = [sys.executable, "-c", "from workbench.cli import main; main()"]
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
