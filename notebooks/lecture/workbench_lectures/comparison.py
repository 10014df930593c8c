"""Coding or not? Seconds of every scheme to one training loss, on four problems, with and without mini-batches.

All runs are on the virtual clock, on the same data, stragglers and link. Every scheme is tuned in the same way: its
parameters, the size of its mini-batch (`SHARES` of the data) and its step size are those with the least mean seconds
on `TUNED` seeds. Each scheme is then timed on `TIMED` other seeds. Schemes that need not wait for all workers choose
from the same numbers of answers, `ANSWERS`. Most schemes take plain gradient steps. Schemes with their own optimiser
(`OWN`) keep it, and form a family of their own: what AMSGrad gains, any code may gain too.

A scheme is at the loss once the mean of the last five losses is at the target: the loss after `ROUNDS` exact rounds,
plus 1 % of the decrease. The loss is evaluated whenever `EVALUATED` of the data have been processed, or every round.
The unit of time is what a worker needs for an uncoded share of all data without straggling.
Remake the table that the lecture shows, `coding_or_not.csv`, with

    python -m workbench_lectures.comparison bursts tail

Problems and schemes may be named as well (`network`, `GC`); other rows are kept. `summary` prints rows of Markdown.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from typing import Any

import numpy as np
import pandas as pd

from workbench.core import schemes
from workbench.core.base.settings import SettingError
from workbench.core.base.types import Array
from workbench.core.contract.optimisers import Optimiser
from workbench.core.engine.virtual.arithmetic import Coefficients
from workbench.core.experiment import Experiment
from workbench.core.forecasting import forecast, settled
from workbench.core.trace.learning import Commits, follow
from workbench_lectures.arrivals import Arrived, computed, followed, simulated
from workbench_lectures.comparison_table import CODES, OWN, keep, read, summary
from workbench_lectures.contest_settings import (
    COSTS,
    LEVELS,
    MINI,
    PROBLEMS,
    ROUNDS,
    SHARES,
    TIMED,
    TOLERANCE,
    TUNED,
    WORKERS,
    Contender,
    contenders,
    experiment,
    settings,
    synthetic,
    true_share,
)

EVALUATED = 1 / 16  # share of the data that a scheme processes from one evaluation of the loss to the next
# first step sizes of exact schemes with all data, as multiples of the automatic one
EXACT_STEPS = tuple(2.0 ** (k / 2) for k in range(-2, 13))
# First step sizes of other schemes, as multiples of the best of exact schemes with the same mini-batch. For schemes
# with their own optimiser, they are multiples of its default rate. The second row is for schemes that miss the loss
# with the first.
FIRST_STEPS = ((0.7, 1.4), (0.35, 2.8))
STEP_FACTOR = 2.0**0.5  # factor between neighbouring step sizes in the search
MARGIN = 1.5  # a setting is stopped once it takes longer than this multiple of the best one so far
MAX_ROUNDS_RATIO = 4  # max rounds, as a multiple of those of an exact scheme
SLOWEST = 2.0  # a scheme is left out if it takes more than this multiple of the time of UMW
MORE_TIME = 1.1  # commits are simulated for this multiple of the time that is asked for
MORE = 1.05  # a code stores at least this many copies of the data in total
BLIND = {"D-SGD", "D-Adam", "LocalSGD"}  # schemes with real vectors whose models do not depend on the delays


# ---------------------------------------------------------------- all schemes of one cell


@dataclass(frozen=True)
class Result:
    """Scheme in one cell, at its best setting: seconds to the loss for each seed, NaN if it misses the loss.

    `share`: mean share of the data in a mini-batch. `rounds`: mean number of rounds.
    """

    family: str
    scheme: str
    args: dict[str, Any]
    share: float
    step: float
    seconds: Array
    rounds: float
    test: float

    @property
    def reached(self) -> bool:
        """Whether the scheme reaches the loss with every seed."""
        return bool(np.isfinite(self.seconds).all())


@dataclass(frozen=True)
class _Try:
    """Setting of a scheme with one step size. `share`: one of `SHARES`. `times`: see `Optimiser.scaled`."""

    e: Experiment
    share: float
    times: float

    def scaled(self, factor: float) -> _Try:
        """Return the setting with another step size."""
        return replace(self, times=self.times * factor)

    @property
    def steps(self) -> float:
        """Gradient steps of a round, relative to those of a round of all workers."""
        return float(self.e.scheme_args.get("local_steps", 1)) * _answers(self.e)

    @property
    def every(self) -> int:
        """Number of rounds from one evaluation of the loss to the next."""
        return max(1, round(EVALUATED / (self.share * self.steps)))


class SchemeGrid:
    """Schemes on one problem, until the same loss.

    Values that do not depend on the delays are computed once for all cells.
    """

    def __init__(self, problem: str = "logistic") -> None:
        self.problem = problem
        self._known: dict[str, tuple[Arrived, int]] = {}  # with the number of rounds that were computed
        # ends of the rounds, and commits, of the setting that was used last, by seed
        self._ends_of: dict[int, tuple[str, Array]] = {}
        self._commits_of: dict[int, tuple[str, float, Coefficients, list[float]]] = {}

    @cached_property
    def smoothness(self) -> float:
        """Smoothness of the problem, whose inverse is the automatic step size."""
        return self._base(1.0).build_problem().smoothness()

    @cached_property
    def target(self) -> float:
        """Target loss."""
        e = self._base(1.0)
        own = [e.build_optimiser().scaled(k, self.smoothness) for k in EXACT_STEPS]
        runs = [Commits(each, [None] * ROUNDS, e.plan.sizes, 1) for each in own]
        *_, last = follow(e.build_problem(), runs)
        (first, *_), ends = [run.initial["loss"] for run in last], [run.loss[-1] for run in last]
        best = float(np.nanmin(ends))
        return best + TOLERANCE * (first - best)

    @cached_property
    def exact(self) -> dict[float, tuple[float, int]]:
        """Best step size of exact schemes and their mean rounds, by share of the data.

        The step size is a multiple of the automatic one. For all data, `EXACT_STEPS` are tried first. For each smaller
        share, the search begins at the step size of the share before.
        """
        found, firsts, longest = dict[float, tuple[float, int]](), EXACT_STEPS, MAX_ROUNDS_RATIO * ROUNDS
        for share in sorted(SHARES, reverse=True):
            tries = [_Try(self._base(share), share, times) for times in firsts]
            rounds, best = min((self._exact_rounds(each, longest), k) for k, each in enumerate(tries))
            if not np.isfinite(rounds):
                raise RuntimeError(f"no exact scheme is at the loss with {share:g} of the data")
            rounds, tried = climbed(
                lambda t, least: self._exact_rounds(t, int(TUNED * least)), tries[best], rounds
            )
            found[share] = tried.times, int(np.ceil(rounds))
            firsts, longest = (
                (tried.times, tried.times / 2),
                MAX_ROUNDS_RATIO * MAX_ROUNDS_RATIO * found[share][1],
            )
        return found

    def _exact_rounds(self, tried: _Try, longest: int) -> float:
        """Return the mean rounds of an exact scheme on the tuning seeds, infinite if it misses the loss."""
        runs = list[Arrived]()
        for seed in range(TUNED):
            e = tried.e.replace(seed=seed)
            runs += followed(e, [self._optimiser(tried)], None, longest, self.target, tried.every)
        return float(np.nan_to_num(np.mean([each.rounds for each in runs]), nan=np.inf))

    def _base(self, share: float) -> Experiment:
        return experiment({"kind": "constant"}, 0.0, self.problem, share)

    def results(self, delays: dict[str, Any], cost: float, chosen: Sequence[Contender]) -> Iterator[Result]:
        """Yield every scheme at its best setting."""
        limits, found = self._slowest(delays, cost), dict[Contender, _Try | None]()
        for family, name in chosen:
            searched = family, "Backup" if name == "SGD" else name
            if searched not in found:
                found[searched] = self._best(list(self._tries(*searched, delays, cost)), limits)
            best = found[searched]
            if best is None:
                yield _missed(family, name)
            else:
                yield self._timed(family, name, _as_sgd(best) if name == "SGD" else best)

    def _timed(self, family: str, name: str, best: _Try) -> Result:
        timed = [self.arrive(best, seed) for seed in range(TUNED, TUNED + TIMED)]
        numbers = self._optimiser(best).model_dump()
        step = float(numbers.get("step") or numbers["rate"])
        rounds, test = (
            float(np.mean([getattr(each, what) for each in timed])) for what in ("rounds", "test")
        )
        seconds, args = np.array([each.seconds for each in timed]), self._with_rate(best).scheme_args
        return Result(family, name, args, true_share(best.e), step, seconds, rounds, test)

    def _slowest(self, delays: dict[str, Any], cost: float) -> Array:
        """Return the max seconds on each tuning seed: `SLOWEST` times those of UMW, at the best size of its batch."""
        tries = list(self._tries("wait for all", "UMW", delays, cost))
        waits = np.array([[self.arrive(t, s).seconds for s in range(TUNED)] for t in tries])
        return SLOWEST * waits[int(np.nanargmin(waits.sum(axis=1)))]

    def _best(self, tries: Sequence[_Try], limits: Array) -> _Try | None:
        """Return the setting and the step size with the least seconds on the tuning seeds.

        All settings are compared on one seed with the `FIRST_STEPS`. For the best of each size of the mini-batch, the
        step size is then searched on all tuning seeds. The other settings with the best size are tried at the step
        size that is found. Settings that take too long are stopped.
        """
        least = float(limits.sum())
        if not tries:
            return None
        if not _depends_on_delays(tries[0].e) and schemes.get(tries[0].e.scheme).exact:
            sums = [self._sum(t, least) for t in tries]  # the step size is that of `exact`
            return tries[int(np.argmin(sums))] if np.isfinite(sums).any() else None
        coarse = list[_Try]()
        for factors in FIRST_STEPS:
            coarse = coarse or self._coarse([t.scaled(f) for f in factors for t in tries], float(limits[0]))
        best = None
        for tried in coarse:
            seconds, found = climbed(self._sum, tried, min(least, self._sum(tried, least)))
            if seconds < least:
                best, least = found, seconds
        if best is None:
            return None
        (first,) = (t for t in tries if t.e == best.e)
        for tried in [
            t.scaled(best.times / first.times) for t in tries if t.share == best.share and t is not first
        ]:
            if (seconds := self._sum(tried, least)) < least:
                best, least = tried, seconds
        return best

    def _coarse(self, tries: Sequence[_Try], limit: float) -> list[_Try]:
        """Return the best setting on the first seed for each size of the mini-batch, the fastest first."""
        found, least = dict[float, tuple[float, _Try]](), limit
        for tried in tries:
            seconds = self.arrive(tried, 0, min(limit, MARGIN * least)).seconds
            if seconds < found.get(tried.share, (limit, tried))[0]:
                found[tried.share], least = (seconds, tried), min(least, seconds)
        return [tried for _, tried in sorted(found.values(), key=lambda each: each[0])]

    def _sum(self, tried: _Try, limit: float) -> float:
        """Return the seconds on the tuning seeds, or infinity once they are more than `limit`."""
        seconds = 0.0
        for seed in range(TUNED):
            seconds += self.arrive(tried, seed, limit - seconds).seconds
            if not seconds <= limit:
                return float("inf")
        return seconds

    def _tries(self, family: str, name: str, delays: dict[str, Any], cost: float) -> Iterator[_Try]:
        """Yield the settings of a scheme, each with the step size from which the search starts."""
        for share, args in product(sorted(SHARES), settings(name)):
            e = self._fitting(name, args, delays, cost, share, family)
            if e is None or not _belongs(family, e):
                continue
            yield _Try(e, share, 1.0 if family == OWN else self.exact[share][0] * _answers(e))

    def _fitting(
        self, name: str, args: dict[str, Any], delays: dict[str, Any], cost: float, share: float, family: str
    ) -> Experiment | None:
        """Return the experiment of a setting, or None if it is invalid."""
        own, cls = family == OWN, schemes.get(name)
        try:
            e = experiment(delays, cost, self.problem, 1.0 if name in MINI else share)
            if name in MINI and share < 1.0:
                args = {**args, "worker_batch": max(1, round(share * (e.shape()[0] // WORKERS)))}
            fields = {
                "optimiser": cls.optimiser if own else "gd",
                "optimiser_args": cls.optimiser_args if own else {},
            }
            return settled(e.replace(scheme=name, scheme_args=args, **fields))
        except SettingError:
            return None

    def _optimiser(self, tried: _Try) -> Optimiser:
        return tried.e.build_optimiser().scaled(tried.times, self.smoothness)

    def _with_rate(self, tried: _Try) -> Experiment:
        """Return local SGD whose workers use the step size as their rate, so that a commit averages models."""
        e = tried.e
        if e.scheme != "LocalSGD":
            return e
        return e.replace(scheme_args={**e.scheme_args, "rate": self._optimiser(tried).model_dump()["step"]})

    def arrive(self, tried: _Try, seed: int, limit: float = float("inf")) -> Arrived:
        """Return when a setting reaches the target with a seed.

        A run that takes longer than `limit` s may be stopped.
        """
        e, own = self._with_rate(tried).replace(seed=seed), self._optimiser(tried)
        longest = int(MAX_ROUNDS_RATIO * self.exact[tried.share][1] / tried.steps)
        if _depends_on_delays(e):
            return self._simulated(tried, e, own, longest, limit)
        if schemes.get(e.scheme).exact:
            found = self._models(e, own, longest, tried.every)
            seconds = (
                forecast(e, int(found.rounds), seed).seconds.sum() if np.isfinite(found.rounds) else np.nan
            )
            return replace(found, seconds=float(seconds))
        ends = self._ends(tried.e.replace(seed=seed), longest)
        cut = min(longest, max(1, int(np.searchsorted(ends, limit, side="right"))))
        found = self._models(e, own, cut, tried.every)
        return (
            replace(found, seconds=float(ends[int(found.rounds) - 1]))
            if found.rounds <= longest
            else Arrived()
        )

    def _models(self, e: Experiment, own: Optimiser, cut: int, every: int) -> Arrived:
        """Return the rounds to the target, at most `cut`, of a scheme whose models do not depend on the delays."""
        numeric = schemes.get(e.scheme).numeric
        key = repr((e.batch, e.seed, own, (e.scheme, e.scheme_args) if numeric else "exact"))
        found, done = self._known.get(key, (Arrived(), 0))
        if np.isnan(found.rounds) and cut > done:
            if numeric:
                still = e.replace(delays={"kind": "constant"}, link={})
                found = computed(still, own, cut, self.target, every)
            else:
                (found,) = followed(e, [own], None, cut, self.target, every)
            self._known[key] = found, cut
        return found

    def _simulated(self, tried: _Try, e: Experiment, own: Optimiser, longest: int, limit: float) -> Arrived:
        """Return the rounds and seconds to the target of a scheme whose models depend on the delays."""
        if schemes.get(e.scheme).numeric:
            return computed(e, own, longest, self.target, tried.every, limit)
        commits, ends = self._commits(e, longest, limit)
        (found,) = followed(e, [own], commits, len(ends), self.target, tried.every)
        return found if np.isnan(found.rounds) else replace(found, seconds=ends[int(found.rounds) - 1])

    def _ends(self, e: Experiment, longest: int) -> Array:
        """Return the ends of the rounds, which are equal for all step sizes, s."""
        key = repr((e, longest))
        if self._ends_of.get(e.seed, ("",))[0] != key:
            self._ends_of[e.seed] = key, np.cumsum(forecast(e, longest, e.seed).seconds)
        return self._ends_of[e.seed][1]

    def _commits(self, e: Experiment, longest: int, limit: float) -> tuple[Coefficients, list[float]]:
        """Return the commits until `limit` s and the ends of their rounds, which are equal for all step sizes."""
        key = repr((e, longest))
        known = self._commits_of.get(e.seed)
        if known is None or known[0] != key or known[1] < limit:
            commits, until = Coefficients(e.plan, e.sampler), MORE_TIME * limit
            ends = simulated(e.model_copy(update={"rounds": longest}), commits, until)
            known = self._commits_of[e.seed] = key, until, commits, ends
        return known[2], known[3]


def climbed(
    value: Callable[[_Try, float], float], tried: _Try, least: float, factor: float = STEP_FACTOR
) -> tuple[float, _Try]:
    """Return the least value over step sizes, and the setting with it: neighbours are tried while they are better.

    `value` may return infinity for values of more than its second argument.
    """
    start = tried
    for each in (1 / factor, factor):
        while (found := value(tried.scaled(each), least)) < least:
            tried, least = tried.scaled(each), found
        if tried is not start:
            break
    return least, tried


def _as_sgd(backup: _Try) -> _Try:
    """Return SGD with the same models as Backup, which multiplies its sum by the factor that SGD has in its step."""
    answers = WORKERS - backup.e.scheme_args["stragglers"]
    return replace(backup, e=backup.e.replace(scheme="SGD"), times=backup.times * WORKERS / answers)


def _missed(family: str, name: str) -> Result:
    """Return the result of a scheme that misses the loss."""
    nan = float("nan")
    return Result(family, name, {}, nan, nan, np.full(TIMED, nan), nan, nan)


def _answers(e: Experiment) -> float:
    """Return the answers per commit divided by the number of workers: below 1 only for asynchronous SGD."""
    return (1 if e.scheme == "ASGD" else WORKERS) / WORKERS


def _depends_on_delays(e: Experiment) -> bool:
    """Return whether the models depend on the delays."""
    return e.scheme not in BLIND and (not schemes.get(e.scheme).exact or e.plan.versions > 1)


def _belongs(family: str, e: Experiment) -> bool:
    """Return whether a scheme belongs to its family: codes store parts several times, and "wait for all" does not."""
    if family in CODES:
        return _held(e) > MORE and e.scheme_args.get("replication") != 1
    return family != "wait for all" or _held(e) <= MORE


def _held(e: Experiment) -> float:
    """Return how many copies of the data the workers store. If parts are shuffled, the copies of all rounds count."""
    scheme, plan, pairs = e.built_scheme, e.plan, set[tuple[int, int]]()
    for r in range(plan.workers):
        held = scheme.round_plan(plan, r)
        pairs.update((rank, part) for rank in range(1, plan.ranks) for part in held.work[rank].parts.tolist())
        if held is plan:
            break
    return float(plan.sizes[[part for _, part in pairs]].sum() / plan.samples)


# ---------------------------------------------------------------- the table


def rows(
    problem: str, delay_model: str, column: str, cost: float, found: Iterable[Result]
) -> list[dict[str, Any]]:
    """Return the rows of the table for one cell."""
    return [
        {
            "problem": problem, "delay_model": delay_model, "column": column, "cost": cost,
            "family": r.family, "scheme": r.scheme,
            "settings": " ".join(f"{k}={_text_of(v)}" for k, v in r.args.items()), "share": float(f"{r.share:.6g}"),
            "step": float(f"{r.step:.3g}"), "seconds": " ".join(f"{s:.5g}" for s in r.seconds),
            "rounds": float(f"{r.rounds:.4g}"), "test": float(f"{r.test:.4g}"),
        }
        for r in found
    ]  # fmt: skip


def _text_of(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def main(arguments: Sequence[str]) -> None:
    """Make the table again for these delay models, and only for these problems and schemes if any are given."""
    if list(arguments) == ["summary"]:
        print(*summary(read()), sep="\n")
        return
    only = [name for name in schemes.names() if name in arguments]
    for problem in [name for name in PROBLEMS if name in arguments] or list(PROBLEMS):
        grid = SchemeGrid(problem)
        for delay_model in [name for name in LEVELS if name in arguments]:
            for level, cost in product(LEVELS[delay_model], COSTS):
                found = list(grid.results(synthetic(delay_model, level, problem), cost, contenders(only)))
                keep(pd.DataFrame(rows(problem, delay_model, f"{level:g}", cost, found)))
                there = sorted((float(r.seconds.mean()), r.scheme) for r in found if r.reached)
                print(problem, delay_model, level, cost, *(there[0] if there else ("nobody",)), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
