"""User-defined classes of a cell on hosts that are reached by ssh, and in a Slurm job."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.clusters.ssh_hosts import Hosts, write_yaml
from tests.support.notebook_cells import THROUGH, assert_script_passes, program
from tests.support.sampled_cases import rotated
from workbench.mpi.clusters.warm import POOLS

pytest_plugins = ["tests.support.clusters.batch_fixtures"]
pytestmark = [pytest.mark.mpi, pytest.mark.xdist_group("hosts")]


@rotated
def test_user_defined_classes_over_ssh(two: Hosts, tmp_path: Path) -> None:
    POOLS.close()
    assert_script_passes(program(THROUGH, cluster=str(write_yaml(two)), folder=str(tmp_path / "run")))


@pytest.mark.slow  # the test above sends the same data to hosts; batch/test_kind.py tests Slurm
def test_user_defined_classes_in_a_slurm_job(lab: Callable[..., str], shared: Path) -> None:
    POOLS.close()
    assert_script_passes(program(THROUGH, cluster=lab(), folder=str(shared / "own-run")))
