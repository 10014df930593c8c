"""Runs for the tests of approximate gradient coding: section V of paper 4 on the problem "unit"."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

import workbench as wb
from workbench.core.contract.delays import DelayStream
from workbench.core.engine.timeline import Timeline
from workbench.core.engine.virtual.arithmetic import Coefficients
from workbench.core.running.simulated import timeline

N, S, SLOW, P_SS, P_AS = 8, 2, 0.3, 0.8, 0.01
Q = SLOW * P_SS + (1 - SLOW) * P_AS  # probability that a worker straggles
FIELDS = {"delays", "problem_args", "workers", "link", "faults", "decode_rate"}


def experiment(
    scheme: str = "FRC", rounds: int = 12, seed: int = 0, active_straggles: float = P_AS, **changes: Any
) -> wb.Experiment:
    """Return an experiment with 1 s per sample, two samples per worker, and a factor of ten for stragglers.

    A deadline of 4 s separates stragglers from the others.
    """
    delays = {
        "kind": "heterogeneous",
        "shift": 1.0,
        "slow": SLOW,
        "slow_straggles": P_SS,
        "active_straggles": active_straggles,
        "factor": 10.0,
    }
    fields = {"delays": delays, "problem_args": {"samples": N}, "workers": N}
    fields |= {name: value for name, value in changes.items() if name in FIELDS}
    args = {name: value for name, value in changes.items() if name not in FIELDS}
    end = {} if args.keys() & {"deadline", "wait_for"} else {"deadline": 4.0}
    args = {"replication": S, **end, **args}
    return wb.Experiment(scheme=scheme, scheme_args=args, rounds=rounds, seed=seed, problem="unit", **fields)


def simulated(e: wb.Experiment) -> tuple[Timeline, Coefficients]:
    coefficients = Coefficients(e.plan)
    return timeline(e, coefficients, events=True), coefficients


def came(timeline: Timeline, workers: int) -> NDArray[np.bool_]:
    """Return which workers' answers the master used, (rounds, workers)."""
    table = np.zeros((len(timeline.times), workers), dtype=bool)
    for row in timeline.events:
        if row[2] == "send" and row[6] == 0:
            table[row[0], row[1] - 1] = True
    return table


def missed(e: wb.Experiment, timeline: Timeline) -> NDArray[np.bool_]:
    """Return which parts no answer held, (rounds, parts)."""
    scheme, answers = e.built_scheme, came(timeline, e.workers)
    return np.array([~scheme.encoding(e.plan, r)[1:][a].any(axis=0) for r, a in enumerate(answers)])


def slow_workers(e: wb.Experiment) -> NDArray[np.bool_]:
    return DelayStream(e.delays, e.seed, e.workers).draw(0)[1] > 0
