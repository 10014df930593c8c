"""The fastest k workers, with a k that follows the learning: AdaptiveK and DBW.

* S. Kas Hanna, R. Bitar, P. Parag, V. Dasari, S. El Rouayheb, "Adaptive stochastic gradient descent for fast and
  communication-efficient distributed learning", arXiv 2208.03134, 2022: the algorithm with the sign of inner products.
* C. Xu, G. Neglia, N. Sebastianelli, "Dynamic backup workers for parallel machine learning", arXiv 2004.14696, 2020.

After their abstracts and introductions, as the rest was not at hand: how DBW's authors estimate losses is not known
here. The master adds up the first k answers, scales the sum by n/k, and tells the others the next model, so
nobody's time depends on the k of the round before.
"""

from abc import abstractmethod
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from workbench.core.base.settings import setting
from workbench.core.base.types import Array
from workbench.core.codes.checks import between
from workbench.core.contract.plan import MASTER, Work
from workbench.core.contract.programs import (
    INFINITY,
    Answer,
    AnswerProgram,
    LostChildren,
    StopRule,
    gather,
    master_program,
    plain_sum,
)
from workbench.core.contract.protocol import Node, Program
from workbench.core.contract.round_times import RoundTimes, SampledTimes, star_round_times
from workbench.core.contract.scheme import log_spaced_ints
from workbench.core.schemes.adaptive import MiniBatches
from workbench.core.schemes.lazy import batch_worker


@dataclass
class Round:
    """What the master saw of a round: answers by rank, when each came, the estimate, the models before and after."""

    answers: Mapping[int, Array]
    seconds: Sequence[float]
    estimate: Array
    before: Any = None
    after: Any = None


class Choice:
    """How many answers the next round waits for."""

    k: int

    @abstractmethod
    def saw(self, round: Round) -> None:
        """Take in what a round was like."""


class FastestK(MiniBatches):
    """Shards of their own, the first k answers, a new k every round; once workers have died, those that are left."""

    data_dependent: ClassVar[bool] = True

    @abstractmethod
    def choice(self, node: Node) -> Choice:
        """What chooses k, with the k of the first round."""

    def program(self, node: Node) -> Program:
        return self._master(node) if node.rank == MASTER else batch_worker(node, self.worker_batch)

    def _master(self, node: Node) -> Program:
        n, choice, seen = node.plan.workers, self.choice(node), list[Round]()  # the newest, if any

        def answers(r: int, model: Any, lost: LostChildren) -> AnswerProgram:
            for last in seen:
                last.after = model
                choice.saw(last)
            seconds: list[float] = []
            got, _ = yield from gather(node, r, _first(choice.k, n, lost, seconds), lost)
            values, scale = {key[0]: got[key].value for key in sorted(got)}, n / len(got)
            estimate = scale * plain_sum(list(values.values()))
            seen[:] = [Round(values, seconds, estimate, model)]
            return estimate, len(got) * (scale - 1) ** 2 + n - len(got), len(got)

        return master_program(node, answers)

    def round_times(self, draws: SampledTimes, workers: int) -> RoundTimes:
        """The slowest of all: the upper end of a round, as k depends on the learning."""
        return star_round_times(draws, workers)


def _first(k: int, workers: int, lost: LostChildren, seconds: list[float]) -> StopRule:
    """The first k answers, or those of all who are left; notes when each came."""

    def ready(got: Collection[Answer], start: float, now: float) -> bool:
        if len(got) > len(seconds) and now < INFINITY:
            seconds.append(now - start)
        return len(got) >= max(1, min(k, workers - len(lost.gone)))

    return StopRule(ready)


class AdaptiveK(FastestK):
    """Fastest-k whose k grows once gradients turn around: the error then is noise, which more answers lessen.

    In every iteration a counter goes up where the estimate's inner product with the last one is negative, else down.
    Above the threshold, and at least the burn-in after the last change, k grows by a step and the counter starts anew.

    >>> AdaptiveK().loads(workers=6, samples=60).tolist()
    [10, 10, 10, 10, 10, 10]
    """

    name: ClassVar[str] = "AdaptiveK"
    title: ClassVar[str] = "Adaptive fastest-k"
    paper: ClassVar[str] = "Kas Hanna et al. 2022"
    start: int = setting(1, "answers that the master waits for at first", ge=1)
    step: int = setting(1, "by how many k grows", ge=1)
    threshold: int = setting(10, "how many more inner products must have been negative than not", ge=0)
    burn_in: int = setting(10, "iterations after a change in which k stays", ge=0)

    @classmethod
    def candidates(cls, workers: int) -> list[dict[str, Any]]:
        """From one answer or half of them, in small or large steps."""
        starts = sorted({1, max(1, workers // 2)})
        return [{"start": k, "step": s} for k in starts for s in log_spaced_ints(1, max(1, workers // 4), 2)]

    def check(self, workers: int) -> None:
        """There are no more answers than workers, and k grows by no more."""
        between("scheme_args.start", self.start, 1, workers, f"there are {workers} workers")
        between("scheme_args.step", self.step, 1, workers, f"there are {workers} workers")

    def choice(self, node: Node) -> Choice:
        return Turns(self.start, self.step, self.threshold, self.burn_in, node.plan.workers)


class Turns(Choice):
    """AdaptiveK's counter of inner products."""

    def __init__(self, k: int, step: int, threshold: int, burn_in: int, most: int) -> None:
        self.k, self.step, self.threshold, self.burn_in, self.most = k, step, threshold, burn_in, most
        self.negative, self.iterations = 0, 0
        self._last: Array | None = None

    def saw(self, round: Round) -> None:
        """Count, and let k grow."""
        self.iterations += 1
        if self._last is not None:
            self.negative += 1 if np.vdot(round.estimate, self._last) < 0 else -1
        self._last = round.estimate
        if (
            self.negative > self.threshold
            and self.iterations > self.burn_in
            and self.k + self.step <= self.most
        ):
            self.k, self.negative, self.iterations = self.k + self.step, 0, 0


class DBW(FastestK):
    """Dynamic backup workers: the k with the largest expected decrease of the loss per second.

    With step eta, smoothness L of the mean loss, squared gradient G and variance V of one answer, k answers lessen the
    loss by (eta - L eta^2 / 2) G - L eta^2 V / (2 k) at least, on average. G, V and L are means over the last
    iterations, the time of the k-th answer over all. Where nothing is gained, and at first, all are waited for; after a
    step that raised the loss, one answer more than before at least.

    A scheme here is told neither the step nor losses. So eta is how far the model went over the estimate's length. What
    a step did to the loss is told by the workers that answered both before and after it: their gradients' mean along
    the step says how much the loss rose, the change of it the curvature L. Until there is one, L is the data's own.

    >>> DBW().loads(workers=6, samples=60).tolist()
    [10, 10, 10, 10, 10, 10]
    """

    name: ClassVar[str] = "DBW"
    title: ClassVar[str] = "Dynamic backup workers"
    paper: ClassVar[str] = "Xu, Neglia, Sebastianelli 2020"
    clock_driven: ClassVar[bool] = True
    window: int = setting(5, "iterations over which gradients' lengths and variances are averaged", ge=1)

    def choice(self, node: Node) -> Choice:
        plan = node.plan
        everything = Work(np.arange(plan.parts), np.ones(plan.parts), plan.samples)
        return Gain(plan.workers, plan.samples, node.smoothness(everything), self.window)


class Gain(Choice):
    """DBW's estimates of what k answers gain, and of how long they take."""

    def __init__(self, workers: int, samples: int, smoothness: float, window: int) -> None:
        # Here, so that importing the workbench stays quick, and no round of a real run lasts until it is imported.
        from scipy.optimize import isotonic_regression

        self._rising = isotonic_regression
        self.k, self.workers, self.samples, self.smoothness = workers, workers, samples, smoothness
        self._lately: deque[tuple[float, float]] = deque(maxlen=window)  # G, V
        self._curved: deque[float] = deque(maxlen=window)  # L
        self._seconds, self._times = np.zeros(workers), np.zeros(workers)
        self._last: Round | None = None

    def saw(self, round: Round) -> None:
        """Estimate anew, and choose."""
        k, mean = len(round.answers), round.estimate / self.samples
        apart = [self.workers / self.samples * answer - mean for answer in round.answers.values()]
        variance = sum(float(np.vdot(a, a)) for a in apart) / (k - 1) if k > 1 else self._average[1]
        length = float(np.vdot(mean, mean))
        self._lately.append((max(length - variance / k, 0.0), variance))
        self._seconds[: len(round.seconds)] += round.seconds
        self._times[: len(round.seconds)] += 1
        rose = self._rise(round)
        moved = round.after - round.before
        best = self._best(float(np.vdot(moved, moved) / length) ** 0.5 if length else 0.0)
        self.k = min(self.workers, max(best, self.k + 1)) if rose > 0 else best

    def _rise(self, round: Round) -> float:
        """How much the step before raised the mean loss; notes its curvature."""
        last, self._last = self._last, round
        both = [] if last is None else [rank for rank in round.answers if rank in last.answers]
        if last is None or not both:
            return 0.0
        step = last.after - last.before
        slopes = [[float(np.vdot(at.answers[rank], step)) for rank in both] for at in (last, round)]
        before, after = np.mean(slopes, axis=1) * self.workers / self.samples
        if (length := float(np.vdot(step, step))) > 0:
            self._curved.append(max(float(after - before) / length, 0.0))
        return float(before + after) / 2

    @property
    def _average(self) -> tuple[float, float]:
        lengths, variances = zip(*self._lately, strict=True) if self._lately else ((0.0,), (0.0,))
        return float(np.mean(lengths)), float(np.mean(variances))

    def _best(self, eta: float) -> int:
        """The k with the most gain per second."""
        length, variance = self._average
        known = np.flatnonzero(self._times)
        noise = float(np.mean(self._curved or [self.smoothness])) * eta**2 / 2
        gain = (eta - noise) * length - noise * variance / (known + 1)
        later = self._rising(self._seconds[known] / self._times[known], weights=self._times[known]).x
        if gain.max() <= 0:
            return self.workers
        return int(known[np.argmax(gain / np.maximum(later, 1e-12))]) + 1
