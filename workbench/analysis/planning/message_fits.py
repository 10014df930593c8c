"""Fits of delay models to the times of messages, where these vary so much that a constant latency would mislead."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from workbench.analysis.planning.delay_fits import FITS, assess, refit
from workbench.analysis.planning.linkfit import Messages, PortFit, PortGroup, PortLink, end_before
from workbench.core.base.types import Array
from workbench.core.contract.delays import Delays

# min ratio of the range (10 to 90 %) of messages' times to their usual time, unless other messages get a delay model
MIN_SPREAD_RATIO = 1.0
MIN_TASK_SHARE = 0.1  # min ratio of that range to the usual time of a worker's task
MIN_SECONDS = 1e-9  # times of messages are at least this, s
# kinds without a state from round to round, and without differences between workers
MESSAGE_KINDS = ("shifted_exponential", "pareto", "lognormal", "gamma", "weibull")
# lengths are used if their share of waiting messages is at most this much above the least
MAX_EXTRA_WAITS = 0.05
# the second of two messages may have waited if their ends are at most this multiple of a transfer apart
MAX_GAP_RATIO = 1.05
LOW_QUANTILE = 0.02  # quantile of the times between two answers that a transfer does not exceed
# min difference of the mean ranks of two workers' times, in standard errors, if they are in different groups
MIN_RANK_ERRORS = 4.0


# times of messages of one length beyond latency and transfer, s, and whether they did not wait; (rounds, workers) each
Ways = tuple[Array, NDArray[np.bool_]]


def with_delays(
    port: PortFit,
    answers: Sequence[Messages],
    models: Sequence[Array],
    typical: float,
    near: PortFit | None = None,
) -> PortFit | None:
    """Return the link with delay models of messages whose times vary much, or None if there are none.

    These are delays of answers, and of models sent to workers. Workers whose messages take longer than those of others
    are a group with delay models of its own. All workers have one bandwidth. `port`: fit without groups. `models`:
    times to send models to workers, one array (rounds, workers) in s for each entry of `answers`. `typical`: usual
    seconds of a task. `near`: fit to similar messages. The kinds of its delay models are used again.
    """
    port = _shortened(port, answers)
    down = [t - port.latency - port.transfer(m.bytes) for m, t in zip(answers, models, strict=True)]
    ways = [_up(port, answers), [(t, np.ones(t.shape, dtype=bool)) for t in down]][: 1 + port.downloads]
    parts = [
        (who, [[(t[:, who], idle[:, who]) for t, idle in each] for each in ways]) for who in _parts(ways)
    ]
    every = [each for _, own in parts for each in own]
    if near is None and not any(_varies(port, each, typical, MIN_SPREAD_RATIO) for each in every):
        return None
    found = dict[PortLink, list[int]]()
    for who, own in parts:
        link = _fitted(port, own, typical, None if near is None else near.of_worker(int(who[0]) + 1))
        found.setdefault(link, []).extend((who + 1).tolist())
    common, *others = sorted(found, key=lambda link: -len(found[link]))
    groups = tuple(PortGroup(workers=tuple(sorted(found[link])), **vars(link)) for link in others)
    drawn = any(link.delays or link.download_delays for link in found)
    return port.replace(groups=groups, **vars(common)) if drawn else None


def _shortened(port: PortFit, answers: Sequence[Messages]) -> PortFit:
    """Return the link with so little overhead that a transfer is not longer than the shortest times between answers."""
    least = (np.quantile(each.end - end_before(each), LOW_QUANTILE, method="lower") for each in answers)
    over = [float(gap) - port.transfer(each.bytes) for gap, each in zip(least, answers, strict=True)]
    return port.replace(overhead=max(port.overhead + min(0.0, *over), 0.0))


def _parts(ways: Sequence[Sequence[Ways]]) -> list[NDArray[np.int64]]:
    """Return groups of workers, from 0, whose messages take similar times. `ways`: as in `_fitted`.

    For each kind of messages, workers are sorted by the mean ranks of their times. A group ends where the mean rank
    grows by more than `MIN_RANK_ERRORS` standard errors, which it hardly does by chance.
    """
    from scipy.stats import rankdata

    labels = np.zeros((len(ways), ways[0][0][0].shape[1]), dtype=int)
    for label, each in zip(labels, ways, strict=True):
        ranks = np.concatenate([rankdata(t).reshape(t.shape) / t.size for t, _ in each])
        order, error = np.argsort(ranks.mean(axis=0)), (6 * len(ranks)) ** -0.5
        label[order[1:]] = np.cumsum(np.diff(np.sort(ranks.mean(axis=0))) > MIN_RANK_ERRORS * error)
    return [np.flatnonzero((one == labels.T).all(axis=1)) for one in np.unique(labels, axis=1).T]


def _fitted(port: PortFit, ways: Sequence[Sequence[Ways]], typical: float, old: PortLink | None) -> PortLink:
    """Return the link of some workers, with delay models of their answers and models, as far as these vary.

    `ways`: those of answers, and of models, for each length. If answers get a delay model, the latency becomes their
    shortest time without transfer, so that delays of answers begin at 0. Otherwise, it becomes their usual time.
    """
    fields, lower = {name: getattr(port, name) for name in ("latency", "overhead", "bandwidth")}, 0.0
    for name, each in zip(("delays", "download_delays"), ways, strict=False):
        model = getattr(old, name, None)
        if model is None and (old is not None or not _varies(port, each, typical, MIN_TASK_SHARE)):
            if name == "delays":
                alone = [times[idle] if idle.any() else times.ravel() for times, idle in each]
                lower = float(np.median(np.concatenate(alone)))
            continue
        way = np.concatenate([times.ravel() for times, _ in each])
        lower = max(float(way.min()), -port.latency) if name == "delays" else lower
        fields[name] = _fit(np.maximum(way - lower, MIN_SECONDS), model and model.kind)
    return PortLink(**{**fields, "latency": max(port.latency + lower, 0.0)})


def _up(port: PortFit, answers: Sequence[Messages]) -> list[Ways]:
    """Return the ways of answers of each length at which few of them waited for the port.

    An answer that passed the port right after another one may have waited there. It arrived between the time at which
    the port became busy, or it was sent, and its own transfer. A time in this interval is drawn.
    """
    found, rng = list[Ways](), np.random.default_rng(0)
    for each in answers:
        transfer = port.transfer(each.bytes)
        begin, idle = each.end - transfer, each.end - end_before(each) > MAX_GAP_RATIO * transfer
        order = np.argsort(each.end, axis=1, kind="stable")
        busy = np.empty_like(begin)
        since = np.maximum.accumulate(np.take_along_axis(np.where(idle, begin, -np.inf), order, 1), axis=1)
        np.put_along_axis(busy, order, since, axis=1)
        arrived = np.where(idle, begin, rng.uniform(np.minimum(np.maximum(busy, each.sent), begin), begin))
        found.append((arrived - each.sent - port.latency, idle))
    least = max(float(idle.mean()) for _, idle in found) - MAX_EXTRA_WAITS
    return [way for way in found if way[1].mean() >= least]


def _varies(port: PortFit, ways: Sequence[Ways], typical: float, ratio: float) -> bool:
    """Return whether the range (10 to 90 %) of times of each length exceeds shares of their usual time and a task's.

    `ratio`: the share of the usual time. That of the time of a task is `MIN_TASK_SHARE`.
    """
    if not all(idle.any() for _, idle in ways):
        return False
    low, middle, high = np.array([np.quantile(t[idle], (0.1, 0.5, 0.9)) for t, idle in ways]).T
    least = np.maximum(ratio * np.maximum(middle + port.latency, 0.0), MIN_TASK_SHARE * typical)
    return bool((high - low > least).all())


def _fit(times: Array, kind: str | None) -> Delays:
    """Return the delay model of a kind, or of the kind that fits best, for times (messages,), s."""
    table = times[:, None]
    if kind is not None:
        return refit(table, kind)
    models = [model for name in MESSAGE_KINDS if (model := FITS[name][0](table)) is not None]
    return min(models, key=lambda model: assess(table, model).distance)
