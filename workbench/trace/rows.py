"""What the table of all runs is made of: the run folders there are, settings and results of each."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from workbench.base.settings import SettingError
from workbench.base.sums import check_sums
from workbench.base.text import read_json
from workbench.engines.timeline import COUNTS
from workbench.experiment import Experiment
from workbench.trace.layout import PLAN, ROUNDS, RUN, SPEC, STATUS, TRACE
from workbench.trace.status import Status, is_running, run_names

if TYPE_CHECKING:
    import pandas as pd

# Over the rounds; `residual`: their mean.
_SUMMED = (*COUNTS, "overrun", "rejected", "abandoned")


@dataclass(frozen=True)
class Place:
    """Where a run lies: its name, how it stands, the folder that `Trace.load` reads."""

    name: str
    status: Status
    folder: Path


def places(root: Path) -> Iterator[Place]:
    """All runs below a folder: those of a sweep in its order, else by name."""
    for here, below, files in os.walk(root):
        folder = Path(here)
        below.sort()
        if PLAN in files:
            order = {name: i for i, name in enumerate(run_names(folder))}
            below.sort(key=lambda name, order=order: (order.get(name, len(order)), name))  # type: ignore[misc]
        name = folder.relative_to(root).as_posix() if folder != root else root.resolve().name
        if STATUS in files:
            below.clear()
            yield Place(name, _status(folder), folder / TRACE)
        elif SPEC in files and RUN in files:
            below.clear()
            yield Place(name, Status("done"), folder)


def _status(folder: Path) -> Status:
    """A run that says it is running in a sweep that is no longer there was killed."""
    status = Status.read(folder)
    if status is None:
        return Status("damaged", error=f"{STATUS} cannot be read")
    if status.state == "running" and not is_running(folder.parent):
        return replace(status, state="unfinished", error="the sweep was killed while it ran")
    return status


def read(place: Place, target: float | None, metric: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Settings and results of a run; of one that is not done, what it was asked for."""
    status = place.status
    chosen: dict[str, Any] = {"engine": status.engine, "cluster": status.cluster}
    try:
        if status.state != "done":
            return {**chosen, **(settings_of(Experiment(**status.spec)) if status.spec else {})}, {}
        check_sums(place.folder, (SPEC, RUN, ROUNDS))
        chosen["engine"] = str(read_json(place.folder / RUN, "engine")["engine"])
        chosen.update(settings_of(Experiment.read(place.folder / SPEC)))
        rounds = _rounds(place.folder)
        return chosen, {**_results(rounds), **({} if target is None else _reached(rounds, target, metric))}
    except Exception as error:  # whatever lies there, the other runs are to be seen
        kind = "" if isinstance(error, SettingError) else f"{type(error).__name__}: "
        return chosen, {"state": "damaged", "error": kind + " ".join(str(error).split())}


def _rounds(folder: Path) -> pd.DataFrame:
    import pandas as pd

    rounds = pd.read_parquet(folder / ROUNDS)
    if rounds.empty:
        raise SettingError("no round was finished")
    return rounds


def settings_of(experiment: Experiment) -> dict[str, Any]:
    """Every setting by its dotted name, those that were left at their defaults too.

    >>> settings_of(Experiment(scheme="GC", scheme_args={"stragglers": 2}))["scheme_args.stragglers"]
    2
    """
    e, flat = experiment, dict[str, Any]()
    parts = {"scheme": e.built_scheme, "problem": e.problem_spec, "optimiser": e.build_optimiser()}
    nested = e.model_dump(mode="json")
    nested |= {f"{name}_args": part.model_dump(mode="json") for name, part in parts.items()}
    for name, value in nested.items():
        inner = {f".{key}": item for key, item in value.items()} if isinstance(value, dict) else {"": value}
        for key, item in inner.items():
            flat[f"{name}{key}"] = json.dumps(item) if isinstance(item, list | tuple | dict) else item
    return flat


def _results(rounds: pd.DataFrame) -> dict[str, Any]:
    time = float(rounds["time"].iloc[-1])
    found: dict[str, Any] = {"time": time, "round_time": time / len(rounds)}
    for name in map(str, rounds.select_dtypes("number")):
        if name not in ("round", "time"):
            column = rounds[name]
            last = column.mean() if name == "residual" else column.iloc[-1]
            found[name] = column.sum() if name in _SUMMED else last
    return found


def _reached(rounds: pd.DataFrame, target: float, metric: str) -> dict[str, float]:
    hits = np.flatnonzero(rounds[metric].to_numpy() <= target if metric in rounds else [])
    if not len(hits):
        return {"time_to": np.nan, "rounds_to": np.nan}
    return {"time_to": float(rounds["time"].iloc[hits[0]]), "rounds_to": float(hits[0] + 1)}
