"""One example of every figure of the package, for tests of properties that all figures have."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import plotly.graph_objects as go

import workbench as wb
from tests.support.figure_runs import experiment
from workbench.analysis.planning.advice import Advice
from workbench.analysis.planning.measuring import simulated
from workbench.analysis.planning.planner import plan
from workbench.analysis.planning.profile import ClusterProfile
from workbench.analysis.recordings import load
from workbench.analysis.recordings.diagnosis import diagnose
from workbench.analysis.tables.table import Runs
from workbench.lab import figures as draw
from workbench.lab.figures import SchemeGrid

TREE = {"children": 3, "layers": 2, "stragglers": 1}


@cache
def traces() -> tuple[wb.Trace, ...]:
    args = {"UMW": {}, "GC": {"stragglers": 2}, "CR": TREE}
    return tuple(
        wb.compare(
            [experiment(scheme, own, rounds=6, seed=s) for scheme, own in args.items() for s in range(2)]
        )
    )


@cache
def runs() -> Runs:
    root = Path(tempfile.mkdtemp())
    for number, trace in enumerate(traces()):
        trace.save(root / f"{number}")
    return wb.runs(root)


@cache
def measured() -> ClusterProfile:
    truth = experiment("UMW", workers=4, delays={"kind": "heterogeneous", "slow": 0.3, "slow_straggles": 0.9})
    return simulated(truth, rounds=12, resamples=2)


@cache
def advice() -> Advice:
    small, schemes = {"samples": 120, "features": 50}, ["UMW", "GC", "CR", "RAR", "SGD", "FRC"]
    return plan(measured(), problem_args=small, schemes=schemes, rounds=5, effort=0)


GRID = SchemeGrid(
    ("UMW", "CR"),
    (Fraction(0), Fraction(1, 4)),
    (0.0, 1e-3),
    np.array([[[1, 2], [3, 1.5]], [[2, 1], [1, 3]]]),
)
EVERY: dict[str, Callable[[Any], go.Figure]] = {
    "bands": lambda theme: draw.bands(runs().mean("time", by=["scheme"]), theme=theme),
    "cluster": lambda theme: draw.cluster(measured(), theme=theme),
    "code": lambda theme: draw.code(traces()[-1].experiment, theme=theme),
    "convergence": lambda theme: draw.convergence(
        traces()[::2], target=float(traces()[0].columns["loss"][-1]), theme=theme
    ),
    "convergence_bands": lambda theme: draw.convergence_bands(traces(), theme=theme),
    "culprits": lambda theme: draw.culprits(diagnose(traces()[0]), theme=theme),
    "lateness": lambda theme: draw.lateness(load(traces()[0]), theme=theme),
    "gantt": lambda theme: draw.gantt(traces()[-1], 1, theme=theme),
    "allocation": lambda theme: draw.allocation(traces()[-1].experiment, 3, theme=theme),
    "importance": lambda theme: draw.importance(runs(), theme=theme),
    "parallel": lambda theme: draw.parallel(runs(), theme=theme),
    "ranking": lambda theme: draw.ranking(advice(), theme=theme),
    "round_times": lambda theme: draw.round_times(traces()[::2], theme=theme),
    "stream": lambda theme: draw.stream(traces()[-1], theme=theme),
    "tree": lambda theme: draw.tree(traces()[-1].experiment, theme=theme),
    "tree of a ring": lambda theme: draw.tree(experiment("RAR"), theme=theme),
    "tree of many": lambda theme: draw.tree(
        wb.Experiment(scheme="CR", workers=84, scheme_args={"children": 4, "layers": 3}), theme=theme
    ),
    "weights": lambda theme: draw.weights(traces()[-1], 3, theme=theme),
    "phase_diagram": lambda theme: draw.phase_diagram(GRID, Fraction(1, 8), 1e-3, theme=theme),
}
