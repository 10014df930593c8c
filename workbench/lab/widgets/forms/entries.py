"""Forms of the schemes that are compared."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import ipywidgets as w

from workbench.core import schemes
from workbench.core.contract.scheme import mark_note, marked
from workbench.lab.figures.style import scheme_style
from workbench.lab.widgets.callbacks import button, row, seen, sentence
from workbench.lab.widgets.closing import close
from workbench.lab.widgets.forms.fields import Field, fields_of, menu, show
from workbench.lab.widgets.forms.form import Form
from workbench.lab.widgets.forms.setup import SHARED_FIELDS, Entry, reaches
from workbench.lab.widgets.forms.summaries import own_text

MAX_DETAILS = 3  # max number of parameters that are shown beside a scheme's name
OWN = Field(
    "own",
    "differs in",
    "fields of the experiment in which this scheme differs from the others, such as {optimiser: inverse_time}",
    kind="list",
    empty=True,
    minor=True,
)


class EntryForm(w.VBox):
    """Form of one scheme, with a button that removes it."""

    def __init__(
        self, entry: Entry, changed: Callable[[], None], removed: Callable[[EntryForm], None]
    ) -> None:
        cls = self.cls = schemes.get(entry.scheme)
        self.scheme = entry.scheme
        colour = scheme_style(cls.name).color
        self.form = Form(f"{cls.name} · {cls.title}", [*fields_of(cls), OWN], opened=False, colour=colour)
        self._changed = changed
        self.form.on_change(lambda _: changed())
        self.remove = button(f"Remove {cls.name}", lambda: removed(self), "take it out of the comparison")
        self.remove.add_class("wb-remove")
        self.own = w.HTML()
        self.common = button("Use the common values", self._drop, "no values of its own for this scheme")
        self.override = row(self.own, self.common).add_class("wb-override")
        self.form.observe(lambda _: self._say(), "values")
        self.fill(entry)
        self._say()
        super().__init__([self.form, self.override, self.remove])
        self.add_class("wb-entry")

    def _say(self) -> None:
        """Show a few parameters beside the name, and the fields in which this scheme differs from the others."""
        own = self.entry().own
        lines = [line for line in self.form.entries if line.kind in ("whole", "number") and not line.minor]
        values = [(line.label, self.form.values[line.name]) for line in lines[:MAX_DETAILS]]
        self.form.detail = ", ".join(f"{label} {value}" for label, value in values if value)
        self.own.value = sentence(f"Own {own_text(own)}" if own else "")
        seen(bool(own), self.override)

    def _drop(self) -> None:
        self.form.fill({"own": ""})
        self._changed()

    def fill(self, entry: Entry) -> None:
        """Write an entry's values into the form."""
        texts = {name: show(value) for name, value in entry.args.items()}
        with self.form.hold_sync():  # values and detail as one message
            self.form.fill({**texts, "own": show(dict(entry.own)) if entry.own else ""}, fresh=True)

    def reach(self, workers: object) -> None:
        """Set the sliders' ends for a number of workers."""
        if isinstance(workers, int) and workers > 0:
            self.form.reach(reaches(self.scheme, self.form.shown(), workers))

    def entry(self) -> Entry:
        """Return the entry in the form.

        Text that is not a mapping becomes an unknown field, which the check then reports.
        """
        values = self.form.read()
        own = values.pop("own", None) or {}
        own = {str(name): value for name, value in own.items()} if isinstance(own, dict) else {"own": own}
        whole = {name: value for name, value in self.form.shown().items() if name in SHARED_FIELDS}
        return Entry(self.scheme, {**whole, **values}, own)


def _menu() -> Field:
    titles = {
        name: " · ".join(filter(None, [marked(name, name), schemes.get(name).title]))
        for name in schemes.names()
    }
    return menu(
        "scheme",
        "add a scheme",
        {"": "choose …", **titles},
        f"one more to compare; {mark_note(schemes.names())}",
    )


class Entries(w.VBox):
    """Schemes that are compared. `wanted`: returns the entry for a scheme that the user adds."""

    def __init__(self, changed: Callable[[], None], wanted: Callable[[str], Entry]) -> None:
        self._changed, self._wanted = changed, wanted
        self.further = Form("", [_menu()])
        self.further.on_change(lambda _: self._add())
        self.forms: list[EntryForm] = []
        self.holder = w.VBox([])
        super().__init__([self.holder, self.further])

    def show(self, entries: Sequence[Entry]) -> None:
        """Show these schemes instead of the present ones. If the schemes are the same, their forms stay."""
        if [form.scheme for form in self.forms] == [entry.scheme for entry in entries]:
            for form, entry in zip(self.forms, entries, strict=True):
                form.fill(entry)
            return
        self._place([self._form(entry) for entry in entries])

    def take(self, schemes: Sequence[tuple[str, Mapping[str, str]]]) -> None:
        """Show schemes with the texts of their forms. If the schemes are the same, their forms stay."""
        if [form.scheme for form in self.forms] != [scheme for scheme, _ in schemes]:
            self._place([self._form(Entry(scheme)) for scheme, _ in schemes])
        for form, (_, texts) in zip(self.forms, schemes, strict=True):
            form.form.fill(texts, fresh=True)

    def _place(self, forms: Sequence[EntryForm]) -> None:
        old = [form for form in self.forms if form not in forms]
        self.forms = list(forms)
        self.holder.children = tuple(forms)
        for form in old:
            close(form)

    def renew(self) -> bool:
        """Offer the schemes that exist now, with new forms for redefined ones. Return whether any was redefined."""
        if (choices := _menu()) != self.further.entries[0]:
            self.further.reshape([choices], {"scheme": ""})
        old = [form for form in self.forms if schemes.get(form.scheme) is not form.cls]
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
        """Return the entries of the forms."""
        return tuple(form.entry() for form in self.forms)
