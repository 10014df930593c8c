"""Measured clusters and small plans, shared by tests of the planner."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

import workbench as wb
from workbench.analysis.planning.advice import Advice
from workbench.analysis.planning.measuring import simulated
from workbench.analysis.planning.planner import plan
from workbench.analysis.planning.profile import ClusterProfile
from workbench.core.engine.virtual.arithmetic import Coefficients
from workbench.core.running.simulated import timeline

SMALL: dict[str, Any] = {"problem": "least_squares", "problem_args": {"samples": 240, "features": 50}}
STRAGGLE = {"kind": "shifted_exponential", "shift": 5e-5, "rate": 2e4}
STEADY = {"kind": "constant", "shift": 5e-5}


@lru_cache(maxsize=8)
def measured(
    workers: int, kind: str, latency: float, bandwidth: float | None, resamples: int = 0
) -> ClusterProfile:
    delays = STRAGGLE if kind == "straggle" else STEADY
    link = {"latency": latency, "bandwidth": bandwidth, "downloads": True}
    return simulated(wb.Experiment(scheme="UMW", workers=workers, delays=delays, link=link), 30, resamples)


def advise(profile: ClusterProfile, **options: Any) -> Advice:
    return plan(profile, **{**SMALL, "effort": 0, "rounds": 20, **options})


def engine_mean(e: wb.Experiment, rounds: int, seed: int = 7) -> float:
    e = e.model_copy(update={"rounds": rounds, "seed": seed})
    return float(np.diff(timeline(e, Coefficients(e.plan), events=False).times, prepend=0.0).mean())


LEARNT: dict[str, Any] = {
    "problem": "logistic", "problem_args": {"data": "breast_cancer"}, "effort": 2e10, "rounds": 40,
}  # fmt: skip


@lru_cache(maxsize=4)
def learnt(*schemes: str) -> Advice:
    return advise(measured(12, "straggle", 1e-4, 1e7), **LEARNT, schemes=list(schemes))
