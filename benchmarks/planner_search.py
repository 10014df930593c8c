"""Search for the fastest setting on a cluster without the planner: every scheme of the registry, from coarse to fine.

The planner's forecasts, resamples and shares of effort are not used. A setting is a scheme with its parameters and an
optimiser with its step size. In the first pass, the parameters of all schemes are those of `Scheme.candidates`. In the
second one, the gaps between these numbers are filled for schemes near the best. Both passes have two seeds, and step
sizes a factor of 2 apart over the whole range. In the third pass, the best settings get more seeds, and finer step
sizes. Runs end after `LIMIT_RATIO` times the best time so far. The caller compares the result with a plan on new seeds.
"""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

import workbench as wb
from workbench.analysis.planning.race import Race
from workbench.analysis.planning.targets import commits_and_ends
from workbench.core import schemes
from workbench.core.base.types import Array
from workbench.core.contract.optimisers import Optimiser
from workbench.core.engine.timeline import Timeline
from workbench.core.engine.virtual.arithmetic import Numbers
from workbench.core.problems.base import Request
from workbench.core.running.simulated import timeline
from workbench.core.trace.learning import Commits, Trajectories, learn
from workbench.core.trace.metrics import first_reached

FIRST_SEEDS, LAST_SEEDS = (
    range(9000, 9002),
    range(9000, 9008),
)  # seeds of the first two passes, and of the last one
NEAR_RATIO = 1.5  # schemes within this multiple of the best time get all parameters
FINALISTS, FINALISTS_PER_SCHEME = 8, 3  # max settings of the last pass
LIMIT_RATIO = (
    1.8  # runs end after this multiple of the best time so far, at first of that of the plan's first choice
)
MAX_ROUNDS = 3000
# step sizes, as multiples of 1/L, for commits of gradients
STEPS = tuple(2.0**k for k in range(-1, 11))
FINE = tuple(2.0 ** (k / 3) for k in (-2, -1, 0, 1, 2))
DENSE = 12  # gaps up to this number are filled with all whole numbers, others with a factor of about 1.4
NUMERIC_TRIES = (
    8  # number of step sizes of a numeric scheme, by factors of 2 from the middle in the better direction
)

FORK = multiprocessing.get_context("fork")  # settings hold functions, which cannot be sent
# Experiment, seed -> the experiment with the delays of a cluster
Where = Callable[[wb.Experiment, int], wb.Experiment]


class Found(NamedTuple):
    """Setting with its optimiser, and its mean seconds to the target."""

    seconds: float
    experiment: wb.Experiment
    optimiser: Optimiser

    @property
    def name(self) -> str:
        """Scheme and parameters."""
        args = ", ".join(f"{name}={value}" for name, value in self.experiment.scheme_args.items())
        return f"{self.experiment.scheme} {args}".strip()

    @property
    def chosen(self) -> wb.Experiment:
        """Experiment with the optimiser's parameters."""
        args = self.optimiser.model_dump(exclude_unset=True)
        return self.experiment.replace(optimiser=self.optimiser.name, optimiser_args=args)


@dataclass
class Search:
    """Search for the setting that is the fastest to a loss. `seconds`: time of the plan's first choice.

    `jobs`: number of processes.
    """

    base: wb.Experiment
    where: Where
    loss: float
    seconds: float
    names: Sequence[str] | None = None
    jobs: int = 1

    def __post_init__(self) -> None:
        self.problem = self.base.build_problem()
        self.smoothness = self.problem.smoothness()
        self._fastest = FORK.Value("d", self.seconds)  # of all processes

    @property
    def fastest(self) -> float:
        """Best seconds so far."""
        return self._fastest.value

    def _found(self, seconds: float) -> None:
        with self._fastest.get_lock():
            self._fastest.value = min(seconds, self._fastest.value)

    def best(self, also: Sequence[wb.Experiment] = ()) -> list[Found]:
        """Return the settings of the last pass, the fastest first. `also`: further experiments in this pass."""
        coarse = self.passed(
            "coarse", [(e, FIRST_SEEDS) for name in self.names or schemes.names() for e in self.of(name)]
        )
        near = NEAR_RATIO * min(each.seconds for each in coarse)
        names = {each.experiment.scheme for each in coarse if each.seconds <= near}
        known = {repr(each.experiment) for each in coarse}
        gaps = [
            (e, FIRST_SEEDS)
            for name in sorted(names)
            for e in self.of(name, filled=True)
            if repr(e) not in known
        ]
        found = sorted(coarse + self.passed("gaps", gaps), key=lambda each: each.seconds)
        last = [
            each
            for k, each in enumerate(found)
            if sum(e.experiment.scheme == each.experiment.scheme for e in found[:k]) < FINALISTS_PER_SCHEME
        ][:FINALISTS]
        last += [Found(np.inf, e, e.build_optimiser()) for e in also]
        finer = [(e.experiment, LAST_SEEDS, [scaled(e.optimiser, k) for k in FINE]) for e in last]
        return sorted(self.passed("last", finer), key=lambda each: each.seconds)

    def of(self, name: str, filled: bool = False) -> Iterator[wb.Experiment]:
        """Yield the experiments of a scheme: those of its candidates, or all whose numbers lie between these."""
        own = self.base.replace(optimiser=schemes.get(name).optimiser, optimiser_args={})
        grid = list(schemes.get(name).candidates(self.base.workers))
        for args in all_between(grid) if filled else grid:
            with suppress(wb.SettingError):
                e = own.replace(scheme=name, scheme_args=args)
                e.built_scheme.check_samples(e.workers, e.shape()[0])
                if e.built_scheme.loads(e.workers, e.shape()[0]).min():
                    yield e

    @cached_property
    def exact(self) -> tuple[int, Optimiser]:
        """Rounds of exact schemes, which compute the same models, with their best step size, and the optimiser."""
        own, rounds = self.base.build_optimiser(), 4 * self.base.rounds
        steps = [own.scaled(2.0 ** (k / 6), self.smoothness) for k in range(-6, 43)]
        learnt = learn(self.problem, [Commits(one, [None] * rounds, self.base.plan.sizes) for one in steps])
        took = [first_reached(each.loss, self.loss, "loss") for each in learnt]
        ends = [(first + 1, one) for first, one in zip(took, steps, strict=True) if first is not None]
        return min(ends, key=lambda each: each[0])

    @property
    def limit(self) -> float:
        """Seconds after which a run ends."""
        return LIMIT_RATIO * self.fastest

    def passed(self, name: str, tried: Sequence[tuple[Any, ...]]) -> list[Found]:
        """Return settings with their best step sizes. `tried`: arguments of `timed`."""
        began, found, best = time.time(), list[Found](), ""
        _ = self.exact  # computed once, not in every process
        _SEARCHES.append(self)
        with FORK.Pool(self.jobs) as pool:
            for i, one in enumerate(pool.imap(_timed, tried)):
                if one is not None:
                    found.append(one)
                    first = min(found, key=lambda each: each.seconds)
                    best = f"{first.name} {first.seconds:.3f} s"
                if i % 20 == 19 or i == len(tried) - 1:
                    progress(name, i + 1, len(tried), began, best)
        _SEARCHES.pop()
        return found

    def timed(self, e: wb.Experiment, seeds: Sequence[int], optimisers: Sequence[Optimiser] = ()) -> Found:
        """Return a setting with its best optimiser. Runs that miss the target count with the limit."""
        runs = [self.where(e, seed) for seed in seeds]
        if e.built_scheme.is_exact and not e.built_scheme.delayed and e.optimiser == self.base.optimiser:
            rounds, optimiser = self.exact
            taken = [float(wb.forecast(run, rounds, run.seed).seconds.sum()) for run in runs]
            self._found(float(np.mean(taken)))
            return Found(float(np.mean(taken)), e, optimiser)
        if e.built_scheme.numeric:
            times = self._numeric(runs, optimisers)
        else:
            times = self._linear(
                runs, optimisers or [e.build_optimiser().scaled(k, self.smoothness) for k in STEPS]
            )
        seconds, optimiser = min(times, key=lambda each: each[0])
        self._found(seconds)
        return Found(seconds, e, optimiser)

    def _linear(
        self, runs: Sequence[wb.Experiment], tried: Sequence[Optimiser]
    ) -> list[tuple[float, Optimiser]]:
        """Return mean seconds for every optimiser. All share passes over the data."""
        per_round = max(wb.forecast(runs[0], 48).mean, 1e-9)
        rounds = min(int(1.3 * self.limit / per_round) + 2, MAX_ROUNDS)
        simulated = [commits_and_ends(e.model_copy(update={"rounds": rounds})) for e in runs]
        commits = [
            Commits(one, each.weights, runs[0].plan.sizes, 1, each.shares)
            for one in tried
            for each, _ in simulated
        ]
        cells = dict(enumerate(np.ndindex(len(tried), len(runs))))
        ends = [times for _, times in simulated]
        race = Race(self.loss, "loss", np.full((len(tried), len(runs)), np.nan), ends)
        race.lanes.append((Trajectories(self.problem, commits), cells, None))
        for t in range(rounds + 1):
            race.step(t)
            if not cells:
                break
        reached = np.isfinite(race.rounds)
        at = np.where(reached, race.rounds, 1).astype(int) - 1
        seconds = np.stack([own[column] for own, column in zip(ends, at.T, strict=True)], axis=1)
        times = np.where(reached, np.minimum(seconds, self.limit), self.limit).mean(axis=1)
        return list(zip(times.tolist(), tried, strict=True))

    def _numeric(
        self, runs: Sequence[wb.Experiment], tried: Sequence[Optimiser]
    ) -> list[tuple[float, Optimiser]]:
        """Return mean seconds for optimisers: those given, or those whose step sizes are factors of 2 apart.

        The step size grows, then falls, from the middle, until the time grows.
        """
        if tried:
            return [(self._mean(runs, one), one) for one in tried]
        own = runs[0].build_optimiser()
        step = runs[0].built_scheme.own_step(self.smoothness)
        middle = 4.0 if step is None else step * self.smoothness
        found = {0: self._mean(runs, own.scaled(middle, self.smoothness))}
        for direction in (1, -1):
            place = direction
            while len(found) < NUMERIC_TRIES:
                found[place] = self._mean(runs, own.scaled(middle * 2.0**place, self.smoothness))
                if found[place] >= found[place - direction] and found[place - direction] < self.limit:
                    break
                if abs(place) > NUMERIC_TRIES // 2:
                    break
                place += direction
        return [(taken, own.scaled(middle * 2.0**k, self.smoothness)) for k, taken in found.items()]

    def _mean(self, runs: Sequence[wb.Experiment], optimiser: Optimiser) -> float:
        return float(np.mean([self._one(e, optimiser) for e in runs]))

    def _one(self, e: wb.Experiment, optimiser: Optimiser) -> float:
        """Return the seconds of one run whose messages carry vectors; the limit if it misses the target."""
        numbers, taken = Numbers(e.plan, self.problem, optimiser, e.seed, keep=False), [self.limit]

        def watch(now: Timeline) -> None:
            loss = self.problem.evaluate([Request(numbers.models[-1], gradient=False)])[0].loss
            if loss <= self.loss:
                taken.append(min(now.times[-1], self.limit))
            if loss <= self.loss or not np.isfinite(loss) or now.times[-1] > self.limit:
                raise _Over

        with np.errstate(over="ignore", invalid="ignore"), suppress(_Over):
            timeline(e.model_copy(update={"rounds": MAX_ROUNDS}), numbers, events=False, watch=watch)
        return taken[-1]


_SEARCHES: list[Search] = []  # those in progress, known to their processes since these were forked


def _timed(args: tuple[Any, ...]) -> Found | None:
    """Return what `timed` returns; None if the setting cannot be run."""
    with suppress(wb.SettingError, wb.RunError):
        return _SEARCHES[-1].timed(*args)
    return None


class _Over(BaseException):  # errors of user-defined code are reported otherwise
    """Signal that a simulation can end."""


def scaled(optimiser: Optimiser, times: float) -> Optimiser:
    """Return an optimiser with `times` times its step size, which one field has: `step`, `c1` or `rate`."""
    for name in ("step", "c1", "rate"):
        if isinstance(value := getattr(optimiser, name, None), float):
            return optimiser.replace(**{name: value * times})
    return optimiser


def all_between(grid: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return a grid of parameters with all whole numbers from 1 to its largest ones.

    >>> all_between([{"stragglers": 1}, {"stragglers": 3}])
    [{'stragglers': 1}, {'stragglers': 2}, {'stragglers': 3}]
    """
    found = {repr(args): args for args in grid}
    for name in {name for args in grid for name, value in args.items() if type(value) is int}:
        values = [args[name] for args in grid if type(args.get(name)) is int]
        for args in list(found.values()):
            if type(args.get(name)) is int:
                for value in between(1, max(values)):
                    more = {**args, name: value}
                    found.setdefault(repr(more), more)
    return list(found.values())


def between(low: int, high: int) -> list[int]:
    """Return whole numbers from `low` to `high`: all, or ones that are a factor of about 1.4 apart."""
    if high - low <= DENSE:
        return list(range(low, high + 1))
    count = round(2 * np.log2(high / low))
    return sorted({round(x) for x in np.geomspace(low, high, count + 1)})


def progress(what: str, done: int, total: int, began: float, best: str) -> None:
    """Print how far a pass is, the time left, and the best setting so far."""
    left = (time.time() - began) / done * (total - done)
    print(f"      {what}: {done} of {total}, {left:.0f} s left; best {best}", flush=True)


def mean_and_error(taken: Array, best: Array) -> tuple[float, float]:
    """Return the regret, and its standard error, from seconds under the same seeds, both (seeds,)."""
    ratio = float(taken.mean() / best.mean())
    off = (taken - ratio * best) / best.mean()
    return ratio - 1, float(off.std(ddof=1) / len(off) ** 0.5)
