"""Distributed SGD and Adam, CADA, G-CADA: mini-batches, and gradients that are fetched only when they may have changed.

F. Zhu, J. Zhang, O. Simeone, X. Wang, "Adaptive worker grouping for communication-efficient and straggler-tolerant
distributed SGD", sections II to V. The schemes deliver gradient estimates, equation (3); the update is the
experiment's optimiser: "amsgrad", equations (8a) to (8c), for D-Adam, CADA and G-CADA, "gd" for D-SGD.

Costs per iteration stand in `trace.rounds`: communication (5) is `downloads` + `messages`; computation (6) is
`started`, in samples, or `downloads` times the mini-batch. `samples` counts what was gone through to the end, which
is less in G-CADA, where the slower workers of a group are told to stop. The stop carries no model and counts as no
download.
"""

from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from workbench.core.base.settings import SettingError, setting
from workbench.core.base.type_checks import span
from workbench.core.codes.checks import groups_divide
from workbench.core.contract.plan import MASTER, Plan, star_plan
from workbench.core.contract.programs import at_least, parent_program
from workbench.core.contract.protocol import Node, Program
from workbench.core.contract.round_times import RoundTimes, SampledTimes, star_round_times
from workbench.core.contract.scheme import Scheme, divisors
from workbench.core.schemes.lazy import AGE_HELP, Groups, batch_worker, lazy_master, lazy_odds, lazy_worker
from workbench.core.schemes.uncoded import total


class MiniBatches(Scheme):
    """Groups of workers that hold the same shard and draw mini-batches from it; here every group has one worker.

    A mini-batch is drawn without replacement, keyed by (seed, round, rank): the members of a group draw different
    ones, as the paper has it (a worker m computes on its own xi_m, and the group's xi_g is the fastest one's). Its
    sum is scaled up to the shard, so an estimate stands for the sum over all samples, as the optimisers expect.
    """

    paper: ClassVar[str] = "Zhu et al. 2022, section II"
    exact: ClassVar[bool] = False  # a mini-batch is an estimate; an old gradient too
    numeric: ClassVar[bool] = True
    worker_batch: int | None = setting(
        None,
        "samples that a worker draws for itself alone; empty = its shard, or its share of `batch`",
        "samples",
        ge=1,
    )

    def grouping(self, workers: int) -> Groups:
        """Who shares a shard."""
        return Groups(workers, 1)

    def check_samples(self, workers: int, samples: int) -> None:
        """A mini-batch fits the smallest shard."""
        groups = self.grouping(workers).number
        shard, which = samples // groups, f"the smallest of {groups} shards of {samples} samples"
        if self.worker_batch is not None and self.worker_batch > shard:
            why = f"{which} has {shard}; take {span(1, shard)}, or leave it empty for the whole shard"
            if not shard:
                why = f"{samples} samples do not fill {groups} shards; leave it empty"
            raise SettingError(f"scheme_args.worker_batch = {self.worker_batch}: {why}")

    def plan(self, workers: int, samples: int) -> Plan:
        """One part per group, held by all of its workers; raises `SettingError` for a batch above the shard."""
        self.check_samples(workers, samples)
        groups = self.grouping(workers)
        matrix = np.repeat(np.eye(groups.number), groups.size, axis=0)
        return replace(star_plan(matrix, samples), batch=self.worker_batch)


class DSGD(MiniBatches):
    """Distributed SGD: everybody answers with the gradient of a mini-batch, the master waits for all."""

    name: ClassVar[str] = "D-SGD"
    title: ClassVar[str] = "Distributed SGD"
    paper: ClassVar[str] = "Zhu et al. 2022, section VI"

    @property
    def is_exact(self) -> bool:
        """Without mini-batches the whole shards' gradients add up to it."""
        return self.worker_batch is None

    def program(self, node: Node) -> Program:
        if node.rank == MASTER:
            return parent_program(node, at_least(node.plan.workers), lambda r, got: (total(got), 0.0))
        return batch_worker(node, self.worker_batch)

    def round_times(self, draws: SampledTimes, workers: int) -> RoundTimes:
        """The slowest of all, exactly: equation (11)."""
        return star_round_times(draws, workers)


class DAdam(DSGD):
    """Distributed Adam: distributed SGD's messages, for the optimiser "amsgrad"."""

    name: ClassVar[str] = "D-Adam"
    optimiser: ClassVar[str] = "amsgrad"
    title: ClassVar[str] = "Distributed Adam"
    paper: ClassVar[str] = "Zhu et al. 2022, section V"


class CADA(MiniBatches):
    """Communication-adaptive distributed Adam: only workers whose last gradient may be wrong compute a new one.

    `forecast` is for the case that everybody is selected in every round, an upper end of round time and messages:
    who is selected depends on the learning, which a forecast does not do.
    """

    name: ClassVar[str] = "CADA"
    optimiser: ClassVar[str] = "amsgrad"
    data_dependent: ClassVar[bool] = True
    title: ClassVar[str] = "Communication-adaptive distributed Adam"
    paper: ClassVar[str] = "Zhu et al. 2022, section III"
    c: float = setting(2.0, AGE_HELP, ge=0)
    max_age: int = setting(10, "rounds after which a gradient is old in any case (D)", ge=1)

    def program(self, node: Node) -> Program:
        groups = self.grouping(node.plan.workers)
        if node.rank == MASTER:
            return lazy_master(node, groups, self.c, self.max_age, lambda group, got: total(got))
        return lazy_worker(node, groups, self.worker_batch)

    def round_times(self, draws: SampledTimes, workers: int) -> RoundTimes:
        """The slowest of the groups' fastest workers if all are selected: (13) and (16) with Mbar = M, Gbar = G."""
        return lazy_odds(draws, self.grouping(workers))


class GCADA(CADA):
    """Grouping-based CADA: G groups hold one shard each; the fastest worker of each selected group is enough.

    The paper states G = 3 and M_G = 4, but its 12292 / 9219 = 4 / 3 = (M_G + 1) / M_G means M_G = 3; the authors'
    public script takes M_G = 12 / 4 and then G = 3, which is 9 workers.
    `forecast` is for the case that every group is selected, as it is for `CADA`.
    """

    name: ClassVar[str] = "G-CADA"
    title: ClassVar[str] = "Grouping-based CADA"
    paper: ClassVar[str] = "Zhu et al. 2022, section IV"
    c: float = setting(0.3, AGE_HELP, ge=0)
    groups: int = setting(3, "groups of workers that hold the same shard (G)", ge=1)

    def check(self, workers: int) -> None:
        groups_divide("scheme_args.groups", self.groups, workers)

    @classmethod
    def candidates(cls, workers: int) -> list[dict[str, Any]]:
        """Every number of groups with more than one worker each."""
        return [{"groups": g} for g in divisors(workers)[:-1]]

    def grouping(self, workers: int) -> Groups:
        return Groups(self.groups, workers // self.groups)
