"""Engine of real runs, registered as the entry point "mpi"."""

from collections.abc import Sequence
from typing import Any

import mpi4py  # noqa: F401 - a machine without the packages of real runs is found before a run begins

from workbench.core.experiment import Experiment
from workbench.core.running.run import Engine, Run, watched
from workbench.mpi.running.real import attach, resume, start_real


def _start_all(experiments: Sequence[Experiment], **options: Any) -> list[Run]:
    return [start_real(e, **options) for e in experiments]


def run_real(experiments: Sequence[Experiment], progress: bool = False, **options: Any) -> list[Run]:
    """Run experiments on real processes, one after the other, with a progress bar."""
    runs: list[Run] = []
    for e in experiments:
        runs.append(start_real(e, **options))
        watched(runs[-1], progress, level=6)
    return runs


ENGINE = Engine(start_real, _start_all, run_real)

__all__ = ["ENGINE", "attach", "resume", "run_real", "start_real"]
