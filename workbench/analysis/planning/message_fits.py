"""Fits of delay models to the times of messages, where these vary so much that a constant latency would mislead."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from workbench.analysis.planning.delay_fits import FITS, assess, refit
from workbench.analysis.planning.linkfit import Messages, PortFit, end_before
from workbench.core.base.types import Array
from workbench.core.contract.delays import Delays

MIN_SPREAD_RATIO = 1.0  # min ratio of the range (10 to 90 %) of messages' times to their usual time
MIN_TASK_SHARE = 0.1  # min ratio of that range to the usual time of a worker's task
MIN_SECONDS = 1e-9  # times of messages are at least this, s
# kinds without a state from round to round, and without differences between workers
MESSAGE_KINDS = ("shifted_exponential", "pareto", "lognormal", "gamma", "weibull")
# lengths are used if their share of waiting messages is at most this much above the least
MAX_EXTRA_WAITS = 0.05
# the second of two messages may have waited if their ends are at most this multiple of a transfer apart
MAX_GAP_RATIO = 1.05


def with_delays(
    port: PortFit,
    answers: Sequence[Messages],
    models: Sequence[Array],
    typical: float,
    near: PortFit | None = None,
) -> PortFit:
    """Return the link. Messages whose times vary much get a delay model: answers, or models sent to workers.

    `models`: times to send models to workers, one array (rounds, workers) in s for each entry of `answers`. `typical`:
    usual seconds of a task. `near`: fit to similar messages. The kinds of its delay models are used again. If answers
    get a delay model, the latency becomes their shortest time without transfer.
    """
    ways = [
        _up(port, answers),
        np.concatenate([_down(port, times, each.bytes) for times, each in zip(models, answers, strict=True)]),
    ]
    fields = ("delays", "download_delays")
    varies = [near is None and _varies(port, way, typical) for way in ways]
    if near is not None:
        varies = [getattr(near, name) is not None for name in fields]
    varies[1] = varies[1] and port.downloads
    if not any(varies):
        return port
    # the latency becomes the shortest time of an answer without transfer, so that delays of answers begin at 0
    least = float(ways[0].min()) if varies[0] else 0.0
    lower = max(least, -min([port.latency, *(group.latency for group in port.groups)]))
    groups = tuple(group.replace(latency=group.latency + lower) for group in port.groups)
    found = port.replace(latency=port.latency + lower, groups=groups)
    for name, way, drawn in zip(fields, ways, varies, strict=True):
        if drawn:
            kind = None if near is None else getattr(near, name).kind
            found = found.replace(**{name: _fit(np.maximum(way - lower, MIN_SECONDS), kind)})
    return found


def _down(port: PortFit, times: Array, bytes_: float) -> Array:
    """Return the times of models on the way beyond the latency and transfer of each worker's link, (models,), s."""
    latency, transfer = port.by_worker(bytes_, times.shape[1])
    return (times - latency - transfer).ravel()


def _up(port: PortFit, answers: Sequence[Messages]) -> Array:
    """Return the times of answers on the way beyond the latency and transfer of each worker's link, (answers,), s.

    An answer that passed the port right after another one may have waited there, and is left out. Only message lengths
    at which few answers waited are used. At others, the answers that did not wait would be a biased sample.
    """
    rows, shares = [], []
    for each in answers:
        latency, transfer = port.by_worker(each.bytes, each.sent.shape[1])
        idle = each.end - end_before(each) > MAX_GAP_RATIO * transfer
        rows.append((each.end - each.sent - latency - transfer)[idle])
        shares.append(float(idle.mean()))
    most = max(shares) - MAX_EXTRA_WAITS
    return np.concatenate([row for row, share in zip(rows, shares, strict=True) if share >= most])


def _varies(port: PortFit, way: Array, typical: float) -> bool:
    """Return whether the range (10 to 90 %) of times on the way exceeds their usual time, and a tenth of a task's."""
    low, middle, high = np.quantile(way, (0.1, 0.5, 0.9))
    usual = float(middle) + port.latency
    return bool(high - low > MIN_SPREAD_RATIO * max(usual, 0.0) and high - low > MIN_TASK_SHARE * typical)


def _fit(times: Array, kind: str | None) -> Delays:
    """Return the delay model of a kind, or of the kind that fits best, for times (messages,), s."""
    table = times[:, None]
    if kind is not None:
        return refit(table, kind)
    models = [model for name in MESSAGE_KINDS if (model := FITS[name][0](table)) is not None]
    return min(models, key=lambda model: assess(table, model).distance)
