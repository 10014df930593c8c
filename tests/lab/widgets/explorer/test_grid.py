"""The grid without a page: the columns and values that are sent."""

from __future__ import annotations

import pandas as pd
import pytest

from workbench.lab.widgets.explorer.grid import Grid
from workbench.lab.widgets.explorer.headings import heading

TABLE = pd.DataFrame(
    {
        "run": ["a", "b"],
        "scheme": ["CR", None],
        "time": [2 / 3, float("nan")],
        "loss": [1.0, float("inf")],
        "note": [None, "x"],
        "archived": [False, True],
        "workers": pd.Series([12, None], dtype="Int64"),
    }
)


def test_grid_sends_values_that_json_has() -> None:
    grid = Grid()
    grid.draw(TABLE, ["time", "loss", "note", "workers"])
    assert grid.rows["time"] == [0.666667, None]
    assert grid.rows["loss"] == [1, None]
    assert grid.rows["note"] == [None, "x"]
    assert grid.rows["workers"] == [12, None]
    assert grid.rows["archived"] == [False, True]
    assert (grid.count, grid.colours) == (2, {"CR": "#0072B2"})


def test_grid_sends_filter_and_sort_columns() -> None:
    grid = Grid()
    grid.draw(TABLE, ["run"])
    assert "loss" not in grid.rows
    grid.asked = {
        "filters": [{"column": "loss", "op": "any"}, {"column": "gone", "op": "any"}],
        "order": ["time", "asc"],
    }
    grid.draw(TABLE, ["run"], marked=[1])
    assert {"loss", "time"} <= set(grid.rows)
    assert (grid.names, grid.selected_rows) == (["run"], [1])


def test_grid_columns_of_the_user_are_never_left_out() -> None:
    grid = Grid()
    grid.draw(TABLE, ["run", "time"], picked=["time"])
    assert [column["level"] > 0 for column in grid.columns] == [True, False]


def test_grid_names_of_classes_are_choices_whose_underscores_the_page_replaces() -> None:
    table = TABLE.assign(optimiser="inverse_time", name="my_run", **{"delays.kind": "shifted_exponential"})
    grid = Grid()
    grid.draw(table, ["optimiser", "delays.kind", "name", "note"])
    assert [column["kind"] for column in grid.columns] == ["choice", "choice", "text", "text"]
    assert grid.rows["optimiser"] == ["inverse_time"] * 2  # filters take the name as it is typed


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("time", "Time, s"),
        ("loss", "Training loss"),
        ("link.latency", "Latency of the links, s"),
        ("scheme_args.stragglers", "Stragglers"),
        ("test_accuracy", "Accuracy on held-out samples"),
        ("bytes", "Bytes"),
        ("somebodys_own", "Somebodys own"),
    ],
)
def test_headings_are_readable(name: str, text: str) -> None:
    assert heading(name) == text
