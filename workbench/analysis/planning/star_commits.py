"""Commits of a master that combines the first answers of a star: by order statistics, without an event loop."""

from __future__ import annotations

from contextlib import suppress

import numpy as np

from workbench.core import schemes
from workbench.core.base.settings import SettingError
from workbench.core.base.types import Array
from workbench.core.contract.exchanges import GradientSum
from workbench.core.contract.round_times import MAX_TIMES_PER_BATCH, RoundTimes, arrival_order
from workbench.core.engine.virtual.arithmetic import Coefficients
from workbench.core.experiment import Experiment
from workbench.core.forecasting import draws_of


def star_commits(e: Experiment) -> tuple[Coefficients, Array] | None:
    """Return the commits of all rounds and the ends of the rounds, (rounds,), s. Return None for other masters.

    They equal those of the event engine with the same seed, because late workers drop their work.
    """
    if (rule := combines(e)) is None:
        return None
    drawn, at_once = draws_of(e, e.rounds, e.seed), max(1, MAX_TIMES_PER_BATCH // e.workers)
    commits, batches = Coefficients(e.plan, e.sampler), list[RoundTimes]()
    for start in range(0, e.rounds, at_once):
        draws = drawn(range(start, min(start + at_once, e.rounds)), batches[-1].state if batches else None)
        batches.append(e.built_scheme.round_times(draws, e.workers))
        order = arrival_order(draws.arrival_times(draws.floats), draws.tie_order)
        for r, row in enumerate(order.tolist(), start):
            count = next(k for k in range(1, len(row) + 1) if rule.ready((0, 0), row[:k], row))
            answered = sorted(row[:count])
            weights, residual = rule.weights(tuple(answered), r)
            share = 1.0 - residual / e.plan.parts if rule.shrinks else 1.0  # as in `programs.parent_program`
            commits.commit(r, weights @ rule.matrix[answered], residual, share)
    return commits, np.cumsum(np.concatenate([batch.seconds for batch in batches]))


def combines(e: Experiment) -> GradientSum | None:
    """Return the rule by which a master combines its first answers, or None for other schemes, parameters and runs.

    Only the package's own schemes have been tested for equal results of rule and program. So the rules of other classes
    are not used.
    """
    with suppress(SettingError):
        own = type(e.built_scheme).__module__.startswith(f"{schemes.__name__}.") and e.built_scheme.has_rule()
        usual = own and not (e.faults or e.adaptive)
        rule = e.built_scheme.exchange_rule(e.workers) if usual else None
        return rule if isinstance(rule, GradientSum) else None
    return None
