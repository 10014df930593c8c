"""Real runs with only the dependencies of straggler-workbench[mpi]. `.ci/run` makes the environment."""

from __future__ import annotations

from importlib.metadata import requires
from importlib.util import find_spec
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import workbench as wb
from workbench.core.base.errors import MissingLayer
from workbench.mpi.launch.hosts.host import PACKAGES

pytestmark = pytest.mark.skipif(
    find_spec("plotly") is not None or find_spec("mpi4py") is None,
    reason="needs an environment with the packages of real runs only: tools/layer_env.py mpi",
)


def test_mpi_layer_real_runs_equal_the_simulator(tmp_path: Path) -> None:
    e = wb.Experiment(scheme="GC", scheme_args={"stragglers": 1}, workers=4, rounds=10)
    real = wb.run(e, engine="mpi", folder=str(tmp_path / "run"))
    assert len(real.rounds) == 10
    assert real.model == pytest.approx(wb.run(e).model, rel=1e-10)
    assert wb.Trace.load(tmp_path / "run").same(real)


def test_mpi_layer_local_cluster_passes_its_check() -> None:
    needed = [Requirement(line) for line in requires("straggler-workbench") or ()]
    names = {r.name for r in needed if r.marker is None or r.marker.evaluate({"extra": "mpi"})}
    assert set(PACKAGES) <= names


def test_mpi_layer_refuses_widgets_with_the_pip_command() -> None:
    with pytest.raises(MissingLayer, match=r"straggler-workbench\[lab\]"):
        wb.explore  # noqa: B018
