"""Results before a run: forecasts of every scheme, and the fastest scheme over a grid of settings."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from workbench.core.base.settings import SettingError
from workbench.core.contract.scheme import marked
from workbench.core.experiment import Experiment
from workbench.core.forecasting import Forecast, forecast
from workbench.core.trace.trace import name_of_run
from workbench.lab.figures.inputs import labels
from workbench.lab.figures.passes import data_share
from workbench.lab.figures.scheme_grid import SchemeGrid
from workbench.lab.widgets.forms.setup import Setup, Shape, judge, with_shape

# max number of computing times drawn for a forecast (rounds times workers), because a slider waits for it
DRAWS_PER_FORECAST = 4_000
MIN_FORECAST_ROUNDS, MAX_FORECAST_ROUNDS = 8, 100  # min and max number of rounds of a forecast
LATENCIES = (0.0, *(float(x) for x in np.geomspace(1e-5, 1.0, 11).round(9)))  # s
MAX_ALPHAS = 8
GRID_ROUNDS = 24


@dataclass(frozen=True)
class Planned:
    """Experiment that has not been run, with a label for legends."""

    experiment: Experiment
    engine: str = ""

    @property
    def label(self) -> str:
        """Name of the scheme, or of an adaptive run."""
        return name_of_run(self.experiment)


@dataclass(frozen=True)
class Ahead:
    """Forecast of a scheme, or the reason why there is none."""

    name: str
    experiment: Experiment
    forecast: Forecast | None
    reason: str = ""


def names_of(experiments: Sequence[Experiment]) -> list[str]:
    """Return names for legends; experiments of one scheme are distinguished by their settings.

    Schemes that follow only the abstract of their paper are marked.

    >>> names_of([Experiment(scheme="GC", scheme_args={"stragglers": s}) for s in (1, 2)])
    ['GC stragglers=1', 'GC stragglers=2']
    >>> names_of([Experiment(scheme="DBW")])
    ['DBW†']
    """
    found = labels([Planned(e) for e in experiments])
    return [marked(label, e.scheme) for label, e in zip(found, experiments, strict=True)]


def look_ahead(
    experiments: Sequence[Experiment], rounds: int | None = None, known: Sequence[Ahead] = ()
) -> list[Ahead]:
    """Forecast every experiment on the same draws. Faults are ignored, since forecasts refuse those that change times.

    `known`: earlier results. Experiments among them are not forecast again.
    """
    found = []
    for name, e in zip(names_of(experiments), experiments, strict=True):
        count = rounds or max(MIN_FORECAST_ROUNDS, min(MAX_FORECAST_ROUNDS, DRAWS_PER_FORECAST // e.workers))
        same = next((a for a in known if _holds(a, e, count)), None)
        found.append(replace(same, name=name) if same else _ahead(name, e, count))
    return found


def _holds(known: Ahead, e: Experiment, rounds: int) -> bool:
    """Return whether a result is still valid for an experiment. A file of recorded times may have changed."""
    if known.forecast is None or len(known.forecast.seconds) != rounds:
        return False
    # compared, because the class of the scheme may have been replaced
    same = known.experiment == e and known.experiment.built_scheme == e.built_scheme
    return same and known.experiment.delays == e.delays and not hasattr(e.delays, "path")


def _ahead(name: str, e: Experiment, rounds: int) -> Ahead:
    try:
        return Ahead(name, e, forecast(e.replace(faults=()) if e.faults else e, rounds=rounds))
    except (ValueError, OSError) as error:  # data that cannot be read raise these
        return Ahead(name, e, None, str(error))


def alphas_of(shape: Shape) -> list[int]:
    """Return the numbers of stragglers to try: all numbers if a parent has few children, else an even selection."""
    most = shape.children - 1
    return sorted({round(s) for s in np.linspace(0, most, min(MAX_ALPHAS, most + 1))})


def forecast_grid(
    setup: Setup, shape: Shape, workers: int, progress: Callable[[float], bool] = lambda share: True
) -> SchemeGrid | None:
    """Forecast every scheme over straggler fractions and latencies, on the same draws.

    `progress` is called with the finished share. If it returns False, the work is cancelled, and the result is None.
    """
    able = [
        (entry, v.experiment) for entry, v in zip(setup.entries, judge(setup), strict=True) if v.experiment
    ]
    names, entries = names_of([e for _, e in able]), [entry for entry, _ in able]
    tried = alphas_of(shape)
    seconds = np.full((len(tried), len(LATENCIES), len(entries)), np.nan)
    link = dict(setup.common.get("link") or {})
    bare = Setup(tuple(entries), setup.common)
    for i, s in enumerate(tried):
        here = with_shape(bare, shape.replace(stragglers=s), workers)
        for j, latency in enumerate(LATENCIES):
            if not progress((i * len(LATENCIES) + j) / (len(tried) * len(LATENCIES))):
                return None
            there = Setup(here.entries, {**here.common, "link": {**link, "latency": latency}, "faults": ()})
            seconds[i, j] = list(_means(there))
    alphas = tuple(shape.replace(stragglers=s).alpha for s in tried)
    return SchemeGrid(tuple(names), alphas, LATENCIES, seconds)


def _means(setup: Setup) -> Iterator[float]:
    for verdict in judge(setup):
        try:
            if verdict.experiment is None:
                raise SettingError(verdict.reason)
            found = forecast(verdict.experiment, rounds=GRID_ROUNDS)
            yield found.mean / data_share(found)
        except (ValueError, OSError):
            yield float("nan")
