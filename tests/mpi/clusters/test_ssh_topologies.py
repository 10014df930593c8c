"""Other clusters by ssh: four hosts with slow links, this machine as head, a shared folder."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import workbench as wb
from tests.support.clusters.ssh_hosts import ROOT, Hosts, write_yaml
from tests.support.clusters.ssh_runs import SCHEMES, experiment
from workbench.mpi.clusters.warm import POOLS
from workbench.mpi.running.real import start_real

pytestmark = [pytest.mark.mpi, pytest.mark.slow, pytest.mark.xdist_group("hosts")]


def test_ssh_run_on_four_hosts_orders_the_schemes_as_the_simulator(four: Hosts) -> None:
    """The master is on a separate host behind a link of 8 Mbit/s, with four workers on each of the others."""
    master, *others = [host.address for host in four.hosts]
    path = write_yaml(four, hosts=f"[{{host: {master}, slots: 0}}, {', '.join(others)}]")
    changes: dict[str, Any] = {
        "workers": 12,
        "rounds": 4,
        "problem_args": {"samples": 120, "features": 5000},
        "link": {"latency": 0.0, "bandwidth": 1e6},
        "optimiser_args": {"step": 1e-6},
    }
    shapes = [("GC", {"stragglers": 1}), ("CR", {"children": 3, "layers": 2, "stragglers": 0}), ("RAR", {})]
    experiments = [experiment(name, args, **changes) for name, args in shapes]
    four.hosts[0].limit(8e6)
    real = wb.compare(experiments, engine="mpi", cluster=str(path), emulate="delays")
    simulated = wb.compare(experiments)
    for ours, theirs in zip(real, simulated, strict=True):
        np.testing.assert_allclose(ours.model, theirs.model, rtol=1e-8)
        assert ours.info["hosts"] == 4
    times = [{t.label: float(t.rounds["time"].iloc[-1]) for t in traces} for traces in (real, simulated)]
    orders = [sorted(each, key=each.__getitem__) for each in times]
    assert orders == [["RAR", "CR", "GC"]] * 2, times


def test_ssh_run_with_this_machine_as_head(two: Hosts) -> None:
    path = write_yaml(two, "fromhere", head="here")
    for name, args in SCHEMES[:2]:
        e = experiment(name, args)
        run = start_real(e, cluster=str(path))
        np.testing.assert_allclose(run.result().model, wb.run(e).model, rtol=1e-9)
    assert run.pool is not None
    assert {host for _, host in run.pool.places[1:]} == {"w1", "w2"}
    assert run.pool.places[0][1] not in ("w1", "w2")
    POOLS.close()
    assert not any(host.commands() for host in two.hosts)


@pytest.fixture
def shared() -> Iterator[Path]:
    """Make a folder that stand-in hosts share, since only /tmp and the home folder are separate."""
    folder = Path(tempfile.mkdtemp(prefix="workbench-shared-", dir="/var/tmp"))
    yield folder
    shutil.rmtree(folder)


def test_ssh_run_with_a_shared_folder_copies_nothing(two: Hosts, shared: Path) -> None:
    shutil.copytree(
        ROOT / "workbench", shared / "src/workbench", ignore=shutil.ignore_patterns("__pycache__")
    )
    for host in two.hosts:
        shutil.rmtree(host.home / ".cache", ignore_errors=True)
    path = write_yaml(two, "shared", shared=shared, path=shared / "src")
    e = experiment("GC", {"stragglers": 1})
    run = start_real(e, cluster=str(path))
    np.testing.assert_allclose(run.result().model, wb.run(e).model, rtol=1e-9)
    assert (shared / "straggler-workbench/pools").is_dir()
    assert not any((host.home / ".cache/straggler-workbench/packages").exists() for host in two.hosts)
