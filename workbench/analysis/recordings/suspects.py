"""Workers and hosts that are late by more than chance explains: the causes whose cost a diagnosis computes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from workbench.analysis.recordings.attribution import excess_over_median, late_hosts, p_values, shapley_shares
from workbench.analysis.recordings.run_model import COMPUTE, SLOWER, WAITING, Cause
from workbench.core.base.types import Array

# share of the significance level for tests of waiting; it is small, because busy processes are easy to detect
WAITING_LEVEL_SHARE = 0.2
# min relative excess of waiting times over the others'; one more process beside four on a processor gives a quarter
MIN_WAIT_RATIO = 0.2
MIN_COST_SHARE = 0.01  # min cost of a culprit, as a share of the step


def suspects(
    computing: Mapping[str, Array],
    total: float,
    hosts: Mapping[str, list[int]],
    level: float,
    rng: np.random.Generator,
) -> list[Cause]:
    """Return hosts, and workers of other hosts, that are significantly late.

    First, waiting times are tested, and then the rest of the computing time.

    Waiting times always differ by about a tenth, because of how a machine assigns its cores. This is not reported.
    """
    times, waiting = computing[COMPUTE], computing.get(WAITING)
    if waiting is None:
        return late_causes(COMPUTE, times, total, hosts, level, rng)
    tried = late_causes(WAITING, waiting, total, hosts, level * WAITING_LEVEL_SHARE, rng)
    found = [each for each in tried if longer(waiting, each.workers) >= MIN_WAIT_RATIO]
    even = np.ones_like(times)
    for who in (list(each.workers) for each in found):
        even[:, who] = np.median(np.delete(waiting, who, axis=1), axis=1, keepdims=True) / waiting[:, who]
    times, parts = times * even, {SLOWER: computing[SLOWER], WAITING: waiting * even}
    for each in late_causes(COMPUTE, times, total, hosts, level * (1 - WAITING_LEVEL_SHARE), rng):
        half = longer(times, each.workers) / 2
        what = next((phase for phase in parts if longer(parts[phase], each.workers) >= half), COMPUTE)
        found += [each._replace(what=what)] if what != WAITING else []
    return found


def late_causes(
    what: str,
    times: Array,
    total: float,
    hosts: Mapping[str, list[int]],
    level: float,
    rng: np.random.Generator,
) -> list[Cause]:
    """Return hosts, and workers of other hosts, that are significantly late, with the most expensive first.

    Every worker is late at times. So a worker that costs about as much as the median worker is not reported.
    """
    known, cost = p_values(times, rng), shapley_shares(excess_over_median(times)).sum(axis=0) / total
    costly = cost - np.median(cost) >= MIN_COST_SHARE
    late = [host for host in late_hosts(times, hosts, level, rng) if costly[hosts[host]].any()]
    gone = {i for host in late for i in hosts[host]}
    slow = [int(i) for i in np.argsort(-cost) if known[i] <= level and costly[i] and i not in gone]
    causes = [Cause(what, tuple(hosts[host]), f"host {host}") for host in late]
    return causes + [Cause(what, (i,)) for i in slow]


def longer(times: Array, who: Sequence[int]) -> float:
    """Return the excess of some workers' times over the median of the others, as a share."""
    others = np.median(np.delete(times, who, axis=1), axis=1)
    return float(times[:, [*who]].mean() / others.mean() - 1)
