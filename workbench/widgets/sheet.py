"""The explorer's style sheet, which reaches the widgets of ipywidgets too."""

from __future__ import annotations

import anywidget
import traitlets as t

from workbench.widgets.assets import script, style


class Sheet(anywidget.AnyWidget):
    """Shows nothing; brings the style, and keys that move a slider, not a cell."""

    _esm = t.Unicode(script("sheet")).tag(sync=True)
    _css = t.Unicode(style("explorer")).tag(sync=True)
