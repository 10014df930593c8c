"""Seconds of a round by cause, which are not negative and sum to the round's time."""

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

BREAKDOWN_ROUNDS = 24  # number of forecast rounds from which the causes' seconds are computed
QUIET_QUANTILE = 0.05  # quantile of a worker's times that counts as undisturbed


def monotone_parts(
    first: str, factors: Sequence[str], seconds: Callable[[frozenset[str]], float]
) -> dict[str, float]:
    """Return the seconds of `first` and of each factor; `first` gets the time without any factor.

    `seconds`: time with a set of factors. All results are at least 0, and they sum to the time with all factors. A
    scheme that does not wait for all workers may be faster with stragglers than without. So the time of a set is taken
    as the largest over its subsets, and at most the time with all factors.

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

    `per_round`: predicted seconds of a round, which the results sum to. Latency and transfers get the seconds that
    they add. Decoding counts as transfers.
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
