"""Numerical choice of an optimiser's numbers, as paper 1 does for SGD ("c1 and c2 were numerically optimized").

All schemes of a comparison are tuned, not only the rivals', so that none wins by a better step.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from workbench.engines.arithmetic import Coefficients
from workbench.experiment import Experiment
from workbench.learning import Commits, learn
from workbench.live import checked
from workbench.optimisers import Optimiser, smoothness_of
from workbench.protocol import Array
from workbench.runner import Bar, timeline
from workbench.settings import check_kind


def tune(experiments: Sequence[Experiment], progress: bool = False) -> list[Experiment]:
    """Choose every optimiser's numbers from its grid: least final loss on the experiment's own stragglers.

    The candidates of experiments on the same data are followed in the same passes over it; exact schemes share
    one grid. `progress`: show a bar once it takes over a second. Returns the experiments with the best numbers
    written out.

    >>> from workbench.published import rivals
    >>> tuned = tune(rivals(3, 2, 1, rounds=20))
    >>> sorted(tuned[3].optimiser_args)
    ['c1', 'c2']
    """
    check_kind("progress", progress, bool)
    experiments = checked(experiments)
    tuned = list(experiments)
    problems = [e.build_problem() for e in experiments]
    for problem in {id(p): p for p in problems}.values():
        members = [i for i, p in enumerate(problems) if p is problem]
        smoothness = smoothness_of(problem, "step")
        runs = [(i, o, c) for i in members for o, c in _candidates(experiments[i], smoothness)]
        with Bar("tuning", "round", max(len(c.weights) for *_, c in runs), progress) as bar:
            losses = [run.loss[-1] for run in learn(problem, [c for *_, c in runs], bar.update)]
        for i in members:
            found = [
                (loss, o)
                for (j, o, _), loss in zip(runs, losses, strict=True)
                if j == i and np.isfinite(loss)
            ]
            if found:
                best = min(found, key=lambda pair: pair[0])[1]
                tuned[i] = experiments[i].replace(optimiser_args=best.model_dump(exclude_unset=True))
    return tuned


def _candidates(e: Experiment, smoothness: float) -> list[tuple[Optimiser, Commits]]:
    weights: list[Array | None] = [None] * e.rounds  # what an exact scheme commits, whoever is late
    if not e.build_scheme().exact:
        arithmetic = Coefficients(e.plan)
        timeline(e, arithmetic, events=False)
        weights = arithmetic.weights
    grid = e.build_optimiser().candidates(smoothness)
    return [(optimiser, Commits(optimiser, weights, e.plan.sizes)) for optimiser in grid]
