"""Rows of the table of runs in the page, where they are sorted, filtered and selected."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypedDict

import anywidget
import pandas as pd
import traitlets as t
from pandas.api.types import is_bool_dtype, is_numeric_dtype

from workbench.lab.figures.labels import NAMED
from workbench.lab.figures.style import scheme_style
from workbench.lab.widgets.assets import script
from workbench.lab.widgets.explorer.headings import heading

SENT_DIGITS = 6  # number of significant digits of numbers that are sent to the page
# columns that js/grid.js reads
_ALWAYS = ("run", "scheme", "state", "engine", "archived", "error", "rounds", "when")
_KINDS = {"scheme": "scheme", "state": "state", "when": "when", "tags": "tags", "rounds_done": "of"}
# column -> level: 0 is shown on every page; higher levels are hidden first on narrow pages
_LEVELS = {
    "scheme": 0, "state": 0, "when": 1, "loss": 1, "time": 2, "rounds_done": 2, "workers": 3, "time_to": 3, "tags": 5,
    "load": 6, "straggler_fraction": 6, "run": 6, "note": 7, "error": 8,
}  # fmt: skip


class Column(TypedDict):
    """Column of the grid: its name in the table, its heading, the kind of its cells, and the priority of hiding it."""

    name: str
    label: str
    kind: str
    number: bool
    level: int


class Grid(anywidget.AnyWidget):
    """Grid of rows that are sorted, filtered and selected in the page. `selected_rows`: selected rows, from 0.

    `asked`: search text, filters, order and length that the user has chosen.

    >>> grid = Grid()
    >>> grid.draw(pd.DataFrame({"run": ["a", "b"], "time": [1 / 3, None]}), ["time", "run"])
    >>> grid.names, grid.rows["time"]
    (['time', 'run'], [0.333333, None])
    """

    _esm = t.Unicode(script("grid")).tag(sync=True)
    rows = t.Dict().tag(sync=True)  # column -> values
    count = t.Int(0).tag(sync=True)
    columns: t.List[Any] = t.List().tag(sync=True)
    offered: t.List[Any] = t.List().tag(sync=True)  # columns that can be chosen and filtered by
    colours = t.Dict().tag(sync=True)  # scheme -> colour
    actions: t.List[Any] = t.List().tag(sync=True)  # entries of a row's menu
    asked = t.Dict().tag(sync=True)
    archived = t.Bool(False).tag(sync=True)  # whether archived runs are shown
    selected_rows: t.List[int] = t.List().tag(sync=True)
    empty = t.Unicode("Runs appear here as soon as they are over.").tag(sync=True)

    def __init__(self) -> None:
        super().__init__()
        # kind of a message -> function that receives its other fields
        self.on_message: dict[str, Callable[..., None]] = {}
        self.on_msg(self._received)

    def _received(self, _: object, content: dict[str, Any], buffers: object) -> None:
        fields = dict(content)
        if handler := self.on_message.get(fields.pop("kind", "")):
            handler(**fields)

    def draw(
        self,
        table: pd.DataFrame,
        shown: Sequence[str],
        marked: Sequence[int] = (),
        picked: Sequence[str] = (),
        target: str = "",
    ) -> None:
        """Show columns of a table. Other columns are sent only if the page reads them, or filters or sorts by them.

        `picked`: columns that the user chose, which are never hidden. `target`: target of the column time_to.
        """
        known = [str(name) for name in table if name != "folder"]
        sent = [name for name in dict.fromkeys([*shown, *_ALWAYS, *self.used]) if name in table]
        with self.hold_sync():
            self.rows = {name: _sent(table[name]) for name in sent}
            self.count = len(table)
            self.columns = [_column(table, name, name in picked, target) for name in shown]
            self.offered = [_column(table, name, False, target) for name in known]
            schemes = dict.fromkeys(self.rows.get("scheme", ()))
            self.colours = {name: scheme_style(name).color for name in schemes if name}
            self.selected_rows = list(marked)

    @property
    def names(self) -> list[str]:
        """Names of the shown columns, in order."""
        return [column["name"] for column in self.columns]

    @property
    def used(self) -> list[str]:
        """Columns by which rows are filtered or sorted."""
        order: Sequence[str] = self.asked.get("order", ())
        return [*(each["column"] for each in self.asked.get("filters", ())), *order[:1]]


def _column(table: pd.DataFrame, name: str, picked: bool, target: str) -> Column:
    number = is_numeric_dtype(table[name]) and not is_bool_dtype(table[name])
    level = 0 if picked else _LEVELS.get(name, 4)
    named = name.rpartition(".")[2] in NAMED
    kind = _KINDS.get(name, "number" if number else "choice" if named else "text")
    return Column(name=name, label=heading(name, target), kind=kind, number=number, level=level)


def _sent(column: pd.Series[Any]) -> list[Any]:
    """Return values as the page reads them: numbers rounded, None for missing and infinite ones."""
    if is_bool_dtype(column):
        return [bool(value) for value in column]
    if is_numeric_dtype(column):
        return [_rounded(value) for value in column.to_numpy(float, na_value=float("nan")).tolist()]
    plain = column.astype(object)
    return [
        value if value is None or isinstance(value, bool | int) else str(value)
        for value in plain.where(column.notna(), None)
    ]


def _rounded(value: float) -> float | int | None:
    if value != value or value in (float("inf"), float("-inf")):
        return None
    return int(value) if value.is_integer() and abs(value) < 2**53 else float(f"{value:.{SENT_DIGITS}g}")
