"""The explorer's left side: every setting, as forms made from the fields' own metadata."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import ipywidgets as w

from workbench.base.settings import unknown_name
from workbench.batch.published.codedreduce import Preset, presets
from workbench.batch.published.others import others
from workbench.core.delays import delay_models
from workbench.core.links import Link
from workbench.core.optimisers import Optimiser
from workbench.experiment import Experiment
from workbench.problems import ProblemArgs
from workbench.problems.data import catalogue
from workbench.widgets.forms.choice import ChoiceForm
from workbench.widgets.forms.entries import Entries
from workbench.widgets.forms.fields import fields_of, menu, show
from workbench.widgets.forms.form import Form
from workbench.widgets.forms.setup import (
    SHARED,
    Entry,
    Setup,
    Shape,
    Verdict,
    added,
    judge,
    setup_of,
    shape_of,
    with_shape,
)
from workbench.widgets.forms.shapes import ShapeForm

_RUN = ("rounds", "seed", "decode_rate", "faults")
Reasons = dict[str, str]  # by field


class Controls(w.VBox):
    """All settings: `setup` is what they say, `verdicts` judges it and colours what cannot be used."""

    def __init__(self, given: Sequence[Experiment], changed: Callable[[], None], name: str = "") -> None:
        self._told = changed
        titles = {"": "your own setting", **preset_titles()}
        published = menu("preset", "published", titles, "an experiment of the papers")
        self.preset = Form("", [published], {"preset": name})
        self.shapes = ShapeForm(self._move, self._changed)
        self.schemes = Entries(self._changed, self._added)
        self.delays = ChoiceForm("Delays", "kind", delay_models(), "shifted_exponential", opened=False)
        self.link = Form("Links", fields_of(Link), opened=False)
        known, data = ProblemArgs.catalogue, {"data": tuple(catalogue())}
        self.problem = ChoiceForm("Problem and data", "problem", known, "logistic", data, opened=False)
        self.optimiser = ChoiceForm("Optimiser", "optimiser", Optimiser.catalogue, "gd", opened=False)
        lines = [line for line in fields_of(Experiment) if line.name in _RUN]
        lines = [replace(line, minor=line.name in _RUN[2:]) for line in lines]
        self.run = Form("Rounds, seed, faults", lines, opened=False)
        self.preset.on_change(lambda _: self._take_preset())
        common = (self.delays, self.link, self.problem, self.optimiser, self.run)
        for form in common:
            form.on_change(lambda _: self._changed())
        self.forms: dict[str, Form] = {  # by the field of an experiment that they fill
            "delays": self.delays,
            "link": self.link,
            "problem_args": self.problem,
            "optimiser_args": self.optimiser,
            "": self.run,
            "shape": self.shapes.form,
        }
        super().__init__([self.preset, self.shapes, self.schemes, *common])
        self.add_class("wb-controls")
        self.show(given)

    # ---------------------------------------------------------------- what the user does

    def renew(self) -> bool:
        """Offer every class that there is now, with the fields that it has now. Is one of those that are chosen new?"""
        return any(form.renew() for form in (self.schemes, self.delays, self.problem, self.optimiser))

    def _changed(self) -> None:
        """A setting was changed by hand, so it is no longer the published one."""
        self.preset.fill({"preset": ""})
        self._told()

    def _take_preset(self) -> None:
        if name := self.preset.values["preset"]:
            self.show(preset_of(name))
            self._told()

    def _added(self, scheme: str) -> Entry:
        return added(self.setup(), scheme, self.shapes.shape() or Shape())

    def _move(self, shape: Shape, workers: int) -> None:
        """Give all schemes the shape's numbers."""
        self.schemes.show(with_shape(self.setup(), shape, workers).entries)

    def set_alpha_and_latency(self, stragglers: int, latency: float) -> None:
        """Set both, as a click on the map of winners does."""
        self.link.fill({"latency": show(latency)})
        self.shapes.set_stragglers(stragglers)
        self._changed()

    # ---------------------------------------------------------------- what they say

    def setup(self) -> Setup:
        """What all controls say together, whether it can be used or not."""
        common = {
            "workers": self.shapes.form.shown()["workers"],
            **self.run.read(),
            "problem": self.problem.chosen,
            "problem_args": self.problem.settings(),
            "optimiser": self.optimiser.chosen,
            "optimiser_args": self.optimiser.settings(),
            "delays": {"kind": self.delays.chosen, **self.delays.settings()},
            "link": self.link.read(),
        }
        return Setup(self.schemes.entries(), common)

    def verdicts(self) -> list[Verdict]:
        """One per scheme; fields that cannot be used are coloured, with the reason."""
        setup, forms = self.setup(), self.forms
        shared = {name: form.complaints() for name, form in forms.items()}
        shared["shape"] = {**self.shapes.complaint(), **shared["shape"]}
        wrong = next((text for reasons in shared.values() for text in reasons.values()), "")
        found = judge(setup)
        self.shapes.reach()
        for entry, form, verdict in zip(setup.entries, self.schemes.forms, found, strict=True):
            form.reach(setup.common["workers"])
            mine = form.form.complaints()
            if verdict.experiment is None:
                _place(verdict, entry, mine, shared, forms)
            form.form.blame(mine)
        for name, form in forms.items():
            form.blame(shared[name])
        return [replace(v, experiment=None, reason=wrong) if wrong and v.experiment else v for v in found]

    # ---------------------------------------------------------------- filling them

    def show(self, experiments: Sequence[Experiment]) -> None:
        """Write experiments into all forms; classes of loose files by their own names, as in the menus."""
        setup, first = setup_of(experiments), experiments[0]
        common = dict(setup.common)
        self.shapes.show(shape_of(experiments), common["workers"])
        self.schemes.show(setup.entries)
        delays = {name: value for name, value in common["delays"].items() if name != "kind"}
        self.delays.choose(type(first.delays).model_fields["kind"].default, delays)
        self.link.fill(_texts(common["link"]), fresh=True)
        self.problem.choose(first.problem_spec.name, common["problem_args"])
        self.optimiser.choose(first.build_optimiser().name, common["optimiser_args"])
        self.run.fill(_texts({name: common[name] for name in _RUN}), fresh=True)


def preset_titles() -> dict[str, str]:
    """Every published experiment by name, with what it is, none of which is made for that."""
    found = presets.titles | others.titles
    return {name: f"{name}: {title}" for name, title in found.items()}


def preset_of(name: str) -> Preset:
    """A published experiment; raises `SettingError` where there is none of that name."""
    known = preset_titles()
    if name not in known:
        raise unknown_name("preset", name, known)
    return presets[name] if name in presets else others[name]


def _place(
    verdict: Verdict, entry: Entry, mine: Reasons, shared: Mapping[str, Reasons], forms: Mapping[str, Form]
) -> None:
    """Put a reason at the field where the user can mend it: in the scheme's form, or in one that all share."""
    form, name, reason = verdict.form, verdict.field, verdict.reason
    if form == "scheme_args":
        mine.setdefault(name, reason)
        if name in SHARED:
            shared["shape"].setdefault(name, reason)
    elif form in entry.own or name in entry.own:
        mine.setdefault("own", reason)
    elif form:
        shared[form].setdefault(name, reason)
    else:
        for place, other in forms.items():
            if name in {line.name for line in other.lines}:
                shared[place].setdefault(name, reason)


def _texts(values: Mapping[str, Any]) -> dict[str, str]:
    return {name: show(value) for name, value in values.items()}
