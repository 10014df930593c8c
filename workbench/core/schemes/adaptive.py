"""Distributed SGD, D-Adam, CADA and G-CADA: mini-batches, and gradients fetched only when they may have changed.

F. Zhu, J. Zhang, O. Simeone, X. Wang, "Adaptive worker grouping for communication-efficient and straggler-tolerant
distributed SGD", sections II to V. The schemes deliver gradient estimates, equation (3), and the experiment's optimiser
makes the update. D-Adam, CADA and G-CADA use "amsgrad", equations (8a) to (8c); D-SGD uses "gd".

`trace.rounds` holds the costs of an iteration. Communication, equation (5), is `downloads` + `messages`. Computation,
equation (6), is `started`, in samples, or `downloads` times the mini-batch. `samples` counts only completed gradients.
In G-CADA, `samples` is less than `started`, because the slower workers of a group are stopped. The stop message
carries no model and does not count as a download.
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
    """Groups of workers that store the same shard and draw mini-batches from it. Here each group has one worker.

    A mini-batch is drawn without replacement, from a generator keyed by (seed, round, rank). Members of a group
    therefore draw different mini-batches, and the group uses that of its fastest member (in the paper: xi_m for worker
    m, xi_g for group g). The sum over a mini-batch is scaled up to the size of the shard. The scaled sum estimates the
    sum over all samples of the shard, as the optimisers expect.
    """

    paper: ClassVar[str] = "Zhu et al. 2022, section II"
    exact: ClassVar[bool] = False  # gradients of mini-batches and old gradients are estimates
    numeric: ClassVar[bool] = True
    worker_batch: int | None = setting(
        None,
        "samples that a worker draws in a round; empty = its whole shard, or its share of `batch`",
        "samples",
        ge=1,
    )

    def grouping(self, workers: int) -> Groups:
        """Return the groups of workers that share a shard."""
        return Groups(workers, 1)

    def check_samples(self, workers: int, samples: int) -> None:
        """Raise `SettingError` if a mini-batch is larger than the smallest shard."""
        groups = self.grouping(workers).number
        shard, which = samples // groups, f"the smallest of {groups} shards of {samples} samples"
        if self.worker_batch is not None and self.worker_batch > shard:
            why = f"{which} has {shard}; take {span(1, shard)}, or leave it empty for the whole shard"
            if not shard:
                why = f"{samples} samples do not fill {groups} shards; leave it empty"
            raise SettingError(f"scheme_args.worker_batch = {self.worker_batch}: {why}")

    def plan(self, workers: int, samples: int) -> Plan:
        """Return a plan with one part per group, stored by all workers of the group.

        Raises the errors of `check_samples`.
        """
        self.check_samples(workers, samples)
        groups = self.grouping(workers)
        matrix = np.repeat(np.eye(groups.number), groups.size, axis=0)
        return replace(star_plan(matrix, samples), batch=self.worker_batch)


class DSGD(MiniBatches):
    """Distributed SGD: every worker answers with the gradient of a mini-batch, and the master waits for all of them."""

    name = "D-SGD"
    title: ClassVar[str] = "Distributed SGD"
    paper: ClassVar[str] = "Zhu et al. 2022, section VI"

    @classmethod
    def candidates(cls, workers: int) -> list[dict[str, Any]]:
        """Return whole shards, and mini-batches of some sizes."""
        return [{}, *({"worker_batch": size} for size in (4, 16, 64, 256))]

    @property
    def is_exact(self) -> bool:
        """Whether there are no mini-batches; the gradients of the whole shards then add up to the full gradient."""
        return self.worker_batch is None

    def program(self, node: Node) -> Program:
        if node.rank == MASTER:
            return parent_program(node, at_least(node.plan.workers), lambda r, got: (total(got), 0.0))
        return batch_worker(node, self.worker_batch)

    def round_times(self, draws: SampledTimes, workers: int) -> RoundTimes:
        """Return exact round times, equation (11): the slowest of all workers."""
        return star_round_times(draws, workers)


class DAdam(DSGD):
    """Distributed Adam: the messages of distributed SGD, with the optimiser "amsgrad"."""

    name = "D-Adam"
    optimiser: ClassVar[str] = "amsgrad"
    title: ClassVar[str] = "Distributed Adam"
    paper: ClassVar[str] = "Zhu et al. 2022, section V"


class CADA(MiniBatches):
    """Communication-adaptive distributed Adam: only workers whose last gradient may be outdated compute a new one.

    `forecast` assumes that all workers are selected in every round. That is an upper bound of round time and messages.
    The real selection depends on the models, which a forecast does not compute.
    """

    name = "CADA"
    optimiser: ClassVar[str] = "amsgrad"
    data_dependent: ClassVar[bool] = True
    title: ClassVar[str] = "Communication-adaptive distributed Adam"
    paper: ClassVar[str] = "Zhu et al. 2022, section III"
    c: float = setting(2.0, AGE_HELP, ge=0)
    max_age: int = setting(10, "age in rounds at which a gradient is always renewed (D)", ge=1)

    def program(self, node: Node) -> Program:
        groups = self.grouping(node.plan.workers)
        if node.rank == MASTER:
            return lazy_master(node, groups, self.c, self.max_age, lambda group, got: total(got))
        return lazy_worker(node, groups, self.worker_batch)

    def round_times(self, draws: SampledTimes, workers: int) -> RoundTimes:
        """Return round times if all groups are selected: equations (13) and (16) with Mbar = M and Gbar = G."""
        return lazy_odds(draws, self.grouping(workers))


class GCADA(CADA):
    """Grouping-based CADA: G groups store one shard each, and the fastest worker of each selected group is enough.

    The paper states G = 3 and M_G = 4. However, its costs 12292 and 9219 have the ratio 4 / 3 = (M_G + 1) / M_G, so
    that M_G = 3. The authors' public script sets M_G = 12 / 4 and then G = 3, which makes 9 workers. `forecast` assumes
    that every group is selected, as in `CADA`.
    """

    name = "G-CADA"
    title: ClassVar[str] = "Grouping-based CADA"
    paper: ClassVar[str] = "Zhu et al. 2022, section IV"
    c: float = setting(0.3, AGE_HELP, ge=0)
    groups: int = setting(3, "groups of workers, each of which stores one shard (G)", ge=1)

    def check(self, workers: int) -> None:
        groups_divide("scheme_args.groups", self.groups, workers)

    @classmethod
    def candidates(cls, workers: int) -> list[dict[str, Any]]:
        """Return every number of groups that gives each group more than one worker."""
        return [{"groups": g} for g in divisors(workers)[:-1]]

    def grouping(self, workers: int) -> Groups:
        return Groups(self.groups, workers // self.groups)
