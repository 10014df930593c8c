"""Times of a pass over the data, which compare schemes whose rounds use different shares of the data."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

from workbench.analysis.planning.quantities import quantity_of
from workbench.analysis.tables.rows import row_of
from workbench.core.forecasting import Forecast, mean_load
from workbench.core.trace.trace import Trace

MAX_PART = 1 - 1e-9  # larger shares are all of the data, apart from rounding
MAX_EXACT_RESIDUAL = 1e-9  # mean residual up to which every round commits the gradient of all data


def data_share(run: Trace | Forecast) -> float:
    """Return the share of the data in the answers that a round commits, at most 1, averaged over the rounds.

    Old gradients that a lazy scheme such as CADA commits again count as data.

    >>> import numpy as np
    >>> data_share(Forecast(np.ones(4), load=0.25, messages=1.0, bytes=8.0))  # ASGD commits one answer of four
    0.25
    """
    if isinstance(run, Forecast):
        answers = run.messages * (run.load if run.mean_load is None else run.mean_load)
    else:
        found = row_of(run).results
        inexact = found.get("residual", 0.0) > MAX_EXACT_RESIDUAL
        answers = found["messages"] / found["rounds_done"] * _mean_load(run, found) if inexact else 1.0
    return answers if 0 < answers < MAX_PART else 1.0


def _mean_load(trace: Trace, found: Mapping[str, float]) -> float:
    """Return the mean share of the data that a worker processes per round, or the largest if it is unknown."""
    e = trace.experiment
    with suppress(Exception):  # a user-defined scheme may fail
        if (samples := e.problem_spec.declared_samples()) is not None:
            return mean_load(e, samples)
    return found.get("load", 0.0)


def pass_times(forecasts: Mapping[str, Forecast]) -> dict[str, float]:
    """Return the mean time of a pass over the data, s, of each scheme."""
    return {name: f.mean / data_share(f) for name, f in forecasts.items()}


def verdict(forecasts: Mapping[str, Forecast]) -> tuple[str, list[str]]:
    """Return which scheme is the fastest, and remarks on schemes whose rounds use a part of the data."""
    passes = pass_times(forecasts)
    best = min(passes, key=passes.__getitem__)
    notes = [
        f"{name} uses {100 * data_share(f):.3g} % of the data in a round"
        for name, f in forecasts.items()
        if data_share(f) < 1
    ]
    if not notes:
        return f"{best} has the shortest rounds: {quantity_of(passes[best])} on average", notes
    shortest = min(forecasts, key=lambda name: forecasts[name].mean)
    if shortest != best:
        notes.insert(0, f"{shortest} has shorter rounds, {quantity_of(forecasts[shortest].mean)}")
    return f"{best} is the fastest over the data: {quantity_of(passes[best])} a pass", notes
