"""Bar above the rows of the table of runs, with the actions on the selected runs, or on all."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import ipywidgets as w

from workbench.analysis.tables.rows import has_rounds
from workbench.lab.widgets.callbacks import row, seen, trust_box

_ALL = {  # action -> text, tooltip
    "means": ("Means …", "mean and band over the runs of each group"),
    "export": ("Export …", "write all runs that are shown"),
    "refresh": ("Refresh", "read the folders again"),
}
_SELECTED = {
    "compare": ("Compare", "settings and results in which the two runs differ"),
    "resume": ("Resume", "resume the run, or attach to it if it is under way"),
    "live": ("Show on the live plot", "the selected runs beside those that run"),
    "tag": ("Tag …", "name, note and tags"),
    "export": ("Export …", "write the selected runs"),
    "archive": ("Archive", "archive the runs, or restore them; nothing is deleted"),
    "delete": ("Delete …", "asks before it deletes"),
    "clear": ("Clear", "select none"),
}


class RunsBar(w.VBox):
    """Actions on all runs while none is selected, else the actions that fit the selected runs.

    `make`: makes a button from text, action and tooltip. `acts`: action -> function.
    """

    def __init__(
        self,
        target: w.Text,
        acts: Mapping[str, Callable[[], None]],
        make: Callable[[str, Callable[[], None], str], w.Button],
    ) -> None:
        self.idle = row(target, *(make(text, acts[key], about) for key, (text, about) in _ALL.items()))
        self.count = w.HTML()
        self.buttons = {key: make(text, acts[key], about) for key, (text, about) in _SELECTED.items()}
        self.trust = trust_box("selected runs")
        *first, delete, clear = self.buttons.values()
        delete.add_class("wb-danger").add_class("wb-right")
        self.selected = row(self.count, *first, self.trust, delete, clear).add_class("wb-on")
        for each in (self.idle, self.selected):
            each.add_class("wb-select-bar")
        super().__init__([self.idle, self.selected])

    def renew(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Offer the actions that fit the selected runs."""
        seen(not rows, self.idle)
        seen(bool(rows), self.selected)
        self.count.value = f'<b class="wb-count">{len(rows):,} selected</b>'
        able = [each for each in rows if _resumable(each)] if len(rows) == 1 else []
        seen(bool(able), self.buttons["resume"])
        self.buttons["resume"].description = f"Resume {able[0]['scheme'] or ''}".strip() if able else "Resume"
        seen(len(rows) == 2, self.buttons["compare"])
        seen(any(map(has_rounds, rows)), self.buttons["live"])
        away = bool(rows) and all(each["archived"] for each in rows)
        self.buttons["archive"].description = "Restore" if away else "Archive"


def _resumable(run_row: Mapping[str, Any]) -> bool:
    """Return whether a run was on real processes and is not done."""
    return run_row["state"] != "done" and run_row.get("engine") not in ("sim", None)
