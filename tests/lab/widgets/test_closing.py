"""Widgets of a cell that is run again: those of the previous run are closed."""

from __future__ import annotations

import gc
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import ipywidgets as w
import pytest
from ipywidgets.widgets.widget import _instances

import workbench as wb
from tests.support.sampled_cases import rotated
from tests.support.widget_messages import types
from workbench.lab.widgets import closing
from workbench.lab.widgets.explorer.explorer import explore

SMALL = wb.baselines(2, 2, 1, problem_args={"samples": 40, "features": 3}, rounds=4)


@pytest.fixture
def run_cell(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Return a function that simulates the start of a cell."""
    request = {"metadata": {}, "header": {"msg_id": "0"}}

    def begin(number: int, cell: str | None = "one") -> None:
        metadata = {} if cell is None else {"cellId": cell}
        request.update(metadata=metadata, header={"msg_id": str(number)})

    shell = SimpleNamespace(kernel=SimpleNamespace(get_parent=lambda: request))
    monkeypatch.setattr(closing, "get_ipython", lambda: shell)
    monkeypatch.setattr(closing, "_cells", {})
    return begin


@rotated
def test_closing_an_explorer_whose_cell_is_run_12_times(
    run_cell: Callable[..., None], tmp_path: Path
) -> None:
    run_cell(0)
    counts = []
    for number in range(12):
        run_cell(number)
        explorer = explore(SMALL, tmp_path)
        types(explorer.controls.delays, kind="exponential")
        explorer.controls.schemes.further._typed(
            None, {"kind": "typed", "view": "v", "count": 1, "texts": {"scheme": "FRC"}}, None
        )
        explorer.run(60)
        explorer.tabs.selected_index = explorer.tabs.titles.index("Runs")
        assert explorer.history.table.wait(30)
        counts.append(len(_instances))
    assert max(counts[1:]) == min(counts[1:])  # the number of widgets does not grow


def test_closing_frees_the_memory_of_an_explorer(run_cell: Callable[..., None], tmp_path: Path) -> None:
    made = []
    for number in range(4):
        run_cell(number)
        made.append(weakref.ref(explore(SMALL, tmp_path)))
    gc.collect()
    assert [each() is not None for each in made] == [False, False, False, True]


@pytest.mark.parametrize("rounds", [4, 100_000])
def test_closing_frees_the_memory_of_an_explorer_that_ran_something(
    run_cell: Callable[..., None], tmp_path: Path, rounds: int
) -> None:
    """The memory is freed even if runs are under way: simulations whose widgets were closed are stopped."""
    made, runs = [], []
    for number in range(3):
        run_cell(number)
        explorer = explore([e.replace(rounds=rounds) for e in SMALL], tmp_path)
        explorer.running.begin()
        runs.append(list(explorer.running.plot.runs))
        if rounds < 100:
            assert explorer.running.plot.wait(60)
        made.append(weakref.ref(explorer))
        del explorer
    for run in [run for each in runs[:2] for run in each]:
        assert run.wait(60)
    for run in runs[2]:
        run.stop()
    runs.clear()
    for _ in range(100):  # the threads that followed the runs end a moment later
        gc.collect()
        if [each() is not None for each in made] == [False, False, True]:
            return
        time.sleep(0.1)
    raise AssertionError([each() for each in made])


def test_closing_spares_widgets_of_the_same_run_and_of_other_cells(run_cell: Callable[..., None]) -> None:
    def make() -> Any:
        return w.HBox([w.HTML("one")])

    run_cell(1)
    first, second = closing.of_cell(make), closing.of_cell(make)
    run_cell(2, "other")
    other = closing.of_cell(make)
    assert first.comm is not None
    run_cell(3)
    closing.of_cell(make)
    assert [each.comm is None for each in (first, first.children[0], first.layout, second)] == [True] * 4
    assert other.comm is not None
    run_cell(4, None)  # a front end that does not identify cells
    last = closing.of_cell(make)
    run_cell(5, None)
    closing.of_cell(make)
    assert last.comm is not None
