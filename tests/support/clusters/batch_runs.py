"""Helpers for tests of runs in jobs."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import workbench as wb
from tests.support.clusters.pbs_machine import PbsMachine
from tests.support.clusters.slurm_machine import SlurmMachine
from workbench.mpi.clusters.batch.pool import BatchPool
from workbench.mpi.running.real import RealRun, start_real

Machine = SlurmMachine | PbsMachine
PATIENCE = 120.0  # s after which a test counts as hanging
SPEC: dict[str, Any] = {
    "scheme": "GC",
    "scheme_args": {"stragglers": 1},
    "workers": 6,
    "rounds": 25,
    "problem": "least_squares",
    "problem_args": {"samples": 240, "features": 60},
    "delays": {"kind": "shifted_exponential", "shift": 1e-4, "rate": 1e4},
}
UMW: dict[str, Any] = {**SPEC, "scheme": "UMW", "scheme_args": {}}


def until(done: Callable[[], Any], run: RealRun | None = None) -> None:
    """Wait until a condition is true."""
    end = time.monotonic() + PATIENCE
    while not done():
        assert time.monotonic() < end, f"did not happen: {run}"
        time.sleep(0.02)


def going(cluster: str, rounds: int = 3000, spec: dict[str, Any] = SPEC) -> RealRun:
    """Start a long run and wait for some rounds."""
    run = start_real(wb.Experiment(**{**spec, "rounds": rounds}), cluster=cluster, checkpoint_every=0.1)
    until(lambda: len(run.rows()["round"]) >= 5 or run.wait(0), run)
    assert run.state == "running", run.error
    return run


def ended(run: RealRun) -> wb.Trace:
    """Wait for a run and return its trace."""
    assert run.wait(PATIENCE), f"still running: {run}"
    return run.result()


def job_of(run: RealRun) -> str:
    """Return the number of a run's job."""
    assert isinstance(run.pool, BatchPool)
    return run.pool.job_status.number
