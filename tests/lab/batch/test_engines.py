"""Engines of ipyparallel for sweeps: on this machine, on stand-in hosts reached by ssh, in Slurm's jobs; and Dask."""

from __future__ import annotations

import os
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
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
from tests.support.sweep_runs import QUICK, SLOW_ROUNDS, wait_for, write
from workbench.analysis.tables import shards
from workbench.analysis.tables.status import Status
from workbench.cli.batch import sweep as command_sweep
from workbench.core.base.errors import ClusterError
from workbench.core.trace.layout import ATTEMPTS, STOP
from workbench.lab.batch import Sweep, sweep
from workbench.lab.batch.engines import Engines, started
from workbench.lab.batch.executors import size
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
    killed: list[int] = []

    def kill() -> None:
        wait_for(lambda: any(tmp_path.glob("*/status.json")))
        assert len(list(tmp_path.glob("seed*/trace"))) < len(PLAN.items())  # the sweep is under way
        for process in psutil.Process().children():
            with suppress(psutil.Error):
                if "ipyparallel.controller" in process.cmdline():
                    process.send_signal(signal.SIGKILL)
                    killed.append(process.pid)

    thread = threading.Thread(target=kill)
    thread.start()
    sweep(PLAN, tmp_path, executor={"kind": "ipyparallel", "engines": 1}, progress=False)
    thread.join()
    assert killed
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


@pytest.mark.parametrize("notebooks", [False, True])
def test_sweep_on_the_dask_client_of_the_user(notebooks: bool, tmp_path: Path) -> None:
    """A worker is killed meanwhile, Dask starts another, and the number of workers is the scheduler's."""
    distributed = pytest.importorskip("distributed", reason="the extra dask is not installed")
    plan = Sweep(base={**QUICK, "rounds": SLOW_ROUNDS // 2}, seeds=12, notebooks=notebooks)
    options = {"threads_per_worker": 1, "host": "127.0.0.1", "dashboard_address": "127.0.0.1:0"}
    with distributed.LocalCluster(n_workers=2, **options) as cluster, distributed.Client(cluster) as client:
        executor = client.get_executor(pure=False)
        assert size(executor) == 2
        killed: list[int] = []

        def kill() -> None:
            begun = f"{ATTEMPTS}/*/*/status.json" if notebooks else f"{ATTEMPTS}/{'?' * 16}"
            wait_for(lambda: any(tmp_path.glob(begun)))
            killed.extend(client.run(os.getpid).values())
            os.kill(killed[0], signal.SIGKILL)

        thread = threading.Thread(target=kill)
        thread.start()
        sweep(plan, tmp_path, executor=executor, progress=False)
        thread.join()
        assert killed
        assert executor.submit(int, "7").result(60) == 7  # it stays open
        with pytest.raises(KeyboardInterrupt):
            _stopped(
                Sweep(base={**plan.base, "rounds": 7}, seeds=500, notebooks=notebooks),
                tmp_path / "t",
                executor,
            )
        address = {"kind": "dask", "address": cluster.scheduler_address}
        sweep(plan.replace(seeds=14, executor=address), tmp_path, progress=False)
    table = wb.runs(tmp_path).table
    table = table[~table["run"].str.startswith("t/")]
    assert sorted(table["run"]) == sorted(item.name for item in plan.replace(seeds=14).items())
    assert set(table["state"]) == {"done"}


def _stopped(plan: Sweep, folder: Path, executor: Executor) -> None:
    """Stop a sweep after its first run, by the file that its tasks look at."""

    def stop() -> None:
        wait_for(lambda: any(folder.glob("seed*/status.json")) or shards.files(folder))
        (folder / STOP).write_text("")

    thread = threading.Thread(target=stop)
    thread.start()
    try:
        sweep(plan, folder, executor=executor, progress=False)
    finally:
        thread.join()


def test_sweep_on_workers_of_dask(tmp_path: Path) -> None:
    pytest.importorskip("distributed", reason="the extra dask is not installed")
    sweep(PLAN, tmp_path, executor={"kind": "dask", "engines": 2}, progress=False)
    checked(tmp_path)
