"""The explorer's style sheet, which reaches the widgets of ipywidgets too."""

from __future__ import annotations

import anywidget
import traitlets as t

from workbench.widgets.assets import style


class Sheet(anywidget.AnyWidget):
    """Shows nothing; brings the style."""

    _esm = t.Unicode("export default { render() {} };").tag(sync=True)
    _css = t.Unicode(style("explorer")).tag(sync=True)
