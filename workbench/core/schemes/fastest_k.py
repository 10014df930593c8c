"""Fastest-k schemes with a k that adapts to the progress of the optimisation: AdaptiveK and DBW.

* S. Kas Hanna, R. Bitar, P. Parag, V. Dasari, S. El Rouayheb, "Adaptive stochastic gradient descent for fast and
  communication-efficient distributed learning", arXiv 2208.03134, 2022: the algorithm with the sign of inner products.
* C. Xu, G. Neglia, N. Sebastianelli, "Dynamic backup workers for parallel machine learning", arXiv 2004.14696, 2020.

Both are implemented from the abstracts and introductions, because the other sections were not available. It is
therefore not known how DBW's authors estimate losses. The master adds up the first k answers, scales the sum by n/k,
and sends the next model to all workers. Late workers drop their work. Round times therefore do not depend on the k of
the round before.
"""

from abc import abstractmethod
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

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
    """Record of a round at the master: answers by rank, their times, the estimate, and the models before and after."""

    answers: Mapping[int, Array]
    seconds: Sequence[float]
    estimate: Array
    before: Any = None
    after: Any = None


class Choice:
    """Base of rules that choose how many answers the next round waits for."""

    k: int

    @abstractmethod
    def saw(self, round: Round) -> None:
        """Update the rule with a finished round."""


class FastestK(MiniBatches):
    """Base of schemes that wait for the first k answers of living workers, with a new k in every round."""

    data_dependent: ClassVar[bool] = True

    @abstractmethod
    def choice(self, node: Node) -> Choice:
        """Return the rule that chooses k. Its initial k is for the first round."""

    def program(self, node: Node) -> Program:
        return self._master(node) if node.rank == MASTER else batch_worker(node, self.worker_batch)

    def _master(self, node: Node) -> Program:
        # `seen` contains the newest round; before the first round it is empty
        n, choice, seen = node.plan.workers, self.choice(node), list[Round]()

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
        """Return the time of the slowest worker: an upper bound, because k depends on the models."""
        return star_round_times(draws, workers)


def _first(k: int, workers: int, lost: LostChildren, seconds: list[float]) -> StopRule:
    """Return a rule that waits for the first k answers, or for all living workers if these are fewer.

    The rule appends the time of each answer to `seconds`.
    """

    def ready(got: Collection[Answer], start: float, now: float) -> bool:
        if len(got) > len(seconds) and now < INFINITY:
            seconds.append(now - start)
        return len(got) >= max(1, min(k, workers - len(lost.gone)))

    return StopRule(ready)


class AdaptiveK(FastestK):
    """Fastest-k whose k grows when gradients begin to change direction, because more answers reduce noise.

    In every iteration a counter goes up if the inner product of the gradient estimate with the previous estimate is
    negative, else down. When the counter exceeds the threshold, k grows by `step`, and the counter is reset. However,
    k stays for `burn_in` rounds after each change, and also if k + `step` exceeds the number of workers.

    >>> AdaptiveK().loads(workers=6, samples=60).tolist()
    [10, 10, 10, 10, 10, 10]
    """

    name = "AdaptiveK"
    title: ClassVar[str] = "Adaptive fastest-k"
    paper: ClassVar[str] = "Kas Hanna et al. 2022"
    follows: ClassVar[Literal["paper", "abstract", "code"]] = "abstract"
    start: int = setting(1, "answers that the master waits for in the first round (initial k)", ge=1)
    step: int = setting(1, "answers by which k grows", ge=1)
    threshold: int = setting(
        10,
        "k grows if the number of negative inner products exceeds that of the others by more than this",
        ge=0,
    )
    burn_in: int = setting(10, "iterations after a change of k in which k stays", ge=0)

    @classmethod
    def candidates(cls, workers: int) -> list[dict[str, Any]]:
        """Return initial values of one answer and of half of the answers, with small and large steps."""
        starts = sorted({1, max(1, workers // 2)})
        return [{"start": k, "step": s} for k in starts for s in log_spaced_ints(1, max(1, workers // 4), 2)]

    def check(self, workers: int) -> None:
        """Raise `SettingError` if the initial k or its step exceeds the number of workers."""
        between("scheme_args.start", self.start, 1, workers, f"there are {workers} workers")
        between("scheme_args.step", self.step, 1, workers, f"there are {workers} workers")

    def choice(self, node: Node) -> Choice:
        return Turns(self.start, self.step, self.threshold, self.burn_in, node.plan.workers)


class Turns(Choice):
    """Counter of the inner products of AdaptiveK."""

    def __init__(self, k: int, step: int, threshold: int, burn_in: int, most: int) -> None:
        self.k, self.step, self.threshold, self.burn_in, self.most = k, step, threshold, burn_in, most
        self.negative, self.iterations = 0, 0
        self._last: Array | None = None

    def saw(self, round: Round) -> None:
        """Count one inner product, and increase k if the counter exceeds the threshold."""
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

    Notation: step size eta, smoothness L of the mean loss, squared gradient norm G, and variance V of one answer. On
    average, k answers decrease the loss by at least (eta - L eta^2 / 2) G - L eta^2 V / (2 k). G, V and L are means
    over the last iterations; the time of the k-th answer is a mean over all iterations. The master waits for all
    workers in the first round, and if no k decreases the loss. After a step that raised the loss, k grows by at least
    one.

    A scheme receives neither the step size nor losses. Therefore eta is estimated as the length of the model's change
    divided by the length of the gradient estimate. The change of the loss is estimated from workers that answered both
    before and after the step. The mean of their gradients along the step gives the rise of the loss, and the change of
    this mean gives the curvature L. Before the first such estimate, L is the smoothness of the data.

    >>> DBW().loads(workers=6, samples=60).tolist()
    [10, 10, 10, 10, 10, 10]
    """

    name = "DBW"
    title: ClassVar[str] = "Dynamic backup workers"
    paper: ClassVar[str] = "Xu, Neglia, Sebastianelli 2020"
    follows: ClassVar[Literal["paper", "abstract", "code"]] = "abstract"
    clock_driven: ClassVar[bool] = True
    window: int = setting(5, "iterations over which squared gradient norms and variances are averaged", ge=1)

    def choice(self, node: Node) -> Choice:
        plan = node.plan
        everything = Work(np.arange(plan.parts), np.ones(plan.parts), plan.samples)
        return Gain(plan.workers, plan.samples, node.smoothness(everything), self.window)


class Gain(Choice):
    """DBW's estimates of the decrease of the loss with k answers, and of the time that they take."""

    def __init__(self, workers: int, samples: int, smoothness: float, window: int) -> None:
        # SciPy is imported here, so that importing workbench is fast, and no round of a real run waits for the import.
        from scipy.optimize import isotonic_regression

        self._rising = isotonic_regression
        self.k, self.workers, self.samples, self.smoothness = workers, workers, samples, smoothness
        self._lately: deque[tuple[float, float]] = deque(maxlen=window)  # estimates of G and V
        self._curved: deque[float] = deque(maxlen=window)  # estimates of L
        self._seconds, self._times = np.zeros(workers), np.zeros(workers)
        self._last: Round | None = None

    def saw(self, round: Round) -> None:
        """Update the estimates with a round, and choose k."""
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
        """Return the increase of the mean loss by the last step, and store the curvature along the step."""
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
        """Return the k with the largest expected decrease of the loss per second."""
        length, variance = self._average
        known = np.flatnonzero(self._times)
        noise = float(np.mean(self._curved or [self.smoothness])) * eta**2 / 2
        gain = (eta - noise) * length - noise * variance / (known + 1)
        later = self._rising(self._seconds[known] / self._times[known], weights=self._times[known]).x
        if gain.max() <= 0:
            return self.workers
        return int(known[np.argmax(gain / np.maximum(later, 1e-12))]) + 1
