"""CADA1 and CADA2: workers compute in every round, but send a gradient only if it has changed enough.

T. Chen, Z. Guo, Y. Sun, W. Yin, "CADA: Communication-adaptive distributed Adam", AISTATS 2021, after their public
programs (CADA-master, `MATLAB/ijcnn1/ijcnn.m` and `MATLAB/covtype/covtype.m`). `CADA` is the rule of Zhu et al., which
compares models at the master before anybody computes. These two compare gradients at the workers.

In every round a worker takes two gradients over the same samples: at the new model, and at an older one. It sends the
new gradient if its squared change is at least c times the sum of the last `window` squared changes of the model.
The older model of CADA1 is a snapshot that all workers take every `max_age` rounds. The older model of CADA2 is that of
the last gradient that the worker sent. The master adds up the newest gradients of all workers.

Regularisation is treated in two ways. The gradients that a worker compares are those of its share of the mean loss and
of the regularisation, as in the programs. The committed sum is without regularisation, which the optimiser applies at
the new model. In the programs, the gradients that the master stores include the regularisation at old models.
"""

from abc import ABC, abstractmethod
from collections import deque
from dataclasses import replace
from typing import Any, ClassVar, Literal

import numpy as np

from workbench.core.base.settings import setting
from workbench.core.base.types import Array
from workbench.core.contract.plan import MASTER
from workbench.core.contract.programs import (
    AnswerProgram,
    LostChildren,
    master_program,
    plain_sum,
    worker_program,
)
from workbench.core.contract.protocol import (
    CODED,
    MODEL,
    PEER_LOST,
    Compute,
    Message,
    Node,
    Program,
    Recv,
    Send,
)
from workbench.core.contract.round_times import RoundTimes, SampledTimes, star_round_times
from workbench.core.schemes.adaptive import MiniBatches
from workbench.core.schemes.lazy import squared

UNCHANGED = "unchanged"  # kind of the empty message of a worker whose last gradient is still used


class UploadRule(ABC):
    """Rule of one worker: at which older model it takes a second gradient, and whether it sends the new one."""

    def __init__(self, max_age: int) -> None:
        self.max_age = max_age
        self.old: Any = None  # the older model
        self.due = True  # whether the gradient is sent without a test

    @abstractmethod
    def begin(self, round: int, model: Any) -> None:
        """Set the older model of a round, and whether the gradient is due."""

    @abstractmethod
    def changed(self, new: Array, old: Array) -> float:
        """Return the squared change of the gradient, given the gradients at the new and at the older model."""

    @abstractmethod
    def sent(self, model: Any, new: Array, old: Array) -> None:
        """Record that the gradient at the new model is sent."""


class SnapshotRule(UploadRule):
    """Rule of CADA1: the older model is a snapshot, taken every `max_age` rounds, when all gradients are sent."""

    kept: Any = 0.0  # difference of the worker's two gradients when it last sent one

    def begin(self, round: int, model: Any) -> None:
        self.due = self.old is None or round % self.max_age == 0
        if self.due:
            self.old = model

    def changed(self, new: Array, old: Array) -> float:
        return squared(new - old - self.kept)

    def sent(self, model: Any, new: Array, old: Array) -> None:
        self.kept = new - old


class LastSentRule(UploadRule):
    """Rule of CADA2: the older model is that of the worker's last sent gradient, at most `max_age` rounds ago."""

    age = 0

    def begin(self, round: int, model: Any) -> None:
        self.age += 1
        self.due = self.old is None or self.age >= self.max_age
        if self.old is None:
            self.old = model

    def changed(self, new: Array, old: Array) -> float:
        return squared(new - old)

    def sent(self, model: Any, new: Array, old: Array) -> None:
        self.old, self.age = model, 0


class AdaptiveUploads(MiniBatches):
    """Base of CADA1 and CADA2: workers take two gradients in a round, and send one or an empty message.

    `messages` counts empty messages, too; only gradients add to `bytes`. `forecast` assumes that every worker sends
    its gradient in every round; it is exact if sending takes no time.
    """

    follows: ClassVar[Literal["paper", "abstract", "code"]] = "code"
    optimiser: ClassVar[str] = "amsgrad"
    data_dependent: ClassVar[bool] = True
    rule: ClassVar[type[UploadRule]]
    c: float = setting(
        5e-4,
        "a gradient is sent if its squared change is at least c times the sum of the model's last squared steps",
        ge=0,
    )
    window: int = setting(
        10, "number of last steps of the model whose squares are added up, see c (d_max)", "rounds", ge=1
    )
    max_age: int = setting(100, "rounds after which a gradient is sent in any case (D)", "rounds", ge=1)

    @classmethod
    def candidates(cls, workers: int) -> list[dict[str, Any]]:
        """Return some thresholds: the authors' on ijcnn1, and larger ones."""
        return [{"c": c} for c in (5e-4, 5e-3, 5e-2)]

    @property
    def epochs_per_round(self) -> int:
        """Number of models at which a worker processes its load in a round: 2."""
        return 2

    def program(self, node: Node) -> Program:
        if node.rank == MASTER:
            last: dict[int, Any] = {}  # newest gradient of each worker
            return master_program(node, lambda r, model, lost: _committed(node, r, last, lost))
        rule, steps = self.rule(self.max_age), _Steps(self.window)
        return worker_program(node, lambda node, job: self._answer(node, job, rule, steps))

    def _answer(self, node: Node, job: Message, rule: UploadRule, steps: "_Steps") -> Program:
        threshold = self.c * steps.to(job.value)
        rule.begin(job.round, job.value)
        values, unless = [], {MODEL: job.round + 1}
        for model in (job.value, rule.old):
            value = yield Compute(node.work, model, job.round, unless, self.worker_batch)
            if value is None:
                return
            values.append(value)
        new, old = _share(node, job.value, values[0]), _share(node, rule.old, values[1])
        if rule.due or rule.changed(new, old) >= threshold:
            rule.sent(job.value, new, old)
            yield Send(node.parent, CODED, job.round, values[0])
        else:
            yield Send(node.parent, UNCHANGED, job.round, floats=0)

    def round_times(self, draws: SampledTimes, workers: int) -> RoundTimes:
        """Return the time of the slowest worker's two gradients, if all workers send theirs."""
        return star_round_times(replace(draws, seconds=2 * draws.seconds), workers)


class CADA1(AdaptiveUploads):
    """CADA1: a worker compares its gradient with the one at a snapshot, and sends it if the difference has changed.

    All workers take a new snapshot of the model every `max_age` rounds.
    """

    name = "CADA1"
    title: ClassVar[str] = "Communication-adaptive distributed Adam, rule 1 of its authors"
    paper: ClassVar[str] = "Chen, Guo, Sun, Yin 2021, CADA1"
    rule: ClassVar[type[UploadRule]] = SnapshotRule


class CADA2(AdaptiveUploads):
    """CADA2: a worker sends if its gradient has changed since the model at which it last sent one."""

    name = "CADA2"
    title: ClassVar[str] = "Communication-adaptive distributed Adam, rule 2 of its authors"
    paper: ClassVar[str] = "Chen, Guo, Sun, Yin 2021, CADA2"
    rule: ClassVar[type[UploadRule]] = LastSentRule


class _Steps:
    """Squared lengths of the last changes of the model."""

    def __init__(self, window: int) -> None:
        self.squares: deque[float] = deque(maxlen=window)
        self.model: Any = None

    def to(self, model: Any) -> float:
        """Add the change to a new model. Return the sum of the last squared changes."""
        if self.model is not None:
            self.squares.append(squared(model - self.model))
        self.model = model
        return sum(self.squares)


def _committed(node: Node, round: int, last: dict[int, Any], lost: LostChildren) -> AnswerProgram:
    """Wait for a message of every worker. Return the sum of the workers' newest gradients, in the order of ranks."""
    waiting = set(node.children)
    while waiting:
        if dead := lost.of(round) & waiting:
            raise lost.quorum_lost(node.rank, round, dead)
        message: Message = yield Recv({CODED: round, UNCHANGED: round, PEER_LOST: 0})
        if message.kind == PEER_LOST:
            lost.add(message)
            continue
        waiting.remove(message.src)
        if message.kind == CODED:
            last[message.src] = message.value
    return plain_sum([last[rank] for rank in node.children]), 0.0, len(last)


def _share(node: Node, model: Any, value: Array) -> Array:
    """Return the gradient of the worker's share of the objective, from a sum over its samples."""
    samples = node.plan.samples
    return np.asarray(value / samples + node.work.samples / samples * node.l2 * model)
