"""Fixtures of runs in jobs: a temporary Slurm or PBS for all tests that need one."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.clusters import pbs_machine, slurm_machine
from tests.support.clusters.batch_runs import Machine, until
from tests.support.clusters.pbs_machine import PbsMachine
from tests.support.clusters.slurm_machine import NODES, TASKS, SlurmMachine
from workbench.mpi.clusters.warm import POOLS

SYSTEMS = ["slurm", "pbs", pytest.param("torque", marks=pytest.mark.slow)]


def machine_of(system: str, folder: Path) -> Machine:
    """Return a machine that is not up yet. Skips the test if the batch system is not available."""
    if why := (slurm_machine if system == "slurm" else pbs_machine).missing():
        pytest.skip(why)
    return SlurmMachine(folder) if system == "slurm" else PbsMachine(folder, system)


@pytest.fixture(scope="session", params=SYSTEMS)
def machine(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    """Start the batch system."""
    batch = machine_of(request.param, tmp_path_factory.mktemp(request.param))
    with pytest.MonkeyPatch.context() as patch:
        for name, value in batch.variables.items():
            patch.setenv(name, value)
        try:
            batch.up()
            yield batch
        finally:
            POOLS.close()
            batch.down()


@pytest.fixture(scope="session")
def shared(machine: Machine) -> Path:
    """Make a folder that all nodes see."""
    (machine.folder / "shared").mkdir()
    return machine.folder / "shared"


@pytest.fixture(scope="session")
def lab(machine: Machine, shared: Path) -> Callable[..., str]:
    """Return a function that writes a cluster file and returns its path."""

    def write(name: str = "lab", **fields: Any) -> str:
        base = {
            **machine.fields,
            "folder": str(shared),
            "nodes": NODES,
            "tasks_per_node": TASKS,
            "price": 2.0,
        }
        path = shared / f"{name}.yaml"
        fresh = path.with_suffix(".new")
        fresh.write_text(json.dumps({**base, **fields}))  # JSON is also YAML
        fresh.replace(path)  # atomic, since a run may be reading the file
        return str(path)

    return write


@pytest.fixture
def taken(machine: Machine) -> Iterator[str]:
    """Submit a job of another user that takes all nodes, without other jobs."""
    POOLS.close()
    until(lambda: not machine.jobs())
    job = machine.take()
    yield job
    machine.cancel(job)
