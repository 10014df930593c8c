"""Rules of a scheme for the ranks of a script: the parts of each rank, the end of an exchange, and its weights.

The schemes are those of `workbench.core.schemes`, with the same fields. An exchange is numbered by the steps that are
complete after it, from 1. In gradient schemes each step has one. In `LocalSGD` and `H-SGD`, ranks take steps of the
script's own optimiser, and an exchange averages their models and the states of their optimisers.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
from typing_extensions import override

from workbench.core import schemes
from workbench.core.base.settings import SettingError, unknown_name, within
from workbench.core.base.types import Array
from workbench.core.contract.scheme import Coded, Scheme
from workbench.core.schemes.approximate import Approximate
from workbench.core.schemes.gradient_coding import GC
from workbench.core.schemes.hierarchical import HSGD
from workbench.core.schemes.local_steps import LocalSGD
from workbench.core.schemes.uncoded import SGD, UMW

NAMES = ["UMW", "GC", "FRC", "CRC", "IS-GC", "SGD", "Backup", "LocalSGD", "H-SGD"]
LOCAL_FIELDS = {"local_steps", "stragglers", "levels"}  # the script's optimiser replaces the other fields
Group = tuple[int, int]  # level of an exchange, number of the group at that level


class Rule(ABC):
    """Rule of a scheme for a given number of ranks, which are numbered from 0.

    `matrix`: coefficients of the parts in the gradients of each rank, (ranks, parts). `local`: whether models are
    averaged instead of gradients. `replicated`: whether several ranks compute the same part. `period`: steps between
    two exchanges of all ranks.
    """

    local: bool = False
    period: int = 1

    def __init__(self, scheme: Scheme, ranks: int, matrix: Array) -> None:
        self.scheme, self.ranks, self.matrix = scheme, ranks, matrix
        self.replicated = bool((np.count_nonzero(matrix, axis=0) > 1).any())

    def group(self, event: int, rank: int) -> Group | None:
        """Return the group with which a rank exchanges after `event` steps, or None if it does not exchange."""
        return (0, 0)

    def members(self, group: Group) -> range:
        """Return the ranks of a group."""
        return range(self.ranks)

    @abstractmethod
    def ready(self, group: Group, answered: Collection[int], possible: Collection[int]) -> bool:
        """Return whether an exchange ends. `possible`: ranks of the group that have answered or still can answer."""

    @abstractmethod
    def weights(self, answered: tuple[int, ...], event: int) -> tuple[Array, float]:
        """Return the weights of the answers, in the order of ranks, and the residual of the commit (NaN for models)."""


class Gradients(Rule):
    """Rule of a scheme that combines gradients.

    `strict`: too few answers end the job, instead of giving an estimate.
    """

    def __init__(self, scheme: Scheme, ranks: int) -> None:
        self.code = scheme.build_code(ranks) if isinstance(scheme, Coded) else None
        super().__init__(scheme, ranks, np.eye(ranks) if self.code is None else self.code.matrix)
        grouped = isinstance(scheme, GC) and scheme.code == "fractional" and scheme.matrix is None
        self.group_size = scheme.stragglers + 1 if isinstance(scheme, GC) and grouped else None
        self.strict = isinstance(scheme, GC) or type(scheme) is UMW
        self.count = self._count(scheme, ranks)

    @staticmethod
    def _count(scheme: Scheme, ranks: int) -> int:
        """Return the number of answers that the master waits for."""
        if isinstance(scheme, GC):
            return ranks - scheme.stragglers
        if isinstance(scheme, Approximate):
            return scheme.waits_for(ranks)
        return scheme.waits_for(ranks) if isinstance(scheme, UMW) else ranks

    @override
    def ready(self, group: Group, answered: Collection[int], possible: Collection[int]) -> bool:
        if self.group_size:
            return len({rank // self.group_size for rank in answered}) == self.ranks // self.group_size
        enough = self.count if self.strict else min(self.count, len(possible))
        return bool(answered) and len(answered) >= enough

    @override
    def weights(self, answered: tuple[int, ...], event: int) -> tuple[Array, float]:
        if isinstance(self.scheme, Approximate) and self.code:
            return self.scheme.weigh(self.code, answered, event)
        if self.code:
            return self.code.decode(answered)
        count, plain = len(answered), type(self.scheme) in (UMW, SGD)
        weight = 1.0 if plain else self.ranks / count
        return np.full(count, weight), count * (weight - 1) ** 2 + self.ranks - count


class Models(Rule):
    """Rule of a scheme that averages models: over all ranks, and more often within groups."""

    local = True

    def __init__(self, scheme: LocalSGD | HSGD, ranks: int) -> None:
        super().__init__(scheme, ranks, np.eye(ranks))
        self.period = scheme.local_steps
        levels = scheme.levels if isinstance(scheme, HSGD) else ()
        self.sizes = [*(size for _, size in levels), ranks]
        self.levels = dict(scheme.syncs) if isinstance(scheme, HSGD) else {self.period: 0}
        self.late = scheme.stragglers if isinstance(scheme, LocalSGD) else 0

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
        late = self.late if self.sizes[group[0]] == self.ranks else 0
        return bool(answered) and len(answered) >= min(len(self.members(group)) - late, len(possible))

    @override
    def weights(self, answered: tuple[int, ...], event: int) -> tuple[Array, float]:
        return np.full(len(answered), 1 / len(answered)), float("nan")


def rule(name: str, args: Mapping[str, Any], ranks: int) -> Rule:
    """Return the rule of a scheme. Raises `SettingError` for a scheme or parameters that scripts cannot use.

    >>> rule("GC", {"stragglers": 1}, 4).matrix.astype(int).tolist()[0]
    [1, 1, 0, 0]
    >>> rule("H-SGD", {"local_steps": 4, "levels": ((2, 2),)}, 4).group(event=2, rank=3)
    (0, 1)
    """
    if name not in NAMES:
        raise unknown_name("scheme", name, NAMES)
    with within("scheme_args"):
        scheme = schemes.get(name)(**args)
    scheme.check(ranks)
    if isinstance(scheme, LocalSGD | HSGD):
        if other := sorted(scheme.model_fields_set - LOCAL_FIELDS):
            why = "the script's optimiser takes the steps; set it there"
            raise SettingError(f"scheme_args.{other[0]} = {getattr(scheme, other[0])!r}: {why}")
        return Models(scheme, ranks)
    _check_counted(scheme)
    return Gradients(scheme, ranks)


def _check_counted(scheme: Scheme) -> None:
    """Raise `SettingError` for a deadline, a tolerance, or rows of the code that move between ranks."""
    for field, unused in (("deadline", None), ("tolerance", None), ("shuffle", "none")):
        value = getattr(scheme, field, unused)
        if value != unused:
            why = "the master of a script counts answers to the same parts; leave it empty"
            raise SettingError(f"scheme_args.{field} = {value!r}: {why}")
