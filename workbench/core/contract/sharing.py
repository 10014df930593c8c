"""Differences between real processes and the virtual clock: workers share cores, and cannot stop computing at once.

Times of workers on separate cores are converted to those of workers that share cores, and back. All workers that
compute get equal shares of the cores (processor sharing).

On the virtual clock, a late worker drops its work as soon as a newer model arrives. A process finishes the current
piece of its work first. Its next round begins later, and until then the process uses its share of the cores.

A node also notices late that it has enough answers. While all cores are busy, it waits until each process before it
has had one time slice. Work that takes less than a slice is completed.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from workbench.core.base.types import Array
from workbench.core.contract.round_times import RoundTimes, SampledTimes

TIME_SLICE_S = 4e-3  # default time slice of Linux, s: one tick of its clock at 250 Hz


def slowed(alone: Array, cores: float) -> Array:
    """Return the times of workers that begin together on shared cores, given those on separate cores.

    Both (rounds, workers), s. Processor sharing: Kleinrock, Journal of the ACM 14 (1967).

    >>> slowed(np.array([[1.0, 2.0]]), cores=1.0)
    array([[2., 3.]])
    """
    return _paced(alone, cores, lambda crowd: crowd)


def undisturbed(shared: Array, cores: float) -> Array:
    """Return the times of workers on separate cores, the inverse of `slowed`; both (rounds, workers), s.

    >>> undisturbed(np.array([[2.0, 3.0]]), cores=1.0)
    array([[1., 2.]])
    """
    return _paced(shared, cores, lambda crowd: 1 / crowd)


def _paced(times: Array, cores: float, factor: Callable[[Array], Array]) -> Array:
    """Return times in which each interval between successive ends of work is multiplied by `factor`.

    `factor` is a function of the number of busy workers per core, which is at least 1.
    """
    workers = times.shape[1]
    if workers <= cores:
        return times
    order = np.argsort(times, axis=1)
    stretches = np.diff(np.take_along_axis(times, order, axis=1), axis=1, prepend=0.0)
    found = np.empty_like(times)
    crowd = np.maximum(np.arange(workers, 0, -1) / cores, 1.0)
    np.put_along_axis(found, order, np.cumsum(stretches * factor(crowd), axis=1), axis=1)
    return found


@dataclass(frozen=True)
class Sharing:
    """Hosts and cores of the workers, and how often a worker checks whether its work is still needed.

    `places`: workers of each host, counted from 0. The master is on the first host. `cores`: cores of each host,
    divided by the share of a core that a computing worker uses. `piece`: share of its work after which a worker checks
    for a newer model. `extra`: processor time of a worker's messages, in addition to its task, s; may be negative.
    `relayed`: time in which the last sum passes all nodes above, one after another, s.
    """

    places: tuple[NDArray[np.int64], ...]
    cores: tuple[float, ...]
    piece: float
    extra: float = 0.0
    relayed: float = 0.0

    def slowed(self, alone: Array) -> Array:
        """Return times of workers that compute at once, (rounds, workers), s, from those on separate cores."""
        found = np.array(alone, dtype=float)
        for place, cores in zip(self.places, self.cores, strict=True):
            found[:, place] = slowed(found[:, place], cores)
        return found

    def shared(self, draws: SampledTimes, left: Array | None = None) -> SampledTimes:
        """Return the draws on shared cores.

        `left`: remaining time of earlier work on separate cores, (workers,), s; only for draws of one round.
        """
        before = np.zeros(draws.seconds.shape[1]) if left is None else left
        tasks = self.tasks(draws)
        alone = tasks + before
        crowded = any(len(place) > cores for place, cores in zip(self.places, self.cores, strict=True))
        seconds = self.slowed(alone) if crowded else alone

        def progress(portions: NDArray[np.int64], which: slice) -> Array:
            own = draws.seconds[which]
            longer = np.divide(tasks[which], own, out=np.ones_like(own), where=own > 0)
            done = draws.progress(portions, which) * longer[:, :, None] + before[:, None]
            if not crowded:
                return done
            for row, (at, there) in enumerate(zip(alone[which], seconds[which], strict=True)):
                for place in self.places:
                    knots = np.sort(at[place]), np.sort(there[place])
                    done[row, place] = np.interp(done[row, place], [0.0, *knots[0]], [0.0, *knots[1]])
            return np.asarray(done)

        return replace(draws, seconds=seconds, progress=progress)

    def tasks(self, draws: SampledTimes) -> Array:
        """Return the times of tasks and messages on separate cores: (rounds, workers), s, at least half a task."""
        return np.asarray(np.maximum(draws.seconds + self.extra, draws.seconds / 2))

    def got(self, alone: Array, end: Array) -> Array:
        """Return the processor time that each worker has used by the `end` of each round, (rounds, workers), s.

        `alone`: times of the workers on separate cores, (rounds, workers), s. `end`: (rounds,), s.
        """
        there, had = self.slowed(alone), np.empty_like(alone)
        for row, moment in enumerate(end):
            for place in self.places:
                knots = np.sort(there[row, place]), np.sort(alone[row, place])
                had[row, place] = np.interp(moment, [0.0, *knots[0]], [0.0, *knots[1]])
        return np.minimum(had, alone)

    def ended(self, times: RoundTimes, draws: SampledTimes, left: Array | float = 0.0) -> RoundTimes:
        """Return the rounds, each extended by the time that the master waits for a core, and by `relayed`."""
        alone, place, cores = self.tasks(draws) + left, self.places[0], self.cores[0]
        rest = (alone - self.got(alone, times.seconds))[:, place]
        waits = np.minimum(rest, TIME_SLICE_S).sum(axis=1) / cores
        full = np.count_nonzero(rest > 0, axis=1) >= cores
        return self.passed_on(replace(times, seconds=times.seconds + np.where(full, waits, 0.0)))

    def passed_on(self, times: RoundTimes) -> RoundTimes:
        """Return the rounds, each extended by the time in which the last sum passes the idle nodes above."""
        return replace(times, seconds=times.seconds + self.relayed)

    def left(self, draws: SampledTimes, left: Array, end: float) -> Array:
        """Return the remaining time of each worker on separate cores when a newer model comes at `end`, (workers,), s.

        `left`: as in `shared`.
        """
        tasks = self.tasks(draws)[0]
        done = self.got((left + tasks)[None], np.array([end]))[0] - left
        piece = np.maximum(self.piece * tasks, 1e-12)
        rest = np.minimum(np.ceil(done / piece - 1e-9) * piece, tasks) - done
        return np.where(done < 0, -done, np.maximum(rest, 0.0))

    def round_times(
        self,
        draws: Callable[[range, Any], SampledTimes],
        times: Callable[[SampledTimes], RoundTimes],
        rounds: int,
    ) -> RoundTimes:
        """Return all rounds, computed one by one. Each begins with the unfinished work of the previous round.

        `draws(rounds, state)`: draws of some rounds. `times(draws)`: round times of these draws.
        """
        found, carry, left = [], None, None
        for r in range(rounds):
            alone = draws(range(r, r + 1), carry)
            left = np.zeros(alone.seconds.shape[1]) if left is None else left
            found.append(self.ended(times(self.shared(alone, left)), alone, left))
            carry, left = found[-1].state, self.left(alone, left, float(found[-1].seconds[0]))
        fields = ("seconds", "messages", "bytes")
        return RoundTimes(*(np.concatenate([getattr(each, name) for each in found]) for name in fields))
