"""Forms made from fields, with reasons for invalid ones. Some have a menu of classes on top."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

import anywidget
import traitlets as t

from workbench.core.base.settings import Settings
from workbench.lab.figures.design import style_sheet
from workbench.lab.widgets.assets import script
from workbench.lab.widgets.forms.fields import (
    Field,
    lines_of,
    nested_of,
    read,
    settings_from,
    text_error,
    texts_of,
    values_of,
)


class Form(anywidget.AnyWidget):
    """Form with one row per field. `values`: texts as typed. `reasons`: why some of them are invalid.

    >>> from workbench.core.contract.links import Link
    >>> from workbench.lab.widgets.forms.fields import fields_of
    >>> form = Form("link", fields_of(Link), {"latency": "0.001"})
    >>> form.read()
    {'latency': 0.001}
    """

    _esm = t.Unicode(script("form")).tag(sync=True)
    _css = t.Unicode(style_sheet()).tag(sync=True)
    title = t.Unicode().tag(sync=True)
    opened = t.Bool(True).tag(sync=True)
    colour = t.Unicode().tag(sync=True)  # colour of the mark before the title
    detail = t.Unicode().tag(sync=True)  # text after the title that summarises the values
    fields: t.List[dict[str, Any]] = t.List().tag(sync=True)
    values: t.Dict[str, str] = t.Dict().tag(sync=True)
    reasons: t.Dict[str, str] = t.Dict().tag(sync=True)
    # view -> number of its messages that are included in `values`
    heard: t.Dict[str, int] = t.Dict().tag(sync=True)

    def __init__(
        self, title: str, entries: Sequence[Field], values: Mapping[str, str] | None = None, **traits: Any
    ) -> None:
        self.entries = tuple(entries)
        super().__init__(title=title, fields=list(map(asdict, entries)), **traits)
        self._listeners: list[Callable[[set[str]], None]] = []
        self.fill(values or {})
        self.on_msg(self._typed)

    def _typed(self, _: object, content: dict[str, Any], buffers: object) -> None:
        """Store a text that the user typed.

        The page sends the text as a message, which arrives before a later click on Run. A change of a trait could
        arrive after the click, because the page delays the change while the kernel handles an earlier one.
        """
        if content.get("kind") != "typed":
            return
        texts = {name: text for name, text in content["texts"].items() if name in self.values}
        changed = {name for name, text in texts.items() if text != self.values[name]}
        with self.hold_sync():
            self.heard = {**self.heard, content["view"]: content["count"]}
            self.values = {**self.values, **texts}
        for listener in self._listeners if changed else ():
            listener(changed)

    def on_change(self, listener: Callable[[set[str]], None]) -> None:
        """Call `listener` with the names of fields that the user changed. Changes by `fill` do not count."""
        self._listeners.append(listener)

    def reshape(self, entries: Sequence[Field], values: Mapping[str, str] | None = None) -> None:
        """Show other fields. Without a given value, they have their defaults."""
        self.entries = tuple(entries)
        with self.hold_sync():
            self.fields = list(map(asdict, entries))
            self.reasons = {}
            self.fill(values or {}, fresh=True)

    def fill(self, values: Mapping[str, str], fresh: bool = False) -> None:
        """Write texts into fields. Other fields keep their texts, or get their defaults if `fresh`."""
        before = {} if fresh else self.values
        texts = {entry.name: before.get(entry.name, entry.default) for entry in self.entries}
        self.values = texts | {name: text for name, text in values.items() if name in texts}

    def reach(self, ends: Mapping[str, int]) -> None:
        """Set the ends of the sliders of whole numbers. Values in the fields are kept."""
        entries = tuple(
            replace(entry, high=float(ends[entry.name]))
            if entry.high is not None and entry.name in ends
            else entry
            for entry in self.entries
        )
        if entries != self.entries:
            self.entries, self.fields = entries, list(map(asdict, entries))

    def read(self) -> dict[str, Any]:
        """Return the values that differ from their defaults, by name."""
        return values_of(self.entries, self.values)

    def shown(self) -> dict[str, Any]:
        """Return the values of all fields by name, including defaults. Empty ones are None."""
        return {entry.name: read(entry, self.values[entry.name]) for entry in self.entries}

    def complaints(self) -> dict[str, str]:
        """Return the fields that are invalid on their own, with reasons."""
        found = {entry.name: text_error(entry, self.values.get(entry.name, "")) for entry in self.entries}
        return {name: reason for name, reason in found.items() if reason}

    def blame(self, reasons: Mapping[str, str]) -> None:
        """Mark fields as invalid, with the reason. All others are marked as valid."""
        names = {line.name for line in self.entries}
        # of a list in a field, or of nested settings, the field is marked
        parts = {name: (name, name.partition(".")[0], name.rpartition(".")[2]) for name in reasons}
        places = {name: next((part for part in parts[name] if part in names), name) for name in reasons}
        self.reasons = {places[name]: reason for name, reason in reasons.items() if places[name] in names}


class SettingsForm(Form):
    """Form of one class of settings, and of settings inside it, such as the delay model of a link.

    >>> from workbench.core.contract.links import Link
    >>> form = SettingsForm("Links", Link)
    >>> [line.name for line in form.entries][:7]
    ['latency', 'bandwidth', 'downloads', 'groups', 'delays.kind', 'delays.fixed', 'delays.shift']
    >>> [line.name for line in form.entries][7:]
    ['download_delays.kind', 'download_delays.fixed', 'download_delays.shift']
    """

    def __init__(self, title: str, cls: type[Settings], **traits: Any) -> None:
        self.cls = cls
        super().__init__(title, lines_of(cls, {}), **traits)
        self.on_change(self._chosen)

    def _chosen(self, names: set[str]) -> None:
        """Show the fields of a newly chosen kind. Texts of other fields are kept."""
        if any(name.endswith(".kind") for name in names):
            known, lines = self.values, lines_of(self.cls, self.values)
            inner = {name.removesuffix("kind") for name in names if name.endswith(".kind")}
            same = {name: text for name, text in known.items() if not name.startswith(tuple(inner))}
            self.reshape(lines, {**same, **{name: known[name] for name in names}})

    def show(self, values: Mapping[str, Any]) -> None:
        """Write settings into the fields. Others get their defaults."""
        texts = texts_of(self.cls, values)
        self.reshape(lines_of(self.cls, texts), texts)

    def read(self) -> dict[str, Any]:
        """Return the values that differ from their defaults, by name. Nested ones have their kind."""
        return settings_from(self.cls, self.values)


class ChoiceForm(Form):
    """Menu of classes of settings, with the fields of the chosen one.

    >>> from workbench.core.contract.delays import delay_models
    >>> form = ChoiceForm("Delays", "kind", delay_models(), "pareto")
    >>> form.chosen, [line.name for line in form.entries]
    ('pareto', ['kind', 'fixed', 'shift', 'shape'])
    """

    def __init__(
        self,
        title: str,
        menu: str,
        classes: Mapping[str, type[Settings]],
        chosen: str,
        suggestions: Mapping[str, Sequence[str]] | None = None,
        **traits: Any,
    ) -> None:
        self.menu, self.classes, self.suggestions = menu, classes, suggestions or {}
        super().__init__(title, self._entries(chosen, {}), {menu: chosen}, **traits)
        self.on_change(self._chosen)

    @property
    def chosen(self) -> str:
        """Current option of the menu."""
        return self.values[self.menu]

    def _entries(self, chosen: str, texts: Mapping[str, str]) -> list[Field]:
        cls = self.classes[chosen]
        self.shown_classes = [cls, *(part.chosen for part in nested_of(cls, texts))]
        about = (cls.__doc__ or chosen).strip().splitlines()[0]
        names = tuple(self.classes)
        head = Field(self.menu, self.menu, help=about, kind="choice", default=chosen, choices=names)
        return [head, *(self._suggesting(line) for line in lines_of(cls, texts))]

    def _suggesting(self, each: Field) -> Field:
        labels = self.suggestions.get(each.name)
        return replace(each, choices=tuple(labels)) if labels and each.kind == "text" else each

    def _chosen(self, names: set[str]) -> None:
        if self.menu in names or any(name.endswith(".kind") for name in names):
            self.choose(self.chosen)

    def choose(self, chosen: str, values: Mapping[str, Any] | None = None) -> None:
        """Show the fields of another class. Values of fields with the same name are kept, unless values are given."""
        texts = self.values if values is None else texts_of(self.classes[chosen], values)
        lines = self._entries(chosen, texts)
        texts = self._same(lines) if values is None else texts
        self.reshape(lines, {**texts, self.menu: chosen})

    def take(self, texts: Mapping[str, str]) -> None:
        """Show the class that is chosen in the texts of a form, with these texts."""
        lines = self._entries(texts[self.menu], texts)
        if lines == list(self.entries):
            self.fill(texts, fresh=True)
        else:
            self.reshape(lines, texts)

    def renew(self) -> bool:
        """Offer the classes that exist now, and keep typed texts. Return whether the chosen class has changed."""
        before, lines = self.shown_classes, self._entries(self.chosen, self.values)
        if lines != list(self.entries):
            self.reshape(lines, {**self._same(lines), self.menu: self.chosen})
        return self.shown_classes != before

    def _same(self, entries: Sequence[Field]) -> dict[str, str]:
        """Return the texts of fields that both classes have, in the same unit, if they were changed."""
        before = {(entry.name, entry.unit, entry.kind): entry.default for entry in self.entries}
        defaults = {e.name: before.get((e.name, e.unit, e.kind)) for e in entries}
        retained = {name for name, default in defaults.items() if default is not None}
        return {
            name: text for name, text in self.values.items() if name in retained and text != defaults[name]
        }

    def settings(self) -> dict[str, Any]:
        """Return the values that differ from their defaults, without the menu's. Nested ones have their kind."""
        return settings_from(self.classes[self.chosen], self.values)
