"""What a look into a rank shows between two runs."""

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
    """What a rank held when its last run ended; `part` in the namespace of an engine (see `workbench.interactive`).

    Parameters
    ----------
    rank
        Its rank; 0 is the master.
    place
        Its process, and on which host.
    parts, coefficients
        Its row of the encoding matrix: numbers of the parts of the data that it holds, shape (m,), and what their
        gradients are multiplied with, shape (m,).
    samples
        How many samples these parts have together.
    parent, children
        Whom it answers to (-1: nobody), and who answers to it.
    round
        Of the newest gradient; -1 before the first.
    job
        What says which mini-batch that gradient is of, where it is not the round; see `Experiment.sampler`.
    gradient, model
        A worker's own coded gradient, shape (p,), and the model at which it was computed, shape (p,). The master's are
        the newest that was committed, and the model after that.
    ledger
        What it wrote down in the run: counts per round, events, messages that it refused.
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
        """What a worker that answers once a round should have got at its model, computed here; shape (p,).

        Raises `SettingError` where the rank holds no data.
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
    """Take from a part what is worth looking at, so that the rest of it can go."""
    plan, rank, learner = rank_run.setup.plan, rank_run.rank, rank_run.learner
    work = plan.work[rank]
    committed = (rank_run.engine.clock.round, None, learner.model, learner.gradient)
    round, job, model, gradient = learner.latest or committed
    work_fields = {"parts": work.parts, "coefficients": work.coefficients, "samples": work.samples}
    near = {"parent": int(plan.parent[rank]), "children": plan.children[rank]}
    newest = {} if gradient is None else {"round": round, "job": job, "gradient": np.array(gradient)}
    seen: dict[str, Any] = {**work_fields, **near, **newest, "model": np.array(model)}
    return RankSnapshot(rank, rank_run.places[rank], **seen, ledger=rank_run.ledger)
