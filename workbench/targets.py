"""How many rounds a scheme needs to a loss: from theory where it commits the full gradient, else from a simulation.

All exact schemes go through the same models, so one of them stands for all. What an approximate scheme commits depends
on who is late, and what an adaptive one asks for depends on the learning: these run on the virtual clock, on the
cluster's own delays, on as many of the samples as `effort` allows.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from workbench.experiment import Experiment
from workbench.forecasting import forecast
from workbench.runner import compare
from workbench.settings import SettingError
from workbench.trace import Trace

LONGER = 3  # an approximate scheme may take so many times the rounds of an exact one
EFFORT = 2e9  # numbers of data that all simulations together may go through
CALL = 5e4  # numbers that could be gone through while one worker's own gradient is set up
REFERENCE = "UMW"


@dataclass(frozen=True)
class Target:
    """A loss to reach, and the rounds that an exact scheme takes to it."""

    rounds: int
    loss: float | None = None  # None: nothing was simulated, the rounds are those asked for
    samples: int = 0  # that were simulated on
    source: str = "theory: same models as every exact scheme"


@dataclass(frozen=True)
class Need:
    """Rounds that a scheme takes to the target; NaN where it did not come there."""

    rounds: float
    pace: float  # a simulated round over a forecast one: below 1 where the forecast is an upper end
    source: str


def reference(e: Experiment, rounds: int, seed_loss: float | None, tolerance: float, effort: float) -> Target:
    """Simulate an exact scheme: which loss is the target, and when it is reached.

    `seed_loss`: the target itself; None: what is left of the way down after `rounds` rounds, plus `tolerance` of it.
    Raises `SettingError` for a target that is not reached in so many rounds.
    """
    exact = e.replace(scheme=REFERENCE, scheme_args={}, rounds=rounds, delays={"kind": "constant"})
    small = shortened(exact, rounds, effort)
    (trace,) = compare([small], events=False)
    loss = np.asarray(trace.columns["loss"], dtype=float)
    first = trace.initial["loss"]
    if not np.all(np.isfinite(loss)):
        raise SettingError(
            f"optimiser_args = {e.optimiser_args}: the loss is not finite with this step; take a smaller one"
        )
    wanted = loss[-1] + tolerance * max(first - loss[-1], 0.0) if seed_loss is None else seed_loss
    reached = np.flatnonzero(loss <= wanted)
    if not len(reached):
        raise SettingError(
            f"target = {wanted:g}: an exact scheme comes from {first:.4g} to {loss[-1]:.4g} in {rounds} rounds;"
            " take a target in between, or more rounds"
        )
    return Target(int(reached[0]) + 1, float(wanted), small.shape()[0])


def shortened(e: Experiment, rounds: int, effort: float) -> Experiment:
    """The same experiment on so few samples that `rounds` passes over them stay within the effort."""
    samples, floats = e.shape()
    fits = int(effort / max(rounds * floats, 1))
    few = min(samples, max(fits, 4 * e.workers))
    return e if few == samples else e.replace(problem_args={**e.problem_args, "samples": few})


def cost(e: Experiment, samples: int, rounds: float) -> float:
    """Numbers that simulating an experiment goes through, about."""
    scheme, floats = e.build_scheme(), e.shape()[1]
    loads = scheme.loads(e.workers, samples).sum() if scheme.numeric else samples
    return float(rounds * (loads * floats + (e.workers * CALL if scheme.numeric else 0.0)))


def needs(experiments: Sequence[Experiment], target: Target) -> list[Need]:
    """Simulate approximate schemes until the target, in passes over the data that they share."""
    longest = LONGER * target.rounds
    few = [
        e.replace(rounds=longest, problem_args={**e.problem_args, "samples": target.samples})
        for e in experiments
    ]
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore"
        )  # a scheme that diverges does not reach the target: that is the answer
        traces = compare(few, events=False)
    return [_need(trace, target) for trace in traces]


def _need(trace: Trace, target: Target) -> Need:
    assert target.loss is not None
    hits = np.flatnonzero(np.asarray(trace.columns["loss"]) <= target.loss)
    rounds = int(hits[0]) + 1 if len(hits) else trace.experiment.rounds
    mean = float(trace.columns["time"][rounds - 1]) / rounds
    source = f"simulated on {target.samples} samples"
    return Need(
        float(rounds) if len(hits) else float("nan"), mean / forecast(trace.experiment, rounds).mean, source
    )


__all__ = ["EFFORT", "LONGER", "Need", "Target", "cost", "needs", "reference", "shortened"]
