"""Workers that are real processes: cores that they share, and work that they cannot leave at once.

Times of workers with a core of their own become those of workers that share some, and back: whoever is at work gets
the same share of the cores (processor sharing). On the virtual clock who is late drops its work as soon as a newer
model is there; a process goes on to the end of the piece that it is at, takes part in the next round later, and uses
its share of the cores till then.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from workbench.base.types import Array
from workbench.core.odds import Draws, Odds


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
    is at work; `piece`: the share of its work that a worker goes through before it looks.
    """

    places: tuple[NDArray[np.int64], ...]
    cores: tuple[float, ...]
    piece: float

    def slowed(self, alone: Array) -> Array:
        """Times as they are where all workers work at once, (rounds, workers)."""
        found = np.array(alone, dtype=float)
        for place, cores in zip(self.places, self.cores, strict=True):
            found[:, place] = slowed(found[:, place], cores)
        return found

    def shared(self, draws: Draws, left: Array | None = None) -> Draws:
        """The same draws on shared cores; `left`: of earlier work, seconds alone, (workers,), in their only round."""
        alone = draws.seconds if left is None else draws.seconds + left
        crowded = any(len(place) > cores for place, cores in zip(self.places, self.cores, strict=True))
        before = np.zeros(alone.shape[1]) if left is None else left
        seconds = self.slowed(alone) if crowded else alone

        def progress(portions: NDArray[np.int64], which: slice) -> Array:
            done = draws.progress(portions, which) + before[:, None]
            if not crowded:
                return done
            for row, (at, there) in enumerate(zip(alone[which], seconds[which], strict=True)):
                for place in self.places:
                    knots = np.sort(at[place]), np.sort(there[place])
                    done[row, place] = np.interp(done[row, place], [0.0, *knots[0]], [0.0, *knots[1]])
            return np.asarray(done)

        return replace(draws, seconds=seconds, progress=progress)

    def left(self, draws: Draws, left: Array, end: float) -> Array:
        """What workers still have to do, seconds alone, when a newer model is there; the rest: see `shared`."""
        tasks = draws.seconds[0]
        got = np.empty_like(tasks)  # of the cores until then
        alone = left + tasks
        there = self.slowed(alone[None])[0]
        for place in self.places:
            got[place] = np.interp(end, [0.0, *np.sort(there[place])], [0.0, *np.sort(alone[place])])
        done = np.minimum(got - left, tasks)
        piece = np.maximum(self.piece * tasks, 1e-12)
        rest = np.minimum(np.ceil(done / piece - 1e-9) * piece, tasks) - done
        return np.where(done < 0, -done, np.maximum(rest, 0.0))

    def odds(self, draws: Callable[[range, Any], Draws], odds: Callable[[Draws], Odds], rounds: int) -> Odds:
        """Rounds one after another, each with what those before left; `draws`: of some, given what they carry."""
        found, carry, left = [], None, None
        for r in range(rounds):
            alone = draws(range(r, r + 1), carry)
            left = np.zeros(alone.seconds.shape[1]) if left is None else left
            found.append(odds(self.shared(alone, left)))
            carry, left = found[-1].carry, self.left(alone, left, float(found[-1].seconds[0]))
        fields = ("seconds", "messages", "bytes")
        return Odds(*(np.concatenate([getattr(each, name) for each in found]) for name in fields))
