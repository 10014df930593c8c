"""Gradient coding, GC: the master tolerates any S stragglers, and the load is (S+1)/N.

R. Tandon, Q. Lei, A. G. Dimakis, N. Karampatziakis, "Gradient coding: avoiding stragglers in distributed
learning", ICML 2017, Algorithms 1 and 2 (cyclic), section 3 (fractional repetition). N. Raviv et al., "Gradient
coding from cyclic MDS codes and expander graphs", ICML 2018; W. Halbawi et al., ISIT 2018 (mds).
"""

from functools import lru_cache
from itertools import combinations, islice
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from workbench.core.base.settings import SettingError, setting, within
from workbench.core.codes import GradientCode, cyclic, fractional, mds
from workbench.core.codes.checks import groups_divide
from workbench.core.codes.cyclic import Construction
from workbench.core.contract.exchanges import GradientSum, refuse_unless
from workbench.core.contract.plan import MASTER
from workbench.core.contract.programs import at_least, coded_program, decoder, one_of_each, tolerant_program
from workbench.core.contract.protocol import Node, Program
from workbench.core.contract.round_times import (
    RoundTimes,
    SampledTimes,
    WaitResult,
    places,
    star_round_times,
    wait_for,
)
from workbench.core.contract.scheme import Coded, divisors, least_digits_field, log_spaced_ints
from workbench.core.schemes.uncoded import check_stragglers

Matrix = tuple[tuple[float, ...], ...]


class GC(Coded):
    """Gradient coding on a star: S+1 workers store every part, and any N-S answers give the full gradient.

    With a `tolerance` mu, the master waits as in sequential gradient coding (`SRSGC`): 1 + mu times as long as the
    fastest worker takes. Then it drops the late workers if the code allows it, and otherwise waits for all. In the
    simulator of Krishnan et al., GC of load (s+1)/n drops at most s-1 workers. This is GC here with stragglers = s-1,
    whose load is s/n.

    >>> GC(stragglers=2).loads(workers=6, samples=60).tolist()
    [30, 30, 30, 30, 30, 30]
    """

    name = "GC"
    title: ClassVar[str] = "Gradient coding"
    paper: ClassVar[str] = "Tandon et al. 2017"
    precision_knob: ClassVar[tuple[str, int] | None] = ("stragglers", -1)
    stragglers: int = setting(1, "workers that may be late or dead (S)", ge=0)
    code: Literal["cyclic", "fractional", "mds", "tandon"] = setting(
        "cyclic",
        "cyclic: well conditioned cyclic windows; fractional: groups with the same parts; mds: cyclic MDS"
        " (Reed-Solomon); tandon: cyclic windows with random coefficients, as in Tandon et al.",
    )
    code_seed: int = setting(0, "seed of the cyclic code's random numbers", ge=0)
    matrix: Matrix | None = setting(None, "your own encoding matrix, one row per worker; empty = built-in")
    tolerance: float | None = setting(
        None,
        "the master waits 1 + tolerance times the time of the fastest answer, then drops late workers if the code"
        " allows it, else waits for all; empty = wait for N-S answers",
        ge=0,
    )
    least_digits: int = least_digits_field()

    @classmethod
    def candidates(cls, workers: int) -> list[dict[str, Any]]:
        """Return parameters of cyclic codes for some S, and of fractional repetition for every possible group size."""
        windows = [{"stragglers": s} for s in log_spaced_ints(1, workers - 1)]
        groups = [{"stragglers": size - 1, "code": "fractional"} for size in divisors(workers)[1:]]
        return windows + groups

    def check(self, workers: int) -> None:
        """Raise `SettingError` unless S < N, and groups or the user-defined matrix fit."""
        check_stragglers(self.stragglers, workers)
        if self.matrix is not None:
            own_code(self.matrix, workers, self.stragglers)
        if self.code == "mds" and self.matrix is None:
            with within("scheme_args"):
                mds(workers, self.stragglers)
        if self._grouped:
            field, more = "scheme_args.stragglers", ", or code = 'cyclic'"
            groups_divide(field, self.stragglers, workers, self.stragglers + 1, more)

    def build_code(self, workers: int) -> GradientCode:
        if self.matrix is not None:
            return own_code(self.matrix, workers, self.stragglers)
        if self.code == "fractional":
            return fractional(workers, self.stragglers)
        if self.code == "mds":
            return mds(workers, self.stragglers)
        construction: Construction = "tandon" if self.code == "tandon" else "stable"
        return cyclic(workers, self.stragglers, self.code_seed, construction)

    @property
    def _grouped(self) -> bool:
        return self.code == "fractional" and self.matrix is None

    def program(self, node: Node) -> Program:
        n = node.plan.workers
        if self._grouped:
            rule = one_of_each(lambda rank: (rank - 1) // (self.stragglers + 1), n // (self.stragglers + 1))
        else:
            rule = at_least(n - self.stragglers)
        combine = decoder(lambda: self.build_code(n), first=1)
        if self.tolerance is not None and node.rank == MASTER:
            return tolerant_program(node, rule, self.tolerance, combine)
        return coded_program(node, rule, combine)

    def exchange_rule(self, workers: int) -> GradientSum:
        refuse_unless("tolerance", self.tolerance, None, "a training script counts answers; leave it empty")
        code, group = self.build_code(workers), (self.stragglers + 1) * self._grouped
        return GradientSum(
            code.matrix, workers - self.stragglers, lambda ranks, _: code.decode(ranks), True, group
        )

    def round_times(self, draws: SampledTimes, workers: int) -> RoundTimes:
        """Return the time of the (N-S)-th answer, of the last group's first answer, or when the tolerance ends."""
        if self.tolerance is not None:
            return self._patient_odds(wait_for(draws, self.tolerance), draws)
        if self._grouped:
            return star_round_times(draws, self._answers_until_covered)
        return star_round_times(draws, workers - self.stragglers)

    def _patient_odds(self, wait: WaitResult, draws: SampledTimes) -> RoundTimes:
        size = self.stragglers + 1 if self._grouped else wait.late_workers.shape[1]
        # max number of late workers; a fractional code tolerates all workers but one of each group
        most = self.stragglers
        drop = (
            np.count_nonzero(wait.late_workers.reshape(len(wait.late_workers), -1, size), axis=2) <= most
        ).all(axis=1)
        combined = wait.late_workers.shape[1] - np.where(drop, np.count_nonzero(wait.late_workers, axis=1), 0)
        return wait.round_times(draws, drop, combined)

    def _answers_until_covered(self, order: NDArray[np.int64]) -> NDArray[np.int64]:
        groups = places(order).reshape(len(order), -1, self.stragglers + 1)
        return np.asarray(groups.min(axis=2).max(axis=1) + 1)


@lru_cache(maxsize=16)
def own_code(matrix: Matrix, workers: int, stragglers: int) -> GradientCode:
    """Return the code of a given matrix.

    Raise `SettingError` unless any n-s rows decode (at most 2000 sets are tried).
    """
    if len(matrix) != workers or len({len(row) for row in matrix}) != 1:
        raise SettingError(f"scheme_args.matrix: has {len(matrix)} rows; give {workers} rows of equal length")
    code = GradientCode(np.array(matrix, dtype=float), stragglers)
    for late in islice(combinations(range(workers), stragglers), 2000):
        answered = tuple(i for i in range(workers) if i not in late)
        if code.decode(answered).residual > 1e-12:
            why = f"without rows {list(late)} it does not decode; change it or lower s"
            raise SettingError(f"scheme_args.matrix: {why}")
    return code
