"""Lagrange coded computing, LCC, for linear regression: the data are encoded once, instead of the gradients.

S. Li, S. Kalan, Q. Yu, M. Soltanolkotabi, A. Avestimehr, "Polynomially coded regression: Optimal straggler mitigation
via data encoding", 2018; compared in section IV of "Gradient coding with clustering and multi-message communication".

The gradient is X^T X w - X^T y. A worker stores r linear combinations Xt ("blends") of the K blocks of X, which are
points on a polynomial through the blocks. It sends Xt^T Xt w: a point of a polynomial with 2 ceil(K/r) - 1
coefficients. From this number of answers the master interpolates the polynomial, and evaluates it at the points of the
blocks. X^T y is computed once, before the run.
"""

from typing import Any, ClassVar

import numpy as np

from workbench.core.base.settings import SettingError, setting, within
from workbench.core.codes import Lagrange, lagrange
from workbench.core.contract.plan import MASTER, Plan, Work, even_plan
from workbench.core.contract.programs import (
    Answers,
    Combine,
    answer,
    at_least,
    decoder,
    parent_program,
    worker_program,
)
from workbench.core.contract.protocol import Node, Program
from workbench.core.contract.round_times import RoundTimes, SampledTimes, star_round_times
from workbench.core.contract.scheme import Coded, least_digits_field, log_spaced_ints

QUADRATIC_PROBLEMS = ("least_squares", "unit")  # problems whose gradient is quadratic in the data


class LCC(Coded):
    """Lagrange coded computing: any 2 ceil(K/r) - 1 workers give the gradient of a linear regression.

    The data are encoded before the run; the encoding is not part of the measured time. In the problem "unit", part j
    is one sample, e_j.
    """

    name = "LCC"
    title: ClassVar[str] = "Lagrange coded computing"
    paper: ClassVar[str] = "Li et al. 2018"
    numeric: ClassVar[bool] = True  # because answers are not linear combinations of the parts' gradients
    precision_knob: ClassVar[tuple[str, int] | None] = ("load", 1)
    load: int = setting(3, "coded blocks that a worker stores and computes (r)", "blocks", ge=1)
    least_digits: int = least_digits_field()

    @classmethod
    def candidates(cls, workers: int) -> list[dict[str, Any]]:
        """Return some loads of at least two blocks.

        With a load of one, more answers are needed than there are workers.
        """
        return [{"load": r} for r in log_spaced_ints(2, workers)]

    def check(self, workers: int) -> None:
        self.build_code(workers)

    def check_problem(self, problem: str) -> None:
        if problem not in QUADRATIC_PROBLEMS:
            raise SettingError(
                f"problem = {problem!r}: LCC computes on encoded data, which works for gradients that are quadratic"
                " in the data, as of linear regression; take problem = 'least_squares', or another scheme"
            )

    def build_code(self, workers: int) -> Lagrange:
        with within("scheme_args"):
            return lagrange(workers, workers, self.load)

    def plan(self, workers: int, samples: int) -> Plan:
        """Return a plan with K blocks. Each worker stores r blends: blend t is of the blocks t, t + r, t + 2 r, ..."""
        encoding = self.build_code(workers).encoding
        blocks, stored = np.arange(workers) % self.load, np.tile(np.arange(workers), (workers, 1))
        # each block belongs to one blend, so its coefficient in all other blends is 0
        return even_plan(stored, samples, coefficients=encoding.sum(axis=1), blocks=blocks)

    def program(self, node: Node) -> Program:
        code = self.build_code(node.plan.workers)
        if node.rank != MASTER:
            return worker_program(node, answer)
        plan = node.plan
        constant = node.constant(Work(np.arange(plan.parts), np.ones(plan.parts), plan.samples))
        return parent_program(node, at_least(code.threshold), interpolate(code, constant))

    def round_times(self, draws: SampledTimes, workers: int) -> RoundTimes:
        return star_round_times(draws, self.build_code(workers).threshold)


def interpolate(code: Lagrange, constant: Any) -> Combine:
    """Return a function that decodes answers: the sum of the polynomial at the blocks, plus the constant -X^T y.

    The residual is that of the interpolation, which is 0 up to rounding.
    """
    interpolated = decoder(lambda: code, first=1)

    def combine(round: int, got: Answers) -> tuple[Any, float]:
        total, residual = interpolated(round, got)
        return total + constant, residual

    return combine
