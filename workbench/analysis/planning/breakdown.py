"""Parts of a round by cause: non-negative seconds that sum to the round's time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations
from typing import Any

import numpy as np

from workbench.analysis.planning.delay_fits import drawn
from workbench.analysis.planning.predicting import Candidate
from workbench.analysis.planning.profile import ClusterProfile
from workbench.analysis.planning.shapley import shapley
from workbench.core.contract.delays import Constant
from workbench.core.experiment import Experiment

BREAKDOWN_ROUNDS = 24  # number of forecast rounds from which the parts of a round are computed
QUIET_QUANTILE = 0.05  # quantile of a worker's times that counts as undisturbed


def monotone_parts(
    first: str, factors: Sequence[str], seconds: Callable[[frozenset[str]], float]
) -> dict[str, float]:
    """Return the part of each factor in the time with all factors. The part of `first` is the time without any factor.

    All parts are at least 0, and they sum to the time with all factors. A scheme that does not wait for all workers
    may be faster with stragglers than without. So a set's time is the largest of its subsets, at most the whole time.

    >>> monotone_parts("computing", ["stragglers"], lambda on: 3.0 if on else 4.0)
    {'computing': 3.0, 'stragglers': 0.0}
    """
    subsets = [frozenset(on) for k in range(len(factors) + 1) for on in combinations(factors, k)]
    whole = seconds(frozenset(factors))
    known = {on: min(max(seconds(on), 0.0), whole) for on in subsets}
    rising = {on: max(known[less] for less in subsets if less <= on) for on in subsets}
    parts = {name: max(part, 0.0) for name, part in shapley(factors, rising.__getitem__).items()}
    return {first: max(whole - sum(parts.values()), 0.0), **parts}


def parts_of(cluster: ClusterProfile, c: Candidate, per_round: float) -> dict[str, float]:
    """Return the seconds of a round by cause: undisturbed computing, stragglers, latency and transfers.

    `per_round`: predicted seconds of a round, to which the parts sum. The parts of latency and transfers are the
    seconds that they add.
    """
    e = c.experiment
    # a drawn time of one sample includes this start-up cost, in samples
    fixed = float(getattr(e.delays, "fixed", 0.0))
    typical = float(np.quantile(drawn(e.delays, 4, 2000), QUIET_QUANTILE))
    quiet = Constant(shift=typical / (1 + fixed), fixed=fixed)
    off: dict[str, Callable[[Experiment], dict[str, Any]]] = {
        "stragglers": lambda at: {"delays": quiet},
        "latency": lambda at: {"link": at.link.without(latency=True)},
        "transfers": lambda at: {"link": at.link.without(transfers=True), "decode_rate": None},
    }

    def seconds(on: frozenset[str]) -> float:
        at = e
        for name in off.keys() - on:
            at = at.model_copy(update=off[name](at))
        return cluster.forecast_of(at, c.task, BREAKDOWN_ROUNDS).mean

    parts = monotone_parts("computing", list(off), seconds)
    whole = sum(parts.values())
    return {name: part * per_round / whole for name, part in parts.items()} if whole else parts
