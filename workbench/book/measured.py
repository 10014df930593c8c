"""The column that is measured: the same programs on real processes of this machine, at scaled settings.

A real cluster of 84 or 156 machines is not there, so trees are cut down and times divided, such that a round of CR
takes about `ROUND` seconds; computing times and links are drawn and put on top of what really happens. What is
compared is the ratio of times per round, with the same ratio on the virtual clock at the same scaled settings.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from workbench import runner
from workbench.book.setting import Setting
from workbench.errors import RunError
from workbench.experiment import Experiment
from workbench.forecasting import forecast
from workbench.published import Preset, rivals
from workbench.settings import SettingError

ROUND = 0.05  # s that a round of CR takes when scaled
MANY_CORES = 16  # fewer cannot pass a ring's messages among 84 processes in time
ROUNDS, WARM_UP = 24, 4  # rounds measured, and the first ones that are not counted
CLUSTER = "local"
NO_ENGINE = "not measured: there is no engine 'mpi' in this installation"
SWITCHED_OFF = "not measured: real runs are switched off here"


@dataclass(frozen=True)
class Measured:
    """Seconds per round by label, in order; empty with a note that says why."""

    seconds: dict[str, float]
    note: str


def measure(experiments: dict[str, Experiment], setting: Setting) -> Measured:
    """Run experiments on real processes of this machine and take the mean time per round, the warm-up left out.

    Parameters
    ----------
    experiments
        By label; their delays and links are emulated, so take scaled ones (`scaled`, `sped_up`).
    setting
        Its `measure` says whether real runs are wanted.

    Returns
    -------
    Measured
        Seconds by label. Where `workbench.runner.ENGINES` has no "mpi", or the machine cannot run it, `seconds`
        is empty and the note says so.
    """
    if not setting.measure:
        return Measured({}, SWITCHED_OFF)
    if "mpi" not in runner.ENGINES:
        return Measured({}, NO_ENGINE)
    found: dict[str, float] = {}
    overrun: dict[str, float] = {}
    try:
        for label, experiment in experiments.items():
            trace = runner.run(experiment, engine="mpi", events=False, cluster=CLUSTER)
            found[label] = per_round(trace)
            overrun[label] = float(np.sum(trace.columns["overrun"])) / (
                len(trace.columns["time"]) * experiment.workers
            )
    except (RunError, SettingError, OSError) as error:
        return Measured({}, f"not measured: {error}")
    return Measured(found, note(list(experiments.values()), overrun))


def per_round(trace: Any) -> float:
    """Mean seconds of a round, without the first ones, in which processes and caches warm up."""
    times = np.asarray(trace.columns["time"])
    first = min(WARM_UP, len(times) - 1)
    return float((times[-1] - times[first]) / max(len(times) - 1 - first, 1))


def note(experiments: Sequence[Experiment], overrun: dict[str, float]) -> str:
    """Say how the measured column came about, and how often the machine was slower than what was drawn."""
    sizes = sorted({e.workers for e in experiments})
    low, high = min(overrun.values()), max(overrun.values())
    return (
        f"measured: {' and '.join(map(str, sizes))} real worker processes on {os.cpu_count()} cores of this machine,"
        " MPI messages, drawn computing times and links put on top;"
        f" {experiments[0].rounds} rounds, the first {WARM_UP} not counted. Computing really took longer than drawn"
        f" {low:.2g} to {high:.2g} times per worker and round"
    )


def scaled(preset: Preset, setting: Setting) -> dict[str, Experiment]:
    """A figure's five experiments, small enough for one machine, by scheme.

    12 workers (3, 2) in the quick form. Else the tree of 156 becomes (6, 2), 42 workers, with the nearest number of
    stragglers, and the (4, 3) tree (4, 2), 20 workers; with `MANY_CORES` it stays what it is. Times are divided so that
    a round of CR takes about `ROUND`.
    """
    children, layers, late = tree(preset["CR"].scheme_args, setting.quick, os.cpu_count() or 1)
    first = preset[0]
    samples, floats = first.shape()
    common: dict[str, Any] = {
        "problem": "least_squares",
        "problem_args": {"data": "synthetic", "samples": 2000, "features": 50},
        "rounds": ROUNDS,
        "seed": setting.seed,
        "delays": spread(first.delays.model_dump(), samples / 2000),
        "link": spread_link(first.link.model_dump(), floats / 50),
    }
    small = rivals(children, layers, late, **common)
    return sped_up({e.scheme: e for e in small}, ROUND, "CR")


def tree(args: dict[str, Any], quick: bool, cores: int) -> tuple[int, int, int]:
    """Children, layers and stragglers of the tree that stands for a larger one on a machine with so many cores.

    >>> tree({"children": 12, "layers": 2, "stragglers": 3}, quick=False, cores=2)
    (6, 2, 2)
    """
    n, depth, s = args["children"], args["layers"], args["stragglers"]
    if quick:
        return 3, 2, 1
    if n <= 4:
        return n, depth if cores >= MANY_CORES else 2, s
    return 6, depth, max(1, round(6 * s / n))


def spread(delays: dict[str, Any], factor: float) -> dict[str, Any]:
    """Computing times of so many times more samples, each: the same seconds for a smaller data set."""
    per_sample = {"shift": factor, "rate": 1 / factor}
    return {k: v * per_sample[k] if k in per_sample else v for k, v in delays.items()}


def spread_link(link: dict[str, Any], factor: float) -> dict[str, Any]:
    """A link on which a message that is so many times shorter takes the same seconds."""
    return {**link, "bandwidth": link["bandwidth"] and link["bandwidth"] / factor}


def sped_up(experiments: dict[str, Experiment], target: float, reference: str) -> dict[str, Experiment]:
    """All times divided by one number, so that a round of `reference` takes `target` seconds on average."""
    now = forecast(experiments[reference], rounds=200).mean
    return {label: faster(e, now / target) for label, e in experiments.items()}


def faster(e: Experiment, factor: float) -> Experiment:
    """Every drawn time, latency and transfer of an experiment divided by a factor."""
    up = {"rate", "lambda1", "lambda2"}
    down = {"shift", "t1", "t2", "mean"}
    delays = {
        k: v * factor if k in up else v / factor if k in down else v for k, v in e.delays.model_dump().items()
    }
    link = e.link.model_dump()
    link |= {
        "latency": link["latency"] / factor,
        "bandwidth": link["bandwidth"] and link["bandwidth"] * factor,
    }
    return e.replace(delays=delays, link=link)
