"""Header of the explorer: preset, undo, redo, reset, Run or Stop."""

from __future__ import annotations

from typing import Any, Literal, cast

import anywidget
import ipywidgets as w
import traitlets as t

from workbench.lab.widgets.assets import script
from workbench.lab.widgets.callbacks import button, seen
from workbench.lab.widgets.explorer.tabs.running import Running
from workbench.lab.widgets.forms.controls import Controls


class Tools(anywidget.AnyWidget):
    """Buttons of the settings: show or hide them (on wide pages), undo, redo, reset."""

    _esm = t.Unicode(script("tools")).tag(sync=True)
    undo = t.Unicode().tag(sync=True)  # text about the change that an undo would make; empty if there is none
    redo = t.Unicode().tag(sync=True)
    # whether the settings are in one line above the picture even on wide pages
    folded = t.Bool().tag(sync=True)

    def __init__(self, controls: Controls) -> None:
        super().__init__()
        self._controls = controls
        self.on_msg(self._asked)
        self.renew()

    def _asked(self, _: object, content: dict[str, Any], buffers: object) -> None:
        if content.get("kind") in ("undo", "redo", "reset"):
            self._controls.step(cast(Literal["undo", "redo", "reset"], content["kind"]))

    def renew(self) -> None:
        """Show which changes can be undone and redone now."""
        with self.hold_sync():
            self.undo, self.redo = self._controls.steps.undoes, self._controls.steps.redoes


class Header(w.HBox):
    """Row above settings and tabs. While runs are active, the button Stop replaces Run."""

    def __init__(self, controls: Controls, running: Running) -> None:
        self.tools, self._running = Tools(controls), running
        self.stop = button("Stop", running.plot.stop, "end all runs after their round; what they did is kept")
        self.stop.add_class("wb-stop")
        running.plot.observe(lambda _: self._swap(), "active")
        super().__init__([controls.preset, self.tools, running.button, self.stop])
        self.add_class("wb-top")
        self._swap()

    def _swap(self) -> None:
        active = self._running.plot.active
        seen(active, self.stop)
        seen(not active, self._running.button)
