"""DropCompute: all workers compute micro-batches until a time limit.

Micro-batches that have not begun by then are left out.

N. Giladi, S. Gottlieb, M. Shkolnik, A. Karnieli, R. Banner, E. Hoffer, K. Y. Levy, D. Soudry, "DropCompute: simple
and more robust distributed synchronous training via compute variance reduction", 2023, and its public program
(paper-submissions/dropcompute: `compute_timer.py`, `run_pretraining.py`). As in the program, a worker compares the
clock with the threshold between two micro-batches. There are three differences. The first micro-batch is always
computed. (The program may drop it, between the forward and the backward pass. In its first few steps it drops nothing.)
The sum is divided by the number of computed samples. (The program divides by the number of all samples.) The threshold
can be given. `measured` chooses it from measured times, by the rule of the program's `get_best_threshold` with one
difference.

The authors add up by all-reduce. Here a master adds up, as in the schemes that it is compared with. A message also
contains the number of its micro-batches, which would be one more value in an all-reduce.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from workbench.core.base.settings import setting
from workbench.core.base.types import Array
from workbench.core.contract.plan import MASTER, Plan, Work, shard_sizes, star_plan
from workbench.core.contract.programs import Answers, StopRule, parent_program, plain_sum, worker_program
from workbench.core.contract.protocol import (
    ABS_TOL,
    CODED,
    MODEL,
    Compute,
    Message,
    Node,
    Program,
    Send,
    simultaneous,
)
from workbench.core.contract.round_times import (
    MAX_TIMES_PER_BATCH,
    RoundTimes,
    SampledTimes,
    star_round_times,
)
from workbench.core.contract.scheme import Scheme
from workbench.core.schemes.uncoded import check_pieces, total

TRIED_THRESHOLDS = 200  # number of thresholds that are tried
# number of micro-batches that the fastest worker can finish within the smallest threshold
MIN_MICRO_BATCHES = 6


class DropCompute(Scheme):
    """Synchronous, uncoded scheme in which no worker begins a micro-batch later than the threshold.

    A commit is scaled up to all micro-batches. The last micro-batches of a worker are left out most often. The weights
    therefore average to 1 over all micro-batches, and not for each micro-batch. This makes no difference if the data
    are in random order.

    >>> DropCompute(micro_batches=5).loads(workers=6, samples=60).tolist()
    [10, 10, 10, 10, 10, 10]
    """

    name = "DropCompute"
    title: ClassVar[str] = "Drop compute"
    paper: ClassVar[str] = "Giladi et al. 2023"
    exact: ClassVar[bool] = False
    clock_driven: ClassVar[bool] = True
    micro_batches: int = setting(12, "micro-batches that a worker's part is cut into (M)", ge=1)
    threshold: float | None = setting(
        None, "time in a round after which no micro-batch is begun (tau); empty = all are computed", "s", gt=0
    )

    @classmethod
    def candidates(cls, workers: int) -> list[dict[str, Any]]:
        """Return configurations with few and with many micro-batches, whose threshold follows from measured times."""
        return [{"micro_batches": m} for m in (4, 12)]

    def measured(self, draws: Callable[[], SampledTimes], workers: int) -> dict[str, Any]:
        """Return the threshold with the largest effective speedup (computed samples per second), unless one is given.

        As many thresholds are tried as in the authors' program. The smallest is the time after which the first worker
        has finished a few micro-batches, the largest that after which all workers have finished. Of equally good
        thresholds, the largest is chosen. A micro-batch in progress at the threshold counts as computed, because
        workers finish it. The program leaves such a micro-batch out.
        """
        if self.threshold is not None:
            return {}
        times = draws()
        gone_through = self._sizes(times, workers).cumsum(axis=1) / times.samples
        done = self._done(times, workers, slice(None))
        tried = np.linspace(
            done.max(), done[:, :, min(MIN_MICRO_BATCHES, self.micro_batches) - 1].min(), TRIED_THRESHOLDS
        )
        full = star_round_times(replace(times, seconds=done[:, :, -1]), workers).seconds
        rates = []
        for threshold in tried.tolist():
            last = _last(done, threshold)
            seconds = np.take_along_axis(done, last[:, :, None], axis=2)[:, :, 0]
            ends = star_round_times(replace(times, seconds=seconds), workers).seconds
            computed = gone_through[np.arange(workers), last].sum(axis=1)
            rates.append(float(np.mean(computed * full / ends)))
        return {"threshold": tried[int(np.argmax(np.round(rates, 9)))]}

    def check_samples(self, workers: int, samples: int) -> None:
        """Raise `SettingError` if the given number of micro-batches would leave one empty."""
        if "micro_batches" in self.model_fields_set:
            check_pieces("micro_batches", self.micro_batches, workers, samples)

    def plan(self, workers: int, samples: int) -> Plan:
        """Return a plan in which each micro-batch is a part of one worker.

        The samples of each worker are the same as without micro-batches.
        """
        plan = star_plan(np.repeat(np.eye(workers), self.micro_batches, axis=1), samples)
        return replace(plan, sizes=shard_sizes(samples, workers, self.micro_batches).ravel())

    def program(self, node: Node) -> Program:
        if node.rank != MASTER:
            pieces = node.work.split(node.plan.sizes)
            return worker_program(node, lambda node, job: self._answer(node, job, pieces))
        n = node.plan.workers

        def combine(r: int, got: Answers) -> tuple[Any, float]:
            sizes = node.plan.sizes if node.sampler is None else node.sampler.counts(r, node.plan.bounds)
            return _mean(sizes.reshape(n, self.micro_batches).cumsum(axis=1), got)

        everybody = StopRule(lambda got, start, now: len({rank for rank, _ in got}) >= n)
        return parent_program(node, everybody, combine)

    def _answer(self, node: Node, job: Message, pieces: list[Work]) -> Program:
        """Compute micro-batches one after the other until the threshold, then send their sum.

        The `number` of the message is the count of its micro-batches.
        """
        sums, begun = [], node.clock()
        for piece in pieces:
            sums.append((yield Compute(piece, job.value, job.round, unless={MODEL: job.round + 1})))
            if sums[-1] is None:
                return
            if self.threshold is not None:
                over, now = begun + self.threshold, node.clock()
                if now >= over or simultaneous(now, over):
                    break
        yield Send(node.parent, CODED, job.round, plain_sum(sums), number=len(sums))

    def round_times(self, draws: SampledTimes, workers: int) -> RoundTimes:
        """Return the time of the last worker.

        Each stops after the micro-batch that is in progress at the threshold.
        """
        at_once = max(1, MAX_TIMES_PER_BATCH // (workers * self.micro_batches))
        starts = range(0, len(draws.seconds), at_once)
        seconds = [self._stops(draws, workers, slice(start, start + at_once)) for start in starts]
        return star_round_times(replace(draws, seconds=np.concatenate(seconds)), workers)

    def _stops(self, draws: SampledTimes, workers: int, which: slice) -> Array:
        done = self._done(draws, workers, which)
        last = _last(done, self.threshold)
        return np.asarray(np.take_along_axis(done, last[:, :, None], axis=2)[:, :, 0])

    def _done(self, draws: SampledTimes, workers: int, which: slice) -> Array:
        """Return when each micro-batch would be done without a threshold, (rounds, workers, micro-batches), s."""
        return draws.progress(self._sizes(draws, workers), which)

    def _sizes(self, draws: SampledTimes, workers: int) -> NDArray[np.int64]:
        """Return the samples of every micro-batch, (workers, micro-batches)."""
        return shard_sizes(draws.samples, workers, self.micro_batches)


def _mean(gone_through: NDArray[np.int64], got: Answers) -> tuple[Any, float]:
    """Return the sum, multiplied by the ratio of all samples to computed samples, and the residual of the weights.

    `gone_through`: samples of each worker up to the end of each micro-batch, (workers, micro-batches).
    """
    computed = sum(number for _, number in got)
    samples = sum(int(gone_through[rank - 1, number - 1]) for rank, number in got)
    scale = int(gone_through[:, -1].sum()) / max(samples, 1)
    return scale * total(got), computed * (scale - 1) ** 2 + gone_through.size - computed


def _last(done: Array, threshold: float | None) -> NDArray[np.intp]:
    """Return the last micro-batch that each worker computes, (rounds, workers)."""
    over = np.zeros(done.shape, dtype=bool) if threshold is None else done >= threshold - ABS_TOL
    over[:, :, -1] = True
    return over.argmax(axis=2)
