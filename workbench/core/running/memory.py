"""Memory that a run's vectors of p numbers take, looked at before the run: what has no room is refused."""

from __future__ import annotations

from typing import NamedTuple

from workbench.core.base.reading import available_memory
from workbench.core.base.settings import SettingError
from workbench.core.contract.links import BYTES_PER_FLOAT
from workbench.core.experiment import Experiment

LEARNING_VECTORS = 8  # model, gradient, an optimiser's state, and copies on the way from one to the next
WORKER_VECTORS = 4  # model, gradient, and the buffers of a message each way
SMALL_BYTES = 2**30  # that every machine is taken to have


class Vectors(NamedTuple):
    """Vectors of p numbers that a run holds at a time: its master, and each worker of a real one."""

    master: int
    worker: int


def vectors_held(e: Experiment) -> Vectors:
    """Return how many vectors a run holds whose messages carry vectors.

    >>> vectors_held(Experiment(scheme="UMW", workers=10)).master
    18
    """
    plan, scheme = e.plan, e.built_scheme
    old = plan.versions if plan.versions > 1 else 0  # models in use, or gradients at them that are kept
    if scheme.delayed:  # answers of all jobs that are under way
        old += plan.workers * (plan.versions - 1)
    if plan.depth.max() > 1:  # relays' sums
        old += plan.workers
    remembered = 2 * plan.workers if scheme.numeric else 0  # of each worker its last gradient and its model
    encoded = int(plan.loads.max()) if plan.blocks is not None else 0  # rows of p numbers
    worker = WORKER_VECTORS + encoded + 2 * (plan.answers - 1) + -(-old // plan.workers)
    return Vectors(LEARNING_VECTORS + plan.workers * plan.answers + old + remembered, worker)


def check_memory(e: Experiment, carried: bool = True, ranks: bool = False) -> None:
    """Raise `SettingError` where this machine has no room for what a run holds.

    `carried`: messages carry vectors, and not their coefficients only. `ranks`: every worker is a process of this
    machine.
    """
    floats = e.shape()[1]
    vector = BYTES_PER_FLOAT * floats
    versions = e.plan.versions
    master, worker = vectors_held(e) if carried else Vectors(LEARNING_VECTORS + versions, 0)
    encoded = 0 if ranks or e.plan.blocks is None or not carried else worker * e.workers
    held = master + encoded + (worker * e.workers if ranks else 0)
    if held * vector <= SMALL_BYTES or held * vector <= (free := available_memory()):
        return
    room = free // vector
    fewer = int((room - LEARNING_VECTORS) * e.workers // max(held - LEARNING_VECTORS, 1))
    smaller = f"a model of at most {free // (held * BYTES_PER_FLOAT)} parameters"
    raise SettingError(
        f"workers = {e.workers}: {e.scheme} holds about {held} vectors of {floats} numbers,"
        f" {held * vector / 1e9:.1f} GB, and {free / 1e9:.1f} GB of memory are free;"
        f" take {f'{fewer} workers or fewer, or ' * (fewer > 0)}{smaller}"
    )
