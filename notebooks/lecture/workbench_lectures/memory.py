"""What survives that a page is loaded anew.

In JupyterLab the kernel outlives the page. Voila gives every page a kernel of its own and ends it with the page, so
there the browser's tab keeps where the sliders stood, what was answered, and when which runs began; the next kernel
makes the same runs again, bit by bit, and goes on showing them where the clock is by then.
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
    """Shows what helps to project the page. `kept` goes to the page, `recalled` is what it kept, or a link carried."""

    _esm = t.Unicode(script("present", "memory")).tag(sync=True)
    kept = t.Unicode().tag(sync=True)  # JSON; empty: nothing has been done yet
    recalled = t.Unicode().tag(sync=True)

    def __init__(self, recall: Callable[[dict[str, Any]], None]) -> None:
        super().__init__()
        self._recall = recall
        self.observe(lambda change: self._take(change["new"]), "recalled")

    def keep(self, state: dict[str, Any]) -> None:
        """Remember this; older states are forgotten."""
        self.kept = json.dumps(state)

    def _take(self, text: str) -> None:
        """Stand as the page before; what cannot be read (of an older version, say) is left alone."""
        try:
            self._recall(json.loads(text))
        except (ValueError, KeyError, TypeError, AttributeError):
            log.info("what the page remembers cannot be used", exc_info=True)
