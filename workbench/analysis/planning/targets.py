"""Number of rounds in which a scheme reaches a loss, with a step size chosen for it, simulated on the virtual clock.

Exact schemes with the same optimiser visit the same models, so one set of trajectories is enough for all. The commits
of an inexact scheme depend on which workers are late, and those of a numeric one on the models. Both are simulated with
the cluster's own delays, over several seeds, on as many of the samples as `effort` allows.

Step sizes are chosen by the same rule for all. Exact schemes use the step size among `EXACT_STEPS`, in units of the
automatic one, that reaches the loss in the fewest rounds. Inexact ones start from that step size, times the factor
that makes their estimate unbiased. (It is N/(N-S) for SGD, which commits the plain sum of N-S of N answers.) They try
the products of this start with each of `INEXACT_STEPS`. In asynchronous schemes, a commit has fewer answers than there
are workers. Their step sizes are multiplied by the ratio of answers to workers, and their rounds are divided by it.

Numeric schemes cannot share passes over the data, so they try fewer step sizes. These are `LAZY_STEPS` around the best
one of their optimiser with full gradients. Schemes that commit averages of models instead of gradients try `OWN_STEPS`
around their `own_step`.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

import numpy as np

from workbench.analysis.planning.profile import scaled
from workbench.analysis.planning.race import Race, values_of
from workbench.analysis.planning.star_commits import star_commits
from workbench.core.base.settings import SettingError, unknown_name
from workbench.core.base.types import Array
from workbench.core.contract.batches import BatchSampler, key_of
from workbench.core.contract.optimisers import Optimiser
from workbench.core.contract.weights import VersionedWeights
from workbench.core.engine.timeline import Timeline
from workbench.core.engine.virtual.arithmetic import Coefficients, Numbers
from workbench.core.experiment import Experiment
from workbench.core.forecasting import forecast
from workbench.core.problems.base import Problem, Request
from workbench.core.running.simulated import timeline
from workbench.core.theory.sequential import delayed_step
from workbench.core.trace.learning import Commits, Trajectories, evaluated, learn
from workbench.core.trace.metrics import SMOOTHED_EVALUATIONS, at_target, first_reached, rises, smoothed

MAX_ROUNDS_RATIO = 3  # max ratio of an inexact scheme's rounds to those of an exact one
USUAL_ROUNDS_RATIO = 1.5  # ratio of rounds that most inexact schemes do not exceed
# max ratio of rounds under most seeds to the most rounds under some seeds
SPARE_ROUNDS_RATIO = 1.2
# max ratio of an inexact scheme's time to that of the fastest exact one, up to which it is simulated
MAX_BEHIND_RATIO = 3.0
MAX_NUMBERS = 3e10  # max number of data matrix entries that all simulations together process
# step sizes of exact schemes, as multiples of the automatic one
EXACT_STEPS = tuple(2.0 ** (k / 2) for k in range(-2, 13))
# step sizes of inexact schemes, as multiples of the one that makes their estimate unbiased
INEXACT_STEPS = tuple(2.0 ** (k / 2) for k in range(-4, 2))
LAZY_STEPS = tuple(2.0 ** (-k / 2) for k in range(4))  # step sizes of numeric schemes
# step sizes of numeric schemes, if none of `LAZY_STEPS` reaches the loss
SMALL_STEPS = tuple(2.0 ** (-k / 2) for k in range(4, 9))
# step sizes of schemes that commit averages of models, as multiples of `Scheme.own_step`
OWN_STEPS = tuple(2.0**k for k in range(3, -3, -1))
STEP_SEEDS = 2  # number of seeds on which a step size is chosen
SCREENING_SEEDS = 5  # number of further seeds, on which the rounds with that step size are counted
MAX_MISSED_SHARE = 0.1  # max share of the seeds that may miss the loss
MAX_RETRIES = 3  # max number of smaller and smaller step sizes that are tried if more seeds miss the loss
MIN_BATCHES = 4  # min mini-batches of an epoch: with fewer, the noise of gradients is too small
REFERENCE_SCHEME = "UMW"


@dataclass(frozen=True)
class Target:
    """Loss or other metric to reach, and the rounds that an exact scheme takes to it, with its best step size."""

    rounds: int
    longest: int = 0  # max rounds for which an inexact scheme is simulated
    loss: float | None = None  # None: nothing was simulated, and the rounds are the given ones
    samples: int = 0  # number of samples in the simulations
    source: str = "theory: same models as every exact scheme"
    # best step size of exact schemes, as a multiple of the automatic one; None: that of the experiment
    times: float | None = None
    smoothness: float = 1.0  # smoothness of the simulated problem; its inverse is the automatic step size
    metric: str = "loss"  # metric of the value in `loss`
    seconds: float = float("inf")  # time in which the fastest exact scheme reaches the target


@dataclass(frozen=True)
class RoundsNeeded:
    """Rounds that a scheme takes to the target, (seeds,), and the optimiser for them."""

    rounds: Array
    # (seeds,) ratio of a simulated round's time to a forecast one: below 1 if the forecast is an upper bound
    pace: Array
    optimiser: Optimiser
    # chosen step size, as a multiple of the automatic one; None: that of the experiment
    times: float | None
    source: str


def reference(
    e: Experiment,
    rounds: int,
    wanted: float | None,
    tolerance: float,
    effort: float,
    tuned: bool = True,
    metric: str = "loss",
    samples: int | None = None,
) -> Target:
    """Simulate exact schemes. Return the target, the step size that reaches it, and the number of rounds.

    `wanted`: the target. With None it is the value of the best step size after `rounds` rounds, less the share
    `tolerance` of its change. `tuned`: choose the step size, else use that of the experiment. `samples`: number to
    simulate; None: as the effort allows. Raises `SettingError` for an unknown metric, if no loss is finite, and for a
    target that is met before the first round or not in `rounds` rounds.
    """
    exact = e.replace(scheme=REFERENCE_SCHEME, scheme_args={}, rounds=rounds)
    steps = len(EXACT_STEPS) if tuned else 1
    small = reduced(exact, samples) if samples else shortened(exact, rounds * steps, effort)
    problem = small.build_problem()
    smoothness = problem.smoothness()
    first, values = _exact(small, problem, EXACT_STEPS if tuned else (None,), smoothness, rounds, metric)
    ends = values[:, -1][np.isfinite(values[:, -1])]
    if not len(ends):
        raise SettingError(
            f"optimiser_args = {e.optimiser_args}: the loss is not finite with this step; take a smaller one"
        )
    best = float(ends.max() if rises(metric) else ends.min())
    way = max(best - first, 0.0) if rises(metric) else min(best - first, 0.0)
    loss = best - tolerance * way if wanted is None else wanted
    took = _first(values, loss, metric, e.batch)
    if np.isnan(took).all() or (wanted is not None and at_target(first, wanted, metric)):
        few = ", or more effort, so that more samples are simulated" * (small.shape()[0] < e.shape()[0])
        raise SettingError(
            f"target = {loss:g}: an exact scheme comes from {first:.4g} to {best:.4g} in {rounds} rounds;"
            f" take a target in between, or more rounds{few}"
        )
    place = int(np.nanargmin(took))
    return Target(
        rounds=int(took[place]),
        longest=max(MAX_ROUNDS_RATIO * int(took[place]), rounds),
        loss=float(loss),
        samples=small.shape()[0],
        times=EXACT_STEPS[place] if tuned else None,
        smoothness=smoothness,
        metric=metric,
    )


def centre(e: Experiment, aim: Target) -> float | None:
    """Return the step size with which full gradients reach the target in the fewest rounds.

    It is a multiple of the automatic step size of the experiment's optimiser. Return None if no step size reaches the
    target.
    """
    assert aim.loss is not None
    small = reduced(e.replace(scheme=REFERENCE_SCHEME, scheme_args={}), aim.samples)
    problem = small.build_problem()
    _, values = _exact(small, problem, EXACT_STEPS, aim.smoothness, aim.longest, aim.metric)
    took = _first(values, aim.loss, aim.metric, e.batch)
    return None if np.isnan(took).all() else EXACT_STEPS[int(np.nanargmin(took))]


def leaves_step_open(e: Experiment) -> bool:
    """Return whether the step size of the experiment's optimiser is not given, so that it can be chosen.

    >>> leaves_step_open(Experiment(optimiser="sgd", optimiser_args={"momentum": 0.9}))
    True
    >>> leaves_step_open(Experiment(optimiser="adam", optimiser_args={"rate": 0.1}))
    False
    """
    own = e.build_optimiser()
    return bool(own.scaled(1.0, 1.0).model_fields_set - own.model_fields_set)


def stepped(optimiser: Optimiser, times: float | None, smoothness: float) -> Optimiser:
    """Return the optimiser with `times` times its automatic step size. With None, it is unchanged."""
    return optimiser if times is None else optimiser.scaled(times, smoothness)


def _exact(
    e: Experiment,
    problem: Problem,
    times: Sequence[float | None],
    smoothness: float,
    rounds: int,
    metric: str,
) -> tuple[float, Array]:
    """Return a metric of exact schemes before the first round, and after each round, (step sizes, rounds)."""
    own, every = e.build_optimiser(), _interval(e)
    runs = [Commits(stepped(own, k, smoothness), [None] * rounds, e.plan.sizes, every) for k in times]
    learnt = learn(problem, runs)
    first = learnt[0].initial
    if metric not in first:
        raise unknown_name("metric", metric, list(first))
    return first[metric], np.array([values_of(run, metric) for run in learnt])


def _interval(e: Experiment) -> int:
    """Return the number of rounds between evaluations.

    With mini-batches, it is the interval of a run, so that the same values are compared.
    """
    return 1 if e.batch is None else e.evaluation_interval


def _first(values: Array, target: float, metric: str, batch: int | None) -> Array:
    """Return the rounds until each row reaches the target, NaN if it does not."""
    found = [first_reached(row, target, metric, batch) for row in values]
    return np.array([np.nan if first is None else first + 1.0 for first in found])


def shortened(e: Experiment, rounds: int, effort: float) -> Experiment:
    """Return the experiment on fewer samples, so that simulating `rounds` rounds stays within the effort.

    With mini-batches, an epoch has at least `MIN_BATCHES` of equal size, unless there are too few samples.
    """
    samples, floats = e.shape()
    few = max(int(effort / max(rounds * floats, 1)), 4 * e.workers)
    if e.batch is not None:
        few = e.batch * max(few // e.batch, MIN_BATCHES)
    return reduced(e, min(samples, few))


def reduced(e: Experiment, samples: int) -> Experiment:
    """Return the experiment on fewer samples, with workers that take as long as for all samples.

    The size of a mini-batch changes only if fewer samples are left.
    """
    all_ = e.shape()[0]
    if samples == all_:
        return e
    args = e.problem_spec.fewer(samples)
    fewer = {n: getattr(args, n) for n in ("samples", "test") if getattr(args, n, None) is not None}
    count = args.count()
    batch = e.batch and min(e.batch, count)
    share = BatchSampler(count, batch, e.seed).share if batch else 1.0
    delays = scaled(e.delays, all_ * e.share / (count * share))
    return e.replace(delays=delays, batch=batch, problem_args={**e.problem_args, **fewer})


def seeds_tried(e: Experiment) -> tuple[int, int]:
    """Return the number of seeds on which a step size is chosen, and that of seeds on which its rounds are counted."""
    numeric = e.built_scheme.numeric
    choosing = 1 if numeric or e.plan.versions > 1 else STEP_SEEDS
    return choosing, STEP_SEEDS if numeric else SCREENING_SEEDS


def tried_by(e: Experiment) -> tuple[float, ...]:
    """Return the step sizes to try for a numeric scheme, relative to the central one."""
    return LAZY_STEPS if e.built_scheme.own_step(1.0) is None else OWN_STEPS


def portion(e: Experiment) -> float:
    """Return the ratio of answers per commit to workers if workers do not wait for the commit, else 1."""
    return 1.0 if e.plan.versions == 1 else min(1.0, forecast(e, 4 * e.workers).messages / e.workers)


def stretched(aim: Target, e: Experiment, per_round: float = 0.0) -> Target:
    """Return the target with as many rounds as give the same number of answers: more if a commit has fewer answers.

    `per_round`: seconds of a round. In `longest` rounds, a scheme takes at most `MAX_BEHIND_RATIO` times as long as the
    fastest exact one. The rounds of data-dependent schemes are not limited, because their forecast is an upper bound.
    """
    rounds, longest = (round(count / portion(e)) for count in (aim.rounds, aim.longest))
    if per_round and not e.built_scheme.data_dependent:
        longest = min(longest, max(rounds, int(min(MAX_BEHIND_RATIO * aim.seconds / per_round, longest))))
    return replace(aim, rounds=rounds, longest=longest)


@dataclass(frozen=True)
class Trials:
    """Simulations of an inexact scheme to a target, with step sizes chosen for it.

    `centre`: step size around which others are tried, as a multiple of the automatic one. None: the experiment's own
    is used. In all methods, `experiments` are one experiment under several seeds, on the cluster.
    """

    aim: Target
    centre: float | None = None
    # Cached results: (seed, rounds) -> commits and ends of the rounds; (seed, step size) -> rounds to the target, and
    # their seconds.
    simulated: dict[tuple[int, int], tuple[Coefficients, Array]] = field(
        default_factory=dict, repr=False, compare=False
    )
    found: dict[tuple[int, float | None], tuple[float, float]] = field(
        default_factory=dict, repr=False, compare=False
    )

    def need(self, experiments: Sequence[Experiment], times: float | None = None) -> RoundsNeeded:
        """Return the rounds to the target under every seed. Without `times`, the step size is chosen first.

        A seed that misses it counts with the max number of rounds, or with NaN if more than `MAX_MISSED_SHARE` miss it.
        """
        small = [reduced(e, self.aim.samples) for e in experiments]
        step = times or (None if self.centre is None else self._chosen(small[:STEP_SEEDS], self.centre))
        rounds = pace = missed = np.full(len(small), np.nan)
        # without a step size that reaches the target, no further simulations are needed
        for _ in range(MAX_RETRIES if times or step is None or self.found else 0):
            rounds, pace = self._followed(small, step)
            missed = np.isnan(rounds)
            if step is None or np.mean(missed) <= MAX_MISSED_SHARE:
                break
            step *= 2**-0.5
        if np.mean(missed) <= MAX_MISSED_SHARE:
            rounds = np.where(missed, float(self.aim.longest), rounds)  # the exact number is not simulated
        first = {e.seed for e in small[:STEP_SEEDS]}
        for key in [key for key in self.simulated if key[0] not in first]:
            del self.simulated[key]  # they would fill the memory
        source = f"simulated on {self.aim.samples} samples, {len(small)} seeds"
        return RoundsNeeded(rounds, pace, self._optimiser(small[0], step), step, source)

    @property
    def _loss(self) -> float:
        assert self.aim.loss is not None
        return self.aim.loss

    def _optimiser(self, e: Experiment, times: float | None) -> Optimiser:
        return stepped(e.build_optimiser(), times, self.aim.smoothness)

    def _chosen(self, small: Sequence[Experiment], centre: float) -> float:
        """Return the step size with the shortest time to the target, or the smallest one if none reaches it."""
        if small[0].built_scheme.numeric:
            for steps in (tried_by(small[0]), SMALL_STEPS):
                tried, seconds = [centre * k for k in steps], np.zeros(0)
                for k in tried:  # those that take longer than an earlier one are not simulated to the end
                    limit = float(np.nanmin([*seconds, MAX_BEHIND_RATIO * self.aim.seconds]))
                    seconds = np.append(seconds, self._numeric(small[0], k, limit)[1])
                if not np.isnan(seconds).all():
                    break
        else:
            tried, seconds = self._tried(small, self._soon(small[0]))
            if np.isnan(seconds).all():
                tried, seconds = self._tried(small[:1], self.aim.longest)
        return min(tried) if np.isnan(seconds).all() else tried[int(np.nanargmin(seconds))]

    def _soon(self, e: Experiment, times: float | None = None) -> int:
        """Return the number of rounds that are simulated at first. The loss is evaluated after the last of them.

        `times`: a step size. If its rounds to the target are known under some seeds, hardly more are simulated.
        """
        seen = [r for (_, step), (r, _) in self.found.items() if times is not None and step == times]
        wanted = SPARE_ROUNDS_RATIO * max(seen) if seen else USUAL_ROUNDS_RATIO * self.aim.rounds
        every = e.evaluation_interval
        return min(-(-round(wanted) // every) * every, self.aim.longest)

    def _tried(self, small: Sequence[Experiment], longest: int) -> tuple[list[float], Array]:
        """Return step sizes around the unbiased one, and mean seconds to the target (NaN if missed or given up)."""
        simulated = [self._simulated(e, longest) for e in small]
        tried, rounds = self._steps(small, [c for c, _ in simulated], [times for _, times in simulated])
        ends = [[_end(times, r) for r, (_, times) in zip(row, simulated, strict=True)] for row in rounds]
        return tried, np.mean(ends, axis=1)

    def _simulated(self, e: Experiment, rounds: int) -> tuple[Coefficients, Array]:
        """Return the commits of a scheme in `rounds` rounds, and their times. They do not depend on the step size."""
        key = e.seed, rounds
        if key not in self.simulated:
            self.simulated[key] = commits_and_ends(e.model_copy(update={"rounds": rounds}))
        return self.simulated[key]

    def _steps(
        self, small: Sequence[Experiment], commits: Sequence[Coefficients], times: Sequence[Array] = ()
    ) -> tuple[list[float], Array]:
        assert self.centre is not None
        e = small[0]
        tried = [self.centre * _unbiasing(e, commits) * k for k in INEXACT_STEPS]
        if lag := e.plan.versions - 1:  # gradients of older models need smaller step sizes
            tried += [k * delayed_step(lag) for k in tried]
        return tried, self._reached(small, tried, commits, times)

    def _reached(
        self,
        small: Sequence[Experiment],
        steps: Sequence[float | None],
        commits: Sequence[Coefficients],
        times: Sequence[Array] = (),
    ) -> Array:
        """Return rounds to the target for each step size and commit sequence, in one pass over the data per round.

        Seeds with different mini-batches do not share passes. `times`: ends of the rounds under every seed, s. With
        them, a step size is given up once its mean time must exceed that of one that reached the target. Its rounds
        are then NaN.
        """
        race = Race(self._loss, self.aim.metric, np.full((len(steps), len(small)), np.nan), times)
        problems = [e.build_problem() for e in small]
        for key, problem in {key_of(p): p for p in problems}.items():
            cells = [(k, i) for k in range(len(steps)) for i, p in enumerate(problems) if key_of(p) == key]
            runs = [self._run(small[i], steps[k], commits[i]) for k, i in cells]
            race.lanes.append((Trajectories(problem, runs), dict(enumerate(cells)), small[cells[0][1]].batch))
        for t in range(max(len(c.weights) for c in commits) + 1):
            race.step(t)
        for (k, i), rounds in np.ndenumerate(race.rounds):
            if np.isfinite(rounds):
                self.found[small[i].seed, steps[k]] = float(rounds), np.nan
        return race.rounds

    def _run(self, e: Experiment, times: float | None, commits: Coefficients) -> Commits:
        own = self._optimiser(e, times)
        return Commits(own, commits.weights, e.plan.sizes, _interval(e), commits.shares)

    def _followed(self, small: Sequence[Experiment], times: float | None) -> tuple[Array, Array]:
        """Return rounds to the target and pace under every seed."""
        if small[0].built_scheme.numeric:
            found = [self._numeric(e, times) for e in small]
            pace = [_pace(e, r, seconds) for e, (r, seconds) in zip(small, found, strict=True)]
            return np.array([r for r, _ in found]), np.array(pace)
        soon = self._soon(small[0], times)
        rounds = self._linear(small, times, soon)
        late = np.flatnonzero(np.isnan(rounds)).tolist()
        if late and self.aim.longest > soon:
            rounds[late] = self._linear([small[i] for i in late], times, self.aim.longest)
        return rounds, np.ones(len(small))

    def _linear(self, small: Sequence[Experiment], times: float | None, longest: int) -> Array:
        """Return rounds to the target under every seed."""
        if new := [e for e in small if (e.seed, times) not in self.found]:
            self._reached(new, [times], [self._simulated(e, longest)[0] for e in new])
        return np.array([self.found.get((e.seed, times), (np.nan, np.nan))[0] for e in small])

    def _numeric(self, e: Experiment, times: float | None, limit: float = np.inf) -> tuple[float, float]:
        """Return rounds and seconds of a numeric scheme, NaN if it misses the target.

        The simulation ends at the target, if it diverges, or after `limit` s.
        """
        if (e.seed, times) in self.found:
            return self.found[e.seed, times]
        problem, metric, every = e.build_problem(), self.aim.metric, _interval(e)
        numbers = Numbers(e.plan, problem, self._optimiser(e, times), e.seed, keep=False)
        found, values = [float("nan")] * 2, list[float]()

        def watch(timeline: Timeline) -> None:
            if not evaluated(len(timeline.times) - 1, self.aim.longest, every):
                return
            model, test = numbers.models[-1], metric.startswith("test_")
            (at,) = problem.evaluate([Request(model, gradient=False, test=test)])
            values.append(at.loss if metric == "loss" else at.metrics[metric])
            newest = smoothed(values[-SMOOTHED_EVALUATIONS:], e.batch)[-1]
            if there := bool(at_target(newest, self._loss, metric)):
                found[:] = float(len(timeline.times)), timeline.times[-1]
            if there or not np.isfinite(at.loss) or timeline.times[-1] > limit:
                raise _Over

        with np.errstate(over="ignore", invalid="ignore"), suppress(_Over):
            timeline(e.model_copy(update={"rounds": self.aim.longest}), numbers, events=False, watch=watch)
        if np.isfinite(found[0]):
            self.found[e.seed, times] = found[0], found[1]
        return found[0], found[1]


class _Over(Exception):
    """Signal that a simulation can end before its last round."""


def commits_and_ends(e: Experiment) -> tuple[Coefficients, Array]:
    """Return the commits of a scheme in all rounds, and the ends of the rounds, (rounds,), s."""
    commits = Coefficients(e.plan, e.sampler)
    return star_commits(e) or (commits, np.array(timeline(e, commits, events=False).times))


def _end(times: Array, rounds: float) -> float:
    """Return the time at the end of a round, or NaN for NaN."""
    return float("nan") if np.isnan(rounds) else float(times[int(rounds) - 1])


def _unbiasing(e: Experiment, runs: Sequence[Coefficients]) -> float:
    """Return the factor that makes a commit unbiased: all samples divided by the mean number of samples in a commit."""
    sizes, samples = e.plan.sizes, e.plan.samples
    weights = [
        w.total(len(sizes)) if isinstance(w, VersionedWeights) else w for run in runs for w in run.weights
    ]
    shares = [1.0 if w is None else float(w @ sizes) / samples for w in weights]
    return 1.0 / max(float(np.mean(shares)), 1e-3)


def _pace(e: Experiment, rounds: float, seconds: float) -> float:
    return 1.0 if rounds != rounds else seconds / float(forecast(e, int(rounds)).seconds.sum())
