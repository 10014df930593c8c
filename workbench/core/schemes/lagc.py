"""Lazily aggregated gradient coding, LAGC, and grouped-LAG: the lazy rule selects groups, and each group uses a code.

J. Zhang, O. Simeone, "LAGC: Lazily aggregated gradient coding for straggler-tolerant and communication-efficient
distributed learning", IEEE Trans. Neural Networks and Learning Systems 32 (2021), arXiv 1905.09148.

Implemented from the paper's abstract, because its sections were not available. This variant has the paper's schemes as
special cases. G groups store disjoint shards. Inside a group the shard is coded against s stragglers. The gradient of a
selected group is decoded from its first M_G - s answers. Grouped-LAG has s = M_G - 1: the fastest worker is enough. LAG
has s = 0 and groups of one worker. With c = 0, LAGC is gradient coding in G groups. No mini-batches are used. The load
of a worker grows with s, which G-CADA avoids.
"""

from functools import partial
from typing import Any, ClassVar, Literal

import numpy as np

from workbench.core.base.settings import setting
from workbench.core.codes import GradientCode, cyclic
from workbench.core.codes.checks import groups_divide
from workbench.core.contract.plan import MASTER, Plan, star_plan
from workbench.core.contract.programs import decoder
from workbench.core.contract.protocol import Node, Program
from workbench.core.contract.round_times import RoundTimes, SampledTimes
from workbench.core.contract.scheme import Coded, divisors, least_digits_field
from workbench.core.schemes.lazy import AGE_HELP, Groups, lazy_master, lazy_odds, lazy_worker
from workbench.core.schemes.uncoded import check_stragglers


class LAGC(Coded):
    """Lazily aggregated gradient coding: only groups with an outdated gradient compute, and any s members may be late.

    `forecast` assumes that every group is selected. That is an upper bound, because the selection depends on the
    models.
    """

    name = "LAGC"
    title: ClassVar[str] = "Lazily aggregated gradient coding"
    paper: ClassVar[str] = "Zhang and Simeone 2020"
    follows: ClassVar[Literal["paper", "abstract", "code"]] = "abstract"
    precision_knob: ClassVar[tuple[str, int] | None] = ("stragglers", -1)
    exact: ClassVar[bool] = False  # because old gradients are used in place of new ones
    numeric: ClassVar[bool] = True
    data_dependent: ClassVar[bool] = True
    c: float = setting(0.3, AGE_HELP, ge=0)
    max_age: int = setting(10, "age in rounds at which a gradient is always renewed (D)", ge=1)
    groups: int = setting(3, "groups of workers that share a shard (G)", ge=1)
    stragglers: int = setting(1, "workers per group that may be late or dead (s)", ge=0)
    code_seed: int = setting(0, "seed of the code's random numbers", ge=0)
    least_digits: int = least_digits_field()

    @classmethod
    def candidates(cls, workers: int) -> list[dict[str, Any]]:
        """Return groups of some sizes, with one late member or half of the members late."""
        pairs = {(g, s) for g in divisors(workers) for s in {1, workers // g // 2} if 0 < s < workers // g}
        return [{"groups": g, "stragglers": s} for g, s in sorted(pairs)]

    def check(self, workers: int) -> None:
        """Raise `SettingError` unless the groups divide the workers, and s is smaller than a group."""
        groups_divide("scheme_args.groups", self.groups, workers)
        size = workers // self.groups
        check_stragglers(self.stragglers, size, f"a group of {size} workers")

    def grouping(self, workers: int) -> Groups:
        """Return G groups of M / G workers, whose first M / G - s answers decode."""
        size = workers // self.groups
        return Groups(self.groups, size, size - self.stragglers)

    def build_code(self, workers: int) -> GradientCode:
        return cyclic(workers // self.groups, self.stragglers, self.code_seed)

    def plan(self, workers: int, samples: int) -> Plan:
        """Return a plan with M parts. A worker stores s + 1 of the M / G parts of its group."""
        blocks = np.kron(np.eye(self.groups), self.build_code(workers).matrix)
        return star_plan(blocks.astype(np.float64), samples)

    def program(self, node: Node) -> Program:
        groups = self.grouping(node.plan.workers)
        if node.rank != MASTER:
            return lazy_worker(node, groups)
        code = partial(self.build_code, node.plan.workers)
        combine = [decoder(code, groups.members(g)[0]) for g in range(self.groups)]
        return lazy_master(node, groups, self.c, self.max_age, lambda group, got: combine[group](0, got)[0])

    def round_times(self, draws: SampledTimes, workers: int) -> RoundTimes:
        """Return the time of the slowest group's (M_G - s)-th answer, if all are selected."""
        return lazy_odds(draws, self.grouping(workers))
