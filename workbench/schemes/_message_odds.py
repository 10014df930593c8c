"""Round times of clusters whose workers send several messages a round, without an event loop.

A cluster is done with `needed` different rows of its code, or with the one that is worth all. Who is first is
decided by order of arrival; the port keeps that order, so which messages are refused does not depend on its speed.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from workbench.base.types import Array
from workbench.core.links import BYTES_PER_FLOAT
from workbench.core.odds import BATCH, Draws, Odds, Ties, order, port
from workbench.schemes.many_messages import Clusters

Ints = NDArray[np.int64]


def message_odds(draws: Draws, portions: Ints, clusters: Clusters) -> Odds:
    """Seconds, messages and bytes of every round; `portions` are the workers' samples in order, (workers, r)."""
    assert draws.progress is not None
    at_once = max(1, BATCH // portions.size)
    extra = np.broadcast_to(draws.send(draws.floats), draws.seconds.shape)
    extra = extra + draws.link.latency + draws.down
    pieces = []
    for start in range(0, len(extra), at_once):
        which = slice(start, start + at_once)
        done = draws.progress(portions, which)[:, :, clusters.agenda.after - 1]
        arrivals = (done + extra[which, :, None]).reshape(len(done), -1)
        place = places(arrivals, _later(draws.ties, start))
        pieces.append(_outcomes(arrivals, place, clusters, draws.link.transfer(draws.floats)))
    end, count, combined = (np.concatenate(column) for column in zip(*pieces, strict=True))
    return Odds(
        end + draws.decode(combined), count.astype(float), count * float(BYTES_PER_FLOAT * draws.floats)
    )


def _later(ties: Ties, start: int) -> Ties:
    """Ties of rounds that are counted from `start`."""
    return lambda which: ties(start + which)


def _outcomes(arrivals: Array, place: Ints, clusters: Clusters, transfer: float) -> tuple[Array, Ints, Ints]:
    """When the last cluster is done, messages taken in until then, messages combined in decoding; each (rounds,)."""
    by_cluster = place.reshape(len(place), clusters.number, -1)
    last, combined = decisive(by_cluster, clusters)
    times = arrivals.reshape(by_cluster.shape)
    if clusters.stop:
        taken = by_cluster <= last[:, :, None]
        count = taken.sum(axis=(1, 2))
        times = np.where(taken, times, np.inf)
    else:
        count = last.max(axis=1) + 1
    through = port(times.reshape(len(place), -1), transfer)
    return np.take_along_axis(through, count[:, None] - 1, axis=1)[:, 0], count, combined.sum(axis=1)


def decisive(place: Ints, clusters: Clusters) -> tuple[Ints, Ints]:
    """Place of the message that completes each cluster, and how many are combined then; both (rounds, clusters).

    `place` holds places in the order of arrival, (rounds, clusters, messages). Of equal messages the first counts.
    """
    rows = clusters.agenda.rows.ravel()
    order = np.argsort(rows, kind="stable")
    different, starts = np.unique(rows[order], return_index=True)
    first = np.minimum.reduceat(place[:, :, order], starts, axis=2)
    alone = int(np.sum(different < 0))
    never = np.full(place.shape[:2], np.iinfo(np.int64).max)
    coded, k = first[:, :, alone:], clusters.agenda.code.needed - 1
    enough = np.partition(coded, k, axis=2)[:, :, k] if coded.shape[2] > k else never
    whole = first[:, :, :alone].min(axis=2) if alone else never
    return np.minimum(enough, whole), np.where(whole < enough, 1, clusters.agenda.code.needed)


def places(arrivals: Array, ties: Ties) -> Ints:
    """Place of every message in the order of arrival; both (rounds, workers * l)."""
    found = order(arrivals, ties)
    place = np.empty_like(found)
    np.put_along_axis(place, found, np.arange(found.shape[1])[None], axis=1)
    return place
