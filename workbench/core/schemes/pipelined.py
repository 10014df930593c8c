"""Pipelined gradient coding, PGC: a worker computes one part per round, and adds old gradients of its other parts.

Implemented from its authors' public program (PipelinedGradientCoding, `resnet18_cifar10.py`: Pipelined_GC_CR,
PipelinedNetwork). Worker i stores the s+1 parts i, ..., i+s, cyclically. In round t it computes one of them, number t
modulo s+1. It sends the sum of the newest gradients of all its parts, which belong to different models. The master
adds up the first n-s answers and scales by n / ((n-s) (s+1)). Stragglers receive the next model and drop their old
work, as in all schemes with rounds.
"""

from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from workbench.core.contract.plan import MASTER, Plan, even_sizes, uncoded_plan
from workbench.core.contract.programs import (
    AnswerProgram,
    Answers,
    LostChildren,
    at_least,
    gather,
    master_program,
    plain_sum,
    worker_program,
)
from workbench.core.contract.protocol import CODED, MODEL, Compute, Message, Node, Program, Send
from workbench.core.contract.round_times import RoundTimes, SampledTimes, star_round_times
from workbench.core.schemes.uncoded import SGD, total


class PGC(SGD):
    """Pipelined gradient coding: the load of an uncoded scheme, the redundancy of a code, and gradients at old models.

    Round 0 is the authors' pre-training: every worker computes all its parts, and the master waits for all workers.
    From round 1 on, every part has the weight 1 on average over the sets of late workers, whatever the age of its
    gradients.

    >>> PGC(stragglers=2).loads(workers=6, samples=60).tolist()
    [10, 10, 10, 10, 10, 10]
    """

    name = "PGC"
    title: ClassVar[str] = "Pipelined gradient coding"
    paper: ClassVar[str] = "PipelinedGradientCoding, 2023"
    follows: ClassVar[Literal["paper", "abstract", "code"]] = "code"

    def plan(self, workers: int, samples: int) -> Plan:
        """Return a plan with one part per worker and round.

        The s+1 gradients of a worker may belong to different models.
        """
        return replace(uncoded_plan(workers, samples), versions=workers * (self.stragglers + 1) + 1)

    def rows(self, workers: int, round: int) -> NDArray[np.int64]:
        """Return the part of each worker: worker i takes part i + (t modulo s+1)."""
        return np.asarray((np.arange(workers) + round % (self.stragglers + 1)) % workers)

    def program(self, node: Node) -> Program:
        if node.rank == MASTER:
            return master_program(node, partial(self._answers, node))
        newest: dict[int, Any] = {}  # newest gradient of each of the worker's parts
        return worker_program(node, lambda node, job: self._answer(node, job, newest))

    def _answers(self, node: Node, r: int, model: Any, lost: LostChildren) -> AnswerProgram:
        n = node.plan.workers
        got, _ = yield from gather(node, r, at_least(n if r == node.first else self.waits_for(n)), lost)
        scale = n / (len(got) * (self.stragglers + 1))
        return scale * total(got), self._residual(n, got, scale), len(got)

    def _residual(self, workers: int, got: Answers, scale: float) -> float:
        came = np.array([rank - 1 for rank, _ in got])[:, None]
        stored = (came + np.arange(self.stragglers + 1)) % workers
        weights = scale * np.bincount(stored.ravel(), minlength=workers)
        return float(((weights - 1) ** 2).sum())

    def _answer(self, node: Node, job: Message, newest: dict[int, Any]) -> Program:
        """Compute the part of this round (in round 0, all parts), then send the sum of the newest gradients."""
        places = range(self.stragglers + 1) if not newest else (job.round % (self.stragglers + 1),)
        for place in places:
            index = (node.rank - 1 + place) % node.plan.workers
            work = node.plan.work[index + 1]
            value = yield Compute(work, job.value, job.round, unless={MODEL: job.round + 1})
            if value is None:
                return
            newest[index] = value
        yield Send(node.parent, CODED, job.round, plain_sum([newest[index] for index in sorted(newest)]))

    def round_times(self, draws: SampledTimes, workers: int) -> RoundTimes:
        """Return the time of the (n-s)-th answer with one part; in round 0, of the last answer with s+1 parts."""
        number = draws.first_round + np.arange(len(draws.seconds))
        seconds, sizes = draws.seconds.copy(), even_sizes(draws.samples, workers)
        if draws.first_round == 0:
            portions = [np.roll(sizes, -k)[:, None] for k in range(self.stragglers + 1)]
            seconds[0] = sum(draws.progress(portion, slice(0, 1))[0, :, 0] for portion in portions)
        needed = np.where(number == 0, workers, self.waits_for(workers))
        return star_round_times(replace(draws, seconds=seconds), lambda order: needed)
