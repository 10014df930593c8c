"""Measured column: the same programs on real processes of this machine, at scaled settings.

A cluster of 84 or 156 machines is not available, so trees are smaller, and times are divided such that a round takes
some hundredths of a second. Drawn computing and link times are added to the real ones. Measurements are compared with
the same rounds on the virtual clock. Where nothing but the times was changed, the book shows both columns multiplied
by the divisor again.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from workbench.core.base.errors import RunError
from workbench.core.base.settings import SettingError
from workbench.core.experiment import Experiment
from workbench.core.forecasting import forecast
from workbench.core.presets.codedreduce import Preset, baselines
from workbench.core.running import start as runner
from workbench.core.trace.trace import Trace
from workbench_book.setting import Setting

ROUND = 0.05  # s per round of CR with scaled settings
MANY_CORES = 16  # with fewer cores, the messages of a ring of 84 processes are too late
ROUNDS, WARM_UP = 24, 4  # measured rounds, and ignored first rounds
CLUSTER = "local"
NO_ENGINE = "not measured: there is no engine 'mpi' in this installation"
SWITCHED_OFF = "not measured: real runs are switched off here"
NOT_QUICK = "not measured in the quick form"


@dataclass(frozen=True)
class Measured:
    """Real runs, and the same runs on the virtual clock, by label. Without runs, `note` is the reason.

    `divided`: divisor of all times.
    """

    note: str
    real: Mapping[str, Trace] = field(default_factory=dict)
    simulated: Mapping[str, Trace] = field(default_factory=dict)
    divided: float = 1.0

    def specs(self) -> dict[str, Experiment]:
        """Return the measured experiments, by label."""
        return {f"{label}, measured": trace.experiment for label, trace in self.real.items()}

    def values(self, label: str, of: Callable[[Trace], float]) -> dict[str, float]:
        """Return the columns "scaled" and "measured" of a line, or an empty dict if the label was not measured."""
        if label not in self.real:
            return {}
        return {"scaled": of(self.simulated[label]), "measured": of(self.real[label])}

    def seconds(self, label: str) -> dict[str, float]:
        """Return the mean seconds of a round, multiplied by the divisor."""
        return {column: self.divided * value for column, value in self.values(label, per_round).items()}

    def ratio(self, label: str, base: str) -> dict[str, float]:
        """Return the mean time of a round of `label` divided by that of `base`, by column."""
        over = self.values(base, per_round)
        return {column: value / over[column] for column, value in self.values(label, per_round).items()}


def measure(experiments: Mapping[str, Experiment], setting: Setting, divided: float = 1.0) -> Measured:
    """Run experiments on real processes of this machine, and on the virtual clock.

    Parameters
    ----------
    experiments
        Experiments by label. Their delays and links are emulated, so they should be scaled (see `scaled`, `sped_up`).
    setting
        Options of the book. Without `measure`, nothing is run.
    divided
        Divisor by which the times of the experiments were divided.

    Returns
    -------
    Measured
        If the engine "mpi" is missing, or this machine cannot run it, there are no runs, and `note` has the reason.
    """
    if not setting.measure:
        return Measured(SWITCHED_OFF)
    if "mpi" not in runner.ENGINES:
        return Measured(NO_ENGINE)
    simulated = {label: runner.run(e, events=False) for label, e in experiments.items()}
    try:
        with TemporaryDirectory() as folder:
            real = {
                label: runner.run(e, engine="mpi", events=False, cluster=CLUSTER, folder=f"{folder}/{number}")
                for number, (label, e) in enumerate(experiments.items())
            }
    except (RunError, SettingError, OSError) as error:
        return Measured(f"not measured: {error}")
    return Measured(note(list(real.values())), real, simulated, divided)


def per_round(trace: Trace) -> float:
    """Return the mean seconds of a round, without the first rounds, in which caches are filled."""
    times = np.asarray(trace.columns["time"])
    first = min(WARM_UP, len(times) - 1)
    begun = times[first - 1] if first else 0.0
    return float((times[-1] - begun) / (len(times) - first))


def note(traces: Sequence[Trace]) -> str:
    """Describe how the column was measured, and how often the machine was slower than the drawn times."""
    sizes = sorted({trace.experiment.workers for trace in traces})
    rounds = sorted({len(trace.columns["round"]) for trace in traces})
    late = [float(np.mean(trace.columns["overrun"])) / trace.experiment.workers for trace in traces]
    times = f"{min(late):.2g} to {max(late):.2g} times per worker and round" if max(late) else "nowhere"
    return (
        f"measured: {_listed(sizes)} real worker processes on {os.cpu_count()} cores of this machine, MPI messages,"
        f" drawn computing times and links put on top; {_listed(rounds)} rounds, of whose times the first {WARM_UP}"
        f" are not counted. Computing took longer than drawn {times}"
    )


def joint_note(parts: Sequence[Measured]) -> str:
    """Return one note for several measurements."""
    traces = [trace for part in parts for trace in part.real.values()]
    missing = dict.fromkeys(part.note for part in parts if not part.real)
    return "; ".join([*([note(traces)] if traces else []), *missing])


def _listed(numbers: Sequence[int]) -> str:
    """Join numbers with commas and "and".

    >>> _listed([10, 15, 20])
    '10, 15 and 20'
    """
    *most, last = map(str, numbers)
    return f"{', '.join(most)} and {last}" if most else last


def scaled(preset: Preset, setting: Setting) -> tuple[dict[str, Experiment], float]:
    """Return a figure's five experiments by scheme, small enough for one machine, and the divisor of their times.

    The quick form has 12 workers, (3, 2). Otherwise the tree of 156 becomes (6, 2), 42 workers, with the nearest
    number of stragglers, and the (4, 3) tree becomes (4, 2), 20 workers. With `MANY_CORES`, the (4, 3) tree is not
    changed. Times are divided so that a round of CR takes about `ROUND`.
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
    small = baselines(children, layers, late, **common)
    return sped_up({e.scheme: e for e in small}, ROUND, "CR")


def tree(args: dict[str, Any], quick: bool, cores: int) -> tuple[int, int, int]:
    """Return children, layers and stragglers of the tree that replaces a larger one on one machine.

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
    """Scale the computing times per sample by a factor, so that a smaller data set takes the same seconds."""
    per_sample = {"shift": factor, "rate": 1 / factor}
    return {k: v * per_sample[k] if k in per_sample else v for k, v in delays.items()}


def spread_link(link: dict[str, Any], factor: float) -> dict[str, Any]:
    """Return a link on which a message takes the same seconds although it is shorter by `factor`."""
    return {**link, "bandwidth": link["bandwidth"] and link["bandwidth"] / factor}


def sped_up(
    experiments: Mapping[str, Experiment], target: float, reference: str
) -> tuple[dict[str, Experiment], float]:
    """Divide all times so that a round of `reference` takes `target` s on average. Return the divisor as well."""
    factor = forecast(experiments[reference], rounds=200).mean / target
    return {label: faster(e, factor) for label, e in experiments.items()}, factor


def faster(e: Experiment, factor: float) -> Experiment:
    """Divide every drawn time, latency, transfer and deadline of an experiment by a factor."""
    up = {"rate", "lambda1", "lambda2"}
    down = {"shift", "t1", "t2", "mean", "scale"}
    delays = {
        k: v * factor if k in up else v / factor if k in down else v for k, v in e.delays.model_dump().items()
    }
    link = e.link.model_dump()
    link |= {
        "latency": link["latency"] / factor,
        "bandwidth": link["bandwidth"] and link["bandwidth"] * factor,
    }
    args = {k: v / factor if k == "deadline" and v else v for k, v in e.scheme_args.items()}
    return e.replace(delays=delays, link=link, scheme_args=args)
