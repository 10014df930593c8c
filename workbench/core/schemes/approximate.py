"""Approximate gradient coding for heterogeneous nodes, AGC: FRC and CRC, with and without shuffling.

A. Johri, A. Yardi, T. Bodas, "Approximate gradient coding for heterogeneous nodes", sections II (deadline, codes,
optimal decoding) and III (shuffling). With shuffling, the rows of the encoding matrix are assigned to other workers in
every iteration. The data are then in a memory that all workers read.
"""

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import model_validator

from workbench.core.base.settings import SettingError, setting
from workbench.core.codes import Decoding, GradientCode, circulant, fractional
from workbench.core.codes.checks import between, groups_divide
from workbench.core.contract.delays import CounterRNG
from workbench.core.contract.exchanges import GradientSum, refuse_unless
from workbench.core.contract.plan import MASTER, Plan
from workbench.core.contract.programs import (
    Answers,
    StopRule,
    answer,
    at_least,
    deadline,
    decoded,
    parent_program,
    worker_program,
)
from workbench.core.contract.protocol import Message, Node, Program
from workbench.core.contract.round_times import (
    RoundTimes,
    SampledTimes,
    deadline_round_times,
    star_round_times,
)
from workbench.core.contract.scheme import Coded, least_digits_field, log_spaced_ints

COUNTED = "a training script counts answers to the same parts"
PERMUTATION_STREAM = 4  # random stream of the permutations; `contract.delays.base` lists all


class Approximate(Coded):
    """Star whose master decodes as well as possible, from the answers before a deadline or from a number of answers."""

    exact: ClassVar[bool] = False
    replication: int = setting(2, "workers that store each part (s)", ge=1)
    deadline: float | None = setting(
        None,
        "time that the master waits in every round; empty = it waits for a number of answers",
        "s",
        gt=0,
    )
    wait_for: int | None = setting(
        None, "number of answers that the master waits for, without a deadline; empty = n-s+1", ge=1
    )

    @classmethod
    def candidates(cls, workers: int) -> list[dict[str, Any]]:
        """Return configurations with low replication that wait for N - 1 answers, down to one answer."""
        waits = sorted(workers - s for s in log_spaced_ints(1, workers - 1, 5))
        return [{"replication": r, "wait_for": k} for r in range(1, min(4, workers) + 1) for k in waits]

    @model_validator(mode="after")
    def _one_end(self) -> Self:
        if self.deadline is not None and self.wait_for is not None:
            why = f"the master cannot also count answers (wait_for = {self.wait_for}); give one of the two"
            raise SettingError(f"deadline = {self.deadline:g}: {why}")
        return self

    def check(self, workers: int) -> None:
        """Raise `SettingError` for more copies of a part, or more answers to wait for, than there are workers."""
        for field, value in (("replication", self.replication), ("wait_for", self.wait_for or 1)):
            between(f"scheme_args.{field}", value, 1, workers, f"there are {workers} workers")

    def weigh(self, code: GradientCode, answered: tuple[int, ...], round: int = 0) -> Decoding:
        """Return the weights of the answered rows in a round: the optimal decoding of the paper's equation 2."""
        return code.decode(answered)

    def waits_for(self, workers: int) -> int:
        """Return the number of answers that a master without a deadline waits for."""
        return workers - self.replication + 1 if self.wait_for is None else self.wait_for

    def rule(self, workers: int) -> StopRule:
        """Return the rule that ends a round at the master."""
        return at_least(self.waits_for(workers)) if self.deadline is None else deadline(self.deadline)

    def program(self, node: Node) -> Program:
        workers = node.plan.workers
        if node.rank != MASTER:
            return worker_program(node, self._answer)
        combine = partial(self._combine, node.plan, self.weigher(workers))
        return parent_program(node, self.rule(workers), combine, self.shrinks)

    def exchange_rule(self, workers: int) -> GradientSum:
        refuse_unless("deadline", self.deadline, None, f"{COUNTED}; leave it empty")
        weigh, matrix = self.weigher(workers), self.build_code(workers).matrix
        return GradientSum(matrix, self.waits_for(workers), weigh, shrinks=self.shrinks)

    @property
    def shrinks(self) -> bool:
        """Whether the committed weights are the least-squares ones, which are below 1 on average."""
        return True

    def weigher(self, workers: int) -> Callable[[tuple[int, ...], int], Decoding]:
        """Return the function that weighs the rows that answered in a round."""
        return partial(self.weigh, self.build_code(workers))

    def _answer(self, node: Node, job: Message) -> Program:
        """Compute the row of this round, unless the master is already in a later round."""
        rows = self.rows(node.plan.workers, job.round)
        return answer(node, job, None if rows is None else node.plan.work[rows[node.rank - 1] + 1])

    def _combine(
        self, plan: Plan, weigh: Callable[[tuple[int, ...], int], Decoding], round: int, got: Answers
    ) -> tuple[Any, float]:
        """Decode the answers, which are added up in the order of the code's rows.

        Without answers, return 0 and a residual that counts every part.
        """
        if not got:
            return 0.0, float(plan.parts)
        rows = self.rows(plan.workers, round)
        places = np.arange(plan.workers) if rows is None else rows
        values = {int(places[src - 1]): message.value for (src, _), message in got.items()}
        return decoded(lambda answered: weigh(answered, round), values)

    def round_times(self, draws: SampledTimes, workers: int) -> RoundTimes:
        """Return the time of the deadline, or of the k-th answer."""
        if self.deadline is None:
            return star_round_times(draws, self.waits_for(workers))
        return deadline_round_times(draws, self.deadline)


class Shuffled(Approximate):
    """Approximate scheme whose code rows can be reassigned to other workers in every round, by every node itself."""

    shuffle: Literal["none", "random", "cyclic"] = setting(
        "none",
        "how rows of the code are reassigned to workers every round: not at all, at random, or by one place",
    )
    code_seed: int = setting(0, "seed of the code's and of the shuffling's random numbers", ge=0)

    def exchange_rule(self, workers: int) -> GradientSum:
        refuse_unless("shuffle", self.shuffle, "none", f"{COUNTED}; take none")
        return super().exchange_rule(workers)

    def rows(self, workers: int, round: int) -> NDArray[np.int64] | None:
        """Return the row of the code that each worker takes (section III; for cyclic shuffling, remark 1)."""
        if self.shuffle == "none":
            return None
        if self.shuffle == "cyclic":
            return (np.arange(workers) + round) % workers
        return permutation(workers, round, self.code_seed)


class Grouped(Approximate):
    """Approximate scheme of groups of s workers that store the same s parts."""

    def check(self, workers: int) -> None:
        super().check(workers)
        groups_divide("scheme_args.replication", self.replication, workers, self.replication)

    def build_code(self, workers: int) -> GradientCode:
        return fractional(workers, self.replication - 1)


class FRC(Grouped, Shuffled):
    """Approximate gradient coding by fractional repetition: groups of s workers store the same s parts."""

    name = "FRC"
    title: ClassVar[str] = "Approximate gradient coding, fractional repetition"
    paper: ClassVar[str] = "Approximate gradient coding for heterogeneous nodes, section III"


class CRC(Shuffled):
    """Approximate gradient coding by cyclic repetition: worker i stores the parts i, ..., i+s-1."""

    name = "CRC"
    title: ClassVar[str] = "Approximate gradient coding, cyclic repetition"
    paper: ClassVar[str] = "Approximate gradient coding for heterogeneous nodes, section III"
    precision_knob: ClassVar[tuple[str, int] | None] = ("replication", -1)
    coefficients: Literal["ones", "random"] = setting(
        "ones",
        "ones: plain sums, as Theorem 2 needs; random: coefficients that decode exactly from any n-s+1 answers",
    )
    least_digits: int = least_digits_field()

    def build_code(self, workers: int) -> GradientCode:
        """Return the code of cyclic windows of s parts."""
        return circulant(workers, self.replication, self.coefficients, self.code_seed)


@lru_cache(maxsize=64)
def permutation(workers: int, round: int, seed: int) -> NDArray[np.int64]:
    """Return the random order of the rows in a round. It is the same on every node, without a message.

    >>> sorted(permutation(4, round=7, seed=0).tolist())
    [0, 1, 2, 3]
    """
    order = CounterRNG(seed, PERMUTATION_STREAM).rng(round).permutation(workers)
    order.flags.writeable = False
    return order
