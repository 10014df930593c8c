"""Ring all-reduce, RAR: uncoded parts, 2(N-1) slices of p/N, and no master. Every round waits for all workers.

Baseline in the paper of CodedReduce (section II-B); that baseline uses MPI_Allreduce. P. Patarasuk, X. Yuan,
"Bandwidth optimal all-reduce algorithms for clusters of workstations", 2009.
"""

from dataclasses import replace
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from workbench.core.base.settings import setting
from workbench.core.contract.plan import MASTER, Plan, even_sizes, uncoded_plan
from workbench.core.contract.protocol import AllReduce, Commit, Compute, Node, Program
from workbench.core.contract.round_times import RoundTimes, SampledTimes, ring_round_times
from workbench.core.contract.scheme import Scheme


class RAR(Scheme):
    """Ring all-reduce: every worker ends a round with the full gradient and updates its own model."""

    name = "RAR"
    title: ClassVar[str] = "Ring all-reduce"
    paper: ClassVar[str] = "CodedReduce, section II-B"
    algorithm: Literal["mpi", "ring"] = setting(
        "mpi",
        "mpi: the MPI library's own all-reduce; ring: messages from worker to worker; on the virtual clock, both take"
        " the time of the ring",
    )

    def plan(self, workers: int, samples: int) -> Plan:
        """Return a plan with one part per worker, in which workers have no parent and every worker commits."""
        star = uncoded_plan(workers, samples)
        return replace(star, parent=np.full(workers + 1, -1), committers=tuple(range(1, workers + 1)))

    def loads(self, workers: int, samples: int) -> NDArray[np.int64]:
        return even_sizes(samples, workers)

    def program(self, node: Node) -> Program:
        """Return the program of a worker: compute, all-reduce, update. Rank 0 only records the run."""
        model = node.model
        for r in node.span if node.rank != MASTER else ():
            value = yield Compute(node.work, model, r)
            model = yield Commit((yield AllReduce(value, r, self.algorithm)), r)

    def round_times(self, draws: SampledTimes, workers: int) -> RoundTimes:
        return ring_round_times(draws)
