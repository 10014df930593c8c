"""Classes of a cell in the menus of an open or new explorer, with a form from their fields."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest

import workbench as wb
from tests.support.notebook_cells import CELL
from tests.support.widget_messages import types
from workbench.core.base.settings import setting
from workbench.core.base.types import Array
from workbench.core.contract.delays import Exponential
from workbench.core.contract.optimisers import GradientDescent
from workbench.core.contract.plan import MASTER, Plan
from workbench.core.contract.programs import at_least, child_program, parent_program, plain_sum
from workbench.core.contract.protocol import Node, Program
from workbench.core.contract.round_times import RoundTimes, SampledTimes, star_round_times
from workbench.core.problems import ProblemArgs
from workbench.core.problems.linear import LeastSquares
from workbench.core.schemes.uncoded import UMW
from workbench.lab.widgets.explorer.explorer import Explorer, explore

SMALL = wb.Experiment(scheme="UMW", workers=4, rounds=6, problem_args={"samples": 40, "features": 3})


def summed(round: int, got: Any) -> tuple[Any, float]:
    return plain_sum([message.value for _, message in sorted(got.items())]), 0.0


def define_scheme(least: float = 0.5) -> type[UMW]:
    class Half(UMW):
        name = "Half"
        exact = False
        share: float = setting(least, "share of the answers that is waited for", gt=0, le=1)

        def wait(self, workers: int) -> int:
            return max(1, round(self.share * workers))

        def program(self, node: Node) -> Program:
            rule = at_least(self.wait(len(node.children)))
            return (parent_program if node.rank == MASTER else child_program)(node, rule, summed)

        def round_times(self, draws: SampledTimes, workers: int) -> RoundTimes:
            return star_round_times(draws, self.wait(workers))

    return Half


def define_delays(times: float = 1.0) -> None:
    class Pauses(Exponential):
        """Sleeps now and then."""

        kind: Literal["pauses"] = "pauses"  # type: ignore[assignment]
        nap: float = setting(0.1, "how long", "s", gt=0)

        def compute(self, draw: Array, samples: Any) -> Array:
            return times * super().compute(draw, samples) + self.nap


class Quadratic(LeastSquares):
    """Nothing but a bowl."""


def define_problem() -> None:
    class QuadraticArgs(ProblemArgs):
        """A bowl."""

        name = "quadratic"
        columns: int = setting(4, "columns", ge=1, le=9)

        def count(self) -> int:
            return 40

        def size(self, plan: Plan | None) -> int:
            return self.columns

        def build(self, plan: Plan) -> Any:
            X = np.random.default_rng(0).standard_normal((40, self.columns))
            return Quadratic(X, X.sum(axis=1), l2=0.0)


def define_optimiser() -> None:
    class Slowly(GradientDescent):
        """Half as fast."""

        name = "slowly"
        factor: float = setting(0.5, "of the step", gt=0)


def define_all() -> None:
    define_scheme()
    define_delays()
    define_problem()
    define_optimiser()


def choices(form: Any) -> tuple[str, ...]:
    found: tuple[str, ...] = form.entries[0].choices
    return found


@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
def test_explorer_menus_have_classes_of_a_cell(tmp_path: Path, before: bool) -> None:
    if before:
        define_all()
    explorer = explore(SMALL, tmp_path)
    controls = explorer.controls
    if not before:
        assert "Half" not in choices(controls.schemes.further)
        define_all()
    types(controls.schemes.further, scheme="Half")
    types(controls.delays, kind="pauses")
    types(controls.problem, problem="quadratic")
    types(controls.optimiser, optimiser="slowly")
    half = controls.schemes.forms[-1].form
    assert [line.name for line in half.entries] == ["share", "own"]
    assert [line.name for line in controls.delays.entries] == ["kind", "mean", "nap"]
    assert [line.name for line in controls.problem.entries] == ["problem", "columns"]
    assert "factor" in [line.name for line in controls.optimiser.entries]
    types(half, share="0.75")
    types(controls.problem, columns="5")
    assert [e.scheme for e in explorer.experiments] == ["UMW", "Half"]
    assert explorer.experiments[1].scheme_args == {"share": 0.75}
    assert explorer.preview.ahead[1].forecast is not None
    traces = explorer.run(60.0)
    assert [trace.label for trace in traces] == ["UMW", "Half"]
    assert traces[1].model.shape == (5,)


def test_explorer_updates_when_a_cell_is_run_again(tmp_path: Path) -> None:
    define_scheme()
    define_delays()
    explorer = explore([SMALL, SMALL.replace(scheme="Half")], tmp_path)
    types(explorer.controls.delays, kind="pauses")
    types(explorer.controls.delays, nap="0.2")
    types(explorer.controls.schemes.forms[1].form, share="1.0")
    before = [e.built_scheme for e in explorer.experiments]
    means = [ahead.forecast.mean for ahead in explorer.preview.ahead if ahead.forecast]
    again = define_scheme(0.25)
    half = explorer.controls.schemes.forms[1].form
    assert half.values["share"] == "1"  # what was typed stays
    assert next(line.default for line in half.entries if line.name == "share") == "0.25"
    define_delays(times=100.0)
    after = [e.built_scheme for e in explorer.experiments]
    assert after[0] is not None
    assert type(after[1]) is again
    assert type(before[1]) is not again
    assert explorer.controls.delays.values["nap"] == "0.2"
    later = [ahead.forecast.mean for ahead in explorer.preview.ahead if ahead.forecast]
    assert all(new > old for new, old in zip(later, means, strict=True))


def test_explorer_reports_a_class_that_no_menu_can_show(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    explorer = explore(SMALL, tmp_path)

    def broken(self: Any) -> bool:
        raise ValueError("no such menu")

    monkeypatch.setattr(type(explorer.controls), "renew", broken)
    define_scheme()
    assert "Half" in wb.schemes.names()
    assert "no such menu" in explorer.desk.tabs[0].message.value


def test_explorer_that_is_closed_gets_no_updates(tmp_path: Path) -> None:
    def callbacks() -> int:
        return sum(each() is not None for each in UMW.catalogue._heard)

    explorer: Explorer | None = explore(SMALL, tmp_path)
    count = callbacks()
    assert explorer is not None
    explorer.close_all()
    del explorer
    import gc

    gc.collect()
    define_scheme()
    assert callbacks() <= count


def test_explore_an_experiment_of_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine.py").write_text(CELL)
    monkeypatch.chdir(tmp_path)
    own = {"scheme": "mine.py:Half", "problem": "mine.py:QuadraticArgs", "optimiser": "mine.py:Slowly"}
    explorer = explore(
        wb.Experiment(**own, delays={"kind": "mine.py:Pauses", "mean": 0.5}, workers=4), tmp_path
    )
    controls = explorer.controls
    chosen = (controls.delays.chosen, controls.problem.chosen, controls.optimiser.chosen)
    assert chosen == ("pauses", "quadratic", "slowly")
    assert controls.delays.values["mean"] == "0.5"
    assert explorer.preview.ahead[0].forecast is not None
