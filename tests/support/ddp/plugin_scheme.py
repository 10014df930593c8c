"""A scheme that is written outside of the package, for training scripts."""

from __future__ import annotations

import numpy as np

from workbench.core.contract.exchanges import GradientSum, equal_weights
from workbench.core.contract.plan import Plan, uncoded_plan
from workbench.core.contract.programs import at_least, coded_program
from workbench.core.contract.protocol import Node, Program
from workbench.core.contract.round_times import RoundTimes, SampledTimes, star_round_times
from workbench.core.contract.scheme import Scheme
from workbench.core.schemes.uncoded import total


class Half(Scheme):
    """Backup workers that commit once half of them have answered."""

    name = "HalfOfTheRanks"
    title = "Half of the ranks"
    exact = False

    def plan(self, workers: int, samples: int) -> Plan:
        return uncoded_plan(workers, samples)

    def program(self, node: Node) -> Program:
        rule = at_least(node.plan.workers // 2)
        return coded_program(node, rule, lambda round, got: (2 * total(got), float(node.plan.workers)))

    def round_times(self, draws: SampledTimes, workers: int) -> RoundTimes:
        return star_round_times(draws, workers // 2)

    def exchange_rule(self, workers: int) -> GradientSum:
        return GradientSum(np.eye(workers), workers // 2, equal_weights(workers, 2.0))
