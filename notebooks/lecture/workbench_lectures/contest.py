"""Coding or not? Seconds of every scheme to one training loss, on three problems, with and without mini-batches.

All runs are on the virtual clock, on the same data, stragglers and link. Every scheme is tuned in the same way: its
parameters, the size of its mini-batch (`SHARES` of the data) and its step size are those with the least mean seconds
on `TUNED` seeds. Each scheme is then timed on `TIMED` other seeds. Schemes that need not wait for all workers choose
from the same numbers of answers, `ANSWERS`. Most schemes take plain gradient steps. Schemes with their own optimiser
(`OWN`) keep it, and form a family of their own: what AdamW or momentum gain, any code may gain too.

A scheme is at the loss once the mean of the last five losses is at the target: the loss after `ROUNDS` exact rounds,
plus 1 % of the decrease. The unit of time is what a worker needs for an uncoded share of all data without straggling.
Remake the table that the lecture shows, `coding_or_not.csv`, with

    python -m workbench_lectures.contest bursts tail

Problems and schemes may be named as well (`network`, `GC`); other rows are kept. `summary` prints rows of Markdown.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
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
from workbench.core.running.simulated import timeline
from workbench.core.trace.learning import Commits, follow
from workbench_lectures.arrivals import Arrived, computed, followed
from workbench_lectures.contest_table import CODES, OWN, keep, read, summary

WORKERS, ROUNDS, TOLERANCE = 12, 60, 0.01
PROBLEMS: dict[str, dict[str, Any]] = {
    "logistic": {
        "problem": "logistic",
        "problem_args": {"data": "breast_cancer", "intercept": True, "l2": 1e-3, "test": 0.2},
    },
    "least squares": {  # condition number 100
        "problem": "numpy",
        "problem_args": {"test": 0.2, "loss_and_gradient": "workbench_lectures.network:squares"},
    },
    "network": {
        "problem": "numpy",
        "problem_args": {
            "data": "digits",
            "samples": 750,
            "test": 0.2,
            "targets": "classes",
            "loss_and_gradient": "workbench_lectures.network:loss_and_gradient",
            "first": "workbench_lectures.network:first",
        },
    },
}
SHARES = (0.25, 1.0)  # share of the data in a round: a mini-batch, or all samples
ANSWERS = (1, 3, 6, 9, 11)  # numbers of answers, of 12 workers, for each scheme that takes the first k
COSTS = (0.02,)  # time of a message, in units
LEVELS: dict[str, tuple[float, ...]] = {
    "bursts": (2.0, 5.0),  # factor by which a delayed worker takes longer
    "tail": (1.0, 5.0),  # mean of the random time that is added to each share
}
TUNED, TIMED = 2, 10  # number of seeds for tuning, and for timing
# step sizes of exact schemes, as multiples of the automatic one
EXACT_STEPS = tuple(2.0 ** (k / 2) for k in range(-2, 13))
STEPS = (0.35, 0.7, 1.0, 1.4)  # step sizes of other schemes, as multiples of the best of exact schemes
FEW_STEPS = (0.35, 0.7, 1.0)  # the same, for data-dependent schemes
# step sizes of schemes with their own optimiser, as multiples of its default rate
OWN_STEPS = (0.25, 0.5, 1.0, 2.0, 4.0)
LONGEST = 4  # max rounds, as a multiple of those of an exact scheme
SLOWEST = 3.0  # a scheme is left out if it takes more than this multiple of the time of UMW
FAMILIES: dict[str, tuple[str, ...]] = {  # family -> its schemes, as far as they exist
    "wait for all": ("UMW", "RAR", "CR", "D-SGD"),  # CR: a tree without a code
    "exact code": ("GC", "CR", "M-SGC"),
    "inexact code": ("FRC", "CRC", "IS-GC", "PGC"),
    "k of n": ("Backup", "SGD", "AdaptiveK", "DBW", "DropCompute"),
    "local steps": ("LocalSGD",),
    "asynchronous": ("ASGD", "DSAG"),
    "own optimiser": ("CADA", "D-Adam"),
}
MORE = 1.05  # a code stores at least this many copies of the data in total
MINI = {"D-SGD", "D-Adam", "CADA"}  # schemes whose workers draw their own mini-batches
BLIND = {"D-SGD", "D-Adam", "LocalSGD"}  # schemes with real vectors whose models do not depend on the delays
Contender = tuple[str, str]  # family, scheme


def experiment(
    delays: dict[str, Any], cost: float, problem: str = "logistic", share: float = 1.0, **fields: Any
) -> Experiment:
    """Return the common settings. `cost`: time of one message. `share`: share of the data in a mini-batch."""
    common: dict[str, Any] = {"scheme": "UMW", "workers": WORKERS, "rounds": ROUNDS, "delays": delays}
    e = Experiment(**{**common, **PROBLEMS[problem], **fields})
    samples, floats = e.shape()
    link = {"bandwidth": 8.0 * floats / cost, "downloads": True} if cost else {}
    return e.replace(link=link, batch=None if share == 1.0 else int(np.ceil(share * samples)))


def unit(problem: str) -> float:
    """Return the samples of an uncoded share, whose time is the unit."""
    return float(experiment({"kind": "constant"}, 0.0, problem).shape()[0] / WORKERS)


def synthetic(law: str, level: float, problem: str = "logistic") -> dict[str, Any]:
    """Return the delays of a cell, in which a share takes 1 without straggling."""
    each = 1.0 / unit(problem)
    if law == "bursts":
        return {"kind": "markov", "shift": each, "p_slow": 0.05, "p_recover": 0.2, "factor": level}
    return {"kind": "shifted_exponential", "shift": each, "rate": unit(problem) / level}


def contenders(only: Sequence[str] = ()) -> list[Contender]:
    """Return families and schemes, as far as they exist. `only`: restrict to these."""
    found = [
        (family, name) for family, names in FAMILIES.items() for name in names if name in schemes.names()
    ]
    return [each for each in found if not only or each[1] in only]


def settings(name: str) -> list[dict[str, Any]]:
    """Return the parameters to try. For schemes that take the first k of n answers, k is from `ANSWERS`."""
    late = [{"stragglers": WORKERS - k} for k in reversed(ANSWERS)]
    some: dict[str, list[dict[str, Any]]] = {
        "Backup": late,
        "SGD": late,
        "AdaptiveK": [{"start": k, "step": 1} for k in ANSWERS],
        "FRC": [{"replication": r, "wait_for": k} for r in (2, 3) for k in ANSWERS],
        "CRC": [{"replication": 2, "wait_for": k} for k in ANSWERS],
        "IS-GC": [{"replication": 2, "wait_for": k} for k in ANSWERS],
        "PGC": [{"stragglers": s} for s in (1, 3, 6)],
        "M-SGC": [{"burst": 1, "window": 2, "stragglers": s} for s in (1, 3)],
        "LocalSGD": [{"local_steps": h} for h in (2, 4, 8)],
        "ASGD": [{"damping": 0.0}],
        "DSAG": [{"wait_for": k, "pieces": p} for p in (1, 4) for k in (6, 11)],
    }
    return some.get(name) or list(schemes.get(name).candidates(WORKERS))


# ---------------------------------------------------------------- all schemes of one cell


@dataclass(frozen=True)
class Result:
    """Scheme in one cell, at its best setting: seconds to the loss for each seed, NaN if it misses the loss."""

    family: str
    scheme: str
    args: dict[str, Any]
    share: float
    step: float
    seconds: Array
    test: float

    @property
    def reached(self) -> bool:
        """Whether the scheme reaches the loss with every seed."""
        return bool(np.isfinite(self.seconds).all())


@dataclass(frozen=True)
class _Try:
    """Setting of a scheme with one step size: experiment, optimiser, and share of the data in a mini-batch."""

    e: Experiment
    optimiser: Optimiser
    share: float


class SchemeGrid:
    """Schemes on one problem, until the same loss.

    Values that do not depend on the delays are computed once for all cells.
    """

    def __init__(self, problem: str = "logistic") -> None:
        self.problem = problem
        self._known: dict[str, Arrived] = {}

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

        The step size is a multiple of the automatic one.
        """
        found = {}
        for share in SHARES:
            e, longest = self._base(share), int(LONGEST * ROUNDS / share)
            own = [e.build_optimiser().scaled(k, self.smoothness) for k in EXACT_STEPS]
            rounds = [
                [a.rounds for a in followed(e.replace(seed=s), own, None, longest, self.target)]
                for s in range(TUNED)
            ]
            means = np.mean(rounds, axis=0)
            assert np.isfinite(means).any(), f"no exact scheme is at the loss with {share:g} of the data"
            place = int(np.nanargmin(means))
            found[share] = EXACT_STEPS[place], int(np.ceil(means[place]))
        return found

    def _base(self, share: float) -> Experiment:
        return experiment({"kind": "constant"}, 0.0, self.problem, share)

    def results(self, delays: dict[str, Any], cost: float, chosen: Sequence[Contender]) -> Iterator[Result]:
        """Yield every scheme at its best setting."""
        seeds = range(TUNED, TUNED + TIMED)
        for family, name in chosen:
            tries = [t for share in SHARES for t in self._tries(family, name, delays, cost, share)]
            best = self._best(tries, self._slowest(delays, cost))
            if best is None:
                yield Result(family, name, {}, 1.0, float("nan"), np.full(TIMED, np.nan), float("nan"))
                continue
            timed = [self.arrive(best, seed) for seed in seeds]
            numbers = best.optimiser.model_dump()
            step = float(numbers.get("step") or numbers["rate"])
            seconds = np.array([each.seconds for each in timed])
            test = float(np.mean([each.test for each in timed]))
            yield Result(family, name, best.e.scheme_args, best.share, step, seconds, test)

    def _slowest(self, delays: dict[str, Any], cost: float) -> float:
        """Return the max seconds on the tuning seeds: `SLOWEST` times those of UMW."""
        best = {share: self._tries("wait for all", "UMW", delays, cost, share) for share in SHARES}
        waits = [sum(self.arrive(t, s).seconds for s in range(TUNED)) for each in best.values() for t in each]
        return SLOWEST * float(np.nanmin(waits))

    def _best(self, tries: Sequence[_Try], least: float) -> _Try | None:
        """Return the setting with the least seconds on the tuning seeds. Others are stopped once they take longer."""
        best = None
        for tried in tries:
            seconds = 0.0
            for seed in range(TUNED):
                seconds += self.arrive(tried, seed, least - seconds).seconds
                if not seconds < least:
                    break
            else:
                best, least = tried, seconds
        return best

    def _tries(
        self, family: str, name: str, delays: dict[str, Any], cost: float, share: float
    ) -> Iterator[_Try]:
        """Yield the settings of a scheme, each with every step size that is tried."""
        cls = schemes.get(name)
        for args in settings(name):
            e = self._fitting(name, args, delays, cost, share, family)
            if e is None or not _belongs(family, e):
                continue
            if family == OWN:
                steps = [e.build_optimiser().scaled(k, self.smoothness) for k in OWN_STEPS]
            elif cls.exact:
                steps = [self._stepped(e, self.exact[share][0])]
            elif cls.numeric or name == "D-SGD":
                steps = [self._stepped(e, self.exact[share][0] * k) for k in FEW_STEPS]
            else:
                steps = [self._stepped(e, self.exact[share][0] * k * _answers(e)) for k in STEPS]
            for own in steps:
                yield _Try(self._with_rate(e, own), own, share)

    def _fitting(
        self, name: str, args: dict[str, Any], delays: dict[str, Any], cost: float, share: float, family: str
    ) -> Experiment | None:
        """Return the experiment of a setting, or None if it is invalid."""
        own = schemes.get(name).optimiser if family == OWN else "gd"
        try:
            e = experiment(delays, cost, self.problem, 1.0 if name in MINI else share)
            if name in MINI and share < 1.0:
                args = {**args, "worker_batch": int(share * (e.shape()[0] // WORKERS))}
            fields = {
                "optimiser": own,
                "optimiser_args": schemes.get(name).optimiser_args if family == OWN else {},
            }
            return settled(e.replace(scheme=name, scheme_args=args, **fields))
        except SettingError:
            return None

    def _stepped(self, e: Experiment, times: float) -> Optimiser:
        scale = WORKERS / (WORKERS - e.scheme_args["stragglers"]) if e.scheme == "SGD" else 1.0
        return e.build_optimiser().scaled(times * scale, self.smoothness)

    def _with_rate(self, e: Experiment, own: Optimiser) -> Experiment:
        """Return local SGD whose workers use the step size as their rate, so that a commit averages models."""
        if e.scheme != "LocalSGD":
            return e
        return e.replace(scheme_args={**e.scheme_args, "rate": own.model_dump()["step"]})

    def arrive(self, tried: _Try, seed: int, limit: float = float("inf")) -> Arrived:
        """Return when a setting reaches the target with a seed.

        A run that takes longer than `limit` s may be stopped.
        """
        e, cls = tried.e.replace(seed=seed), schemes.get(tried.e.scheme)
        longest = int(LONGEST * self.exact[tried.share][1] / _answers(e))
        if cls.numeric and e.scheme not in BLIND:
            return computed(e, tried.optimiser, longest, self.target, limit)
        key = repr((_without_delays(e) if cls.exact or cls.numeric else _unlinked(e), tried.optimiser, seed))
        found = self._known.get(key)
        if found is None:
            cut = longest if np.isinf(limit) else min(longest, _rounds_within(e, longest, limit))
            if cls.numeric:
                still = e.replace(delays={"kind": "constant"}, link={})
                found = computed(still, tried.optimiser, cut, self.target)
            elif cls.exact and e.plan.versions == 1:
                (found,) = followed(e, [tried.optimiser], None, cut, self.target)
            else:
                (found,) = followed(e, [tried.optimiser], self._commits(e, cut), cut, self.target)
            if cut == longest or np.isfinite(found.rounds):
                self._known[key] = found
        if np.isnan(found.rounds):
            return found
        seconds = float(forecast(e, int(found.rounds), seed).seconds.sum())
        return replace(found, seconds=seconds)

    def _commits(self, e: Experiment, longest: int) -> Coefficients:
        """Return the commits of a scheme, which are equal for all step sizes."""
        key = repr((e, longest))
        if getattr(self, "_newest", ("",))[0] != key:
            commits = Coefficients(e.plan, e.sampler)
            timeline(e.model_copy(update={"rounds": longest}), commits, events=False)
            self._newest: tuple[str, Coefficients] = key, commits
        return self._newest[1]


def _rounds_within(e: Experiment, longest: int, limit: float) -> int:
    """Return the number of rounds that take at most `limit` s, but at least one."""
    ends = np.cumsum(forecast(e, longest, e.seed).seconds)
    return max(1, int(np.searchsorted(ends, limit, side="right")))


def _answers(e: Experiment) -> float:
    """Return the answers per commit divided by the number of workers: below 1 only for asynchronous SGD."""
    return (1 if e.scheme == "ASGD" else WORKERS) / WORKERS


def _without_delays(e: Experiment) -> str:
    """Return a key for the models of schemes that do not depend on delays. All exact schemes have the same key."""
    numeric = schemes.get(e.scheme).numeric
    return repr((e.problem_args, e.batch, (e.scheme, e.scheme_args) if numeric else "exact"))


def _unlinked(e: Experiment) -> str:
    """Return a key for the models, without the link if all workers begin a round together.

    The link then does not affect which answers are in time, since the port keeps the order of arrival.
    """
    return repr(e if e.plan.versions > 1 else e.replace(link={}))


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


def rows(problem: str, law: str, column: str, cost: float, found: Iterable[Result]) -> list[dict[str, Any]]:
    """Return the rows of the table for one cell."""
    return [
        {
            "problem": problem, "law": law, "column": column, "cost": cost, "family": r.family, "scheme": r.scheme,
            "settings": " ".join(f"{k}={_text_of(v)}" for k, v in r.args.items()), "share": r.share,
            "step": float(f"{r.step:.3g}"), "seconds": " ".join(f"{s:.5g}" for s in r.seconds),
            "test": float(f"{r.test:.4g}"),
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
        for law in [name for name in LEVELS if name in arguments]:
            for level, cost in product(LEVELS[law], COSTS):
                found = list(grid.results(synthetic(law, level, problem), cost, contenders(only)))
                keep(pd.DataFrame(rows(problem, law, f"{level:g}", cost, found)))
                there = sorted((float(r.seconds.mean()), r.scheme) for r in found if r.reached)
                print(problem, law, level, cost, *(there[0] if there else ("nobody",)), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
