"""Uncoded master and workers: UMW waits for all workers, SGD and Backup for the first N-S.

A. Reisizadeh, S. Prakash, R. Pedarsani, A. S. Avestimehr, "CodedReduce: A fast and robust framework for gradient
aggregation in distributed learning", section IV-A: the baselines UMW and SGD. J. Chen, X. Pan, R. Monga, S. Bengio,
R. Jozefowicz, "Revisiting distributed synchronous SGD", 2016: backup workers.
"""

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from workbench.core.base.settings import SettingError, setting
from workbench.core.base.type_checks import span
from workbench.core.base.types import Array
from workbench.core.contract.exchanges import GradientSum, equal_weights
from workbench.core.contract.plan import MASTER, Plan, even_sizes, uncoded_plan
from workbench.core.contract.programs import Answers, at_least, child_program, parent_program, plain_sum
from workbench.core.contract.protocol import Node, Program
from workbench.core.contract.round_times import RoundTimes, SampledTimes, star_round_times
from workbench.core.contract.scheme import Scheme, log_spaced_ints


class UMW(Scheme):
    """Uncoded master-worker: every worker stores one part, and the master waits for all of them."""

    name = "UMW"
    title: ClassVar[str] = "Uncoded master-worker"
    paper: ClassVar[str] = "CodedReduce, section IV-A"

    def waits_for(self, workers: int) -> int:
        """Return the number of answers that the master waits for."""
        return workers

    def plan(self, workers: int, samples: int) -> Plan:
        return uncoded_plan(workers, samples)

    def loads(self, workers: int, samples: int) -> NDArray[np.int64]:
        return even_sizes(samples, workers)

    def program(self, node: Node) -> Program:
        n = node.plan.workers
        rule = at_least(self.waits_for(n))
        if node.rank == MASTER:
            return parent_program(node, rule, lambda r, got: (total(got), float(n - len(got))), shrinks=True)
        return child_program(node, rule, lambda r, got: (total(got), 0.0))

    def exchange_rule(self, workers: int) -> GradientSum:
        return GradientSum(
            np.eye(workers), self.waits_for(workers), equal_weights(workers), self.exact, shrinks=True
        )

    def round_times(self, draws: SampledTimes, workers: int) -> RoundTimes:
        """Return the time of the slowest answer that is waited for, through one port."""
        return star_round_times(draws, self.waits_for(workers))


class SGD(UMW):
    """Ignore stragglers: the master takes the sum of the first N-S answers. Use it with a step size c1/(t+c2).

    With equal settings, a step of `SGD` is (N-S)/N times a step of `Backup`, in the gradient and in the regularisation.
    """

    name = "SGD"
    title: ClassVar[str] = "Ignore the stragglers"
    exact: ClassVar[bool] = False
    stragglers: int = setting(1, "workers whose answers the master does not wait for (S)", ge=0)

    @classmethod
    def candidates(cls, workers: int) -> list[dict[str, Any]]:
        """Return numbers of ignored workers, from one to all but one."""
        return [{"stragglers": s} for s in log_spaced_ints(1, workers - 1)]

    def check(self, workers: int) -> None:
        check_stragglers(self.stragglers, workers)

    def waits_for(self, workers: int) -> int:
        return workers - self.stragglers


class Backup(SGD):
    """Backup workers: SGD scaled by N/(N-S), so that every part has the weight 1 on average over late workers.

    The paper has N + b workers and takes the mean of the first N gradients. Here b is S. Each worker has its own
    shard and computes it completely in every round.

    >>> Backup(stragglers=2).loads(workers=6, samples=60).tolist()
    [10, 10, 10, 10, 10, 10]
    """

    name = "Backup"
    title: ClassVar[str] = "Backup workers"
    paper: ClassVar[str] = "Chen et al. 2016"

    def program(self, node: Node) -> Program:
        if node.rank != MASTER:
            return super().program(node)
        n, k = node.plan.workers, self.waits_for(node.plan.workers)
        scale, residual = n / k, k * (n / k - 1) ** 2 + n - k
        return parent_program(node, at_least(k), lambda r, got: (scale * total(got), residual))

    def exchange_rule(self, workers: int) -> GradientSum:
        """Return the rule that scales the sum by N / number of answers. There are fewer answers after deaths."""

        def weigh(answered: tuple[int, ...], event: int) -> tuple[Array, float]:
            return equal_weights(workers, workers / len(answered))(answered, event)

        return GradientSum(np.eye(workers), self.waits_for(workers), weigh)


def total(got: Answers) -> Any:
    """Return the sum of the answers in the order of ranks, not of arrival, so that equal sets give equal bits."""
    return plain_sum([got[key].value for key in sorted(got)])


def check_stragglers(stragglers: int, workers: int, who: str = "") -> None:
    """Raise `SettingError` if there are as many stragglers as workers.

    `who`: text for these workers, if they are not all workers of the cluster.
    """
    if stragglers >= workers:
        why = f"{who or f'{workers} workers'} cannot tolerate it; take 0 to {workers - 1}"
        raise SettingError(f"scheme_args.stragglers = {stragglers}: {why}")


def check_pieces(field: str, pieces: int, workers: int, samples: int) -> None:
    """Raise `SettingError` if a worker's part would be cut into more pieces than it has samples.

    One piece per worker is always accepted.
    """
    most = max(1, samples // workers)
    if pieces > most:
        why = f"a worker's part has {most} of {samples} samples; take {span(1, most)}"
        raise SettingError(f"scheme_args.{field} = {pieces}: {why}")
