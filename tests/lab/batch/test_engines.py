"""Engines of ipyparallel for sweeps: on this machine, on stand-in hosts reached by ssh, in Slurm's jobs; and Dask."""

from __future__ import annotations

import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from click.testing import CliRunner

import workbench as wb
from tests.support.clusters.slurm_machine import SlurmMachine
from tests.support.clusters.ssh_hosts import Host, Hosts, missing, standing, write_yaml
from tests.support.disturbances import engines
from tests.support.sampled_cases import sampled_test
from tests.support.sweep_runs import QUICK, wait_for, write
from workbench.analysis.tables.status import Status
from workbench.cli.batch import sweep as command_sweep
from workbench.core.base.errors import ClusterError
from workbench.lab.batch import Sweep, sweep
from workbench.lab.batch.engines import Engines, started
from workbench.mpi import clusters
from workbench.mpi.launch.processes import awaited

pytest_plugins = ["tests.support.clusters.batch_fixtures"]
pytestmark = pytest.mark.mpi
PLAN = Sweep(base={**QUICK, "rounds": 200}, seeds=6)


def checked(folder: Path, plan: Sweep = PLAN) -> None:
    """Check that every run is in the table once, is done, and has the bits of the simulator."""
    table = wb.runs(folder)
    assert sorted(table.table["run"]) == sorted(item.name for item in plan.items())
    assert set(table.table["state"]) == {"done"}
    assert all(trace.replay().same(trace) for trace in table.traces())


@sampled_test("sweeps on executors", 4, 6, 2)
def test_sweep_on_engines_of_this_machine(tmp_path: Path) -> None:
    sweep(PLAN, tmp_path, executor={"kind": "ipyparallel", "engines": 2}, progress=False)
    checked(tmp_path)
    assert not engines()


@pytest.mark.slow
@pytest.mark.parametrize("notebooks", [True, False])
def test_sweep_on_the_executor_of_a_client_of_the_user(notebooks: bool, tmp_path: Path) -> None:
    plan = PLAN.replace(notebooks=notebooks)
    with started("local", 2) as running:
        executor = running.client.executor()
        sweep(plan, tmp_path, executor=executor, progress=False)
        assert executor.submit(int, "7").result(60) == 7  # it stays open
    table = wb.runs(tmp_path)
    assert sorted(table.table["run"]) == sorted(item.name for item in plan.items())
    assert all(trace.rounds.equals(wb.run(trace.experiment).rounds) for trace in table.traces())


@pytest.mark.slow
def test_sweep_survives_the_death_of_the_controller(tmp_path: Path) -> None:
    def kill() -> None:
        until = time.monotonic() + 100
        while time.monotonic() < until and not any(tmp_path.glob("*/status.json")):
            time.sleep(0.05)
        for process in psutil.Process().children():
            with suppress(psutil.Error):
                if "ipyparallel.controller" in process.cmdline():
                    process.send_signal(signal.SIGKILL)

    thread = threading.Thread(target=kill)
    thread.start()
    sweep(PLAN, tmp_path, executor={"kind": "ipyparallel", "engines": 1}, progress=False)
    thread.join()
    checked(tmp_path)


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Hosts]:
    """Start two stand-in hosts, and check that no process is left on them."""
    if why := missing():
        pytest.skip(why)
    with standing(tmp_path / "pair", 2) as hosts:
        yield hosts
        left = awaited(lambda: not any(host.commands() for host in hosts.hosts), 20.0)
        assert left, [host.commands() for host in hosts.hosts]


@sampled_test("sweeps on executors", 5, 6, 2)
@pytest.mark.xdist_group("hosts")
def test_sweep_on_two_hosts_without_a_shared_file_system(pair: Hosts, tmp_path: Path) -> None:
    plan = PLAN.replace(executor={"kind": "ipyparallel", "cluster": str(write_yaml(pair)), "engines": 2})
    sweep(plan, tmp_path / "s", progress=False)
    checked(tmp_path / "s")
    hosts = {Status.read(path).host["name"] for path in (tmp_path / "s").glob("seed*")}  # type: ignore[union-attr]
    assert hosts == {"w1", "w2"}


def fill(host: Host, folder: Path) -> None:
    """Fill the disk with temporary files of a host after the first run of a sweep."""
    wait_for(lambda: any(folder.glob("seed*/status.json")))
    with suppress(OSError), (host.inside("/tmp") / "full").open("wb") as file:
        while True:
            file.write(bytes(4096))
            file.flush()


@pytest.mark.xdist_group("hosts")
@pytest.mark.slow
def test_sweep_leaves_a_host_with_a_full_disk(pair: Hosts, tmp_path: Path) -> None:
    plan = PLAN.replace(executor={"kind": "ipyparallel", "cluster": str(write_yaml(pair)), "engines": 2})
    pair.hosts[1].small_disk("/tmp", 48)
    thread = threading.Thread(target=fill, args=(pair.hosts[1], tmp_path / "s"))
    thread.start()
    summary = sweep(plan.replace(seeds=12), tmp_path / "s", progress=False)
    thread.join()
    assert not summary.failed
    assert (pair.hosts[1].inside("/tmp") / "full").stat().st_size > 1e6
    checked(tmp_path / "s", plan.replace(seeds=12))
    hosts = Counter(Status.read(path).host["name"] for path in (tmp_path / "s").glob("seed*"))  # type: ignore[union-attr]
    assert hosts["w1"] > 6


@pytest.mark.xdist_group("hosts")
@pytest.mark.slow
@pytest.mark.parametrize("machine", ["slurm"], indirect=True, scope="session")
def test_sweep_starts_and_ends_engines_on_slurm(
    lab: Callable[..., str], shared: Path, machine: SlurmMachine
) -> None:
    plan = write(shared / "sweep.yaml", base=dict(PLAN.base), seeds=PLAN.seeds)
    before = machine.settled()
    command = [str(plan), "-o", str(shared / "sweep"), "--quiet", "-j", "2"]
    result = CliRunner().invoke(command_sweep, [*command, "--cluster", lab(nodes=2, tasks_per_node=1)])
    assert result.exit_code == 0, result.output
    checked(shared / "sweep")
    hosts = {Status.read(path).host["name"] for path in (shared / "sweep").glob("seed*")}  # type: ignore[union-attr]
    assert hosts
    assert machine.settled() == before


def test_controller_that_cannot_listen_is_one_sentence() -> None:
    with pytest.raises(ClusterError, match=r"executor.listen = '203.0.113.7'"):
        Engines(clusters.load("local"), 1, "203.0.113.7").__enter__()


def test_engines_end_with_their_block() -> None:
    before = set(psutil.Process().children(recursive=True))  # such as the hosts of other tests
    with started("local", 2) as running:
        assert awaited(lambda: len(running.client.ids) == 2, 60.0)
        assert running.broken() == ""
        assert engines()
        known = set(psutil.Process().children(recursive=True)) - before
    assert len(known) > 5  # controller, its schedulers, the host of engines, the engines
    assert not psutil.wait_procs(list(known), timeout=120)[1]


def test_sweep_on_workers_of_dask(tmp_path: Path) -> None:
    pytest.importorskip("distributed", reason="the extra dask is not installed")
    sweep(PLAN, tmp_path, executor={"kind": "dask", "engines": 2}, progress=False)
    checked(tmp_path)
