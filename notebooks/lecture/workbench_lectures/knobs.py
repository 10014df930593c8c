"""Sliders of a lecture: values with their metadata, and the host that notifies dependent figures."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, ClassVar, Generic, Self, TypeVar

import traitlets as t

from workbench.core.base.settings import SettingError, Settings
from workbench.lab.widgets.forms.fields import Field, fields_of, number, show
from workbench.lab.widgets.forms.form import Form
from workbench_lectures.assets import style


class Knobs(Settings):
    """Values of a lecture's sliders. A lecture has a subclass. Forms are made from its fields' metadata."""

    labels: ClassVar[Mapping[str, str]] = {}  # field -> label, by default its name
    logs: ClassVar[frozenset[str]] = frozenset()  # fields whose slider is logarithmic
    choice_labels: ClassVar[Mapping[str, Mapping[str, str]]] = {}  # field -> choice -> its label

    def fit(self) -> Self:
        """Return the nearest valid setting, since one slider may limit another."""
        return self

    @classmethod
    def entries(cls) -> list[Field]:
        """Return the rows of a form, in order."""
        return [cls._entry(entry) for entry in fields_of(cls)]

    @classmethod
    def _entry(cls, entry: Field) -> Field:
        called = cls.choice_labels.get(entry.name, {})
        return replace(
            entry,
            label=cls.labels.get(entry.name, entry.label),
            log=entry.name in cls.logs,
            labels=tuple(called.get(choice, choice) for choice in entry.choices),
        )


K = TypeVar("K", bound=Knobs)


class Panel(Form):
    """Sliders of some of the knobs of a host."""

    _css = t.Unicode(style()).tag(sync=True)

    def __init__(self, entries: Iterable[Field], moved: Callable[[Mapping[str, Any]], None]) -> None:
        super().__init__("", list(entries))
        self.on_change(lambda _: self._moved(moved))

    def _moved(self, moved: Callable[[Mapping[str, Any]], None]) -> None:
        wrong = self.complaints()
        if not wrong:
            try:
                moved(self.shown())
            except SettingError as error:
                name = str(error).split(" ")[0].rstrip(":")
                wrong = {name if name in self.values else self.entries[0].name: str(error)}
        self.blame(wrong)

    def take(self, values: Mapping[str, Any]) -> None:
        """Show values. A text that the user is typing is kept if it has the same value."""
        mine = {line.name: values[line.name] for line in self.entries}
        self.fill({name: show(v) for name, v in mine.items() if number(self.values[name]) != v})
        self.blame({})


class SliderHost(Generic[K]):
    """Current knobs of a lecture, and the callbacks for their changes.

    >>> class Two(Knobs):
    ...     a: int = 1
    ...     b: int = 2
    >>> desk, seen = SliderHost(Two()), []
    >>> desk.on_move({"b"}, lambda: seen.append(desk.knobs.b))
    >>> desk.move(a=5)
    >>> desk.move(b=7)
    >>> seen
    [7]
    """

    def __init__(self, knobs: K) -> None:
        self.knobs: K = knobs.fit()
        self._panels: list[Panel] = []
        self._listeners: list[tuple[bool, frozenset[str], Callable[[], None]]] = []

    def panel(self, names: Iterable[str]) -> Panel:
        """Return sliders for some of the knobs, in the order of the fields."""
        chosen = set(names)
        panel = Panel([line for line in self.knobs.entries() if line.name in chosen], self._typed)
        panel.take(self.knobs.model_dump())
        self._panels.append(panel)
        return panel

    def on_move(self, names: Iterable[str], call: Callable[[], None], later: bool = False) -> None:
        """Call back when one of these knobs has changed.

        `later`: after all figures are drawn, so that they are visible first.
        """
        self._listeners.append((later, frozenset(names), call))
        self._listeners.sort(key=lambda listener: listener[0])

    def move(self, **values: Any) -> None:
        """Set knobs. Raises `SettingError` for an invalid value."""
        before = self.knobs.model_dump()
        self.knobs = type(self.knobs)(**{**before, **values}).fit()
        after = self.knobs.model_dump()
        changed = {name for name in after if after[name] != before[name]}
        for _, names, call in self._listeners:
            if names & changed:
                call()
        for panel in self._panels:
            panel.take(after)

    def _typed(self, values: Mapping[str, Any]) -> None:
        self.move(**values)
