"""Grid of the table of runs: that of itables, with the user's sorting and filters kept when it is drawn again."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pandas as pd
import traitlets as t
from itables.widget import ITable
from pandas.api.types import is_bool_dtype, is_float_dtype, is_numeric_dtype

from workbench.lab.widgets.assets import FOLDER

SHOWN_DIGITS = 5  # digits of a number that are shown
_TABLE: dict[str, Any] = {  # options of DataTables, see docs/decisions/0018
    "maxBytes": 0,  # all rows are sent: they are sorted and filtered in the page
    "showIndex": False,
    "scrollX": True,
    "pageLength": 10,
    "colReorder": True,
    "order": [],
    "columnDefs": [],  # js/grid.js also reads them from a grid that is shown before anything is drawn
    "classes": "display compact nowrap",
    # no info: at each click and drawing it would check for every cell whether it is selected
    "select": {"style": "multi", "keys": True, "headerCheckbox": False, "info": False},
    "layout": {
        "topStart": "search",
        "topEnd": "searchBuilder",  # not behind a button: that fails when the table is drawn again
        "bottomStart": ["info", "pageLength"],
    },
    "language": {"searchBuilder": {"title": {"0": "", "_": "Conditions (%d)"}, "add": "Add a condition"}},
    "text_in_header_can_be_selected": False,
    "format_floats_in_python": False,  # numbers are rounded before; text would be sent twice
}


def _module() -> str:
    """Return the module of itables as a value of ours: js/grid.js wraps its exports."""
    inner = re.sub(r"export\s*\{\s*(\w+) as default\s*\};?", r"return \1;", str(ITable._esm))
    return f"const itables = (() => {{\n{inner}\n}})();\n{(FOLDER / 'grid.js').read_text(encoding='utf-8')}"


class Grid(ITable):
    """Rows that are sorted, filtered and selected in the page; `selected_rows`: the selected ones.

    `asked`: the user's view, by the columns' titles: columns, order, search, length, page, conditions.

    >>> grid = Grid()
    >>> grid.draw(pd.DataFrame({"run": ["a", "b"], "time": [1 / 3, None]}), ["time", "run"])
    >>> list(grid.df), grid.df["time"].tolist()
    (['time', 'run'], [0.33333, nan])
    """

    _esm = t.Unicode(_module()).tag(sync=True)  # type: ignore[assignment]
    asked = t.Dict().tag(sync=True)

    def __init__(self) -> None:
        super().__init__(pd.DataFrame({"run": []}), **_TABLE)

    def draw(
        self, table: pd.DataFrame, shown: Sequence[str], pinned: int = 0, marked: Sequence[int] = ()
    ) -> None:
        """Show columns of a table, the first ones pinned; other columns are sent only if the user's view needs them."""
        # in the order to which they were dragged
        placed = [name for name in self.asked.get("columns", ()) if name in shown]
        used = [name for name in self.used if name in table]
        columns = list(dict.fromkeys([*shown[:pinned], *placed, *shown, *used]))
        hidden = [i for i, name in enumerate(columns) if name not in shown]
        options = {"fixedColumns": {"start": pinned}, "selected_rows": list(marked)}
        sent = _sent(table[columns])
        numbers = [i for i, name in enumerate(columns) if is_numeric_dtype(sent[name])]
        of_numbers = {"searchBuilder": {"orthogonal": {"search": "condition"}}}  # see js/grid.js
        options["columnDefs"] = [{"visible": False, "targets": hidden}, {**of_numbers, "targets": numbers}]
        with self.hold_sync():
            self.update(sent, **_TABLE | options)

    @property
    def used(self) -> list[str]:
        """Columns by which rows are filtered or sorted."""
        return [*_about(self.asked.get("conditions", {})), *(name for name, _ in self.asked.get("order", ()))]

    def mark_found(self) -> None:
        """Select all rows that match the search and the conditions."""
        self.send({"kind": "mark"})


def _about(conditions: Mapping[str, Any]) -> Iterator[str]:
    for each in conditions.get("criteria", ()):
        if "criteria" in each:
            yield from _about(each)
        elif "data" in each:
            yield each["data"]


def _sent(table: pd.DataFrame) -> pd.DataFrame:
    """Return numbers with the digits that are shown, and empty cells for missing values."""
    found = table.reset_index(drop=True)
    for name in found:
        column = found[name]
        if is_bool_dtype(column) or not is_numeric_dtype(column):
            found[name] = column.astype(object).where(column.notna(), "").astype(str)
        # converted to nullable numbers, they would be sorted as text
        elif is_float_dtype(column) or column.hasnans:
            values = column.to_numpy(float, na_value=float("nan"))
            found[name] = [float(f"{x:.{SHOWN_DIGITS}g}") for x in values]
    return found
