"""Fixtures of runs under Slurm: one throw-away Slurm for a whole session, whose commands find it by SLURM_CONF."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.clusters.slurm_machine import NODES, TASKS, SlurmMachine, missing
from tests.support.clusters.slurm_runs import until
from workbench.mpi.clusters.warm import POOLS


@pytest.fixture(scope="session")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmMachine]:
    """Start Slurm's daemons."""
    if why := missing():
        pytest.skip(why)
    slurm = SlurmMachine(tmp_path_factory.mktemp("slurm"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SLURM_CONF", str(slurm.conf))
        try:
            slurm.up()
            yield slurm
        finally:
            POOLS.close()
            slurm.down()


@pytest.fixture(scope="session")
def shared(machine: SlurmMachine) -> Path:
    """Make the folder that all nodes share."""
    (machine.folder / "shared").mkdir()
    return machine.folder / "shared"


@pytest.fixture(scope="session")
def lab(shared: Path) -> Callable[..., str]:
    """Return a function that writes a cluster file and returns its path."""

    def write(name: str = "lab", **fields: Any) -> str:
        base = {"kind": "slurm", "folder": str(shared), "nodes": NODES, "tasks_per_node": TASKS, "price": 2.0}
        path = shared / f"{name}.yaml"
        fresh = path.with_suffix(".new")
        fresh.write_text(json.dumps({**base, **fields}))  # JSON is YAML, too
        fresh.replace(path)  # whole at any moment: a run may be reading it
        return str(path)

    return write


@pytest.fixture
def taken(machine: SlurmMachine) -> Iterator[str]:
    """Start a foreign job that occupies all nodes."""
    POOLS.close()
    until(lambda: not machine.jobs())
    wish = (f"--nodes={NODES}", "--exclusive", "--output=/dev/null", "--wrap=sleep 600")
    job = machine.call("sbatch", "--parsable", *wish).strip()
    yield job
    machine.cancel(job)
