"""Effort of simulations, as a number of data matrix entries that could be processed in the same time."""

from __future__ import annotations

from workbench.analysis.planning.star_commits import combines
from workbench.analysis.planning.targets import (
    INEXACT_STEPS,
    USUAL_ROUNDS_RATIO,
    Target,
    seeds_tried,
    tried_by,
)
from workbench.core.experiment import Experiment

# number of matrix entries that could be processed in the time that setting up one worker's gradient takes
NUMBERS_PER_CALL = 5e4
# number of matrix entries that could be processed in the time of a worker's round on the virtual clock
NUMBERS_PER_EVENT = 1.5e4
STAR_SHARE = 0.3  # time of a round by order statistics, as a share of that on the virtual clock


def cost(e: Experiment, samples: int, rounds: float, steps: int = 1) -> float:
    """Estimate the number of matrix entries that simulating an experiment with `steps` step sizes processes."""
    scheme, floats = e.built_scheme, e.shape()[1]
    if scheme.numeric:
        each = scheme.loads(e.workers, samples).sum() * _gone_through(e, samples) / samples * floats
        each += e.workers * NUMBERS_PER_CALL
        return float(steps * rounds * scheme.epochs_per_round * each)
    passes, events = _gone_through(e, samples) * floats, e.workers * NUMBERS_PER_EVENT
    if e.plan.versions > 1:  # gradients at older models are computed worker by worker, for each step size
        return float(rounds * (steps * (passes + events) + events))
    return float(rounds * (steps * passes + events * (STAR_SHARE if combines(e) else 1.0)))


def _gone_through(e: Experiment, samples: int) -> float:
    """Return the number of samples that are processed per round.

    With mini-batches, these are one batch and a share of an evaluation.
    """
    return float(samples if e.batch is None else min(e.batch, samples) + samples / e.evaluation_interval)


def price(e: Experiment, aim: Target) -> tuple[float, float]:
    """Return the effort (matrix entries) of choosing an inexact scheme's step size, and of one simulation of it."""
    rounds, (seeds, few) = USUAL_ROUNDS_RATIO * aim.rounds, seeds_tried(e)
    steps = len(tried_by(e)) if e.built_scheme.numeric else len(INEXACT_STEPS) * (1 + (e.plan.versions > 1))
    each = cost(e, aim.samples, rounds)
    return seeds * cost(e, aim.samples, rounds, steps) + few * each, each
