"""Uneven work: steps in which workers have different numbers of tokens or samples, and the cost of this.

A worker with more tokens is not slow. The time of a token is fitted by the differences between a worker's own steps.
So a slow worker is not mistaken for one with much work.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Self

import numpy as np
import pandas as pd
from scipy.optimize import nnls

from workbench.analysis.recordings.recording import Recording
from workbench.core.base.types import Array
from workbench.core.contract.recorded import WORK_COLUMNS

MIN_OWN_SHARE = 1e-3  # min share of a step that counts as a worker's own work, if the exchange was recorded

MIN_EXPLAINED_SHARE = 0.1  # min share of a worker's variance that its work must explain
MIN_EXPLAINED_TIMES = 20.0  # min product of the explained share and the number of observations
MIN_VARIATION = 0.01  # min standard deviation of work, divided by its mean, for work that differs
MIN_LEFT_SHARE = 0.05  # min share of a time that remains when its work is made equal
# residuals are clipped at this many deviations, so that delays have little influence; number of iterations of the fit
CLIP_DEVIATIONS, ITERATIONS = 3.0, 4


class Work(NamedTuple):
    """Computing times of the workers in each step, as if all had the mean amount of work.

    `seconds`: (steps, workers). `parts`: the same by phase. `exchange` (steps,): time of a step beyond its slowest
    worker. `uneven` (steps,): additional time because amounts of work differ. `factor` (steps, workers): ratio of
    `seconds` to the recorded ones.
    """

    seconds: Array
    parts: dict[str, Array]
    exchange: Array
    uneven: Array
    factor: Array

    @classmethod
    def of(cls, own: Array, parts: Mapping[str, Array], lasted: Array | None, work: list[Array]) -> Self:
        """Build it from recorded own seconds.

        `lasted`: seconds including the exchange, None if that was not recorded.
        """
        recorded = own if lasted is None else _within(own, lasted)
        even = with_even_work(recorded, work)
        seconds = recorded if even is None else even
        factor = seconds / np.where(own > 0, own, 1.0)
        exchange = np.zeros(len(own)) if lasted is None else lasted.mean(axis=1) - recorded.max(axis=1)
        scaled = {what: each * factor for what, each in parts.items()}
        return cls(seconds, scaled, exchange, recorded.max(axis=1) - seconds.max(axis=1), factor)


def _within(own: Array, lasted: Array) -> Array:
    """Limit the workers' own seconds to between a small positive value and the mean time of the step, (steps, workers).

    A worker whose operations all overlap with the exchange has no time of its own. Steps of different workers begin at
    different times, so their own times may exceed the mean step.
    """
    mean = lasted.mean(axis=1, keepdims=True)
    return np.clip(own, MIN_OWN_SHARE * mean, mean)


def amounts(job: Recording, full: pd.DataFrame) -> list[Array]:
    """Return the amounts of work that are known for all steps and workers of `full`: tokens and squares, or samples."""
    frame, found = job.job().frame, {}
    for name in WORK_COLUMNS:
        if name in frame and not frame[name].isna().all():
            table = frame.pivot_table(
                index="step", columns="worker", values=name, aggfunc="max", observed=True
            )
            known = table.reindex_like(full).to_numpy(float)
            if np.isfinite(known).all():
                found[name] = known
    return [found[name] for name in ("tokens", "squares") if name in found] or list(found.values())


def with_even_work(times: Array, work: list[Array]) -> Array | None:
    """Return the times of workers if all had the mean work of each step, or None if work explains nothing.

    `times` and each amount of work: (steps, workers).

    >>> tokens = 1.0 + np.arange(80).reshape(20, 4) % 7
    >>> with_even_work(0.1 + 2.0 * tokens, [tokens]).std(axis=1).max().round(6)
    np.float64(0.0)
    """
    differing = [each for each in work if _varies(each - each.mean(axis=1, keepdims=True), each)]
    if not differing:
        return None
    # the workers' differences never change, so that slow workers cannot be distinguished from more work
    if not any(_varies(each - each.mean(axis=0), each) for each in differing):
        each = differing[0]
        return np.asarray(times * each.mean(axis=1, keepdims=True) / each)
    rates = _rates(times, differing)
    if rates is None:
        return None
    more = sum(
        rate * (each - each.mean(axis=1, keepdims=True)) for rate, each in zip(rates, differing, strict=True)
    )
    return np.asarray(np.maximum(times - more, MIN_LEFT_SHARE * times))


def _varies(deviations: Array, work: Array) -> bool:
    return float(deviations.std()) > MIN_VARIATION * float(work.mean())


def _rates(times: Array, work: list[Array]) -> Array | None:
    """Return the seconds for each unit of work, at least 0, by least squares, or None if they explain too little."""
    scales = [float(each.std()) for each in work]
    inputs = np.stack(
        [((each - each.mean(axis=0)) / scale).ravel() for each, scale in zip(work, scales, strict=True)],
        axis=1,
    )
    given = (times - np.median(times, axis=0)).ravel()
    found, clipped = np.zeros(len(work)), given
    for _ in range(ITERATIONS):
        found, _error = nnls(inputs, clipped - clipped.mean())
        rest = given - inputs @ found
        middle = float(np.median(rest))
        limit = CLIP_DEVIATIONS * float(np.median(np.abs(rest - middle))) / 0.6745
        clipped = inputs @ found + np.clip(rest, middle - limit, middle + limit)
    total = float(np.var(clipped))
    explained = 1 - float(np.var(clipped - inputs @ found)) / total if total > 0 else 0.0
    if explained < max(MIN_EXPLAINED_SHARE, MIN_EXPLAINED_TIMES / times.size):
        return None
    return np.asarray(found / scales)
