"""The warm pools of this process, so that only the first run has to wait for its ranks."""

import atexit
import threading

from workbench.mpi import clusters
from workbench.mpi.clusters.base import Cluster
from workbench.mpi.launch.reports import ProgressCallback, no_progress
from workbench.mpi.launch.site import Pool


class Pools:
    """Pools by cluster and number of ranks. Safe to use from several threads."""

    def __init__(self) -> None:
        self._pools: list[tuple[Cluster, Pool]] = []  # with the cluster that was asked for
        self._over: list[Pool] = []  # those that have ended; somebody may still ask why
        self._lock = threading.Lock()

    def get(
        self, ranks: int, cluster: Cluster | None = None, progress: ProgressCallback = no_progress
    ) -> Pool:
        """A pool with as many ranks or some more: a warm one, else a new one (see `Pool.await_ready`).

        Raises `ClusterError` where there is no room, no mpiexec, or something wrong with a host.
        """
        where = cluster or clusters.load(clusters.LOCAL)
        with self._lock:
            for entry in [entry for entry in self._pools if not entry[1].alive]:
                self._pools.remove(entry)
                entry[1].release()
                self._over.append(entry[1])
            fit = [pool for of, pool in self._pools if of == where and where.fits(ranks, pool.ranks)]
            if fit:
                return min(fit, key=lambda pool: pool.ranks)
            if where.alone:
                self._close([entry for entry in self._pools if entry[0].name == where.name])
            pool = where.site.open(ranks, progress)
            self._pools.append((where, pool))
            return pool

    def close(self) -> None:
        """End all of them."""
        with self._lock:
            self._close(list(self._pools))
            while self._over:
                self._over.pop().clear()

    def _close(self, entries: list[tuple[Cluster, Pool]]) -> None:
        for entry in entries:
            self._pools.remove(entry)
            entry[1].close()


POOLS = Pools()
atexit.register(POOLS.close)
