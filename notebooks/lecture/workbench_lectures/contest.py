"""Coding or not? Seconds of every scheme to one loss, over severity of straggling and cost of messages.

All runs are on the virtual clock, on the same data, stragglers and link. Every scheme runs at its own tuned step and
parameters. Both are tuned for every delay model, severity and cost, on `TUNED` seeds, and timed on others. Most
schemes take plain gradient steps. Those with their own optimiser (`OWN`) keep it, and form a family of their own:
what AdamW or momentum gain, any code may gain too.

The unit of time is what a worker needs for an uncoded share of the data without straggling. Remake the table that the
lecture shows, `coding_or_not.csv`, with

    python -m workbench_lectures.contest bursts tail
    python -m workbench_lectures.contest recorded FOLDER

where FOLDER holds the recorded traces. Rows of delay models and schemes that are not named are kept.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import t as student

from workbench.analysis.planning.targets import (
    MAX_NUMBERS,
    RoundsNeeded,
    Target,
    Trials,
    centre,
    portion,
    reference,
    stretched,
)
from workbench.core import schemes
from workbench.core.base.files import atomic_write
from workbench.core.base.settings import SettingError
from workbench.core.base.types import Array
from workbench.core.experiment import Experiment
from workbench.core.forecasting import forecast, settled
from workbench.core.schemes.local_steps import LocalSteps

NUMBERS = Path(__file__).with_name("coding_or_not.csv")
# the target: the loss after 60 exact rounds, and 1 % of the decrease
WORKERS, ROUNDS, TOLERANCE = (12, 60, 0.01)
SAMPLES = 569
SHARE = SAMPLES / WORKERS
COSTS = (0.0, 0.02, 0.1, 0.5)  # time of one message, in units
LEVELS: dict[str, tuple[float, ...]] = {
    "bursts": (1.0, 2.0, 5.0, 15.0),  # factor by which a delayed worker is slower
    "tail": (0.2, 1.0, 5.0, 20.0),  # mean of the random time that is added to every share
}
RECORDED = ("Alibaba 1", "Alibaba 2", "Alibaba 3", "ByteDance AR", "ByteDance ST", "EC2")
TUNED, TIMED = 2, 6  # seeds
EACH = 3  # settings of an inexact scheme that are tried
AROUND = (0.5, 1.0, 2.0, 4.0)  # steps of local SGD, relative to the best of gradient descent
INNER, OUTER = (
    (0.001, 0.003, 0.01, 0.03, 0.1),
    (0.35, 0.7),
)  # DiLoCo's rates, and outer steps: the paper's is 0.7
MOMENTUM = 0.9  # of DiLoCo's outer optimiser
FAMILIES: dict[str, tuple[str, ...]] = {  # schemes of the contest, where the package has them
    "wait for all": ("UMW", "RAR", "CR"),  # a tree without a code
    "exact code": ("GC", "CR", "CEGC", "GC-MMC", "SR-SGC", "M-SGC"),
    "inexact code": ("FRC", "CRC", "BGC", "ErasureHead", "SGC", "IS-GC", "PGC", "GGC"),
    "k of n": ("SGD", "AdaptiveK", "DBW", "DropCompute"),
    "local steps": ("LocalSGD",),
    "asynchronous": ("ASGD", "FedBuff", "DSAG"),
    "own optimiser": ("DiLoCo", "CADA", "D-Adam"),
}
OWN = "own optimiser"
CODES = ("exact code", "inexact code")
MORE = 1.05  # least copies of the data that the workers of a code store together
Contender = tuple[str, str]  # family, scheme


def experiment(delays: dict[str, Any], cost: float, **fields: Any) -> Experiment:
    """Return the common setting; `cost`: time of one message."""
    common: dict[str, Any] = {
        "scheme": "UMW",
        "workers": WORKERS,
        "rounds": ROUNDS,
        "problem": "logistic",
        "problem_args": {"data": "breast_cancer", "intercept": True, "l2": 1e-3},
        "delays": delays,
    }
    e = Experiment(**{**common, **fields})
    size = 8.0 * e.shape()[1]
    return e.replace(link={"bandwidth": size / cost, "downloads": True} if cost else {})


def synthetic(law: str, level: float) -> dict[str, Any]:
    """Return the delays of a cell; without straggling a share takes 1."""
    each = 1.0 / SHARE
    if law == "bursts":
        return {"kind": "markov", "shift": each, "p_slow": 0.05, "p_recover": 0.2, "factor": level}
    return {"kind": "shifted_exponential", "shift": each, "rate": SHARE / level}


def contenders(only: Sequence[str] = ()) -> list[Contender]:
    """Return families and schemes of the contest, if such schemes exist; `only`: restrict to these."""
    found = [
        (family, name) for family, names in FAMILIES.items() for name in names if name in schemes.names()
    ]
    return [each for each in found if not only or each[1] in only]


# ---------------------------------------------------------------- one cell


@dataclass(frozen=True)
class Result:
    """Scheme in one cell, at its best setting: seconds to the loss under every seed, NaN where it misses it."""

    family: str
    scheme: str
    args: dict[str, Any]
    step: float
    seconds: Array

    @property
    def reached(self) -> bool:
        """Whether it reaches the loss under every seed."""
        return bool(np.isfinite(self.seconds).all())


Timed = Callable[[Sequence[int]], Array]  # seeds -> seconds


class SchemeGrid:
    """Schemes of one setting, at the same loss; what does not depend on the delays is computed once for all cells."""

    def __init__(self, base: Experiment) -> None:
        self.aim: Target = reference(base, ROUNDS, None, TOLERANCE, MAX_NUMBERS)
        self.local: dict[
            str, tuple[Experiment, float]
        ] = {}  # local steps -> experiment at its best rates, rounds
        self.centres: dict[str, float | None] = {}  # optimiser -> step around which others are tried
        self.tried: dict[
            str, tuple[list[float], Array]
        ] = {}  # results by everything that affects which workers are in time
        self.needs: dict[str, RoundsNeeded] = {}  # the same, by step and seeds as well

    def results(self, base: Experiment, chosen: Sequence[Contender]) -> Iterator[Result]:
        """Return every scheme at its best setting."""
        tuned = range(TUNED)
        for family, name in chosen:
            optimiser = schemes.get(name).optimiser if family == OWN else base.optimiser
            tried = list(self._settings(family, base.replace(scheme=name, optimiser=optimiser)))
            means = [float(np.mean(seconds(tuned))) for _, _, seconds in tried]
            if not np.isfinite(means).any():
                yield Result(family, name, {}, float("nan"), np.full(TIMED, np.nan))
                continue
            args, step, seconds = tried[int(np.nanargmin(means))]
            yield Result(family, name, args, step, seconds(range(TUNED, TUNED + TIMED)))

    def _settings(self, family: str, e: Experiment) -> Iterator[tuple[dict[str, Any], float, Timed]]:
        """Return the parameters and steps to try, and how each is timed."""
        cls = schemes.get(e.scheme)
        fitting = [each for each in _fitting(e, cls.candidates(e.workers)) if _belongs(family, each)]
        if cls.exact and not cls.numeric:
            assert self.aim.times is not None
            step = self.aim.times / self.aim.smoothness
            for each in fitting:
                yield each.scheme_args, step, partial(_timed, each, self.aim.rounds)
        elif issubclass(cls, LocalSteps):
            for each in fitting:
                own, rounds = self._local(each)
                args = own.scheme_args
                timed = partial(_timed, each.replace(scheme_args=args), rounds)
                yield args, float(own.optimiser_args["step"]), timed
        else:
            for each in _spread(fitting):
                yield self._simulated(each)

    def _local(self, e: Experiment) -> tuple[Experiment, float]:
        """Return best steps and rounds of local steps; their models do not depend on delays, as all are waited for."""
        key = repr((e.scheme, {**e.scheme_args, "rate": None}))
        if key not in self.local:
            found = []
            for inner, outer in self._rates(e.scheme):
                own = e.replace(scheme_args={**e.scheme_args, "rate": inner}, optimiser_args=outer)
                (rounds,) = Trials(self.aim).need([own]).rounds
                found.append((float(rounds) if np.isfinite(rounds) else np.inf, own))
            rounds, own = min(found, key=lambda each: each[0])
            self.local[key] = own, rounds if np.isfinite(rounds) else float("nan")
        return self.local[key]

    def _rates(self, scheme: str) -> list[tuple[float, dict[str, float]]]:
        """Return workers' steps to try, and the outer optimiser's parameters: local SGD averages plain models."""
        if scheme == "DiLoCo":
            return [(rate, {"step": step, "momentum": MOMENTUM}) for rate in INNER for step in OUTER]
        assert self.aim.times is not None
        return [(step := k * self.aim.times / self.aim.smoothness, {"step": step}) for k in AROUND]

    def _simulated(self, e: Experiment) -> tuple[dict[str, Any], float, Timed]:
        """Return a scheme that is simulated under every seed, at the step that is best on the first few."""
        times = self._step(e)
        need = self._need(e, range(TUNED), times)
        assert need.times is not None

        def timed(seeds: Sequence[int]) -> Array:
            found = self._need(e, seeds, times if seeds == range(TUNED) else need.times)
            pace = found.pace
            return np.array(
                [_seconds(e, s, r) * p for s, r, p in zip(seeds, found.rounds, pace, strict=True)]
            )

        numbers = need.optimiser.model_dump()
        return e.scheme_args, float(numbers.get("step") or numbers["rate"]), timed

    def _step(self, e: Experiment) -> float | None:
        """Return the step, relative to the automatic one, with the least seconds at this link.

        None: to be chosen by simulation. The port keeps the order of arrival. Where rounds begin together and no
        values decide, the workers in time are the same at any bandwidth, and so are the rounds that every step takes.
        Only the time of a round changes.
        """
        if _linked(e):
            return None
        key = repr(e.replace(link={}))
        tuned = [e.replace(seed=seed) for seed in range(TUNED)]
        if key not in self.tried:
            self.tried[key] = self._trials(e).tried(tuned)
        steps, rounds = self.tried[key]
        seconds = np.array(
            [[_seconds(at, at.seed, r) for at, r in zip(tuned, row, strict=True)] for row in rounds]
        )
        means = seconds.mean(axis=1)
        return min(steps) if np.isnan(means).all() else steps[int(np.nanargmin(means))]

    def _trials(self, e: Experiment) -> Trials:
        if e.optimiser not in self.centres:
            own = e.optimiser != "gd"
            self.centres[e.optimiser] = centre(e, self.aim) if own else self.aim.times
        around = self.centres[e.optimiser]
        assert around is not None, f"{e.optimiser} does not come to the loss with full gradients"
        return Trials(stretched(self.aim, e), around * portion(e))

    def _need(self, e: Experiment, seeds: Sequence[int], times: float | None) -> RoundsNeeded:
        """Return the rounds to the loss, computed once if the bandwidth does not matter; None: by this step."""
        key = repr((e if _linked(e) else e.replace(link={}), seeds, times))
        if key not in self.needs:
            self.needs[key] = self._trials(e).need([e.replace(seed=seed) for seed in seeds], times)
        return self.needs[key]


def _linked(e: Experiment) -> bool:
    """Return whether the bandwidth affects which workers are in time."""
    return e.plan.versions > 1 or e.built_scheme.numeric


def _fitting(e: Experiment, candidates: Iterable[dict[str, Any]]) -> Iterator[Experiment]:
    for args in candidates:
        try:
            yield settled(e.replace(scheme_args=args))
        except SettingError:
            continue


def _belongs(family: str, e: Experiment) -> bool:
    """Return whether a scheme is in its family: a code stores parts more than once, waiting for all does not."""
    if family in CODES:
        return _held(e) > MORE and e.scheme_args.get("replication") != 1
    return family != "wait for all" or _held(e) <= MORE


def _held(e: Experiment) -> float:
    """Return how many copies of the data the workers store; parts of all rounds count for schemes that shuffle."""
    scheme, plan, pairs = e.built_scheme, e.plan, set[tuple[int, int]]()
    for r in range(plan.workers):
        held = scheme.round_plan(plan, r)
        pairs.update((rank, part) for rank in range(1, plan.ranks) for part in held.work[rank].parts.tolist())
        if held is plan:
            break
    return float(plan.sizes[[part for _, part in pairs]].sum() / plan.samples)


def _spread(found: Sequence[Experiment]) -> list[Experiment]:
    """Choose a few of them, from the shortest rounds to the longest."""
    ordered = sorted(found, key=lambda e: forecast(e, 2 * ROUNDS).mean)
    places = np.unique(np.linspace(0, len(ordered) - 1, min(EACH, len(ordered))).round().astype(int))
    return [ordered[k] for k in places]


def _timed(e: Experiment, rounds: float, seeds: Sequence[int]) -> Array:
    return np.array([_seconds(e, seed, rounds) for seed in seeds])


def _seconds(e: Experiment, seed: int, rounds: float) -> float:
    return float("nan") if np.isnan(rounds) else float(forecast(e, int(rounds), seed).seconds.sum())


# ---------------------------------------------------------------- the table


def rows(law: str, column: str, cost: float, found: Iterable[Result]) -> list[dict[str, Any]]:
    """Return the rows of the table for one cell."""
    return [
        {
            "law": law, "column": column, "cost": cost, "family": r.family, "scheme": r.scheme,
            "settings": " ".join(f"{k}={_told(v)}" for k, v in r.args.items() if k != "rate" or r.family == OWN),
            "step": float(f"{r.step:.3g}"), "seconds": " ".join(f"{s:.5g}" for s in r.seconds),
        }
        for r in found
    ]  # fmt: skip


def _told(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def read(path: Path = NUMBERS) -> pd.DataFrame:
    """Read the saved table."""
    return told(pd.read_csv(path, dtype={"column": str}, keep_default_na=False))


def told(found: pd.DataFrame | Sequence[dict[str, Any]]) -> pd.DataFrame:
    """Return rows as a table, with an array of seconds in each."""
    table = pd.DataFrame(found)
    seconds: Any = [np.array(text.split(), float) for text in table["seconds"]]
    return table.assign(seconds=seconds, step=pd.to_numeric(table["step"], errors="coerce"))


def band(seconds: Array) -> tuple[float, float, float]:
    """Return the geometric mean over the seeds with its 95 % interval: low, mean, high."""
    logs = np.log(seconds)
    half = float(student.ppf(0.975, len(logs) - 1)) * float(logs.std(ddof=1)) / np.sqrt(len(logs))
    return tuple(np.exp(logs.mean() + half * np.array([-1.0, 0.0, 1.0])).tolist())


def ranked(cell: pd.DataFrame) -> pd.DataFrame:
    """Rank the schemes of one cell that reach the loss; `tie`: not distinguishable from the fastest by these seeds.

    The seeds are the same for all, so differences are taken seed by seed.
    """
    found = cell[[bool(np.isfinite(s).all()) for s in cell["seconds"]]].copy()
    found["low"], found["mean"], found["high"] = zip(*map(band, found["seconds"]), strict=True)
    found = found.sort_values("mean", kind="stable")
    best = found["seconds"].iloc[0]
    found["tie"] = [band(seconds / best)[0] <= 1.0 for seconds in found["seconds"]]
    return found


def main(arguments: Sequence[str]) -> None:
    """Remake the table for the named delay models, and only for the named schemes if there are any."""
    contest = SchemeGrid(experiment(synthetic("bursts", 1.0), 0.0))
    named = [name for name in (*LEVELS, "recorded") if name in arguments]
    only = [name for name in schemes.names() if name in arguments]
    cells = [
        (law, f"{level:g}", synthetic(law, level)) for law in named if law in LEVELS for level in LEVELS[law]
    ]
    with TemporaryDirectory() as folder:
        if "recorded" in named:
            cells += recorded(Path(arguments[-1]), Path(folder))
        found = []
        for (law, column, delays), cost in product(cells, COSTS):
            results = list(contest.results(experiment(delays, cost), contenders(only)))
            found += rows(law, column, cost, results)
            there = sorted((float(r.seconds.mean()), r.scheme) for r in results if r.reached)
            print(law, column, cost, *(there[0] if there else ("nobody",)), flush=True)
    new = pd.DataFrame(found)
    if NUMBERS.is_file():
        old = pd.read_csv(NUMBERS, dtype=str, keep_default_na=False)
        again = old["law"].isin(named) & (old["scheme"].isin(only) | (not only))
        new = pd.concat([old[~again], new])
    with atomic_write(NUMBERS) as out:
        out.write(new.to_csv(index=False).encode())


def recorded(traces: Path, folder: Path) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Return the delays of recorded workers, with their median as the unit; missing ones are reported and skipped."""
    for column in RECORDED:
        try:
            table = _table(traces, column)
        except OSError as error:
            print(f"{column}: left out: {error}")
            continue
        table["seconds"] /= table["seconds"].median()
        path = folder / f"{column}.csv"
        table.to_csv(path, index=False)
        yield (
            "recorded",
            column,
            {"kind": "replay", "path": str(path), "samples": SHARE, "common_start": True},
        )


def _table(traces: Path, column: str) -> pd.DataFrame:
    """Read columns worker, iteration, seconds."""
    if column == "EC2":
        table = pd.read_csv(traces / "ec2_traces.csv")
        return table[table["experiment"] == table["experiment"].iloc[0]].drop(columns="experiment")
    source, _, which = column.partition(" ")
    # four pipeline stages differ by design: each rank relative to its stage's median
    if source == "ByteDance":
        table = pd.read_parquet(traces / "traces" / f"bytedance_{which}.parquet")
        table = table[table["optype"].isin(["forward-compute", "backward-compute"])]
        steps = table.groupby(["stage", "rank", "step"])["duration"].sum().reset_index()
        seconds = steps["duration"] / steps.groupby("stage")["duration"].transform("median")
        return pd.DataFrame({"worker": steps["rank"], "iteration": steps["step"], "seconds": seconds})
    table = pd.read_csv(traces / "traces" / f"alibaba_job_{which}.csv")
    order = table.groupby("worker").cumcount()
    return pd.DataFrame(
        {"worker": table["worker"], "iteration": order, "seconds": table["batch_time_norm"] * 1.0}
    )


if __name__ == "__main__":
    main(sys.argv[1:])
