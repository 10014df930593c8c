"""Relatives of approximate gradient coding, on the same master and workers: ErasureHead, SGC and BGC.

* H. Wang, Z. Charles, D. Papailiopoulos, "ErasureHead: distributed gradient descent without delays using approximate
  gradient coding", arXiv 1901.09671, 2019 ([9] of paper 4). Implemented from the abstract; the sections were not
  available.
* R. Bitar, M. Wootters, S. El Rouayheb, "Stochastic gradient coding for straggler mitigation in distributed
  learning", IEEE J. Sel. Areas Inf. Theory 1 (2020), pp. 277-291 ([11] of paper 4). Implemented from the abstract as
  well.
* Z. Charles, D. Papailiopoulos, J. Ellenberg, "Approximate gradient coding via sparse random graphs", 2017,
  section 5.

Here SGC and BGC can be shuffled, which paper 4 leaves for later (section VI).
"""

from dataclasses import replace
from functools import lru_cache
from typing import ClassVar, Literal

import numpy as np

from workbench.core.base.settings import SettingError, setting
from workbench.core.base.types import Array
from workbench.core.codes import Decoding, GradientCode, bernoulli
from workbench.core.contract.exchanges import GradientSum
from workbench.core.contract.programs import StopRule, one_of_each
from workbench.core.contract.round_times import RoundTimes, SampledTimes, earlier
from workbench.core.schemes.approximate import Grouped, Shuffled
from workbench.core.schemes.gradient_coding import GC


class ErasureHead(Grouped):
    """Fractional repetition whose master ends a round early, once every group has answered (paper's abstract)."""

    name = "ErasureHead"
    title: ClassVar[str] = "ErasureHead"
    paper: ClassVar[str] = "Wang, Charles, Papailiopoulos 2019"
    follows: ClassVar[Literal["paper", "abstract", "code"]] = "abstract"

    def rule(self, workers: int) -> StopRule:
        """Return the rule that ends a round: enough answers or the deadline, or one answer of every group."""
        size = self.replication
        return super().rule(workers) | one_of_each(lambda rank: (rank - 1) // size, workers // size)

    def exchange_rule(self, workers: int) -> GradientSum:
        """Return a rule that ends an exchange with one answer of every group as well."""
        return replace(super().exchange_rule(workers), group_size=self.replication)

    def round_times(self, draws: SampledTimes, workers: int) -> RoundTimes:
        """Return the earlier of two times: one answer of every group, and the rule of `Approximate`."""
        covered = GC(stragglers=self.replication - 1, code="fractional").round_times(draws, workers)
        return earlier(covered, super().round_times(draws, workers))


class SGC(Shuffled):
    """Stochastic gradient coding: every part is on s random workers, and any two parts share few workers on average.

    With decoding = "sum", the master adds up the answers as in the paper's abstract, and the sum is unbiased. By
    default, the master weighs the answers by least squares, as in all approximate schemes here. The error of this
    commit is never larger than that of the sum.

    >>> SGC().loads(workers=6, samples=60).tolist()
    [30, 20, 10, 40, 0, 20]
    """

    name = "SGC"
    title: ClassVar[str] = "Stochastic gradient coding"
    paper: ClassVar[str] = "Bitar, Wootters, El Rouayheb 2020"
    follows: ClassVar[Literal["paper", "abstract", "code"]] = "abstract"
    decoding: Literal["optimal", "sum"] = setting(
        "optimal", "optimal: least-squares weights; sum: the plain sum of the answers, as in the paper"
    )
    straggling: float | None = setting(
        None,
        "probability that an answer is missing (p), for the plain sum; empty = 1 - wait_for/n; must be given with a"
        " deadline",
        ge=0,
        lt=1,
    )

    def check(self, workers: int) -> None:
        """Raise `SettingError` if the plain sum is used with a deadline, and `straggling` is not given."""
        super().check(workers)
        if self.deadline is not None and self.straggling is None and self.decoding == "sum":
            raise SettingError(
                "scheme_args.straggling: is missing; with a deadline give the probability that an answer is late,"
                " 0 to below 1, or decoding = 'optimal'"
            )

    def build_code(self, workers: int) -> GradientCode:
        """Return the code: every part on s workers, with the coefficient 1/(s (1-p)) that makes the sum unbiased."""
        p = self.straggling
        if p is None:
            p = 1 - self.waits_for(workers) / workers if self.deadline is None else 0.0
        return scattered(workers, self.replication, 1 / (self.replication * (1 - p)), self.code_seed)

    @property
    def shrinks(self) -> bool:
        return self.decoding == "optimal"

    def weigh(self, code: GradientCode, answered: tuple[int, ...], round: int = 0) -> Decoding:
        """Return the weights of the answers: 1 for the plain sum, else the optimal weights."""
        return plain_sum(code, answered, 1.0) if self.decoding == "sum" else code.decode(answered)


class BGC(Shuffled):
    """Bernoulli gradient coding: every worker stores every part with probability s/n, independently.

    >>> BGC().loads(workers=6, samples=60).tolist()
    [30, 10, 20, 30, 10, 20]
    """

    name = "BGC"
    title: ClassVar[str] = "Bernoulli gradient coding"
    paper: ClassVar[str] = "Charles, Papailiopoulos, Ellenberg 2017, section 5"
    decoding: Literal["optimal", "one_step"] = setting(
        "optimal", "optimal: least-squares weights; one_step: the same weight n/(r s) for all r answers"
    )
    cover: bool = setting(
        True,
        "give a part that no worker drew to one worker; off = such a part is never used, as in the paper",
    )

    def build_code(self, workers: int) -> GradientCode:
        return sparse(workers, self.replication, self.code_seed, self.cover)

    @property
    def shrinks(self) -> bool:
        return self.decoding == "optimal"

    def weigh(self, code: GradientCode, answered: tuple[int, ...], round: int = 0) -> Decoding:
        """Return the one-step weights, or the optimal ones."""
        if self.decoding == "optimal":
            return code.decode(answered)
        return plain_sum(code, answered, code.workers / (len(answered) * self.replication))


def plain_sum(code: GradientCode, answered: tuple[int, ...], weight: float) -> Decoding:
    """Return a decoding with the same weight for every answer.

    >>> from workbench.core.codes import fractional
    >>> plain_sum(fractional(4, 1), (0, 1, 3), 0.5)
    Decoding(weights=array([0.5, 0.5, 0.5]), residual=0.5)
    """
    weights: Array = np.full(len(answered), weight)
    miss = weights @ code.matrix[list(answered)] - 1.0
    return Decoding(weights, float(miss @ miss))


@lru_cache(maxsize=32)
def scattered(workers: int, copies: int, coefficient: float, seed: int) -> GradientCode:
    """Put every part on `copies` random workers; two parts share copies^2 / n workers on average (pair-wise balance).

    >>> scattered(4, 2, 0.5, seed=0).matrix.sum(axis=0).tolist()
    [1.0, 1.0, 1.0, 1.0]
    """
    order = np.random.default_rng(seed).random((workers, workers)).argsort(axis=0)
    matrix = np.zeros((workers, workers))
    np.put_along_axis(matrix, order[:copies], coefficient, axis=0)
    return GradientCode(matrix, 0)


@lru_cache(maxsize=32)
def sparse(workers: int, copies: int, seed: int, cover: bool) -> GradientCode:
    """Return the Bernoulli code. With `cover`, part i goes to worker i if no worker drew it.

    >>> sparse(9, 1, seed=0, cover=True).matrix.any(axis=0).all()
    np.True_
    """
    code = bernoulli(workers, workers, float(copies), seed)
    bare = np.flatnonzero(~code.matrix.any(axis=0))
    if not cover or not len(bare):
        return code
    matrix = code.matrix.copy()
    matrix[bare, bare] = 1.0
    return GradientCode(matrix, 0)
