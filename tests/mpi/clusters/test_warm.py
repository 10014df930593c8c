"""Warm pools of a process: a forked process has pools of its own."""

from __future__ import annotations

import os
from multiprocessing import get_context

import pytest

from workbench.mpi.clusters.warm import POOLS

pytestmark = pytest.mark.mpi


@pytest.mark.skipif(not hasattr(os, "register_at_fork"), reason="processes are not forked here")
def test_forked_process_has_pools_of_its_own() -> None:
    pool = POOLS.get(1)
    try:
        child = get_context("fork").Process(target=_opens_another, args=(pool,))
        with POOLS._lock:  # as if another thread opened a pool at the moment of the fork
            child.start()
        child.join(60)
        child.kill()
        child.join()
        assert child.exitcode == 0
        assert pool.alive
    finally:
        POOLS.close()


def _opens_another(known: object) -> None:
    pool = POOLS.get(1)
    POOLS.close()
    raise SystemExit(pool is known)
