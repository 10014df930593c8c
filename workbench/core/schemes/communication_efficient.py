"""Communication-computation efficient gradient coding, CEGC: d parts per worker, messages of p/m values.

M. Ye, E. Abbe, "Communication-computation efficient gradient coding", ICML 2018: section 3 (polynomials),
section 5 (timing model: the (n-s)-th fastest of d T1 + T2/m). Every d >= s + m is possible (Theorem 1).
"""

from dataclasses import replace
from typing import Any, ClassVar, Literal

import numpy as np

from workbench.core.base.settings import setting, within
from workbench.core.codes import YeAbbe, ye_abbe
from workbench.core.codes.ye_abbe import interleave
from workbench.core.contract.plan import MASTER, Plan, Work, star_plan
from workbench.core.contract.programs import Answers, Combine, at_least, parent_program, worker_program
from workbench.core.contract.protocol import CODED, MODEL, Compute, Message, Node, Program, Send
from workbench.core.contract.round_times import RoundTimes, SampledTimes, star_round_times
from workbench.core.contract.scheme import Coded, least_digits_field, log_spaced_ints


class CEGC(Coded):
    """Gradient coding with a larger load and shorter messages (p/m values): each part on d workers, any s late.

    >>> CEGC(load=3, stragglers=1, reduction=2).loads(workers=6, samples=60).tolist()
    [30, 30, 30, 30, 30, 30]
    """

    name = "CEGC"
    title: ClassVar[str] = "Communication-efficient gradient coding"
    paper: ClassVar[str] = "Ye and Abbe 2018"
    precision_knob: ClassVar[tuple[str, int] | None] = ("stragglers", -1)
    load: int = setting(3, "parts that every worker computes (d), at least stragglers + reduction", ge=1)
    stragglers: int = setting(1, "workers that may be late or dead (s)", ge=0)
    reduction: int = setting(2, "ratio of the length of the model to that of a message (m)", ge=1)
    construction: Literal["auto", "polynomial", "gaussian", "stable"] = setting(
        "auto",
        "auto: polynomials if they are well conditioned, else stable; polynomial; gaussian: random numbers; stable:"
        " evenly spread Fourier vectors",
    )
    code_seed: int = setting(0, "seed of a random construction", ge=0)
    least_digits: int = least_digits_field()

    @classmethod
    def candidates(cls, workers: int) -> list[dict[str, Any]]:
        """Return parameters for pairs of s and m >= 2, each with the smallest load that Theorem 1 allows."""
        pairs = [
            (m, s - 1)
            for m in log_spaced_ints(2, min(8, workers), 3)
            for s in log_spaced_ints(1, workers // 4 + 1, 3)
        ]
        return [{"load": m + s, "stragglers": s, "reduction": m} for m, s in pairs if m + s <= workers]

    def check(self, workers: int) -> None:
        """Raise `SettingError` for d < s + m (Theorem 1), and for parameters above n."""
        with within("scheme_args"):
            self.build_code(workers)

    def build_code(self, workers: int) -> YeAbbe:
        return ye_abbe(workers, self.load, self.stragglers, self.reduction, self.construction, self.code_seed)

    def plan(self, workers: int, samples: int) -> Plan:
        """Return a plan with cyclic windows of d parts.

        The plan's matrix is the 0/1 allocation, because coefficients differ between coordinates.
        """
        stored = np.zeros((workers, workers))
        np.put_along_axis(stored, self.build_code(workers).windows, 1.0, axis=1)
        return replace(star_plan(stored, samples), coordinates=self.reduction)

    def program(self, node: Node) -> Program:
        n = node.plan.workers
        if node.rank == MASTER:
            restore = restorer(self.build_code(n), node.floats)
            return parent_program(node, at_least(n - self.stragglers), restore)
        return worker_program(node, self._answer)

    def _answer(self, node: Node, job: Message) -> Program:
        """Compute m coded gradients over the d parts, pick the coordinates of this message, and send p/m values."""
        code, worker = self.build_code(node.plan.workers), node.rank - 1
        work = Work(code.windows[worker], code.encode(worker), node.work.samples)
        coded = yield Compute(work, job.value, job.round, unless={MODEL: job.round + 1})
        if coded is not None:
            length = message_floats(node.floats, self.reduction)
            value, share = interleave(coded), 1 / self.reduction
            yield Send(node.parent, CODED, job.round, value, floats=length, share=share)

    def round_times(self, draws: SampledTimes, workers: int) -> RoundTimes:
        """Return the time of the (n-s)-th answer of p/m values."""
        length = message_floats(draws.floats, self.reduction)
        return star_round_times(draws, workers - self.stragglers, length, 1 / self.reduction)


def message_floats(floats: int, reduction: int) -> int:
    """Return the length of a message, ceil(p/m). If m does not divide p, the gradient is padded with zeros.

    >>> message_floats(100, 3)
    34
    """
    return -(-floats // reduction)


def restorer(code: YeAbbe, floats: int) -> Combine:
    """Return a function that decodes messages of p/m values to the sum of all gradients, p values."""

    def combine(round: int, got: Answers) -> tuple[Any, float]:
        keys = sorted(got)
        weights, residual = code.decode(tuple(rank - 1 for rank, _ in keys))
        return code.restore(weights, np.stack([got[key].value for key in keys]), floats), residual

    return combine
