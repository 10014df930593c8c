"""Ratio of each run's time to a target to that of a reference run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from workbench.core.base.arguments import kinds_checked
from workbench.core.base.grouping import grouped
from workbench.core.base.intervals import band
from workbench.core.base.results import results
from workbench.core.base.settings import SettingError, check_kind, unknown_name
from workbench.core.base.types import Array
from workbench.core.contract.scheme import follows
from workbench.core.trace.metrics import best_of, first_reached, rises
from workbench.core.trace.trace import Trace
from workbench.lab.figures.inputs import Series, check_traces, named

if TYPE_CHECKING:
    import pandas as pd

AXES = {
    "time": "time since start (s)",
    "round": "rounds done",
    "bytes": "gradient bytes received, cumulative (B)",
    "samples": "samples processed by all workers, cumulative",
}
_NO_METRICS = frozenset({"round", "time"})


@kinds_checked
def speedups(
    traces: Sequence[Trace],
    target: float,
    metric: str = "loss",
    reference: str | None = None,
    over_seeds: bool = False,
) -> pd.DataFrame:
    """Return each run's seconds to a target, and these seconds divided by those of the reference.

    `target`: value of the metric that counts as solved: at or below it (at or above it for accuracy and AUC). With
    mini-batches, the mean of the last five evaluated values is compared with it. `metric`: a column of `trace.rounds`.
    `reference`: label of a trace, or a scheme. None: CR if it reaches the target, else the fastest run. `over_seeds`:
    make one row for all runs that differ only in their seed.

    Returns one row per trace, in order. Columns: `scheme` (the label), `seconds` (NaN: never reached), `times_as_long`
    (seconds divided by those of the reference, above 1 for slower runs), `follows` (source of the scheme: paper,
    abstract or code), `reference` (label, or "" if no run reaches the target). With `over_seeds`, `seconds` is the mean
    over the runs, or NaN if one never reached the target. Its 95 % confidence interval is `low` to `high`. `runs` is
    the number of runs.

    Raises `SettingError` if the metric or the reference is unknown, or there are no traces.

    >>> import workbench as wb
    >>> traces = wb.compare([wb.Experiment(scheme=s, workers=12, rounds=20) for s in ("UMW", "GC", "CR")])
    >>> speedups(traces, target=0.65)["scheme"].tolist()
    ['UMW', 'GC', 'CR']
    """
    groups = repetitions(traces) if over_seeds else [[s.trace] for s in named(traces)]
    series = named([seedless(group[0]) if over_seeds else group[0] for group in groups])
    check_target(target)
    bands = [band([crossing(trace, metric, target) for trace in group]) for group in groups]
    seconds = [float(each.mean) for each in bands]
    place = reference_of(series, seconds) if reference is None else position(series, reference)
    base = float("nan") if place is None else seconds[place]
    labels, factors = [s.label for s in series], [ratio(t, base) for t in seconds]
    found: dict[str, Any] = {"scheme": labels, "seconds": seconds, "times_as_long": factors}
    found["follows"] = [follows(s.trace.experiment.scheme) for s in series]
    found["reference"] = "" if place is None else labels[place]
    if over_seeds:
        found |= {"low": [float(each.low) for each in bands], "high": [float(each.high) for each in bands]}
        found["runs"] = [len(group) for group in groups]
    return results(found)


def repetitions(traces: Sequence[Trace]) -> list[list[Trace]]:
    """Return the runs in groups that differ only in their seed."""
    runs = [s.trace for s in named(traces)]
    keys = [(run.engine, run.experiment.replace(seed=0).model_dump_json()) for run in runs]
    return list(grouped(zip(keys, runs, strict=True)).values())


def seedless(trace: Trace) -> Trace:
    """Return a trace that represents its group, without the seed and its own changes of scheme in its label."""
    return replace(trace, experiment=trace.experiment.replace(seed=0), info={})


def common_target(traces: Sequence[Trace], metric: str = "loss") -> float:
    """Return the best value of the metric that every trace reaches. Traces that never improve on the start are ignored.

    `traces` of one problem; `metric`: the column of their rounds.

    >>> import workbench as wb
    >>> traces = wb.compare(wb.baselines(2, 2, 1, rounds=5))
    >>> bool(common_target(traces) < traces[0].initial["loss"])
    True
    """
    check_traces(traces)
    best = [best_of(column(trace, metric), metric, trace.experiment.batch) for trace in traces]
    sign = -1 if rises(metric) else 1
    starts = [trace.initial.get(metric, sign * np.inf) for trace in traces]
    better = [value for value, start in zip(best, starts, strict=True) if sign * value < sign * start]
    return float(sign * np.max(sign * np.array(better or best)))


def position(series: Sequence[Series], reference: str) -> int:
    """Return the index of the reference: the trace with this label, else the first run of this scheme."""
    known = [s.label for s in series]
    if reference in known:
        return known.index(reference)
    schemes = [s.trace.experiment.scheme for s in series]
    if reference in schemes:
        return schemes.index(reference)
    raise unknown_name("reference", reference, known)


def reference_of(series: Sequence[Series], found: Sequence[float]) -> int | None:
    """Return the index of the reference: CR if it reaches the target, else the fastest run that does, else None."""
    met = [i for i, at in enumerate(found) if np.isfinite(at)]
    reduced = [i for i in met if series[i].trace.experiment.scheme == "CR"]
    return min(reduced or met, key=lambda i: found[i], default=None)


def crossing(trace: Trace, metric: str, target: float, x: str = "time") -> float:
    """Return the x value of the first round after which a run is at the target, or NaN."""
    place = reached(trace, metric, target)
    return float("nan") if place is None else float(abscissa(trace, x)[place])


def reached(trace: Trace, metric: str, target: float) -> int | None:
    """Return the first round after which a run is at the target, or None (see `first_reached`)."""
    return first_reached(column(trace, metric), target, metric, trace.experiment.batch)


def ratio(seconds: float, base: float) -> float:
    """Return seconds / base. If `base` is 0, the result is infinite or NaN instead of an error."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return float(np.divide(seconds, base))


def column(trace: Trace, metric: str) -> Array:
    """Return the values of a metric after each round."""
    if not isinstance(metric, str) or metric in _NO_METRICS or metric not in trace.columns:
        raise unknown_name("metric", metric, [name for name in trace.columns if name not in _NO_METRICS])
    return np.asarray(trace.columns[metric], dtype=float)


def abscissa(trace: Trace, x: str) -> Array:
    """Return the x value at the end of each round."""
    if not isinstance(x, str) or x not in AXES:
        raise unknown_name("x", x, list(AXES))
    if x == "round":
        return np.asarray(trace.columns["round"], dtype=float) + 1.0
    values: Any = np.asarray(trace.columns[x], dtype=float)
    return values if x == "time" else np.cumsum(values)


def known(trace: Trace, metric: str, x: str) -> tuple[Array, Array]:
    """Return a run's curve at the rounds in which the metric was evaluated, or all of it if there are none."""
    xs, ys = abscissa(trace, x), column(trace, metric)
    losses = np.asarray(trace.columns.get("loss", ys), dtype=float)
    # rounds without an evaluation are left out; some metrics are NaN at the first model, where the loss is known
    there = ~(np.isnan(ys) & np.isnan(losses))
    return (xs[there], ys[there]) if there.any() else (xs, ys)


def check_target(target: float) -> None:
    """Raise `SettingError` for a target that no metric can reach."""
    check_kind("target", target, float)
    if not np.isfinite(target):
        raise SettingError(f"target = {target}: must be a finite number, a value that the metric can reach")
