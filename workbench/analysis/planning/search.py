"""Parameters chosen by trials: a scheme's by the time of a run, an optimiser's by the final loss.

`search` is the search in the paper on sequential gradient coding: every configuration on the same delays, the fastest
first. `tune` does what paper 1 does for SGD ("c1 and c2 were numerically optimized"), but for all schemes of a
comparison, not only for the baselines. So none wins by a better step.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from workbench.core.base.bar import Bar
from workbench.core.base.settings import SettingError, check_kind
from workbench.core.contract.optimisers import Optimiser, smoothness_of
from workbench.core.contract.weights import Decoding
from workbench.core.engine.virtual.arithmetic import Coefficients
from workbench.core.experiment import Experiment
from workbench.core.forecasting import forecast
from workbench.core.problems import Problem
from workbench.core.running.run import checked
from workbench.core.running.simulated import timeline
from workbench.core.theory.sequential import delayed_step
from workbench.core.trace.learning import Commits, Progress, learn


def search(
    experiment: Experiment, settings: Iterable[Mapping[str, Any]]
) -> list[tuple[float, dict[str, Any]]]:
    """Return the seconds of a whole run with each of some settings of its scheme, the least first.

    Settings that do not fit are left out.

    Of settings with equal times, the one with the least load comes first.

    All settings get the experiment's own stragglers: those of its seed, or recorded ones. The scheme's other
    parameters do not change. Follows Krishnan et al. 2023, Appendix, where the delays are those of some rounds
    without a code. No data are read.

    >>> from workbench.core.schemes.sequential import SRSGC
    >>> e = Experiment(scheme="SR-SGC", workers=4, rounds=20, delays={"kind": "markov", "p_slow": 0.1})
    >>> found = search(e, SRSGC.settings(workers=4, longest=2, widest=4))
    >>> found[0][0] == min(seconds for seconds, _ in found), sorted(found[0][1])
    (True, ['burst', 'stragglers', 'window'])

    Raises
    ------
    SettingError
            None of the settings fits.
    """
    found, refused = [], None
    for args in settings:
        try:
            e = experiment.replace(scheme_args={**experiment.scheme_args, **args})
            found.append((float(forecast(e).seconds.sum()), e.load, dict(args)))
        except SettingError as error:
            refused = error
    if not found:
        raise SettingError(f"settings: none fits the experiment ({refused or 'there are none'})")
    found.sort(key=lambda each: (round(each[0], 9), each[1]))
    return [(seconds, args) for seconds, _, args in found]


def tune(experiments: Sequence[Experiment], progress: bool = False) -> list[Experiment]:
    """Choose every optimiser's parameters: least final loss on the experiment's own stragglers.

    The search first uses the optimiser's grid, then values near the best one. With a coarse grid alone, the grid
    would decide which scheme wins. Candidates of experiments on the same data share the passes over it, and exact
    schemes share their candidates. `progress`: show a bar if it takes over a second. Returns the experiments with the
    best parameters filled in.

    >>> from workbench.core.presets.codedreduce import baselines
    >>> tuned = tune(baselines(3, 2, 1, rounds=20))
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
        runs = {i: _run(experiments[i]) for i in members}
        grid = {i: _grid(run.optimiser, smoothness, experiments[i]) for i, run in runs.items()}
        rounds = max(experiments[i].rounds for i in members)
        with Bar("tuning", "round", 2 * rounds, progress) as bar:
            best = _best(problem, runs, grid, bar.update)
            finer = {i: [optimiser, *optimiser.near()] for i, optimiser in best.items()}
            best = _best(problem, runs, finer, partial(_later, bar, rounds))
        for i, optimiser in best.items():
            tuned[i] = experiments[i].replace(optimiser_args=optimiser.model_dump(exclude_unset=True))
    return tuned


def _later(bar: Bar, rounds: int, t: int) -> None:
    bar.update(rounds + t)


def _grid(optimiser: Optimiser, smoothness: float, e: Experiment) -> list[Optimiser]:
    """Return steps around 1 / smoothness; if gradients are of older models, also as small as those tolerate."""
    found: list[Optimiser] = [*optimiser.candidates(smoothness)]
    if lag := e.plan.versions - 1:
        found += optimiser.candidates(smoothness / delayed_step(lag))
    return found


def _run(e: Experiment) -> Commits:
    """Return the commits of every round. An exact scheme commits full gradients, mostly at the round's own model."""
    weights: Sequence[Decoding] = [None] * e.rounds
    if not e.built_scheme.is_exact or e.built_scheme.delayed:
        arithmetic = Coefficients(e.plan)
        timeline(e, arithmetic, events=False)
        weights = arithmetic.weights
    return Commits(e.build_optimiser(), weights, e.plan.sizes)


def _best(
    problem: Problem,
    runs: Mapping[int, Commits],
    tried: Mapping[int, Sequence[Optimiser]],
    progress: Progress,
) -> dict[int, Optimiser]:
    """Return the optimiser with the least final loss of each experiment, without those that have no finite loss."""
    pairs = [(i, optimiser) for i, optimisers in tried.items() for optimiser in optimisers]
    learnt = learn(problem, [replace(runs[i], optimiser=optimiser) for i, optimiser in pairs], progress)
    ends = [(found.loss[-1], *pair) for found, pair in zip(learnt, pairs, strict=True)]
    finite = sorted((end for end in ends if np.isfinite(end[0])), key=lambda end: end[0], reverse=True)
    return {i: optimiser for _, i, optimiser in finite}  # the last entry of an experiment remains
