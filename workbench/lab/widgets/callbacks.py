"""Errors in callbacks of widgets, shown to the user as a sentence instead of a traceback."""

import logging
from collections.abc import Callable, Sequence
from functools import wraps
from html import escape
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar, cast

import ipywidgets as w

from workbench.core.base.errors import RunError
from workbench.lab.figures import NoBrowser

P = ParamSpec("P")
EXPECTED = (ValueError, OSError, RunError, NoBrowser)  # errors whose messages are written for users
log = logging.getLogger("workbench.lab.widgets")


class StatusReporter(Protocol):
    """Interface of widgets that can show a sentence."""

    def report(self, text: str) -> None:
        """Show a sentence. "" removes it."""


T = TypeVar("T", bound=StatusReporter)


def guarded(method: Callable[Concatenate[T, P], None]) -> Callable[Concatenate[T, P], None]:
    """Make a method report errors instead of raising them. The traceback is logged as information."""

    @wraps(method)
    def safely(self: T, *args: P.args, **options: P.kwargs) -> None:
        try:
            method(self, *args, **options)
        except Exception as error:
            self.report(error_text(error))
            log.info("a callback failed", exc_info=True)

    return cast(Callable[Concatenate[T, P], None], safely)


def error_text(error: Exception) -> str:
    """Return the sentence for an error. For an unexpected one, it includes the type."""
    text = " ".join(str(error).split())
    if isinstance(error, EXPECTED) and text:
        return text
    return f"this should not have happened: {type(error).__name__}: {text}"


def sentence(text: str, bad: bool = False) -> str:
    """Return a sentence as HTML, or "" for none. `bad`: whether it is an error. Screen readers read errors at once."""
    kind, role = ("wb-wrong", "alert") if bad else ("wb-note", "status")
    return f'<div class="wb {kind}" role="{role}">{escape(text)}</div>' if text else ""


def progress(about: str, text: str, share: float | None, more: str = "") -> str:
    """Return a progress bar with text beside it, as HTML.

    `share`: finished share, or None if it is unknown; the bar is then animated. `more`: text below, in bold.
    """
    value = "" if share is None else f' value="{share:.4f}"'
    bar = f'<progress max="1"{value} aria-label="{escape(about)}" style="width:220px"></progress>'
    last = f"<br><b>{escape(more)}</b>" if more else ""
    return f'<div class="wb" role="status">{bar} {escape(text)}{last}</div>'


def sides(*children: w.Widget) -> w.HBox:
    """Return widgets side by side if the page is wide enough, else one below the other."""
    return w.HBox(list(children)).add_class("wb-sides")


def row(*children: w.Widget) -> w.HBox:
    """Return widgets in a row, which is wrapped at the width of the page."""
    return w.HBox(list(children)).add_class("wb-row")


def button(text: str, call: Callable[[], None], tooltip: str = "") -> w.Button:
    """Return a button that is as wide as its text."""
    made = w.Button(description=text, tooltip=tooltip or text.lower())
    made.layout.width = "auto"
    made.on_click(lambda _: call())
    return made


def seen(wanted: bool, *parts: w.Widget) -> None:
    """Show or hide widgets."""
    for widget in parts:
        widget.layout.display = "" if wanted else "none"


def fields_about() -> list[w.Text]:
    """Return fields for name, note and tags of a run.

    A value is sent when the user leaves its field, and so before a click on a button.
    """
    hints = {"Name": "", "Note": "", "Tags": "separated by commas"}
    return [w.Text(description=n, placeholder=hint, continuous_update=False) for n, hint in hints.items()]


def trust_box(parts: str) -> w.Checkbox:
    """Return a checkbox that is unchecked again after it was used once."""
    about = f"run the code, and use the cluster, that {parts} from elsewhere name; look at them first"
    return w.Checkbox(description=f"Trust {parts}", tooltip=about, indent=False, layout={"width": "auto"})


def trusted(box: w.Checkbox) -> bool:
    """Return whether the checkbox is checked, and uncheck it."""
    now, box.value = bool(box.value), False
    return now


def offered(menu: w.Dropdown, names: Sequence[str]) -> None:
    """Set the options of a menu. Keep its choice if that still exists, else choose the first option."""
    if list(menu.options) == list(names):
        return
    before = menu.value
    menu.options = list(names)
    if names:
        menu.value = before if before in names else names[0]


class Pane(w.VBox):
    """Part of the explorer, with a line for its errors, and one for its results."""

    def __init__(self, children: Sequence[Any] = ()) -> None:
        self.message, self.note = w.HTML(), w.HTML()
        super().__init__([self.message, *children])
        self.add_class("wb").add_class("wb-pane")

    def report(self, text: str) -> None:
        """Show a sentence at the top. "" removes it."""
        shown = sentence(text, bad=True)
        if self.message.value != shown:
            self.message.value = shown
        if text:  # an error removes earlier results
            self.note.value = ""
