"""Helpers for tests of runs over stand-in hosts."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import workbench as wb
from tests.support.clusters.ssh_hosts import Hosts, write_yaml
from workbench.core.running.run import Run
from workbench.mpi.running.real import RealRun, start_real

PATIENCE = 120.0  # s, on a loaded machine
SPEC: dict[str, Any] = {
    "workers": 6,
    "rounds": 8,
    "problem": "least_squares",
    "problem_args": {"samples": 240, "features": 60},
    "delays": {"kind": "shifted_exponential", "shift": 1e-4, "rate": 1e4},
}
SCHEMES: list[tuple[str, dict[str, Any]]] = [
    ("GC", {"stragglers": 1}),
    ("CR", {"children": 2, "layers": 2, "stragglers": 0}),
    ("RAR", {}),
]


def experiment(scheme: str, args: dict[str, Any], **changes: Any) -> wb.Experiment:
    return wb.Experiment(**{**SPEC, "scheme": scheme, "scheme_args": args, **changes})


def started(hosts: Hosts, e: wb.Experiment, **options: Any) -> RealRun:
    return start_real(e, cluster=str(write_yaml(hosts)), **options)


def until(true: Callable[[], Any], run: Run | None = None) -> None:
    end = time.monotonic() + PATIENCE
    while not true():
        assert run is None or run.state in ("waiting", "running"), run
        assert time.monotonic() < end, run
        time.sleep(0.05)
