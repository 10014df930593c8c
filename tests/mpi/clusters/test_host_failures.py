"""Hosts that fail during a run."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest

import workbench as wb
from tests.support.clusters.ssh_hosts import Hosts
from tests.support.clusters.ssh_runs import experiment, started, until
from workbench.mpi.clusters.warm import POOLS
from workbench.mpi.launch.client.remote import RemotePool

pytestmark = [pytest.mark.mpi, pytest.mark.slow, pytest.mark.xdist_group("hosts")]

SLOW: dict[str, Any] = {"kind": "shifted_exponential", "shift": 2e-3, "rate": 1e3}  # 0.2 to 0.5 s per round


def test_run_survives_a_host_without_power(pair: Hosts) -> None:
    """The host has two of four workers, and GC tolerates two. MPI does not notice that they are gone."""
    e = experiment("GC", {"stragglers": 2}, workers=4, rounds=150, delays=SLOW)
    run = started(pair, e)
    until(lambda: len(run.rows()["round"]) >= 5, run)
    pair.hosts[1].power_off()
    trace = run.result()
    assert len(trace.rounds) == 150
    assert set(trace.info["dead"]) == {"1", "3"}
    np.testing.assert_allclose(trace.model, wb.run(e).model, rtol=1e-9)
    POOLS.close()
    until(lambda: not pair.hosts[0].commands())


def test_run_ends_with_the_names_of_too_many_lost_hosts(pair: Hosts) -> None:
    e = experiment("GC", {"stragglers": 1}, workers=4, rounds=1000, delays=SLOW)
    run = started(pair, e)
    until(lambda: len(run.rows()["round"]) >= 3, run)
    pair.hosts[1].power_off()
    with pytest.raises(wb.QuorumLost, match="w2"):
        run.result()
    POOLS.close()
    until(lambda: not pair.hosts[0].commands())


def test_run_survives_a_host_that_is_shut_down(pair: Hosts) -> None:
    """The host's MPI daemon reports its end, so mpiexec ends the job.

    The remaining hosts continue from the checkpoint.
    """
    e = experiment("UMW", {}, workers=4, rounds=60, delays=SLOW)
    run = started(pair, e, checkpoint_every=0.1)
    until(lambda: len(run.rows()["round"]) >= 5, run)
    pair.hosts[1].kill()
    trace = run.result()
    assert len(trace.rounds) == 60
    np.testing.assert_allclose(trace.model, wb.run(e).model, rtol=1e-9)
    assert any("is gone" in text for text in run.warnings), run.warnings


def test_run_reports_a_head_without_power(pair: Hosts) -> None:
    e = experiment("UMW", {}, workers=4, rounds=2000, delays=SLOW)
    run = started(pair, e)
    until(lambda: len(run.rows()["round"]) >= 3, run)
    pair.hosts[0].power_off()
    with pytest.raises(wb.ClusterError, match=r"wb\.attach"):
        run.result()
    POOLS.close()
    end = time.monotonic() + 200
    while left := pair.hosts[1].commands():
        assert time.monotonic() < end, left
        time.sleep(0.5)


def test_run_survives_a_short_network_cut(pair: Hosts) -> None:
    e = experiment("UMW", {}, workers=2, rounds=60, delays=SLOW)
    run = started(pair, e)
    until(lambda: len(run.rows()["round"]) >= 3, run)
    pair.cut_client()
    time.sleep(30.0)
    pair.repair_client()
    trace = run.result()
    assert len(trace.rounds) == 60
    np.testing.assert_allclose(trace.model, wb.run(e).model, rtol=1e-9)


def test_pool_closed_after_a_network_cut_ends(pair: Hosts) -> None:
    """The head gets no message that the pool was closed. It would wait two minutes for its client, then for the run."""
    run = started(pair, experiment("UMW", {}, workers=2, rounds=5000, delays=SLOW))
    until(lambda: len(run.rows()["round"]) >= 3, run)
    pair.cut_client()
    assert isinstance(run.pool, RemotePool)
    run.pool.link.process.kill()
    run.pool.link.close()
    pair.repair_client()
    POOLS.close()
    end = time.monotonic() + 10.0
    while left := [found for host in pair.hosts for found in host.commands()]:
        assert time.monotonic() < end, left
        time.sleep(0.2)
