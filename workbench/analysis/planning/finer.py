"""Search from coarse to fine: first parameters from the whole range, then some between the best and its neighbours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np

from workbench.analysis.planning.predicting import MAX_SHARPENED, PREDICTION_SEEDS, Candidate
from workbench.analysis.planning.prices import price
from workbench.analysis.planning.star_commits import combines
from workbench.analysis.planning.targets import Target

SETTINGS_PER_SCHEME = 4  # max configurations of an inexact scheme that are simulated at first
# max configurations near the best ones that are tried afterwards: of an inexact scheme in all, of an exact one per pass
FINER_SETTINGS = 4
FINER_PASSES = 3  # number of passes near the best, each of which begins at the best of the pass before
EVENTS_SHARE = 0.6  # share of its effort that a scheme gets if its rounds need the event engine
MIN_SEEDS = 8  # min seeds of the best configurations, unless only one configuration is left
Args = Mapping[str, Any]


def finer(grid: Sequence[Args], tried: Sequence[Args], best: Args) -> list[dict[str, Any]]:
    """Return the next parameters to try near the best ones: neighbours on the grid, then values in between.

    A neighbour differs only in one whole number. If a neighbour was already tried, the number halfway to it is next.

    >>> finer([{"stragglers": s} for s in (1, 4, 9)], [{"stragglers": 4}, {"stragglers": 9}], {"stragglers": 4})
    [{'stragglers': 1}, {'stragglers': 6}]
    """
    found = list[dict[str, Any]]()
    for name, value in best.items():
        if type(value) is not int:
            continue
        rest = {**best, name: None}
        line = {a[name] for a in [*grid, *tried] if name in a and {**a, name: None} == rest}
        whole = [x for x in line if type(x) is int]
        below = max((x for x in whole if x < value), default=value)
        above = min((x for x in whole if x > value), default=value)
        for near in (below, above):
            for x in (near, (near + value) // 2):
                args = {**best, name: x}
                if args not in tried and args not in found:
                    found.append(args)
                    break
    return found


def affordable(every: Sequence[Candidate], aim: Target, share: float) -> tuple[list[Candidate], int, int]:
    """Return what the effort `share` allows: configurations, the number of further ones near the best, and seeds.

    The configurations are evenly spaced in the order of round times. All of them are run with the few seeds that choose
    the step size, and the best ones with all seeds.
    """
    most = 1 if len(every) == 1 else SETTINGS_PER_SCHEME + FINER_SETTINGS
    price_of = cache(lambda k: price(every[k].experiment, aim))
    share *= 1.0 if combines(every[0].experiment) else EVENTS_SHARE
    for count in range(most, 0, -1):
        first = min(-(-count // 2), len(every))
        places = sorted({round(k * (len(every) - 1) / max(first - 1, 1)) for k in range(first)})
        choosing, each = np.mean([price_of(k) for k in places], axis=0)
        seeds = int(min((share - count * choosing) / (min(count, MAX_SHARPENED) * each), PREDICTION_SEEDS))
        if seeds >= (MIN_SEEDS if count > 1 else 1):
            return [every[k] for k in places], count - first, seeds
    return [], 0, 0
