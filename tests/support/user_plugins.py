"""Source text of a user file with a user-defined scheme, delay model and optimiser."""

from __future__ import annotations

FILE = """
import numpy as np
from typing import Literal
from workbench.core.contract.delays import DelayModel
from workbench.core.contract.optimisers import GradientDescent
from workbench.core.contract.plan import MASTER
from workbench.core.contract.programs import at_least, child_program, parent_program, plain_sum
from workbench.core.schemes.uncoded import UMW

TIMES = 1.0

def summed(round, got):
    return TIMES * plain_sum([message.value for _, message in sorted(got.items())]), 0.0

class Half(UMW):
    name = "Half"

    def program(self, node):
        rule = at_least(len(node.children))
        return (parent_program if node.rank == MASTER else child_program)(node, rule, summed)

class Even(DelayModel):
    kind: Literal["even"] = "even"

    def draw(self, keyed, round, workers, slot, before):
        return np.ones((1, workers))

    def compute(self, draw, samples):
        return 1e-6 * draw[0] * samples

class Slowly(GradientDescent):
    name = "slowly"

    def update(self, state, model, gradient, problem, t):
        return super().update(state, model, 0.5 * gradient, problem, t)
"""
