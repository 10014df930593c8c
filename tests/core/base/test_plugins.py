"""Plug-in packages with a scheme, a delay model, a problem, an optimiser, a kind of cluster and a command.

A package is a module and the metadata that pip writes beside it. The package is in a folder on the path of other
processes.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.sampled_cases import rotated
from workbench.core.base.settings import SettingError
from workbench.core.contract.delays import DelayModel
from workbench.core.problems.linear import LeastSquaresArgs
from workbench.core.schemes.uncoded import UMW

TINY = '''
from typing import Any, ClassVar, Literal

import click
import numpy as np

from workbench.core.base.settings import setting
from workbench.mpi.clusters.local import Local
from workbench.core.contract.delays import DelayModel
from workbench.core.contract.optimisers import GradientDescent
from workbench.core.problems.linear import LeastSquaresArgs
from workbench.core.schemes.uncoded import UMW


class Scheme(UMW):
    """As UMW, by another name."""

    name = "TINY"
    title: ClassVar[str] = "A tiny scheme"
    paper: ClassVar[str] = "none"
    extra: int = setting(3, "a number of its own", ge=1)


class Steps(DelayModel):
    """The k-th worker takes k times `step`."""

    kind: Literal["steps"] = "steps"
    step: float = setting(0.001, "of the first worker", "s", gt=0)

    def draw(self, keyed: Any, round: int, workers: int, slot: int, before: Any) -> Any:
        return np.arange(1.0, workers + 1)[None]

    def compute(self, draw: Any, samples: Any) -> Any:
        return self.step * draw[0] + 0.0 * samples


class Problem(LeastSquaresArgs):
    """Least squares, by another name."""

    name = "tiny_squares"


class Optimiser(GradientDescent):
    """Gradient descent, by another name."""

    name = "tiny_descent"


class Here(Local):
    """This machine, by another name."""

    kind: Literal["tiny"] = setting("tiny", "this machine")


@click.command()
def tiny() -> None:
    """Say hello from far away."""
    click.echo("hello")
'''
POINTS = {
    "schemes": "TINY = tiny:Scheme",
    "delays": "steps = tiny:Steps",
    "problems": "squares = tiny:Problem",
    "optimisers": "descent = tiny:Optimiser",
    "clusters": "tiny = tiny",  # an entry point may also be a module
    "commands": "tiny = tiny:tiny",
}
SPEC = """
scheme: TINY
scheme_args: {extra: 7}
workers: 3
rounds: 4
delays: {kind: steps, step: 0.02}
problem: tiny_squares
problem_args: {samples: 30, features: 2}
optimiser: tiny_descent
"""


def install(folder: Path, name: str, source: str, points: dict[str, str]) -> Path:
    """Write the files that pip writes when it installs a package."""
    (folder / f"{name}.py").write_text(source)
    info = folder / f"{name}-0.1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 0.1\n")
    text = "".join(f"[workbench.{group}]\n{line}\n" for group, line in points.items())
    (info / "entry_points.txt").write_text(text)
    return folder


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    """Return a folder with the package, and an experiment and a cluster that need it."""
    (tmp_path / "spec.yaml").write_text(SPEC)
    (tmp_path / "clusters").mkdir()
    (tmp_path / "clusters" / "mine.yaml").write_text("kind: tiny\n")
    return install(tmp_path, "tiny", TINY, POINTS)


def python(folder: Path, *text: str) -> str:
    """Run another process that has a folder on its path. Return its output."""
    done = subprocess.run(
        [sys.executable, *text],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def test_plugins_are_listed_without_an_import(tiny: Path) -> None:
    """A process that is forked later must not contain threads of a plug-in."""
    script = """
import sys
from workbench.mpi.launch.rank.main import imported

imported(preload=True)
from workbench.core.contract.scheme import Scheme
assert "workbench.core.schemes.coded_reduce" in sys.modules and "tiny" not in sys.modules
assert [point.name for point in Scheme.catalogue.look()] == ["TINY"] and "tiny" not in sys.modules
assert "TINY" in Scheme.catalogue and "tiny" in sys.modules
print(len(list(__import__("pathlib").Path("/proc/self/task").iterdir())), "thread")
"""
    assert python(tiny, "-c", script).endswith("1 thread\n")


def test_plugins_are_found_by_name(tiny: Path) -> None:
    script = """
import workbench as wb
from workbench.core.contract.delays import delay_models
from workbench.lab.widgets.forms.controls import Controls

assert "TINY" in wb.schemes.names() and "tiny_squares" in wb.problems.names() and "steps" in delay_models()
e = wb.Experiment.read("spec.yaml")
assert wb.Experiment.read(e.write("again.yaml")) == e == wb.Experiment(**e.model_dump())
assert e.built_scheme.extra == 7 and e.build_optimiser().name == "tiny_descent"
shown = Controls([e], lambda: None)
assert shown.setup().entries[0].scheme == "TINY" and "TINY" in shown.schemes.further.entries[0].choices
for form, name in ((shown.delays, "steps"), (shown.problem, "tiny_squares"), (shown.optimiser, "tiny_descent")):
    assert form.chosen == name and name in form.classes
assert [line.name for line in shown.delays.entries] == ["kind", "step"]
trace = wb.run(e)
assert abs(trace.columns["time"][-1] - 4 * 0.06) < 1e-12, trace.columns["time"]
assert wb.forecast(e).mean == 0.06
"""
    assert python(tiny, "-W", "error", "-c", script) == ""


def test_plugins_are_available_on_the_command_line(tiny: Path) -> None:
    calls = {
        "--help": "tiny        Say hello from far away.",
        "tiny": "hello",
        "schemes": "TINY     A tiny scheme",
        "delays steps": "step               of the first worker",
        "cluster list": "mine             tiny",
        "run spec.yaml --set delays.step=0.01 -o out": "TINY: 4 rounds, 0.12 s",
    }
    script = f"""
import sys
from workbench.cli.main import main
for words in {list(calls)!r}:
    sys.argv = ["workbench", *words.split()]
    main()
    print("----")
"""
    told = python(tiny, "-c", script).split("----\n")
    for text, one in zip(calls, told, strict=False):
        assert calls[text] in one, one
    assert told[1:2] == ["hello\n"]
    assert len(told) == len(calls) + 1


def test_plugins_installed_while_a_kernel_runs_are_found(tmp_path: Path) -> None:
    (tmp_path / "later").mkdir()
    install(tmp_path / "later", "tiny", TINY, POINTS)
    script = """
import os, sys
sys.path.append("now")
import workbench as wb
from workbench.core.base.settings import SettingError
try:
    wb.Experiment(scheme="TINY")
except SettingError as error:
    assert "scheme = 'TINY': no such name" in str(error), error
os.rename("later", "now")
assert wb.Experiment(scheme="TINY", delays={"kind": "steps"}, problem="tiny_squares").built_scheme.extra == 3
assert "TINY" in wb.schemes.names()
"""
    assert python(tmp_path, "-W", "error", "-c", script) == ""


@rotated
@pytest.mark.mpi
@pytest.mark.xdist_group("mpi")
def test_plugins_are_imported_by_real_ranks(tiny: Path) -> None:
    script = """
import numpy as np
import workbench as wb
e = wb.Experiment.read("spec.yaml")
simulated, real = wb.run(e), wb.run(e, engine="mpi", cluster="mine")
np.testing.assert_allclose(real.model, simulated.model, rtol=1e-12)
print(real.info["measured"], real.columns["time"][-1] >= 4 * 0.06)
"""
    assert python(tiny, "-c", script) == "True True\n"


def test_plugins_that_are_broken_are_reported_and_skipped(tiny: Path) -> None:
    install(
        tiny, "lame", "import nothing_there", {"schemes": "LAME = lame:Lame", "commands": "lame = lame:lame"}
    )
    text = python(tiny, "-m", "workbench", "run", "spec.yaml")
    assert "TINY: 4 rounds" in text
    assert (
        "workbench: warning: package lame 0.1: what it adds to workbench.schemes cannot be used (LAME = lame:Lame:"
        " ModuleNotFoundError: No module named 'nothing_there'); fix the package, or uninstall it\n"
    ) in text
    assert "lame        of package lame 0.1" in python(tiny, "-m", "workbench", "--help")
    script = "from workbench.cli.main import main; import sys; sys.argv = ['workbench', 'lame']; main()"
    failing = f"try:\n    exec({script!r})\nexcept SystemExit as end:\n    assert end.code == 2"
    assert python(tiny, "-c", failing).startswith(
        "workbench: package lame 0.1: what it adds to workbench.commands"
    )


def test_plugins_cannot_replace_built_in_names(tmp_path: Path) -> None:
    thief = TINY.replace('"TINY"', '"GC"').replace('"steps"', '"pareto"')
    install(tmp_path, "thief", thief, {"schemes": "GC = thief:Scheme", "delays": "pareto = thief:Steps"})
    script = """
import workbench as wb
print(wb.schemes.get("GC").__module__, type(wb.Experiment(delays={"kind": "pareto"}).delays).__module__)
"""
    text = python(tmp_path, "-c", script)
    assert "workbench.core.schemes.gradient_coding workbench.core.contract.delays.independent\n" in text
    for sentence in (
        "thief.Scheme: scheme = 'GC' is taken by workbench.core.schemes.gradient_coding; give it another name",
        "thief.Steps: delays.kind = 'pareto' is taken by workbench.core.contract.delays.independent;"
        " give it another name",
    ):
        assert sentence in text


def test_plugins_entry_points_are_read_lazily(tmp_path: Path) -> None:
    script = """
import importlib.metadata as metadata, sys
entry_points, asked = metadata.entry_points, []
def told(**which):  # pydantic requests its own group, we request all at once
    asked.append(which.get("group"))
    return entry_points(**which)
metadata.entry_points = told
import workbench as wb
from workbench.core.base import plugins
points, looked = plugins.points, []
plugins.points = lambda group: looked.append(group) or points(group)
from workbench.core.contract.faults import Fault
from workbench.core.experiment import Experiment
import workbench.core.contract.delays, workbench.mpi.clusters, workbench.core.problems
Fault(worker=1, round=2)
assert not [name for name in sys.modules if name.startswith(("workbench.core.schemes.", "workbench_"))]
assert set(asked) <= {"pydantic"}, asked
wb.Experiment()
assert set(looked) == {"workbench.schemes", "workbench.problems"}, looked  # gd has been imported
assert asked.count(None) == 1, asked
"""
    assert python(tmp_path, "-c", script) == ""


DELAY = "    kind: str = 'mine'\n    def draw(self, *args): ...\n    def compute(self, *args): ..."
NAME = "    name: ClassVar[str] = 'mine'"
FILES = {  # package -> base class, body, and fields of an experiment that uses it
    "core.contract.delays": ("core.contract.delays.DelayModel", DELAY, {"delays": {"kind": "mine"}}),
    "core.contract.optimisers": ("core.contract.optimisers.GradientDescent", NAME, {"optimiser": "mine"}),
    "core.problems": ("core.problems.linear.LogisticArgs", NAME, {"problem": "mine"}),
    "core.schemes": ("core.schemes.uncoded.UMW", NAME, {"scheme": "mine"}),
}


@pytest.mark.parametrize("package", FILES)
def test_catalogue_finds_a_new_file_of_the_package(tmp_path: Path, package: str) -> None:
    base, body, fields = FILES[package]
    module, _, name = base.rpartition(".")
    head = f"from __future__ import annotations\nfrom typing import ClassVar\nfrom workbench.{module} import {name}\n"
    (tmp_path / "mine.py").write_text(f"{head}class Mine({name}):\n{body}\n")
    script = f"""
import workbench.{package} as room
room.__path__.append({str(tmp_path)!r})
import workbench as wb
print(wb.Experiment(**{{"scheme": "UMW", **{fields!r}}}).model_dump_json())
"""
    assert '"mine"' in python(tmp_path, "-c", script)


def test_catalogue_lookup_can_be_interrupted_and_repeated(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("raise KeyboardInterrupt")
    script = f"""
import workbench.core.schemes as room
room.__path__.insert(0, {str(tmp_path)!r})
for again in (False, True):
    try:
        room.names()
    except KeyboardInterrupt:
        print("interrupted")
room.__path__.pop(0)
print(len(room.names()) > 10)
"""
    assert python(tmp_path, "-c", script) == "interrupted\ninterrupted\nTrue\n"


@pytest.mark.parametrize(
    ("base", "name"), [(LeastSquaresArgs, "width"), (UMW, "epochs_per_round"), (DelayModel, "expected")]
)
def test_field_hidden_by_an_attribute_is_refused(base: type, name: str) -> None:
    body = {"__annotations__": {name: int}, name: 3, "__module__": __name__}
    with pytest.raises(SettingError, match=f"^Mine.{name}: .* has a '{name}' of its own.*own_{name}"):
        type(base)("Mine", (base,), body)
