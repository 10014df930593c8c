"""Groups of settings, each below a button with a summary of its values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import anywidget
import ipywidgets as w
import traitlets as t

from workbench.lab.widgets.assets import script
from workbench.lab.widgets.forms.form import Form


class Fold(anywidget.AnyWidget):
    """Button that opens and closes a group.

    On narrow pages, only its summary is shown, and one group is open at a time.
    """

    _esm = t.Unicode(script("fold")).tag(sync=True)
    title = t.Unicode().tag(sync=True)
    value = t.Unicode().tag(sync=True)  # summary of the settings
    opened = t.Bool().tag(sync=True)  # whether the group is open on wide pages
    bad = t.Bool().tag(sync=True)  # whether a field of the group is invalid


class Group(w.VBox):
    """Settings below their button.

    `summary`: returns a short text about them. `forms`: returns the forms with reasons.
    """

    def __init__(
        self,
        title: str,
        children: Sequence[w.Widget],
        summary: Callable[[], str],
        forms: Callable[[], Sequence[Form]],
        **traits: Any,
    ) -> None:
        self._summary, self._forms = summary, forms
        self.fold = Fold(title=title, **traits)
        super().__init__([self.fold, w.VBox(children).add_class("wb-body")])
        self.add_class("wb-group")

    def renew(self) -> None:
        """Update the summary. A group with an invalid field is marked and opened."""
        bad = any(form.reasons for form in self._forms())
        with self.fold.hold_sync():
            self.fold.value, self.fold.bad = self._summary(), bad
            self.fold.opened |= bad
