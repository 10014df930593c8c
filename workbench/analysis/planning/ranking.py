"""Candidates as ranked choices: expected times, intervals, shares of wins, and the causes of a round's time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from workbench.analysis.planning.advice import MAX_EQUAL_RATIO, Choice
from workbench.analysis.planning.breakdown import parts_of
from workbench.analysis.planning.predicting import PREDICTION_SEEDS, Candidate
from workbench.analysis.planning.profile import ClusterProfile
from workbench.analysis.planning.targets import Target

MAX_BREAKDOWNS = 10  # max number of schemes whose rounds are split by cause


def ranked(cluster: ClusterProfile, found: Sequence[Candidate], aim: Target) -> list[Choice]:
    """Return choices by expected time.

    For the first choice of each of the best schemes, its rounds are split by cause.
    """
    found = sorted(found, key=lambda c: c.mean)
    choices = [_choice(c, aim, sure) for c, sure in zip(found, _wins(found), strict=True)]
    explained = list(dict.fromkeys(c.scheme for c in choices))[:MAX_BREAKDOWNS]
    for k in [next(k for k, c in enumerate(choices) if c.scheme == scheme) for scheme in explained]:
        choices[k] = replace(choices[k], parts=parts_of(cluster, found[k], choices[k].per_round))
    return choices


def _choice(c: Candidate, aim: Target, sure: float) -> Choice:
    rounds, (low, high) = c.rounds(aim), c.interval
    update = {
        "rounds": int(np.ceil(np.quantile(rounds, 0.95))),
        "optimiser": c.optimiser.name,
        "optimiser_args": c.optimiser.model_dump(exclude_unset=True),
    }
    return Choice(
        experiment=c.experiment.model_copy(update=update),
        per_round=c.mean / float(rounds.mean()),
        rounds=float(rounds.mean()),
        source=aim.source if c.need is None else c.need.source,
        seconds=c.mean,
        low=min(low, c.mean),
        high=max(high, c.mean),
        sure=sure,
        load=c.forecast.load,
        messages=c.forecast.messages,
        bytes=c.forecast.bytes,
        exact=c.exact,
    )


def _wins(found: Sequence[Candidate]) -> list[float]:
    """Return the share of the `PREDICTION_SEEDS` resamples in which each candidate wins.

    The winner is the first in the ranking that takes at most `MAX_EQUAL_RATIO` times as long as the fastest. Similar
    candidates thus do not split the share. A candidate with fewer predictions never wins.
    """
    never = np.full(PREDICTION_SEEDS, np.inf)
    each = [c.seconds[:PREDICTION_SEEDS] for c in found]
    times = np.array([seconds if len(seconds) == PREDICTION_SEEDS else never for seconds in each])
    first = np.argmax(times <= MAX_EQUAL_RATIO * times.min(axis=0), axis=0)
    return [float(share) for share in np.bincount(first, minlength=len(found)) / PREDICTION_SEEDS]
