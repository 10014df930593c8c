"""Synthetic step times of workers: autocorrelated, in bursts, or with a slow worker."""

from __future__ import annotations

import numpy as np

from workbench.core.base.types import Array


def remembering(steps: int, workers: int, memory: float, rng: np.random.Generator) -> Array:
    """Draw standard normal values, (steps, workers), whose correlation is exp(-1/memory) from step to step."""
    r = np.exp(-1 / memory) if memory else 0.0
    found = rng.normal(size=(steps, workers))
    for t in range(1, steps):
        found[t] = r * found[t - 1] + (1 - r**2) ** 0.5 * found[t]
    return found


def bursts(steps: int, workers: int, memory: float, rng: np.random.Generator) -> Array:
    """Draw times in which each worker takes three times as long for a tenth of the time, in bursts."""
    late, leave = np.empty((steps + 1, workers), dtype=bool), 1 / max(memory, 1.0)
    late[0] = rng.random(workers) < 0.1
    for t in range(steps):
        late[t + 1] = rng.random(workers) < np.where(late[t], 1 - leave, leave / 9)
    return np.asarray(np.where(late[1:], 3.0, 1.0) * (1 + 0.05 * rng.exponential(size=(steps, workers))))


def slowed(times: Array, worker: int, *parts: tuple[float, float], factor: float = 4.0) -> Array:
    """Return the times with a worker that is slower in some of the steps."""
    times, steps = times.copy(), len(times)
    for first, last in parts:
        times[round(first * steps) : round(last * steps), worker] *= factor
    return times
