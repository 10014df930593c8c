"""State that survives a reload of the page.

In JupyterLab, the kernel outlives the page. Voila gives every page its own kernel, and ends the kernel with the page.
With Voila, the browser's tab therefore stores slider positions, answers, and start times of runs. The next kernel
repeats the same runs, bit by bit, and continues their animation at the current time.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import anywidget
import traitlets as t

from workbench.lab.widgets.callbacks import log
from workbench_lectures.assets import script


class Memory(anywidget.AnyWidget):
    """Invisible widget. `kept`: state for the page to store. `recalled`: stored state, or the state in a link."""

    _esm = t.Unicode(script("present", "memory")).tag(sync=True)
    kept = t.Unicode().tag(sync=True)  # JSON; "": no action yet
    recalled = t.Unicode().tag(sync=True)

    def __init__(self, recall: Callable[[dict[str, Any]], None]) -> None:
        super().__init__()
        self._recall = recall
        self.observe(lambda change: self._take(change["new"]), "recalled")

    def keep(self, state: dict[str, Any]) -> None:
        """Store this state in the page, in place of an older one."""
        self.kept = json.dumps(state)

    def _take(self, text: str) -> None:
        """Restore the state of an earlier page. Unreadable states, for example of an older version, are ignored."""
        try:
            self._recall(json.loads(text))
        except (ValueError, KeyError, TypeError, AttributeError):
            log.info("what the page remembers cannot be used", exc_info=True)
