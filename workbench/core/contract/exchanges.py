"""Rules of exchanges: how a scheme combines gradients or models if the master counts answers and reads no clock.

Training scripts (`workbench.ddp`) use them. An exchange is numbered by the steps that are complete after it, from 1.
Ranks are numbered from 0.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from typing_extensions import override

from workbench.core.base.settings import SettingError
from workbench.core.base.types import Array

Group = tuple[int, int]  # level of an exchange, number of the group at that level
Weigh = Callable[[tuple[int, ...], int], tuple[Array, float]]


class ExchangeRule(ABC):
    """Rule of a scheme for some ranks, as `Scheme.exchange_rule` returns it.

    `matrix`: coefficients of the parts in the gradients of each rank, (ranks, parts). `period`: steps between two
    exchanges of all ranks. `local`: whether models are averaged instead of gradients.
    """

    matrix: Array
    period: int = 1
    local: ClassVar[bool] = False

    @property
    def ranks(self) -> int:
        """Number of ranks."""
        return len(self.matrix)

    @property
    def replicated(self) -> bool:
        """Whether several ranks compute the same part."""
        return bool((np.count_nonzero(self.matrix, axis=0) > 1).any())

    def group(self, event: int, rank: int) -> Group | None:
        """Return the group with which a rank exchanges after `event` steps, or None if it does not exchange."""
        return (0, 0)

    def members(self, group: Group) -> range:
        """Return the ranks of a group."""
        return range(self.ranks)

    def is_whole(self, group: Group | None) -> bool:
        """Return whether a group consists of all ranks."""
        return group is not None and len(self.members(group)) == self.ranks

    @abstractmethod
    def ready(self, group: Group, answered: Collection[int], possible: Collection[int]) -> bool:
        """Return whether an exchange ends. `possible`: the ranks of the group that have answered, or still can."""

    @abstractmethod
    def weights(self, answered: tuple[int, ...], event: int) -> tuple[Array, float]:
        """Return the weights of answers, in order of ranks, and the residual of the commit (nan for models)."""


@dataclass(frozen=True)
class GradientSum(ExchangeRule):
    """Weighted sum of gradients of the first answers.

    Parameters
    ----------
    matrix
        Coefficients of the parts in each rank's answer, (ranks, parts).
    needed
        Number of answers that the master waits for.
    weigh
        Function that returns the weights of the answered ranks, in their order, and the residual of their sum. Its
        second argument is the number of the exchange.
    strict
        If True, fewer answers than `needed` give no commit. If False, the master does not wait for dead ranks.
    group_size
        Ranks per group, if an exchange also ends once every group has sent one answer. 0: no groups.
    shrinks
        Whether a step has only the commit's mean weight of the regularisation (see `programs.parent_program`).

    >>> mean = GradientSum(np.eye(4), 3, lambda answered, event: (np.full(len(answered), 4 / len(answered)), 0.0))
    >>> mean.ready((0, 0), answered={0, 1}, possible=range(4)), mean.ready((0, 0), answered={0, 1}, possible={0, 1})
    (False, True)
    """

    matrix: Array
    needed: int
    weigh: Weigh
    strict: bool = False
    group_size: int = 0
    shrinks: bool = False

    @override
    def ready(self, group: Group, answered: Collection[int], possible: Collection[int]) -> bool:
        enough = self.needed if self.strict else min(self.needed, len(possible))
        if len(answered) >= enough or not self.group_size:
            return bool(answered) and len(answered) >= enough
        return len({rank // self.group_size for rank in answered}) == self.ranks // self.group_size

    @override
    def weights(self, answered: tuple[int, ...], event: int) -> tuple[Array, float]:
        return self.weigh(answered, event)


@dataclass(frozen=True, kw_only=True)
class ModelAverage(ExchangeRule):
    """Averages of models: among all ranks, and in groups between these averages.

    Parameters
    ----------
    matrix
        Coefficients of the parts in each rank's gradients, (ranks, parts).
    period
        Steps between two averages of all ranks.
    levels
        Step of a period (from 1) -> level of the average after this step. A step without a level has no average.
    sizes
        Ranks per group at each level. The last is the number of all ranks.
    stragglers
        Number of ranks whose models an average of all ranks does not wait for.

    >>> rule = ModelAverage(matrix=np.eye(4), period=4, levels={2: 0, 4: 1}, sizes=(2, 4))
    >>> rule.group(event=2, rank=3), rule.group(event=3, rank=3), list(rule.members((0, 1)))
    ((0, 1), None, [2, 3])
    """

    local: ClassVar[bool] = True
    matrix: Array
    period: int = 1
    levels: Mapping[int, int]
    sizes: Sequence[int]
    stragglers: int = 0

    @override
    def group(self, event: int, rank: int) -> Group | None:
        level = self.levels.get((event - 1) % self.period + 1)
        return None if level is None else (level, rank // self.sizes[level])

    @override
    def members(self, group: Group) -> range:
        level, number = group
        return range(number * self.sizes[level], (number + 1) * self.sizes[level])

    @override
    def ready(self, group: Group, answered: Collection[int], possible: Collection[int]) -> bool:
        late = self.stragglers if self.sizes[group[0]] == self.ranks else 0
        return bool(answered) and len(answered) >= min(len(self.members(group)) - late, len(possible))

    @override
    def weights(self, answered: tuple[int, ...], event: int) -> tuple[Array, float]:
        return np.full(len(answered), 1 / len(answered)), float("nan")


def equal_weights(ranks: int, scale: float = 1.0) -> Weigh:
    """Return a function that weighs all answers by `scale`, where each rank has one part of its own.

    >>> weights, residual = equal_weights(ranks=4)((0, 1, 3), 1)
    >>> weights.tolist(), residual
    ([1.0, 1.0, 1.0], 1.0)
    """

    def weigh(answered: tuple[int, ...], event: int) -> tuple[Array, float]:
        count = len(answered)
        return np.full(count, scale), count * (scale - 1) ** 2 + ranks - count

    return weigh


def refuse_unless(field: str, value: Any, usable: Any, why: str) -> None:
    """Raise `SettingError` if a parameter of a scheme has a value that exchanges cannot use.

    >>> refuse_unless("deadline", 2.0, None, "answers are counted; leave it empty")
    Traceback (most recent call last):
    workbench.core.base.settings.SettingError: scheme_args.deadline = 2.0: answers are counted; leave it empty
    """
    if value != usable:
        raise SettingError(f"scheme_args.{field} = {value!r}: {why}")
