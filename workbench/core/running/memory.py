"""Estimate of a run's memory before it starts: a run whose vectors do not fit into free memory is refused."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import NamedTuple, TypeVar

from workbench.core.base.reading import available_memory
from workbench.core.base.settings import SettingError
from workbench.core.contract.links import BYTES_PER_FLOAT
from workbench.core.experiment import Experiment

T = TypeVar("T")
LEARNING_VECTORS = 8  # vectors of the master: model, gradient, optimiser state, and temporary copies
WORKER_VECTORS = 4  # vectors of a worker: model, gradient, and the buffers of a received and a sent message
SMALL_BYTES = 2**30  # bytes of memory that are not checked, because every machine has them


class Vectors(NamedTuple):
    """Numbers of vectors of p values in memory at once: at the master, and at each worker of a real run."""

    master: int
    worker: int


def vectors_held(e: Experiment) -> Vectors:
    """Return the numbers of vectors in memory, for a run whose messages carry vectors.

    >>> vectors_held(Experiment(scheme="UMW", workers=10)).master
    18
    """
    plan, scheme = e.plan, e.built_scheme
    # number of models in use, or of stored gradients at these models
    old = plan.versions if plan.versions > 1 else 0
    if scheme.delayed:  # answers of all unfinished jobs
        old += plan.workers * (plan.versions - 1)
    if plan.depth.max() > 1:  # sums of the relays
        old += plan.workers
    # the last gradient of each worker, and the model of this gradient
    remembered = 2 * plan.workers if scheme.numeric else 0
    encoded = int(plan.loads.max()) if plan.blocks is not None else 0  # encoded rows of p values
    worker = WORKER_VECTORS + encoded + 2 * (plan.answers - 1) + -(-old // plan.workers)
    return Vectors(LEARNING_VECTORS + plan.workers * plan.answers + old + remembered, worker)


def room_for(size: int) -> int | None:
    """Return the free bytes of memory of this machine if `size` bytes do not fit, else None."""
    if size <= SMALL_BYTES or size <= (free := available_memory()):
        return None
    return free


def check_trajectories(size: int, runs: Sequence[T], key: Callable[[T], Hashable], old: int) -> None:
    """Raise `SettingError` if the models of runs that are computed together do not fit into this machine's memory.

    `size`: parameters of a model. `key`: returns a key of a run; runs with the same key have the same models. `old`:
    older models that a run may need.
    """
    each = BYTES_PER_FLOAT * size * (LEARNING_VECTORS + old)
    if (free := room_for(each * len(runs))) is None or each * (distinct := len(set(map(key, runs)))) <= free:
        return
    raise SettingError(
        f"experiments: {distinct} of them learn different models of {size} numbers, which takes"
        f" {each * distinct / 1e9:.1f} GB, and {free / 1e9:.1f} GB of memory are free; compare"
        f" {max(free // each, 1)} at a time, or take a smaller model"
    )


def check_memory(e: Experiment, carried: bool = True, ranks: bool = False) -> None:
    """Raise `SettingError` if the vectors of a run do not fit into the free memory of this machine.

    `carried`: messages carry vectors, instead of coefficients. `ranks`: all workers are processes of this machine.
    """
    floats = e.shape()[1]
    vector = BYTES_PER_FLOAT * floats
    versions = e.plan.versions
    master, worker = vectors_held(e) if carried else Vectors(LEARNING_VECTORS + versions, 0)
    encoded = 0 if ranks or e.plan.blocks is None or not carried else worker * e.workers
    held = master + encoded + (worker * e.workers if ranks else 0)
    if (free := room_for(held * vector)) is None:
        return
    room = free // vector
    fewer = int((room - LEARNING_VECTORS) * e.workers // max(held - LEARNING_VECTORS, 1))
    smaller = f"a model of at most {free // (held * BYTES_PER_FLOAT)} parameters"
    raise SettingError(
        f"workers = {e.workers}: {e.scheme} holds about {held} vectors of {floats} values,"
        f" {held * vector / 1e9:.1f} GB, and {free / 1e9:.1f} GB of memory are free;"
        f" take {f'{fewer} workers or fewer, or ' * (fewer > 0)}{smaller}"
    )
