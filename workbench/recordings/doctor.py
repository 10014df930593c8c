"""Who makes the steps long, by how much, and since when: what a step would take if this one were like the others.

A step ends with its slowest worker, so causes interact: with two slow workers, mending either alone gains little. Each
worker's cost is therefore its Shapley value, the mean over all orders of mending; for "the slowest decides" that is the
airport game: what the slowest exceeds the second by is its own, what the second exceeds the third by they share, ...

S. C. Littlechild, G. Owen, "A simple expression for the Shapley value in a special case", Management Science 20 (1973).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import workbench as wb  # its front door: figures know diagnoses, and not the other way round
from workbench.base.settings import SettingError
from workbench.base.types import Array
from workbench.planning.laws import resampled
from workbench.recordings.card import Change, changes, whole
from workbench.recordings.loading import load
from workbench.recordings.of_run import DECODING, MOST, PORT, Cause, Rounds
from workbench.recordings.pipeline import Pipeline
from workbench.recordings.recording import Recording
from workbench.recordings.remedies import Remedy, Steps, remedies
from workbench.recordings.sources import bytedance, runs
from workbench.trace.trace import Trace

DRAWS, BAND = 400, (0.05, 0.95)
CHANCE = 0.01  # of naming somebody where all are alike
LEAST = 0.01  # share of the step that a culprit costs at least
OFTEN = 0.5  # a cost is chronic whose median is that much of its mean: no few steps make it


class Culprit(NamedTuple):
    """Somebody without whom, or something without which, steps would be shorter."""

    who: str
    cost: float  # share of the step's time
    low: float  # 90 % band of it, from the recorded steps
    high: float
    chronic: bool  # late in most steps, or now and then
    chance: float  # of a cost as high where all are alike
    since: Change | None = None


@dataclass(frozen=True)
class Diagnosis:
    """What steps take over what they would take if everybody were like the median, and who is to blame.

    `slowdown`: that quotient; `culprits`: the worst first; `costs`: everybody's share of the steps' time; `left_out`:
    what the model of a step does not have; `like`: what mended means; `harmless`: who is slow and
    costs nothing, as the scheme does without them; `remedies`: what to do about it (None: it was not asked).
    """

    name: str
    slowdown: float
    culprits: tuple[Culprit, ...]
    costs: dict[str, float]
    left_out: str
    like: str = "the median"
    harmless: tuple[str, ...] = ()
    remedies: tuple[Remedy, ...] | None = None

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def figure(self, theme: str = "light") -> Any:
        """Bars of everybody's cost, with bands where somebody stands out: see `culprits`."""
        return wb.figures.culprits(self, theme)

    def _lines(self) -> Iterator[str]:
        yield f"{self.name}: steps take {self.slowdown:.3f} times what they would if all were like {self.like}"
        if not self.culprits:
            yield "nobody stands out: what is late is late by chance, now here, now there"
        for one in self.culprits:
            when = "in most steps" if one.chronic else "now and then"
            since = f", since step {one.since.step}" if one.since else ""
            yield f"{one.who} costs {one.cost:.1%} of the time ({one.low:.1%} to {one.high:.1%}), {when}{since}"
        if self.harmless:
            yield f"slow, but the scheme does without: {', '.join(self.harmless)}"
        yield from map(str, self.remedies or ())
        if self.remedies == ():
            yield "there is nothing to gain from a code, or from leaving somebody out"
        yield f"left out: {self.left_out}"


def diagnose(what: Recording | Trace | str | Path, seed: int = 0) -> Diagnosis:
    """Name who makes steps long.

    Parameters
    ----------
    what
        A recording, a run, or where one lies; a job of ByteDance's kind is modelled operation by operation.
    seed
        Of the draws for bands and chances.

    Raises
    ------
    SettingError
        There is nothing to compare: one worker, several jobs, or no time above 0.

    Examples
    --------
    >>> import pandas as pd
    >>> times = [(w, t, (2.0 if w == 3 else 1.0) + 0.01 * ((7 * t + 3 * w) % 5)) for t in range(40) for w in range(8)]
    >>> rows = pd.DataFrame(times, columns=["worker", "step", "seconds"])
    >>> [one.who for one in diagnose(Recording.of_rows(rows, "one slow")).culprits]
    ['worker 3']
    """
    if isinstance(what, str | Path) and bytedance.SOURCE.tells(Path(what).expanduser()):
        return _of_pipeline(Path(what).expanduser())
    if isinstance(what, str | Path) and runs.SOURCE.tells(Path(what).expanduser()):
        what = Trace.load(Path(what).expanduser())
    if isinstance(what, Trace):
        return _of_run(what, np.random.default_rng(seed))
    job = (what if isinstance(what, Recording) else load(what)).job()
    table = job.table()
    if table.shape[1] < 2:
        raise SettingError(
            f"recording = {job.names[0]!r}: has one worker only; there is nobody to compare it with"
        )
    times = whole(job.names[0], table)
    if not np.all(times > 0):
        raise SettingError(f"recording = {job.names[0]!r}: has times of 0 {job.units}; leave such steps out")
    rng = np.random.default_rng(seed)
    share = blame(times)
    names = [f"worker {worker}" for worker in table.columns]
    return Diagnosis(
        name=job.names[0],
        slowdown=float(times.max(axis=1).sum() / np.median(times, axis=1).sum()),
        culprits=tuple(_culprits(times, share, names, table.index.tolist(), rng)),
        costs=dict(zip(names, (share.sum(axis=0) / times.max(axis=1).sum()).tolist(), strict=True)),
        left_out="links, ports and decoding: a step is taken to end with its slowest worker, and to take twice as long"
        " with twice the samples",
        remedies=remedies(Steps(times, names), times.max(axis=1), rng),
    )


def blame(times: Array) -> Array:
    """Each worker's part of what the slowest of a step takes longer than the median worker: (steps, workers).

    >>> blame(np.array([[1.0, 1.0, 1.0, 2.0, 4.0]])).tolist()
    [[0.0, 0.0, 0.0, 0.5, 2.5]]
    """
    over = np.maximum(times - np.median(times, axis=1, keepdims=True), 0.0)
    order = np.argsort(over, axis=1)
    rising = np.take_along_axis(over, order, axis=1)
    steps = np.diff(rising, axis=1, prepend=0.0) / np.arange(times.shape[1], 0, -1)
    share = np.empty_like(times)
    np.put_along_axis(share, order, np.cumsum(steps, axis=1), axis=1)
    return share


def _culprits(
    times: Array, share: Array, names: list[str], steps: list[int], rng: np.random.Generator
) -> Iterator[Culprit]:
    """Whose cost is more than chance gives the unluckiest where all are alike."""
    whole_time = times.max(axis=1)
    cost = share.sum(axis=0) / whole_time.sum()
    chance = _chances(share, cost, whole_time.sum(), rng)
    draws = [resampled(len(times), rng) for _ in range(DRAWS)]
    bands = np.quantile([share[d].sum(axis=0) / whole_time[d].sum() for d in draws], BAND, axis=0)
    ratio = times / np.median(times, axis=1, keepdims=True)
    found = {change.worker: change for change in changes(ratio, names, steps)}
    for i in np.argsort(-cost):
        if chance[i] <= CHANCE and cost[i] >= LEAST:
            chronic = float(np.median(share[:, i])) > OFTEN * float(share[:, i].mean())
            low, high = bands[:, i].tolist()
            yield Culprit(names[i], float(cost[i]), low, high, chronic, float(chance[i]), found.get(names[i]))


def _chances(share: Array, cost: Array, total: float, rng: np.random.Generator) -> Array:
    """How often somebody's cost is as high if who is late is drawn anew for every block of steps.

    Blocks keep bursts together; the unluckiest of all workers is compared, as any of them might have been named.
    """
    block = max(1, round(len(share) ** (1 / 3)))
    starts = np.arange(0, len(share), block)
    sums = np.add.reduceat(share, starts, axis=0)
    worst = np.array([rng.permuted(sums, axis=1).sum(axis=0).max() for _ in range(DRAWS)]) / total
    return np.asarray((1 + (worst[None, :] >= cost[:, None] - 1e-15).sum(axis=1)) / (1 + DRAWS))


def _of_run(trace: Trace, rng: np.random.Generator) -> Diagnosis:
    """By the scheme's own rounds: who is slow by the times, what that costs by the scheme."""
    run = Rounds.of(trace)
    if run.seconds.shape[1] < 2:
        raise SettingError(f"run {trace.label!r}: has one worker only; there is nobody to compare it with")
    e, now = trace.experiment, run.lasting()
    share = blame(run.seconds)
    chance = np.minimum(
        *(_chances(one, one.sum(axis=0), 1.0, rng) for one in (share, run.late.astype(np.float64)))
    )
    slow = [int(i) for i in np.argsort(-share.sum(axis=0)) if chance[i] <= CHANCE / 2]
    others = [PORT] * (e.link.bandwidth is not None) + [DECODING] * (e.decode_rate is not None)
    gains = run.shapley([*slow[: MOST - len(others)], *others])
    costs = {_named(cause): gain for cause, gain in gains.items()}
    found = sorted((_culprit(who, gain, now, rng) for who, gain in costs.items()), key=lambda one: -one.cost)
    mended = run.lasting([*range(e.workers), *others])
    told = float(now.sum() / trace.columns["time"][-1])
    shares = e.built_scheme.loads(e.workers, e.problem_spec.count()) * e.workers / e.problem_spec.count()
    names = [_named(i) for i in range(e.workers)]
    even = Steps(run.seconds / shares, names, e.line, e.shape()[1], e.decode_rate)
    return Diagnosis(
        name=trace.label,
        slowdown=float(now.sum() / mended.sum()),
        culprits=tuple(one for one in found if _counts(one)),
        costs={who: float(gain.sum() / now.sum()) for who, gain in costs.items()},
        left_out=f"{run.late.mean():.0%} of the work was cut off, and is taken to have ended with its round; the"
        f" scheme's rounds with these times are {told:.1%} of the run",
        remedies=None
        if run.late.any()
        else remedies(even, now, rng),  # what was cut off took who knows how long
        harmless=tuple(one.who for one in found if not _counts(one) and one.who not in others),
    )


def _counts(one: Culprit) -> bool:
    """Is the cost worth a word, and more than nothing for certain?"""
    return one.cost >= LEAST and one.low > 0


def _named(cause: Cause) -> str:
    return cause if isinstance(cause, str) else f"worker {cause + 1}"


def _culprit(who: str, gain: Array, now: Array, rng: np.random.Generator) -> Culprit:
    draws = [resampled(len(now), rng) for _ in range(DRAWS)]
    low, high = np.quantile([gain[d].sum() / now[d].sum() for d in draws], BAND).tolist()
    cost = float(gain.sum() / now.sum())
    chronic = float(np.median(gain)) > OFTEN * float(gain.mean())
    return Culprit(who, cost, low, high, chronic, CHANCE)


def _of_pipeline(path: Path) -> Diagnosis:
    """A job of stages and replicas: a cost is by how much one worker, or stage, as recorded makes an even step longer.

    Where all replicas of the worst worker's stage cost as much as half of what it does, the stage is too long.
    """
    rows = bytedance.operations(path)
    job = Pipeline.of(rows)
    even = job.even()
    real, ideal = job.seconds(job.durations), job.seconds(even)
    ranks = rows.groupby(["stage", "dp_rank"])["rank"].first()

    def cost(stage: int, replica: int | slice) -> Array:
        mixed = {
            k: _mixed(even[k], d, replica) if k[2] == stage else even[k] for k, d in job.durations.items()
        }
        return np.asarray((job.seconds(mixed) - ideal) / real)

    workers = {key: cost(*key) for key in ranks.index}
    stages = {stage: cost(stage, slice(None)) for stage in range(job.stages)}
    costs = {f"worker {ranks[key]} (stage {key[0]})": float(each.mean()) for key, each in workers.items()}
    worst = max(workers, key=lambda key: float(workers[key].mean()))
    alike = [float(each.mean()) for key, each in workers.items() if key[0] == worst[0]]
    one = f"worker {ranks[worst]} (stage {worst[0]})"
    long = len(alike) > 1 and min(alike) >= 0.5 * max(alike)
    who, series = (f"stage {worst[0]}", stages[worst[0]]) if long else (one, workers[worst])
    low, high = np.quantile(series, BAND).tolist()
    found = Culprit(who, float(series.mean()), low, high, chronic=True, chance=1 / (1 + len(series)))
    return Diagnosis(
        name=path.name.split(".")[0],
        slowdown=float(real.mean() / ideal.mean()),
        culprits=(found,) if found.cost >= LEAST else (),
        costs={**costs, **{f"stage {stage}": float(each.mean()) for stage, each in stages.items()}},
        left_out="what the processor does between operations, and model chunks that share a stage",
        like="the average of their kind",
    )


def _mixed(even: Array, real: Array, replica: int | slice) -> Array:
    mixed = even.copy()
    mixed[:, replica] = real[:, replica]
    return mixed
