"""Clusters whose delay models are given, on which the planner is tested (see `planner.py`)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from workbench.core.contract.delays import DelayStream, Heterogeneous

WORKERS = 12
RECORDED_ROUNDS = 1200  # rounds of a generated recording
# For this cluster, the plan is for new machines of its kind. For all other clusters, it is for the measured machines.
OTHERS = "heterogeneous, others"
# Clusters on which the best choice depends on the permanently slow workers.
PERMANENTLY_SLOW: dict[str, dict[str, Any]] = {
    "3 in 10 slow": {"kind": "heterogeneous"},
    "2 in 10 slow": {"kind": "heterogeneous", "slow": 0.2, "active_straggles": 0.05, "factor": 6.0},
    "9 in 20 slow": {
        "kind": "heterogeneous", "slow": 0.45, "slow_straggles": 0.4, "active_straggles": 0.1, "factor": 4.0
    },
}  # fmt: skip


def clusters(folder: Path) -> dict[str, dict[str, Any]]:
    """Return name -> delays of clusters with different kinds of stragglers. `folder`: for the generated recording."""
    rng = np.random.default_rng(0)
    factors = np.exp(rng.normal(0, 0.6, (150, 1)) + rng.normal(0, 0.4, (150, WORKERS)))
    rows = [f"{w},{i},{5e-3 * x:.6g}" for i, row in enumerate(factors) for w, x in enumerate(row)]
    table = folder / "recorded.csv"
    table.write_text("\n".join(["worker,step,seconds", *rows]), encoding="utf-8")
    return {
        "shifted_exponential": {"kind": "shifted_exponential"},
        "exponential": {"kind": "exponential", "mean": 5e-3},
        "pareto": {"kind": "pareto"},
        "heterogeneous": {"kind": "heterogeneous"},
        "markov": {"kind": "markov"},
        "replay": {
            "kind": "replay",
            "path": str(table),
            "samples": 1.0,
            "common_start": True,
            "scale": 1e-2,
            "same_workers": True,
        },
        OTHERS: {"kind": "heterogeneous"},
    }


def machines(delays: dict[str, Any], seed: int) -> dict[str, Any]:
    """Return delays in which the permanently slow workers, drawn from the seed, are the same in every run."""
    if delays["kind"] != "heterogeneous":
        return delays
    slow = DelayStream(Heterogeneous(**delays), seed, WORKERS).draw(0)[1]
    return {**delays, "slow_workers": tuple((np.flatnonzero(slow) + 1).tolist())}


def spells(folder: Path, seed: int) -> dict[str, Any]:
    """Return a replay that no fitted delay model describes: workers differ, and two groups have slow spells."""
    rng = np.random.default_rng(seed)
    speeds, times = rng.lognormal(0, 0.25, WORKERS), np.empty((RECORDED_ROUNDS, WORKERS))
    slow = np.zeros(2, dtype=bool)
    for row in times:
        slow = np.where(slow, rng.random(2) > 0.1, rng.random(2) < 0.04)  # spells of ten rounds on average
        row[:] = speeds * np.repeat(np.where(slow, 4.0, 1.0), WORKERS // 2) * rng.lognormal(0, 0.15, WORKERS)
    rows = [f"{w},{i},{5e-3 * x:.6g}" for i, row in enumerate(times) for w, x in enumerate(row)]
    table = folder / f"spells-{seed}.csv"
    table.write_text("\n".join(["worker,step,seconds", *rows]), encoding="utf-8")
    common: dict[str, Any] = {"common_start": True, "same_workers": True}
    return {"kind": "replay", "path": str(table), "samples": 1.0, "scale": 1e-2, **common}
