"""State of a rank between two runs, for inspection."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from workbench.core.base.settings import SettingError
from workbench.core.base.types import Array
from workbench.core.contract.protocol import Compute
from workbench.core.engine.virtual.arithmetic import Numbers
from workbench.core.experiment import Experiment
from workbench.mpi.engine.ledger import Ledger
from workbench.mpi.launch.processes import ProcessId, this_process

if TYPE_CHECKING:
    from workbench.mpi.launch.rank.rank_run import RankRun


@dataclass(frozen=True)
class RankSnapshot:
    """State of a rank at the end of its last run. It is `part` in an engine's namespace (see `workbench.interactive`).

    Parameters
    ----------
    rank
        Rank number. 0 is the master.
    place
        Process and host of the rank.
    parts, coefficients
        Row of the encoding matrix: numbers of the parts that the rank stores, shape (m,), and their coefficients,
        shape (m,).
    samples
        Number of samples in these parts.
    parent, children
        Rank that receives its answers (-1: none), and ranks whose answers it receives.
    round
        Round of the newest gradient, or -1 before the first.
    job
        Job whose mini-batch the gradient uses, if the job is not the round; see `Experiment.sampler`.
    gradient, model
        For a worker: its coded gradient, shape (p,), and the model at which it was computed, shape (p,). For the
        master: the newest committed gradient, and the model after it.
    ledger
        Record of the run: counts per round, events, rejected messages.
    """

    rank: int
    place: ProcessId = field(default_factory=this_process)
    parts: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    coefficients: Array = field(default_factory=lambda: np.zeros(0))
    samples: int = 0
    parent: int = -1
    children: tuple[int, ...] = ()
    round: int = -1
    job: Any = None
    gradient: Array | None = None
    model: Array | None = None
    ledger: Ledger | None = None

    def expected(self, experiment: Experiment) -> Array:
        """Return the gradient that a worker with one answer per round should have, shape (p,), computed here.

        Raises `SettingError` if the rank has no data.
        """
        if not self.samples:
            raise SettingError(f"rank = {self.rank}: holds no data; look at a worker that took part in a run")
        e, plan = experiment, experiment.plan
        numbers = Numbers(plan, e.build_problem(), e.build_optimiser(), e.seed)
        effect = Compute(plan.work[self.rank], self.model, self.round, batch=plan.batch, job=self.job)
        return numbers.compute(self.rank, effect)

    def __repr__(self) -> str:
        if self.ledger is None:
            return f"<rank {self.rank}, {self.place}: took no part in a run yet>"
        text = f"parts {self.parts.tolist()} times {np.round(self.coefficients, 3).tolist()}"
        holds = f"{self.samples} samples, {text}" if self.samples else "no samples"
        length = np.nan if self.gradient is None else np.linalg.norm(np.ravel(self.gradient))
        newest = "no gradient yet" if self.gradient is None else f"|gradient| = {length:.3g}"
        return f"<rank {self.rank}, {self.place}: {holds}; round {self.round}, {newest}>"


def snapshot(rank_run: RankRun) -> RankSnapshot:
    """Copy the state of a rank that is worth inspecting, so that the rest can be freed."""
    plan, rank, learner = rank_run.setup.plan, rank_run.rank, rank_run.learner
    work = plan.work[rank]
    committed = (rank_run.engine.clock.round, None, learner.model, learner.gradient)
    round, job, model, gradient = learner.latest or committed
    work_fields = {"parts": work.parts, "coefficients": work.coefficients, "samples": work.samples}
    near = {"parent": int(plan.parent[rank]), "children": plan.children[rank]}
    newest = {} if gradient is None else {"round": round, "job": job, "gradient": np.array(gradient)}
    seen: dict[str, Any] = {**work_fields, **near, **newest, "model": np.array(model)}
    return RankSnapshot(rank, rank_run.places[rank], **seen, ledger=rank_run.ledger)
