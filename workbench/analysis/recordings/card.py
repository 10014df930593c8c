"""Summary of a recording: spread, bursts, permanently slow workers, changes, and delay models that fit.

Lateness is relative to the median worker of the step. A delay of all workers at once (a shared file system, a larger
batch) is therefore not attributed to one of them, but reported as `together`.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np
import pandas as pd
from scipy.stats import rankdata

from workbench.analysis.planning.delay_fits import FittedModel, fitted_models
from workbench.analysis.recordings.attribution import late_p_values
from workbench.analysis.recordings.spells import bursts
from workbench.core.base.settings import SettingError
from workbench.core.base.types import Array

LATE_RATIO = 1.2  # ratio to the step's median from which on a worker is late
SIGNIFICANCE_LEVEL = 0.01  # p-value up to which a change, or a worker that is late in most steps, is reported
MIN_STEPS = 20  # min number of steps for finding a change
MAX_AUTOCORRELATION = 0.97  # max correlation of neighbours that is taken into account
MIN_CHANGE_RATIO = 1.05  # changes of the median by a smaller factor are not reported


class Change(NamedTuple):
    """Step from which on a worker is permanently slower or faster."""

    worker: Any
    step: int
    factor: float  # ratio of the medians after and before, relative to the other workers
    chance: float  # p-value of the change


@dataclass(frozen=True)
class Card:
    """Summary of one recorded job; `str` gives it as text.

    `spread`: 95 % quantile divided by the median. `tail`: mean ratio of a step's maximum to its median. `chronic`,
    `together`, `passing`: shares of the variance of the logarithms of times that depend on the worker, on the step,
    and on neither. `late`: share of late times. `burst`: mean number of steps that a worker stays late; `alone`: its
    value if late steps were independent. `delay_models`: fitted ones, the best first.
    """

    name: str
    units: str
    workers: int
    steps: int
    missing: float
    median: float
    spread: float
    tail: float
    chronic: float
    together: float
    passing: float
    late: float
    burst: float
    alone: float
    # workers that are late in most steps, significantly, and the ratio of their times to the median
    slow: tuple[tuple[Any, float], ...]
    changes: tuple[Change, ...]
    delay_models: tuple[FittedModel, ...]

    @classmethod
    def of(cls, name: str, units: str, table: pd.DataFrame, kinds: Sequence[str] = ()) -> Self:
        """Summarise the times of one job, steps x workers. `kinds`: delay models to fit, as in `fitted_models`.

        Raises `SettingError` for a single worker, which cannot be compared, and if no step is complete.
        """
        if table.shape[1] < 2:
            raise SettingError(f"recording = {name!r}: has one worker only; lateness needs others beside it")
        seconds = table.to_numpy(float)
        times = whole(name, table)
        ratio = seconds / np.nanmedian(seconds, axis=1, keepdims=True)
        medians = np.nanmedian(ratio, axis=0)
        late = ratio > LATE_RATIO
        burst, alone = bursts(late)
        often = late_p_values(late, ~np.isnan(seconds), times)
        positive = np.all(times > 0)
        chronic, together, passing = shares(np.log(times)) if positive else (math.nan,) * 3
        return cls(
            name=name,
            units=units,
            workers=table.shape[1],
            steps=table.shape[0],
            missing=float(np.isnan(seconds).mean()),
            median=float(np.nanmedian(seconds)),
            spread=float(np.nanquantile(seconds, 0.95) / np.nanmedian(seconds)),
            tail=float(np.nanmean(np.nanmax(ratio, axis=1))),
            chronic=chronic,
            together=together,
            passing=passing,
            late=float(late[~np.isnan(seconds)].mean()),
            burst=burst,
            alone=alone,
            slow=tuple(
                (worker, float(median))
                for worker, median, p in zip(table.columns, medians, often, strict=True)
                if median > LATE_RATIO and p <= SIGNIFICANCE_LEVEL
            ),
            changes=tuple(changes(ratio, table.columns.tolist(), table.index.tolist())) if positive else (),
            delay_models=tuple(fitted_models(times, kinds)) if positive else (),
        )

    @property
    def delay_model(self) -> FittedModel | None:
        """Best delay model that fits; None if none does."""
        return next((delay_model for delay_model in self.delay_models if delay_model.fits), None)

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        missing = f", {self.missing:.1%} of the times missing" if self.missing else ""
        yield f"{self.name}: {self.workers} workers, {self.steps} steps{missing}; median {self.median:.4g} {self.units}"
        yield (
            f"the slowest of a step takes {self.tail:.2f} times its median; 95 % of all times are below"
            f" {self.spread:.2f} medians"
        )
        yield (
            f"of the variation {self.chronic:.0%} are permanent differences of workers; {self.together:.0%} affect all"
            f" workers at once; {self.passing:.0%} come and go"
        )
        if self.late:
            yield (
                f"{self.late:.1%} of the times are late (over {LATE_RATIO:g} medians), {self.burst:.1f} steps in a row;"
                f" by chance it would be {self.alone:.1f}"
            )
        for worker, factor in self.slow:
            yield f"worker {worker} is late in most steps: {factor:.2f} times the median"
        for change in self.changes:
            what = "slower" if change.factor > 1 else "faster"
            by = f"{change.factor:.2f} times (p = {change.chance:.1g})"
            yield f"worker {change.worker} is {what} from step {change.step} on: {by}"
        best = self.delay_models[0] if self.delay_models else None
        if best is not None and best.fits:
            how = f"Kolmogorov distance {best.distance:.2f}, 99 % quantile {best.tail:.2f} times the measured one"
            yield f"a {best.delays.kind} delay model fits ({how}): {_parameters(best.delays.model_dump())}"
        elif best is not None:
            yield f"no delay model fits; the nearest is {best.delays.kind}, but {best.complaint}"


def _parameters(delay_model: Mapping[str, Any]) -> str:
    """Return the parameters of a delay model as text. Those without a value are left out.

    >>> _parameters({"kind": "pareto", "shift": 0.12345, "per": "worker", "who": None})
    'shift = 0.123, per = worker'
    """
    given = {name: value for name, value in delay_model.items() if name != "kind" and value is not None}
    return ", ".join(f"{name} = {_value(value)}" for name, value in given.items())


def _value(value: Any) -> str:
    """Return one parameter as text: a number, a choice, a list of ranks, or a nested delay model."""
    if isinstance(value, Mapping):
        return f"{value.get('kind', '')} ({_parameters(value)})".lstrip()
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_value, value))}]"
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def whole(name: str, table: pd.DataFrame) -> Array:
    """Return the steps in which every worker was recorded, (steps, workers). Raise `SettingError` if there are none.

    >>> whole("two", pd.DataFrame({"a": [1.0, 2.0], "b": [1.0, np.nan]})).tolist()
    [[1.0, 1.0]]
    """
    full = table.dropna()
    if not len(full):
        raise SettingError(f"recording = {name!r}: there is no step in which all workers were recorded")
    return full.to_numpy(float)


def shares(logs: Array) -> tuple[float, float, float]:
    """Return the shares of the variance that columns, rows, and neither explain, for (steps, workers).

    >>> shares(np.log([[1.0, 2.0], [1.0, 2.0]]))
    (1.0, 0.0, 0.0)
    """
    off = logs - logs.mean()
    total = float((off**2).mean())
    if total < 1e-18:
        return 0.0, 0.0, 0.0
    own, step = float((off.mean(axis=0) ** 2).mean()), float((off.mean(axis=1) ** 2).mean())
    return own / total, step / total, max(0.0, 1 - (own + step) / total)


def habits(times: Array) -> tuple[float, float, float]:
    """Return the share of late times, the mean length of bursts, and the mean ratio of a step's maximum to its median.

    >>> habits(np.array([[1.0, 1.0, 2.0], [1.0, 1.0, 1.0]]))
    (0.16666666666666666, 1.0, 1.5)
    """
    ratio = times / np.median(times, axis=1, keepdims=True)
    late = ratio > LATE_RATIO
    return float(late.mean()), bursts(late)[0], float(ratio.max(axis=1).mean())


def changes(ratio: Array, workers: list[Any], steps: list[int]) -> Iterator[Change]:
    """Yield the steps from which on a worker's times, relative to the step's median, have another level.

    `ratio`: (steps, workers); `workers`, `steps`: their names. The most certain change (see `split`) in a worker's
    series, or in its overlapping halves, quarters and so on, is taken. Then both sides are searched again. In this way,
    slow spells in the middle are found (Kovacs et al., "Seeded binary segmentation", Biometrika 110, 2023).
    """
    for column, worker in enumerate(workers):
        known = np.flatnonzero(~np.isnan(ratio[:, column]))
        series = np.log(ratio[known, column])
        for place, chance, parts in sorted(
            _halved(series, 0, len(series), SIGNIFICANCE_LEVEL / len(workers))
        ):
            before, after = (series[slice(*bounds)] for bounds in parts)
            factor = math.exp(float(np.median(after) - np.median(before)))
            if abs(math.log(factor)) >= math.log(MIN_CHANGE_RATIO):
                yield Change(worker, int(steps[known[place]]), factor, chance)


# index of the change, its p-value, and the ranges on both sides that are compared
Found = tuple[int, float, tuple[tuple[int, int], tuple[int, int]]]


def _halved(series: Array, first: int, last: int, level: float) -> list[Found]:
    windows = [(a, b) for a, b in _windows(last - first) if b - a >= MIN_STEPS]
    tried = [(split(series[first + a : first + b]), first + a, first + b) for a, b in windows]
    if not tried:
        return []
    (offset, chance), a, b = min(tried, key=lambda each: each[0][1])
    if chance * len(windows) > level:
        return []
    place = a + offset
    here: Found = (place, min(1.0, chance * len(windows)), ((a, place), (place, b)))
    return [*_halved(series, first, place, level), here, *_halved(series, place, last, level)]


def _windows(length: int) -> Iterator[tuple[int, int]]:
    """Yield the whole range, its halves, quarters, ..., each shifted by half its length."""
    width = length
    while width >= MIN_STEPS:
        for start in range(0, length - width + 1, max(1, width // 2)):
            yield start, start + width
        width //= 2


def split(series: Array) -> tuple[int, float]:
    """Return where a series changes its level, and the p-value of that change: Pettitt's test.

    With correlated neighbours, random variation looks like a change. The variance of the statistic is therefore
    multiplied by (1 + r) / (1 - r). Here r is the correlation of neighbours after the change is removed. Its estimate
    is corrected for the bias 2 (1 + 4 r) / n of an estimate around two means.

    A. N. Pettitt, "A non-parametric approach to the change-point problem", Applied Statistics 28 (1979), pp. 126-135:
    p = 2 exp(-6 K^2 / (n^3 + n^2)), where K is the largest absolute value of Pettitt's statistic.

    >>> split(np.array([0.0, 0.1] * 10 + [1.0, 1.1] * 10))[0]
    20
    """
    n = len(series)
    if n < 8 or np.ptp(series) < 1e-12:
        return 0, 1.0
    u = 2 * np.cumsum(rankdata(series)) - np.arange(1, n + 1) * (n + 1)
    place = int(np.argmax(np.abs(u[:-1]))) + 1
    within = np.concatenate([segment - segment.mean() for segment in (series[:place], series[place:])])
    power = float(within @ within)
    r = float(within[1:] @ within[:-1]) / power if power > 0 else 0.0
    r = min(max(r + 2 * (1 + 4 * r) / n, 0.0), MAX_AUTOCORRELATION)
    grown = (n**3 + n**2) * (1 + r) / (1 - r)
    return place, min(1.0, 2 * math.exp(-6 * float(u[place - 1]) ** 2 / grown))
