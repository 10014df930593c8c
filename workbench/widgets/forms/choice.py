"""Forms with a menu on top: which problem, optimiser or delay model, and below it that one's own fields."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from workbench.base.settings import Settings
from workbench.widgets.forms.fields import Field, fields_of, show
from workbench.widgets.forms.form import Form


class ChoiceForm(Form):
    """A menu of classes of settings and the fields of the chosen one.

    >>> from workbench.core.delays import delay_models
    >>> form = ChoiceForm("Delays", "kind", delay_models(), "pareto")
    >>> form.chosen, [line.name for line in form.lines]
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
        super().__init__(title, self._lines(chosen), {menu: chosen}, **traits)
        self.on_change(self._chosen)

    @property
    def chosen(self) -> str:
        """The menu's choice."""
        return self.values[self.menu]

    def _lines(self, chosen: str) -> list[Field]:
        self.shown_class = self.classes[chosen]
        about = (self.shown_class.__doc__ or chosen).strip().splitlines()[0]
        names = tuple(self.classes)
        head = Field(self.menu, self.menu, help=about, kind="choice", default=chosen, choices=names)
        return [head, *(self._suggesting(line) for line in fields_of(self.shown_class))]

    def _suggesting(self, line: Field) -> Field:
        words = self.suggestions.get(line.name)
        return replace(line, choices=tuple(words)) if words and line.kind == "text" else line

    def _chosen(self, names: set[str]) -> None:
        if self.menu in names:
            self.choose(self.chosen)

    def choose(self, chosen: str, values: Mapping[str, Any] | None = None) -> None:
        """Show another one's fields; fields of the same name keep what stands in them, unless values are given."""
        lines = self._lines(chosen)
        texts = self._same(lines) if values is None else {name: show(value) for name, value in values.items()}
        self.reshape(lines, {**texts, self.menu: chosen})

    def renew(self) -> bool:
        """Offer what there is now, the chosen one as it is defined now; what was typed stays. Is that one another?"""
        before, lines = self.shown_class, self._lines(self.chosen)
        if lines != list(self.lines):
            self.reshape(lines, {**self._same(lines), self.menu: self.chosen})
        return self.shown_class is not before

    def _same(self, lines: Sequence[Field]) -> dict[str, str]:
        """Texts of fields that both have, in the same unit, if they were changed."""
        before = {(line.name, line.unit, line.kind): line.default for line in self.lines}
        kept = {line.name: (line.name, line.unit, line.kind) for line in lines if line.name in self.values}
        return {
            name: self.values[name]
            for name, key in kept.items()
            if key in before and self.values[name] != before[key]
        }

    def settings(self) -> dict[str, Any]:
        """Values that are not at their default, without the menu's."""
        return {name: value for name, value in self.read().items() if name != self.menu}
