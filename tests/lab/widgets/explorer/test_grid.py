"""The grid without a page: the columns that are sent, their order, and stored choices."""

from __future__ import annotations

import pandas as pd
import pytest

from workbench.lab.widgets.explorer.grid import Grid

TABLE = pd.DataFrame(
    {"run": ["a", "b"], "time": [2 / 3, float("nan")], "loss": [1.0, 2.0], "note": [None, "x"]}
)
CONDITIONS = {
    "logic": "AND",
    "criteria": [{"data": "loss"}, {"criteria": [{"data": "note"}, {"condition": "="}]}],
}


def test_grid_wraps_itables_once() -> None:
    text = Grid().trait_values()["_esm"]
    assert text.count("export default") == 1
    assert "as default" not in text


def test_grid_rounds_numbers() -> None:
    grid = Grid()
    assert grid._dt_args["columnDefs"] == []  # a page may show it before it is drawn
    grid.draw(TABLE, ["time", "note"])
    assert grid.df["time"][0] == 0.66667
    assert grid.df["note"].tolist() == ["", "x"]


@pytest.mark.parametrize("pinned", [0, 1, 2])
def test_grid_pinned_columns_come_first(pinned: int) -> None:
    grid = Grid()
    grid.asked = {"columns": ["loss", "gone", "run"]}
    grid.draw(TABLE, ["time", "run", "loss"], pinned)
    assert (
        list(grid.df)
        == {0: ["loss", "run", "time"], 1: ["time", "loss", "run"], 2: ["time", "run", "loss"]}[pinned]
    )
    assert grid._dt_args["fixedColumns"] == {"start": pinned}


def test_grid_sends_hidden_filter_and_sort_columns() -> None:
    grid = Grid()
    grid.asked = {"columns": ["run"], "conditions": CONDITIONS, "order": [["time", "asc"], ["gone", "asc"]]}
    grid.draw(TABLE, ["run"], marked=[1])
    assert list(grid.df) == ["run", "loss", "note", "time"]
    hidden, numbers = grid._dt_args["columnDefs"]
    assert hidden == {"visible": False, "targets": [1, 2, 3]}
    assert numbers["targets"] == [1, 3]
    assert grid.selected_rows == [1]
