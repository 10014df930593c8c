"""Workers that are real processes: cores that they share, and work that they cannot leave at once.

Times of workers with a core of their own become those of workers that share some, and back: whoever is at work gets
the same share of the cores (processor sharing). On the virtual clock who is late drops its work as soon as a newer
model is there; a process goes on to the end of the piece that it is at, takes part in the next round later, and uses
its share of the cores till then. Nor does a node hear at once that it has all it needs: as long as all cores are taken
it waits until those before it have had a slice each, and what is over within a slice is computed to its end.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from workbench.core.base.types import Array
from workbench.core.contract.round_times import RoundTimes, SampledTimes

TIME_SLICE_S = 4e-3  # s for which Linux lets a process go on, by default (a tick of its clock at 250 Hz)


def slowed(alone: Array, cores: float) -> Array:
    """When workers that begin at once are done on so many cores, if each alone took so long; both (rounds, workers).

    Processor sharing: Kleinrock, Journal of the ACM 14 (1967).

    >>> slowed(np.array([[1.0, 2.0]]), cores=1.0)
    array([[2., 3.]])
    """
    return _paced(alone, cores, lambda crowd: crowd)


def undisturbed(shared: Array, cores: float) -> Array:
    """How long each would take alone, the inverse of `slowed`.

    >>> undisturbed(np.array([[2.0, 3.0]]), cores=1.0)
    array([[1., 2.]])
    """
    return _paced(shared, cores, lambda crowd: 1 / crowd)


def _paced(times: Array, cores: float, factor: Callable[[Array], Array]) -> Array:
    """Times of which each stretch lasts `factor` (of workers at work for each core, 1 at least) times as long."""
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
    """Where workers run, and when one looks whether its work is still wanted.

    `places`: workers of each host, counted from 0; `cores`: of each, over the share of one that a worker takes while it
    is at work; `piece`: the share of its work that a worker goes through before it looks; `extra`: what a
    worker's messages take of a core beside its task, s, below 0 for less; `relayed`: what the last sum takes on its way
    through the nodes above, one after another, s. The master is on the first host.
    """

    places: tuple[NDArray[np.int64], ...]
    cores: tuple[float, ...]
    piece: float
    extra: float = 0.0
    relayed: float = 0.0

    def slowed(self, alone: Array) -> Array:
        """Times as they are where all workers work at once, (rounds, workers)."""
        found = np.array(alone, dtype=float)
        for place, cores in zip(self.places, self.cores, strict=True):
            found[:, place] = slowed(found[:, place], cores)
        return found

    def shared(self, draws: SampledTimes, left: Array | None = None) -> SampledTimes:
        """The same draws on shared cores; `left`: of earlier work, seconds alone, (workers,), in their only round."""
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
        """What everybody has to do, seconds alone, (rounds, workers); half of it at least is no message's."""
        return np.asarray(np.maximum(draws.seconds + self.extra, draws.seconds / 2))

    def got(self, alone: Array, end: Array) -> Array:
        """What each has had of the cores at some moment of every round, (rounds,), of what it has to do."""
        there, had = self.slowed(alone), np.empty_like(alone)
        for row, moment in enumerate(end):
            for place in self.places:
                knots = np.sort(there[row, place]), np.sort(alone[row, place])
                had[row, place] = np.interp(moment, [0.0, *knots[0]], [0.0, *knots[1]])
        return np.minimum(had, alone)

    def ended(self, odds: RoundTimes, draws: SampledTimes, left: Array | float = 0.0) -> RoundTimes:
        """The same rounds with the master's wait for a core once it could end them: see above."""
        alone, place, cores = self.tasks(draws) + left, self.places[0], self.cores[0]
        rest = (alone - self.got(alone, odds.seconds))[:, place]
        waits = np.minimum(rest, TIME_SLICE_S).sum(axis=1) / cores
        full = np.count_nonzero(rest > 0, axis=1) >= cores
        return self.passed_on(replace(odds, seconds=odds.seconds + np.where(full, waits, 0.0)))

    def passed_on(self, odds: RoundTimes) -> RoundTimes:
        """The same rounds with the last sum's way through the nodes above, which work at nothing else then."""
        return replace(odds, seconds=odds.seconds + self.relayed)

    def left(self, draws: SampledTimes, left: Array, end: float) -> Array:
        """What workers still have to do, seconds alone, when a newer model is there; the rest: see `shared`."""
        tasks = self.tasks(draws)[0]
        done = self.got((left + tasks)[None], np.array([end]))[0] - left
        piece = np.maximum(self.piece * tasks, 1e-12)
        rest = np.minimum(np.ceil(done / piece - 1e-9) * piece, tasks) - done
        return np.where(done < 0, -done, np.maximum(rest, 0.0))

    def round_times(
        self,
        draws: Callable[[range, Any], SampledTimes],
        odds: Callable[[SampledTimes], RoundTimes],
        rounds: int,
    ) -> RoundTimes:
        """Rounds one after another, each with what those before left; `draws`: of some, given what they carry."""
        found, carry, left = [], None, None
        for r in range(rounds):
            alone = draws(range(r, r + 1), carry)
            left = np.zeros(alone.seconds.shape[1]) if left is None else left
            found.append(self.ended(odds(self.shared(alone, left)), alone, left))
            carry, left = found[-1].state, self.left(alone, left, float(found[-1].seconds[0]))
        fields = ("seconds", "messages", "bytes")
        return RoundTimes(*(np.concatenate([getattr(each, name) for each in found]) for name in fields))
