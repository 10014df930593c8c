"""Which scheme, and with which numbers, is the quickest on a measured cluster: forecast, resample, rank, say why.

Schemes tell themselves which numbers are worth trying (`Scheme.candidates`) and how long their rounds take
(`Scheme.odds`); nothing here knows any of them. A choice's time is that of a round times the rounds to a loss. All
exact schemes need equally many; those of the others come from a simulation (`workbench.targets`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from workbench import schemes as known
from workbench.advice import Advice, Choice, Refusal, name_of
from workbench.attribution import shapley
from workbench.delays import Constant
from workbench.experiment import Experiment
from workbench.fitting import drawn
from workbench.forecasting import Forecast
from workbench.problems.data import DataError
from workbench.profiles import ClusterProfile, Fitted, Host, Task
from workbench.protocol import Array
from workbench.runner import Bar
from workbench.settings import SettingError
from workbench.targets import EFFORT, LONGER, Need, Target, cost, needs, reference

ROUNDS, ROUNDS_AGAIN = 64, 24  # of a forecast, as measured and resampled
DRAWS = 4  # seeds of a forecast
SEEDS = 24  # resampled predictions at most, and of a profile that was not resampled
WITHIN = 2.0  # choices that take at most so many times as long as the best are resampled fully
FEW = 5  # resampled predictions of the others
EXPLAINED = 10  # schemes whose rounds are taken apart
EACH = 4  # settings of an approximate scheme that are simulated
QUIET = 0.05  # quantile of a worker's times: it was not held up
PER_RANK = 45e6  # bytes of a rank's own
Progress = Callable[[int], None]


@dataclass(frozen=True)
class Candidate:
    """A scheme with its numbers on the cluster, and its forecast."""

    experiment: Experiment  # on the cluster as measured
    task: Task
    forecast: Forecast
    exact: bool
    need: Need | None = None

    @property
    def name(self) -> str:
        """Scheme and numbers."""
        return name_of(self.experiment)

    @property
    def pace(self) -> float:
        """A real round over a forecast one, where a simulation knows."""
        return 1.0 if self.need is None else self.need.pace

    def rounds(self, target: Target) -> float:
        """Rounds to the target."""
        return float(target.rounds) if self.need is None else self.need.rounds

    def seconds(self, target: Target, per_round: float) -> float:
        """Seconds to the target where a forecast round takes so long."""
        return per_round * self.pace * self.rounds(target)


def plan(
    profile: ClusterProfile | str | Path,
    problem: str = "logistic",
    problem_args: Mapping[str, Any] | None = None,
    *,
    workers: int | None = None,
    rounds: int = 100,
    target: float | None = None,
    tolerance: float = 0.02,
    schemes: Sequence[str] | None = None,
    seed: int = 0,
    effort: float = EFFORT,
    replay: bool = False,
    progress: bool = False,
    **fields: Any,
) -> Advice:
    """Rank schemes and their numbers by the time to a loss on a measured cluster.

    Parameters
    ----------
    profile
        What `wb.profile` measured, or its file.
    problem, problem_args
        As in an experiment.
    workers
        How many; default: as many as were measured.
    rounds
        Updates that an exact scheme may make.
    target
        Training loss to reach; default: what an exact scheme has after `rounds` updates, within `tolerance`.
    tolerance
        Share of the way down to that loss that may be missing.
    schemes
        Names of those to consider; default: all.
    seed
        Of all draws.
    effort
        Numbers of data that simulating approximate schemes may go through; 0: rank the exact ones only.
    replay
        Plan for the very workers that were measured, by their recorded times: who is slow for good is so again. Else
        workers are drawn from the fitted law, as on a new set of machines of the kind.
    progress
        Show a bar.
    **fields
        Other fields of an experiment: optimiser, optimiser_args, ...

    Returns
    -------
    Advice
        Choices in order, each with an interval, what is not ranked and why, and the advice in words.

    Raises
    ------
    SettingError
        A field that does not fit, a target out of reach, or no scheme that could be ranked.

    Examples
    --------
    >>> from workbench.profiling import simulated
    >>> measured = simulated(Experiment(workers=6, scheme="UMW", link={"bandwidth": 1e5}), rounds=8)
    >>> advice = plan(measured, problem_args={"samples": 600, "features": 500}, schemes=["UMW", "CR"], rounds=20)
    >>> advice.best.scheme
    'CR'
    """
    _check(0.0 if target is not None else tolerance, effort, schemes)
    cluster = profile if isinstance(profile, ClusterProfile) else ClusterProfile.load(profile)
    cluster = cluster.replayed() if replay else cluster
    base = _base(cluster, problem, problem_args, workers, rounds, seed, fields)
    refusals: list[Refusal] = []
    found = _candidates(cluster, base, schemes, refusals, progress)
    aim, found = _rounds(found, base, rounds, target, tolerance, effort, refusals)
    if not found:
        raise SettingError(_nothing(refusals))
    choices = _ranked(cluster, found, aim, seed, progress)
    return Advice(
        tuple(choices), tuple(refusals), _aim(aim, rounds), tuple(_notes(cluster, base, aim, schemes))
    )


def _check(tolerance: float, effort: float, schemes: Sequence[str] | None) -> None:
    if not 0 <= tolerance < 1:
        raise SettingError(f"tolerance = {tolerance}: is a share of the way down; take 0 or more, below 1")
    if not effort >= 0:
        raise SettingError(f"effort = {effort}: take 0 or more")
    if schemes is not None and not len(schemes):
        raise SettingError("schemes = []: name one at least, or take None for all")


def _base(
    cluster: ClusterProfile,
    problem: str,
    problem_args: Mapping[str, Any] | None,
    workers: int | None,
    rounds: int,
    seed: int,
    fields: Mapping[str, Any],
) -> Experiment:
    """What all candidates have in common."""
    taken = {"scheme", "scheme_args", "delays", "link", "decode_rate", "faults"} & set(fields)
    if taken:
        raise SettingError(f"{min(taken)}: the planner fills it in; leave it out")
    return Experiment(
        scheme="UMW",
        problem=problem,
        problem_args=dict(problem_args or {}),
        workers=cluster.workers if workers is None else workers,
        rounds=rounds,
        seed=seed,
        **fields,
    )


# ---------------------------------------------------------------- candidates


def _candidates(
    cluster: ClusterProfile,
    base: Experiment,
    names: Sequence[str] | None,
    refusals: list[Refusal],
    progress: bool,
) -> list[Candidate]:
    """All that fit, each with a forecast; why the others do not goes into `refusals`."""
    wanted = [(name, list(known.get(name).candidates(base.workers))) for name in names or known.names()]
    found = []
    with Bar("forecasting", "candidate", sum(len(args) for _, args in wanted), progress) as bar:
        done = 0
        for name, candidates in wanted:
            reasons = []
            for args in candidates:
                try:
                    found.append(_candidate(cluster, base, name, args))
                except SettingError as error:
                    reasons.append(str(error))
                done += 1
                bar.update(done)
            if len(reasons) == len(candidates):
                refusals.append(
                    Refusal(name, reasons[0] if reasons else f"{base.workers} workers are too few")
                )
    return found


def _candidate(cluster: ClusterProfile, base: Experiment, scheme: str, args: dict[str, Any]) -> Candidate:
    """Raises `SettingError` where it does not fit."""
    e = base.replace(scheme=scheme, scheme_args=args)
    built = e.build_scheme()
    loads = built.loads(e.workers, e.shape()[0])
    if not loads.min():
        raise SettingError(
            f"samples = {e.shape()[0]}: {scheme} would leave workers without any; take more samples"
        )
    task = cluster.task(e)
    check_memory(cluster, e, float(loads.mean()))
    placed = cluster.placed(e, task)
    return Candidate(placed, task, _expected(cluster, placed, task), built.exact)


def _expected(cluster: ClusterProfile, e: Experiment, task: Task) -> Forecast:
    """Forecast over several seeds: who is slow for good is drawn once for each."""
    found = [cluster.forecast_of(e, ROUNDS // DRAWS, e.seed + k, task.cut) for k in range(DRAWS)]
    messages, size = (float(np.mean([getattr(f, name) for f in found])) for name in ("messages", "bytes"))
    return Forecast(np.concatenate([f.seconds for f in found]), found[0].load, messages, size)


def check_memory(cluster: ClusterProfile, e: Experiment, load: float) -> None:
    """Refuse what some host has no room for: ranks, the data they go through, and messages.

    Raises `SettingError`. Hosts whose free memory is unknown take everything.
    """
    shape = getattr(e.problem_spec, "known", lambda: None)()
    samples, floats = e.shape()
    row = 8.0 * (shape[1] if shape else 0)
    measured = max(sum(host.ranks for host in cluster.hosts), 1)
    for place, host in enumerate(cluster.hosts):
        ranks = host.ranks * e.workers / measured
        data = min(ranks * load, samples) * row  # ranks of one host share its copy of the data
        messages = 8.0 * floats * (4 * ranks + (e.workers if place == 0 else 0))
        _check_host(host, ranks, ranks * PER_RANK + data + messages)


def _check_host(host: Host, ranks: float, bytes_: float) -> None:
    if host.free is not None and bytes_ > host.free * 2**30:
        raise SettingError(
            f"workers: {ranks:.0f} on {host.name} need about {bytes_ / 2**30:.1f} GiB and {host.free:.1f} GiB are free;"
            " take fewer workers, fewer samples, or a smaller load"
        )


# ---------------------------------------------------------------- rounds to the target


def _rounds(
    found: list[Candidate],
    base: Experiment,
    rounds: int,
    loss: float | None,
    tolerance: float,
    effort: float,
    refusals: list[Refusal],
) -> tuple[Target, list[Candidate]]:
    """The target, and those candidates that reach it, with their rounds."""
    exact = [c for c in found if c.exact]
    others = [c for c in found if not c.exact]
    if loss is None and not (others and effort):
        refusals += [
            Refusal(name, "approximate, and effort = 0: nothing is simulated") for name in _schemes(others)
        ]
        return Target(rounds), exact
    try:
        aim = reference(base, rounds, loss, tolerance, effort / 4 or EFFORT)
    except (DataError, OSError, ImportError) as error:
        if loss is not None:
            raise
        refusals += [Refusal(name, f"its rounds cannot be simulated: {error}") for name in _schemes(others)]
        return Target(rounds), exact
    chosen = _worth(others, exact, aim, effort, refusals)
    reached = []
    for candidate, need in zip(
        chosen, needs([c.experiment for c in chosen], aim) if chosen else [], strict=True
    ):
        if np.isfinite(need.rounds):
            reached.append(replace(candidate, need=need))
        else:
            reason = f"does not come to a loss of {aim.loss:.4g} in {LONGER * aim.rounds} rounds"
            refusals.append(Refusal(candidate.name, reason))
    return aim, exact + reached


def _schemes(found: Sequence[Candidate]) -> list[str]:
    return list(dict.fromkeys(c.experiment.scheme for c in found))


def _worth(
    others: Sequence[Candidate],
    exact: Sequence[Candidate],
    aim: Target,
    effort: float,
    refusals: list[Refusal],
) -> list[Candidate]:
    """Those to simulate: that could win with as many rounds as an exact scheme, as far as the effort goes."""
    best = min((c.forecast.mean for c in exact), default=float("inf"))
    queues, left = [], effort
    for scheme in _schemes(others):
        every = sorted((c for c in others if c.experiment.scheme == scheme), key=lambda c: c.forecast.mean)
        able = [c for c in every if c.forecast.mean < best or c.experiment.build_scheme().numeric]
        if not able:
            ratio = every[0].forecast.mean / best
            reason = (
                f"with as many rounds as an exact scheme it still takes {ratio:.3g} times as long as the best"
            )
            refusals.append(Refusal(scheme, reason))
        queues.append(_spread(able))
    chosen = []
    for candidate in (c for c in chain.from_iterable(zip_longest(*queues)) if c is not None):
        price = cost(candidate.experiment, aim.samples, LONGER * aim.rounds)
        if price > left:
            reason = "not simulated: it takes too long here; name fewer schemes, or raise effort"
            refusals.append(Refusal(candidate.name, reason))
            continue
        left -= price
        chosen.append(candidate)
    return chosen


def _spread(found: Sequence[Candidate]) -> list[Candidate]:
    """Some of them, evenly spread from the quickest round on."""
    places = sorted({round(k * (len(found) - 1) / max(EACH - 1, 1)) for k in range(EACH)}) if found else []
    return [found[place] for place in places]


# ---------------------------------------------------------------- ranking


def _ranked(
    cluster: ClusterProfile, found: Sequence[Candidate], aim: Target, seed: int, progress: bool
) -> list[Choice]:
    """Choices in order, resampled; the first of each of the best schemes is taken apart."""
    point = np.array([c.seconds(aim, c.forecast.mean) for c in found])
    again = _resampled(cluster, found, point, aim, seed, progress)
    wins = _wins(again, np.flatnonzero(point <= WITHIN * point.min()))
    order = np.argsort(point, kind="stable")
    choices = [_choice(found[i], aim, float(point[i]), again[i], float(wins[i])) for i in order]
    explained = list(dict.fromkeys(c.scheme for c in choices))[:EXPLAINED]
    firsts = [next(k for k, c in enumerate(choices) if c.scheme == scheme) for scheme in explained]
    for k in firsts:
        choices[k] = replace(choices[k], parts=_parts(cluster, found[order[k]]))
    return choices


def _choice(c: Candidate, aim: Target, seconds: float, again: Array, sure: float) -> Choice:
    kept = again[np.isfinite(again)]
    low, high = np.quantile(kept, (0.05, 0.95)) if len(kept) else (seconds, seconds)
    return Choice(
        experiment=c.experiment.model_copy(update={"rounds": max(round(c.rounds(aim)), 1)}),
        per_round=c.forecast.mean * c.pace,
        rounds=c.rounds(aim),
        source=aim.source if c.need is None else c.need.source,
        seconds=seconds,
        low=min(float(low), seconds),
        high=max(float(high), seconds),
        sure=sure,
        load=c.forecast.load,
        messages=c.forecast.messages,
        bytes=c.forecast.bytes,
    )


def _resampled(
    cluster: ClusterProfile, found: Sequence[Candidate], point: Array, aim: Target, seed: int, progress: bool
) -> Array:
    """Seconds to the target by resampled numbers and other draws: (candidates, resamples), NaN where not asked."""
    numbers: list[Fitted] = list(cluster.resampled[:SEEDS]) or [cluster.fitted] * SEEDS
    times = np.full((len(found), len(numbers)), np.nan)
    near = point <= WITHIN * point.min()
    with Bar("resampling", "candidate", len(found), progress) as bar:
        for i, c in enumerate(found):  # one candidate after the other: its code is made once
            for k in range(len(numbers) if near[i] else min(FEW, len(numbers))):
                e = cluster.placed(c.experiment, c.task, numbers[k])
                mean = cluster.forecast_of(e, ROUNDS_AGAIN, seed + 1 + k, c.task.cut).mean
                times[i, k] = c.seconds(aim, mean)
            bar.update(i + 1)
    return times


def _wins(times: Array, contenders: NDArray[np.int64]) -> Array:
    """Share of the resamples in which each is the quickest of the contenders."""
    wins = np.zeros(len(times))
    first = contenders[np.argmin(times[contenders], axis=0)]
    np.add.at(wins, first, 1 / times.shape[1])
    return wins


# ---------------------------------------------------------------- what a round is made of


def _parts(cluster: ClusterProfile, c: Candidate) -> dict[str, float]:
    """Seconds of a round by cause: computing undisturbed, and what stragglers, latency and transfers add."""
    e = c.experiment
    quiet = Constant(shift=float(np.quantile(drawn(e.delays, 4, 2000), QUIET)))
    off: dict[str, Callable[[Experiment], dict[str, Any]]] = {
        "stragglers": lambda at: {"delays": quiet},
        "latency": lambda at: {"link": at.link.replace(latency=0.0)},
        "transfers": lambda at: {"link": at.link.replace(bandwidth=None), "decode_rate": None},
    }

    def seconds(on: frozenset[str]) -> float:
        at = e
        for name in off.keys() - on:
            at = at.model_copy(update=off[name](at))
        return cluster.forecast_of(at, ROUNDS_AGAIN, cut=c.task.cut).mean * c.pace

    return {"computing": seconds(frozenset()), **shapley(list(off), seconds)}


# ---------------------------------------------------------------- words


def _aim(aim: Target, rounds: int) -> str:
    if aim.loss is None:
        return f"for {rounds} rounds"
    return f"to a loss of {aim.loss:.4g}"


def _notes(
    cluster: ClusterProfile, base: Experiment, aim: Target, names: Sequence[str] | None
) -> Iterator[str]:
    yield from cluster.notes()
    if base.workers != cluster.workers:
        yield (
            f"measured with {cluster.workers} workers, planned for {base.workers}: workers that share a core or a"
            " network slow one another down; measure with as many"
        )
    samples, floats = base.shape()
    if aim.samples and aim.samples < samples:
        yield f"rounds were simulated on {aim.samples} of {samples} samples"
    longest = max(each.typical for each in cluster.recorded)
    share = cluster.fitted.work.seconds(samples / base.workers, floats) / longest
    if share > 4:
        yield (
            f"a worker's task takes {share:.1f} times as long as the longest that was measured:"
            " measure with `like` this experiment"
        )
    if base.problem != cluster.problem:
        yield f"measured with problem {cluster.problem}, planned for {base.problem}: a sample may cost more or less"


def _nothing(refusals: Sequence[Refusal]) -> str:
    reasons = "; ".join(f"{each.name}: {each.reason}" for each in refusals[:3])
    return f"schemes: none can be ranked ({reasons})"


__all__ = ["Candidate", "check_memory", "plan"]
