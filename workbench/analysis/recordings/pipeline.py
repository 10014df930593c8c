"""Model of a pipelined training job: its operations and their dependencies, to compute steps with other durations.

Each worker computes in the recorded order. A forward computation waits for its micro-batch at the stage
before, and a backward computation for the stage after. Both wait for the transfer. Then the gradients of the embedding
are exchanged (first and last stage together), and the sum over the replicas is computed. The norm of all gradients (all
workers together) and the optimiser follow. Processor time between operations is ignored, and model chunks that share a
stage are not supported.

J. Lin et al., "Understanding stragglers in large model training using what-if analysis", OSDI 2025, section 3. The
slowdown is the time with recorded durations, divided by the time with average durations. The average is the mean of
computations of a kind, and the median of transfers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

import numpy as np
import pandas as pd

from workbench.core.base.settings import SettingError
from workbench.core.base.types import Array

Operation = tuple[str, int, int]  # kind, number within the step, stage
Durations = Mapping[Operation, Array]  # (steps, replicas) each, s
COMPUTING = ("forward-compute", "backward-compute")
GATHER, NORM, SUM = "params-all-gather", "layernorm-grads-all-reduce", "grads-reduce-scatter"
CLIP, EMBEDDING = "optimizer-clip-main-grad", "embedding-grads-all-reduce"
TRANSFERS = frozenset(
    ("forward-send", "forward-recv", "backward-send", "backward-recv", GATHER, NORM, SUM, CLIP, EMBEDDING)
)
OPTIMISER = "optimizer"
# min correlation of forward and backward durations of micro-batches from which on their work explains them
MIN_CORRELATION = 0.9


@dataclass(frozen=True)
class Pipeline:
    """Pipelined job: durations of its operations, and the order of computations.

    Durations of transfers exclude waits.
    """

    steps: tuple[int, ...]
    stages: int
    durations: Durations
    order: tuple[tuple[Operation, ...], ...]  # order of computations at every stage

    @classmethod
    def of(cls, operations: pd.DataFrame) -> Pipeline:
        """Build a job from a table with step, dp_rank, stage, optype, seq_id, start and end (s).

        Raises `SettingError` if replicas or steps differ in their operations, or stages have several chunks.
        """
        if "mc" in operations and operations["mc"].max() > 0:
            raise SettingError(
                "path: stages hold several chunks of the model, and transfers are recorded without their chunk, so the"
                " dependencies are not known; take jobs with one chunk a stage"
            )
        table = operations.sort_values(["step", "dp_rank"], kind="stable")
        steps, replicas = np.unique(table["step"]), int(table["dp_rank"].max()) + 1
        start: dict[Operation, Array] = {}
        end: dict[Operation, Array] = {}
        for named, rows in table.groupby(["optype", "seq_id", "stage"], observed=True):
            kind, number, stage = key = cast(Operation, named)
            if len(rows) != len(steps) * replicas:
                raise SettingError(
                    f"path: {kind} {number} of stage {stage} occurs {len(rows)} times in {len(steps)} steps of"
                    f" {replicas} replicas; every step has to have it once"
                )
            start[key], end[key] = (rows[c].to_numpy(float).reshape(len(steps), -1) for c in ("start", "end"))
        stages = max(stage for *_, stage in start) + 1
        first = {key: float(at[0, 0]) for key, at in start.items() if key[0] in COMPUTING}
        order = [sorted((k for k in first if k[2] == s), key=first.__getitem__) for s in range(stages)]
        durations = _alone(start, end, stages)
        return cls(tuple(steps.tolist()), stages, durations, tuple(map(tuple, order)))

    def even(self) -> Durations:
        """Return every operation with the average duration of its kind: mean of computations, median of transfers."""
        kinds = {kind for kind, *_ in self.durations}
        pooled = {
            k: np.concatenate([d.ravel() for o, d in self.durations.items() if o[0] == k]) for k in kinds
        }
        level = {k: float(np.median(d) if k in TRANSFERS else d.mean()) for k, d in pooled.items()}
        return {o: np.full_like(d, level[o[0]]) for o, d in self.durations.items()}

    def even_work(self) -> Durations | None:
        """Return the durations if all micro-batches had equal work; None if differences in work do not explain them.

        A long sequence makes the forward and the backward computation of its micro-batch longer, on every stage. So in
        every stage these two correlate within each worker. The computations of a worker then get their mean duration.

        J. Lin et al., "Understanding Stragglers in Large Model Training Using What-if Analysis", OSDI 2025.
        """
        found = dict(self.durations)
        for stage in range(self.stages):
            pairs = [
                np.stack([each for o, each in self.durations.items() if o[0] == kind and o[2] == stage])
                for kind in COMPUTING
            ]
            apart = [(each - each.mean(axis=(0, 1))).ravel() for each in pairs]
            if pairs[0].shape != pairs[1].shape or not all(each.any() for each in apart):
                return None
            if np.corrcoef(*apart)[0, 1] < MIN_CORRELATION:
                return None
            for kind, each in zip(COMPUTING, pairs, strict=True):
                mean = np.broadcast_to(each.mean(axis=(0, 1)), each.shape[1:])
                found |= {o: mean for o in self.durations if o[0] == kind and o[2] == stage}
        return found

    def alone(self, operations: pd.DataFrame) -> pd.Series[float]:
        """Return the duration of each row of `operations`, the source table.

        Durations of transfers exclude the wait for others.
        """
        found = pd.Series(0.0, index=operations.index)
        table = operations.sort_values(["step", "dp_rank"], kind="stable")
        for named, rows in table.groupby(["optype", "seq_id", "stage"], observed=True):
            found[rows.index] = self.durations[cast(Operation, named)].ravel()
        return found

    def seconds(self, durations: Durations) -> Array:
        """Return the seconds of every step with these durations, (steps,)."""
        zero = np.zeros_like(next(iter(durations.values())))
        free = [together(zero) + durations.get((GATHER, 0, stage), 0.0) for stage in range(self.stages)]
        free = self._computed(durations, free)
        free = [at + durations.get((NORM, 0, stage), 0.0) for stage, at in enumerate(free)]
        both = np.maximum(free[0], free[-1])
        for stage in {0, self.stages - 1}:
            free[stage] = both + durations.get((EMBEDDING, 0, stage), 0.0)
        free = [together(at) + durations.get((SUM, 0, stage), 0.0) for stage, at in enumerate(free)]
        all_there = together(np.maximum.reduce(free))
        ends = [
            all_there + durations.get((CLIP, 0, s), 0.0) + durations.get((OPTIMISER, 0, s), 0.0)
            for s in range(self.stages)
        ]
        return np.asarray(np.maximum.reduce(ends).max(axis=1))

    def _computed(self, durations: Durations, free: list[Array]) -> list[Array]:
        """Return when every stage has finished its computations."""
        done: dict[Operation, Array] = {}
        at = [0] * self.stages
        left = sum(map(len, self.order))
        while left:
            before = left
            for stage in range(self.stages):
                while at[stage] < len(self.order[stage]):
                    kind, number, _ = operation = self.order[stage][at[stage]]
                    forward = kind == COMPUTING[0]
                    giver = stage - 1 if forward else stage + 1
                    if 0 <= giver < self.stages:
                        if (there := done.get((kind, number, giver))) is None:
                            break
                        direction = "forward-recv" if forward else "backward-recv"
                        there = there + durations.get((direction, number, stage), 0.0)
                        free[stage] = np.maximum(free[stage], there)
                    free[stage] = done[operation] = free[stage] + durations[operation]
                    at[stage] += 1
                    left -= 1
            if left == before:
                why = "its computations wait for one another in a circle; is the order as recorded?"
                raise SettingError(f"path: {why}")
        return free


def together(at: Array) -> Array:
    """Return when all replicas are ready: (steps, replicas), equal along a row."""
    return np.broadcast_to(at.max(axis=1, keepdims=True), at.shape)


def _alone(start: dict[Operation, Array], end: dict[Operation, Array], stages: int) -> Durations:
    """Return durations. A transfer begins when its last participant has begun it."""
    found: dict[Operation, Array] = {key: end[key] - start[key] for key in start}

    def share(keys: list[Operation], replicas: bool) -> None:
        here = [key for key in keys if key in start]
        if here:
            last = np.maximum.reduce([start[key] for key in here])
            last = together(last) if replicas else last
            found.update({key: np.maximum(end[key] - last, 0.0) for key in here})

    for kind, number, stage in list(start):
        if kind == "forward-recv":
            share([(kind, number, stage), ("forward-send", number, stage - 1)], replicas=False)
        elif kind == "backward-recv":
            share([(kind, number, stage), ("backward-send", number, stage + 1)], replicas=False)
        elif kind in (GATHER, SUM):
            share([(kind, number, stage)], replicas=True)
    share([(EMBEDDING, 0, 0), (EMBEDDING, 0, stages - 1)], replicas=False)
    share([(CLIP, 0, stage) for stage in range(stages)], replicas=True)
    return found
