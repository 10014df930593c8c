"""Parameters chosen by trials: a scheme's by the time of a run, an optimiser's by the final loss.

`search` is the search in the paper on sequential gradient coding: every configuration on the same delays, the fastest
first. `tune` optimises step sizes as paper 1 does for SGD ("c1 and c2 were numerically optimized"). It does so for all
schemes of a comparison, so that none wins by a better step size.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from workbench.analysis.planning.targets import commits_and_ends
from workbench.core.base.bar import Bar
from workbench.core.base.settings import SettingError, check_kind, short, within
from workbench.core.contract.batches import key_of
from workbench.core.contract.optimisers import Optimiser, Schedule, Scheduled, smoothness_of
from workbench.core.contract.optimisers.schedules import schedule_from
from workbench.core.contract.weights import Decoding
from workbench.core.engine.virtual.arithmetic import Numbers
from workbench.core.experiment import Experiment
from workbench.core.forecasting import forecast
from workbench.core.problems.base import Problem, Request
from workbench.core.running.run import checked
from workbench.core.running.simulated import timeline
from workbench.core.theory.sequential import delayed_step
from workbench.core.trace.learning import Commits, Progress, learn

REFINEMENTS = 4  # number of passes of `tune`: one over the grids, and others near the best
# number of optimisers near the best of the grid that are tried per experiment if no budget is given
REFINED = 4


def search(
    experiment: Experiment, settings: Iterable[Mapping[str, Any]]
) -> list[tuple[float, dict[str, Any]]]:
    """Return the seconds of a whole run for each of the given settings of the scheme, the fastest first.

    Settings that do not fit are left out.

    Of settings with equal times, the one with the least load comes first.

    All settings get the experiment's own stragglers: those of its seed, or recorded ones. The scheme's other parameters
    do not change. Follows Krishnan et al. 2023, Appendix, where the delays were recorded in rounds without a code. No
    data are read.

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


def tune(
    experiments: Sequence[Experiment],
    progress: bool = False,
    *,
    budget: int | None = None,
    schedules: str | Mapping[str, Any] | Schedule | Iterable[Any] = (),
) -> list[Experiment]:
    """Choose each optimiser's step size and schedule, by the final loss on the experiment's own stragglers.

    First, every step size of the optimiser's grid is tried with every schedule. Then step sizes near the best are
    tried, until they are no better or the budget is used up. A coarse grid alone would decide by chance which of two
    similar schemes wins. The candidates of experiments on the same data share the passes over it, and exact schemes
    share their results. Schemes whose commits depend on the step size are simulated for each candidate. In local SGD,
    workers and optimiser take the same candidate step size, unless `scheme_args.rate` is given.

    Parameters
    ----------
    experiments
        Experiments to compare.
    progress
        Show a bar if it takes over a second.
    budget
        Max number of optimisers to try for each experiment. None: the largest grid's size, and 4 near the best.
    schedules
        Schedules to choose from: kinds such as "cosine", or their fields. Empty: each experiment's own.

    Returns
    -------
    list
        The experiments with the best step size and schedule in `optimiser_args`, and that of workers in `scheme_args`.

    Raises
    ------
    SettingError
        A budget below the size of a grid, or an unknown schedule.

    Examples
    --------
    >>> from workbench.core.presets.codedreduce import baselines
    >>> tuned = tune(baselines(3, 2, 1, rounds=20))
    >>> sorted(tuned[3].optimiser_args)
    ['c1', 'c2']
    """
    check_kind("progress", progress, bool)
    among = _schedules(schedules)
    experiments = checked(experiments)
    problems = [e.build_problem() for e in experiments]
    grids = [
        _grid(e.build_optimiser(), smoothness_of(problem, "step"), e, among)
        for e, problem in zip(experiments, problems, strict=True)
    ]
    return _chosen(experiments, problems, grids, _budget(budget, experiments, grids), progress)


def _chosen(
    experiments: Sequence[Experiment],
    problems: Sequence[Problem],
    grids: Sequence[Sequence[Optimiser]],
    budget: int,
    progress: bool,
) -> list[Experiment]:
    """Return each experiment with its best optimiser. Experiments on the same data are tried together."""
    tuned, runs = list(experiments), [_run(e) for e in experiments]
    for key, problem in {key_of(p): p for p in problems}.items():
        members = [i for i, p in enumerate(problems) if key_of(p) == key]
        rounds = max(experiments[i].rounds for i in members)
        with Bar("tuning", "round", REFINEMENTS * rounds, progress) as bar:
            tried = {i: grids[i] for i in members}
            best = _refined(
                problem, {i: runs[i] for i in members}, tried, budget, partial(_later, bar, rounds)
            )
            bar.update(REFINEMENTS * rounds)
        for i, optimiser in best.items():
            tuned[i] = _with(experiments[i], optimiser)
    return tuned


def _with(e: Experiment, optimiser: Optimiser) -> Experiment:
    """Return the experiment with an optimiser, and with its step size for workers that take steps (`with_step`)."""
    step = getattr(optimiser, "step", None)
    more = {} if step is None else e.built_scheme.with_step(step)
    return e.replace(
        optimiser_args=optimiser.model_dump(exclude_unset=True), scheme_args={**e.scheme_args, **more}
    )


def _schedules(given: Any) -> list[Schedule]:
    """Return the schedules to choose from. Raise `SettingError` for an invalid one."""
    alone = isinstance(given, str | Mapping | Schedule) or not isinstance(given, Iterable)
    found = []
    for each in [given] if alone else given:
        fields = {"kind": each} if isinstance(each, str) else each
        if not isinstance(fields, Schedule) and not (isinstance(fields, Mapping) and "kind" in fields):
            why = "is not a schedule; give a kind, such as 'cosine', or fields with a kind"
            raise SettingError(f"schedules = {short(each)}: {why}")
        with within("schedules"):
            found.append(schedule_from(fields))
    return found


def _budget(
    budget: int | None, experiments: Sequence[Experiment], grids: Sequence[Sequence[Optimiser]]
) -> int:
    """Return the max number of optimisers per experiment. Raise `SettingError` if a grid has more."""
    sizes = [len(grid) for grid in grids]
    largest = max(sizes, default=0)
    if budget is None:
        return largest + REFINED
    check_kind("budget", budget, int)
    if budget < largest:
        e = experiments[sizes.index(largest)]
        raise SettingError(
            f"budget = {budget}: the grid of {e.scheme} with {e.optimiser} has {largest} optimisers, steps times"
            f" schedules; take {largest} or more, or fewer schedules"
        )
    return budget


def _grid(
    optimiser: Optimiser, smoothness: float, e: Experiment, among: Sequence[Schedule]
) -> list[Optimiser]:
    """Return optimisers with step sizes around 1 / smoothness and each schedule; more steps if gradients are stale."""
    found: list[Optimiser] = [*optimiser.candidates(smoothness)]
    if lag := e.plan.versions - 1:
        found += optimiser.candidates(smoothness / delayed_step(lag))
    scheduled = [each for each in found if isinstance(each, Scheduled)] if among else []
    return [each.replace(schedule=s).for_rounds(e.rounds) for s in among for each in scheduled] or found


def _refined(
    problem: Problem,
    runs: Mapping[int, Commits | Experiment],
    grids: Mapping[int, Sequence[Optimiser]],
    budget: int,
    progress: Callable[[int, int], None],
) -> dict[int, Optimiser]:
    """Return each experiment's best optimiser, after a pass over its grid and passes near the best so far.

    `progress` is called with the number of the pass and the number of the round.
    """
    tried = {i: {_key(optimiser) for optimiser in grid} for i, grid in grids.items()}
    found = best = _best(problem, runs, grids, partial(progress, 0))
    for stage in range(1, REFINEMENTS):
        finer: dict[int, list[Optimiser]] = {}
        for i, optimiser in found.items():
            new = [each for each in optimiser.near() if _key(each) not in tried[i]]
            if new := new[: budget - len(tried[i])]:
                finer[i] = [optimiser, *new]
                tried[i] |= {_key(each) for each in new}
        if not finer:
            break
        found = _best(problem, runs, finer, partial(progress, stage))
        best = best | found
    return best


def _key(optimiser: Optimiser) -> str:
    """Return an optimiser's parameters as text, rounded, so that equal step sizes give equal text."""
    numbers = optimiser.model_dump(mode="json").items()
    return repr([(name, f"{x:.9g}" if isinstance(x, float) else x) for name, x in numbers])


def _later(bar: Bar, rounds: int, stage: int, t: int) -> None:
    bar.update(stage * rounds + t)


def _run(e: Experiment) -> Commits | Experiment:
    """Return the commits of every round, or the experiment itself if the commits depend on the optimiser.

    An exact scheme commits full gradients, mostly at the round's own model.
    """
    e.problem_spec.check_exact("tuning")
    if e.built_scheme.numeric and not e.built_scheme.is_exact:
        return e
    weights: Sequence[Decoding] = [None] * e.rounds
    shares: Sequence[float] = ()
    if not e.built_scheme.is_exact or e.built_scheme.delayed:
        commits, _ = commits_and_ends(e)
        weights, shares = commits.weights, commits.shares
    # evaluated only after the last round, because only the last loss is used
    return Commits(e.build_optimiser(), weights, e.plan.sizes, e.rounds, shares)


def _best(
    problem: Problem,
    runs: Mapping[int, Commits | Experiment],
    tried: Mapping[int, Sequence[Optimiser]],
    progress: Progress,
) -> dict[int, Optimiser]:
    """Return the optimiser with the least final loss of each experiment, without those that have no finite loss."""
    ends, pairs, commits = [], [], []
    for i, optimiser in ((i, each) for i, optimisers in tried.items() for each in optimisers):
        run = runs[i]
        if isinstance(run, Experiment):
            ends.append((_simulated(_with(run, optimiser), problem), i, optimiser))
        else:
            pairs.append((i, optimiser))
            commits.append(replace(run, optimiser=optimiser))
    learnt = learn(problem, commits, progress)
    ends += [(found.loss[-1], *pair) for found, pair in zip(learnt, pairs, strict=True)]
    finite = sorted((end for end in ends if np.isfinite(end[0])), key=lambda end: end[0], reverse=True)
    return {i: optimiser for _, i, optimiser in finite}  # the last entry of each experiment counts


def _simulated(e: Experiment, problem: Problem) -> float:
    """Return the final loss of a run whose commits depend on the models; not finite if it diverges."""
    numbers = Numbers(e.plan, problem, e.build_optimiser(), e.seed, keep=False)
    with np.errstate(over="ignore", invalid="ignore"):
        timeline(e, numbers, events=False)
        return problem.evaluate([Request(numbers.models[-1], gradient=False)])[0].loss
