"""Pools of this process, so that only the first run has to wait for its ranks."""

import atexit
import os
import threading

from workbench.mpi import clusters
from workbench.mpi.clusters.base import Cluster
from workbench.mpi.launch.reports import ProgressCallback, no_progress
from workbench.mpi.launch.site import Pool


class Pools:
    """Pools by cluster and number of ranks. Thread safe."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Drop all pools without closing them."""
        # pairs of the cluster for which a pool was requested, and the pool
        self._pools: list[tuple[Cluster, Pool]] = []
        self._over: list[Pool] = []  # ended pools, kept because a run may still need the reason
        self._lock = threading.Lock()

    def get(
        self, ranks: int, cluster: Cluster | None = None, progress: ProgressCallback = no_progress
    ) -> Pool:
        """Return an idle pool with at least as many ranks, or else start one (see `Pool.await_ready`).

        Raises `ClusterError` if memory or open files do not suffice, mpiexec is missing, or a host has a problem.
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
        """Close all pools."""
        with self._lock:
            self._close(list(self._pools))
            while self._over:
                self._over.pop().clear()

    def _close(self, entries: list[tuple[Cluster, Pool]]) -> None:
        for entry in entries:
            self._pools.remove(entry)
            entry[1].close()


POOLS = Pools()
if hasattr(os, "register_at_fork"):  # missing on Windows
    # a forked process starts pools of its own, because a pool takes the runs of one process
    os.register_at_fork(after_in_child=POOLS.forget)
atexit.register(POOLS.close)
