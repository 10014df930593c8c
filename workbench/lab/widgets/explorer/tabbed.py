"""Tabs whose names are never cut, because a narrow list of tabs scrolls."""

from __future__ import annotations

from collections.abc import Sequence

import anywidget
import ipywidgets as w
import traitlets as t

from workbench.lab.widgets.assets import script


class TabList(anywidget.AnyWidget):
    """List of tabs, which shows one of the panels of the following element."""

    _esm = t.Unicode(script("tabs")).tag(sync=True)
    titles: t.List[str] = t.List().tag(sync=True)
    selected_index = t.Int(0).tag(sync=True)


class Tabbed(w.VBox):
    """Panels with their list of tabs. All panels are in the page, so that a busy kernel does not delay a change.

    >>> tabs = Tabbed([w.HTML("one"), w.HTML("two")], ["One", "Two"])
    >>> tabs.selected_index = 1
    >>> tabs.bar.selected_index, tabs.titles
    (1, ('One', 'Two'))
    """

    selected_index = t.Int(0)

    def __init__(self, panels: Sequence[w.Widget], titles: Sequence[str]) -> None:
        self.bar = TabList(titles=list(titles))
        super().__init__([self.bar, w.VBox(panels).add_class("wb-panels")])
        self.add_class("wb-tabbed")
        t.link((self, "selected_index"), (self.bar, "selected_index"))

    @property
    def titles(self) -> tuple[str, ...]:
        """Names of the tabs, in order."""
        return tuple(self.bar.titles)
