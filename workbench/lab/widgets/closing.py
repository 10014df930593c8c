"""Closing of widgets that are no longer shown. Otherwise, their models would stay in the page and in the kernel."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import ipywidgets as w
from IPython import get_ipython

T = TypeVar("T", bound=w.Widget)
# cell -> id of its last execution, and the widgets that the execution made
_cells: dict[str, tuple[str, list[w.Widget]]] = {}


def parts(widget: w.Widget) -> Iterator[w.Widget]:
    """Yield a widget and all widgets that it contains, each once: children (shown or not), layouts and styles."""
    seen: dict[int, w.Widget] = {}
    waiting = [widget]
    while waiting:
        each = waiting.pop()
        if id(each) in seen:
            continue
        seen[id(each)] = each
        for value in [*each.trait_values(sync=lambda x: x is True).values(), *vars(each).values()]:
            held = value if isinstance(value, list | tuple) else [value]
            waiting += [inner for inner in held if isinstance(inner, w.Widget)]
    yield from seen.values()


def close(widget: w.Widget) -> None:
    """Close a widget and all widgets that it contains, in the kernel and in the page."""
    for each in list(parts(widget)):
        each.close()


def of_cell(make: Callable[[], T]) -> T:
    """Return a new widget, and close widgets of earlier executions of the same cell.

    Front ends identify the cell that they run. If a front end does not, nothing is closed.
    """
    kernel: Any = getattr(get_ipython(), "kernel", None)
    parent = kernel.get_parent() if kernel is not None else {}
    cell, request = parent.get("metadata", {}).get("cellId"), parent.get("header", {}).get("msg_id", "")
    if cell is None:
        return make()
    before, present = _cells.get(cell, ("", []))
    if before != request:
        for each in present:
            close(each)
        present = []
    made = make()
    _cells[cell] = request, [*present, made]
    return made
