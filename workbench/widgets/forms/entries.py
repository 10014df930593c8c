"""The schemes that are compared: one form each, made from its own fields; add some, take some out."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import ipywidgets as w

from workbench import schemes
from workbench.widgets.forms.fields import Field, fields_of, menu, show
from workbench.widgets.forms.form import Form
from workbench.widgets.forms.setup import SHARED, Entry, reaches

OWN = Field(
    "own",
    "differs in",
    "fields of the experiment in which this scheme differs from the others, such as {optimiser: inverse_time}",
    kind="list",
    empty=True,
    minor=True,
)


class EntryForm(w.VBox):
    """One scheme: its numbers, and a button that takes it out."""

    def __init__(
        self, entry: Entry, changed: Callable[[], None], removed: Callable[[EntryForm], None]
    ) -> None:
        cls = self.cls = schemes.get(entry.scheme)
        self.scheme = entry.scheme
        self.form = Form(f"{cls.name} · {cls.title}", [*fields_of(cls), OWN], opened=False)
        self.form.on_change(lambda _: changed())
        tooltip = f"take {cls.name} out of the comparison"
        self.remove = w.Button(description=f"Remove {cls.name}", tooltip=tooltip)
        self.remove.on_click(lambda _: removed(self))
        self.remove.add_class("wb-remove")
        self.fill(entry)
        super().__init__([self.form, self.remove])
        self.add_class("wb-entry")

    @property
    def newest(self) -> bool:
        """Is the scheme still what the form was made from?"""
        return schemes.get(self.scheme) is self.cls

    def fill(self, entry: Entry) -> None:
        """Write an entry's numbers into the form."""
        texts = {name: show(value) for name, value in entry.args.items()}
        self.form.fill({**texts, "own": show(dict(entry.own)) if entry.own else ""}, fresh=True)

    def reach(self, workers: object) -> None:
        """Let sliders reach what a cluster of so many workers allows."""
        if isinstance(workers, int) and workers > 0:
            self.form.reach(reaches(self.scheme, self.form.shown(), workers))

    def entry(self) -> Entry:
        """What stands in the form. What is no mapping becomes a field that no experiment has."""
        values = self.form.read()
        own = values.pop("own", None) or {}
        own = {str(name): value for name, value in own.items()} if isinstance(own, dict) else {"own": own}
        whole = {name: value for name, value in self.form.shown().items() if name in SHARED}
        return Entry(self.scheme, {**whole, **values}, own)


def _menu() -> Field:
    titles = {name: " · ".join(filter(None, [name, schemes.get(name).title])) for name in schemes.names()}
    return menu("scheme", "add a scheme", {"": "choose …", **titles}, "one more to compare")


class Entries(w.VBox):
    """All schemes that are compared. `wanted` is asked for the entry of a scheme that is to be added."""

    def __init__(self, changed: Callable[[], None], wanted: Callable[[str], Entry]) -> None:
        self._changed, self._wanted = changed, wanted
        self.further = Form("", [_menu()])
        self.further.on_change(lambda _: self._add())
        self.forms: list[EntryForm] = []
        self.holder = w.VBox([])
        super().__init__([w.HTML('<div class="wb wb-heading">Schemes</div>'), self.holder, self.further])

    def show(self, entries: Sequence[Entry]) -> None:
        """Show these schemes instead of those that are shown; forms of the same schemes stay."""
        if [form.scheme for form in self.forms] == [entry.scheme for entry in entries]:
            for form, entry in zip(self.forms, entries, strict=True):
                form.fill(entry)
            return
        self._place([self._form(entry) for entry in entries])

    def _place(self, forms: Sequence[EntryForm]) -> None:
        self.forms = list(forms)
        self.holder.children = tuple(forms)

    def renew(self) -> bool:
        """Offer what there is now, schemes that are defined anew with forms from their fields. Are there such?"""
        if (choices := _menu()) != self.further.lines[0]:
            self.further.reshape([choices], {"scheme": ""})
        old = [form for form in self.forms if not form.newest]
        if old:
            self._place([self._form(form.entry()) if form in old else form for form in self.forms])
        return bool(old)

    def _form(self, entry: Entry) -> EntryForm:
        return EntryForm(entry, self._changed, self._remove)

    def _add(self) -> None:
        name = self.further.values["scheme"]
        self.further.fill({"scheme": ""})
        if name:
            self._place([*self.forms, self._form(self._wanted(name))])
            self._changed()

    def _remove(self, form: EntryForm) -> None:
        self._place([other for other in self.forms if other is not form])
        self._changed()

    def entries(self) -> tuple[Entry, ...]:
        """What stands in the forms."""
        return tuple(form.entry() for form in self.forms)
