"""Left side of the explorer: all settings, as forms made from the metadata of the fields."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Literal

import ipywidgets as w

from workbench.core.base.settings import SettingError, unknown_name
from workbench.core.contract.delays import delay_models
from workbench.core.contract.links import Link
from workbench.core.contract.optimisers import Optimiser
from workbench.core.experiment import MAX_WORKERS, Experiment
from workbench.core.presets.codedreduce import Preset, presets
from workbench.core.presets.others import others
from workbench.core.problems import ProblemArgs
from workbench.core.problems.data import catalogue
from workbench.lab.widgets.callbacks import sentence
from workbench.lab.widgets.forms.entries import Entries
from workbench.lab.widgets.forms.fields import Field, fields_of, menu, show
from workbench.lab.widgets.forms.form import ChoiceForm, Form, SettingsForm
from workbench.lab.widgets.forms.group import Group
from workbench.lab.widgets.forms.setup import (
    SHARED_FIELDS,
    Entry,
    Setup,
    Shape,
    Verdict,
    added,
    field_at_fault,
    judge,
    nearest,
    setup_of,
    shape_of,
    shaped,
    with_shape,
)
from workbench.lab.widgets.forms.steps import State, Steps
from workbench.lab.widgets.forms.summaries import (
    of_choice,
    of_link,
    of_problem,
    of_run,
    of_schemes,
    of_shape,
)

_RUN_FIELDS = ("rounds", "seed", "batch", "evaluate_every", "decode_rate", "faults")
Reasons = dict[str, str]  # field -> why it is invalid


class Controls(w.VBox):
    """Forms of all settings. `setup` returns their values, and `verdicts` checks them and marks invalid fields."""

    def __init__(self, given: Sequence[Experiment], changed: Callable[[], None], name: str = "") -> None:
        self._notify = changed
        titles = {"": "own setting", **preset_titles()}
        preset = menu("preset", "Preset", titles, "an experiment of the papers")
        self.preset = Form("", [preset], {"preset": name})
        self.shapes = ShapeForm(self._move, self._changed)
        self.schemes = Entries(
            self._changed, lambda scheme: added(self.setup(), scheme, self.shapes.shape() or Shape())
        )
        self.delays = ChoiceForm("", "kind", delay_models(), "shifted_exponential")
        self.link = SettingsForm("", Link)
        known, data = ProblemArgs.catalogue, {"data": tuple(catalogue())}
        self.problem = ChoiceForm("", "problem", known, "logistic", data)
        self.optimiser = ChoiceForm("", "optimiser", Optimiser.catalogue, "gd")
        known_lines = {line.name: line for line in fields_of(Experiment)}
        lines = [replace(known_lines[name], minor=name in _RUN_FIELDS[4:]) for name in _RUN_FIELDS]
        self.run = Form("", lines)
        self.preset.on_change(lambda _: self._take_preset())
        common = (self.delays, self.link, self.problem, self.optimiser, self.run)
        for form in common:
            form.on_change(lambda _: self._changed())
        self.forms: dict[str, Form] = {  # field of an experiment -> form
            "delays": self.delays,
            "link": self.link,
            "problem_args": self.problem,
            "optimiser_args": self.optimiser,
            "": self.run,
            "shape": self.shapes.form,
        }
        self.groups = self._groups()
        super().__init__(self.groups)
        self.add_class("wb-controls")
        self.show(given)
        self.steps = Steps(self._state, self._restore)

    def _groups(self) -> list[Group]:
        def group(title: str, form: Form, summary: Callable[[], str]) -> Group:
            return Group(title, [form], summary, lambda: [form])

        shapes, schemes = self.shapes, self.schemes
        return [
            Group(
                "Tree and stragglers",
                [shapes],
                lambda: of_shape(shapes.form.shown()),
                lambda: [shapes.form],
                opened=True,
            ),
            Group(
                "Schemes",
                [schemes],
                lambda: of_schemes([form.scheme for form in schemes.forms]),
                lambda: [form.form for form in schemes.forms],
                opened=True,
            ),
            group("Delays", self.delays, lambda: of_choice(self.delays)),
            group("Links", self.link, lambda: of_link(self.link)),
            group("Problem and data", self.problem, lambda: of_problem(self.problem)),
            group("Optimiser", self.optimiser, lambda: of_choice(self.optimiser)),
            group("Rounds, batches, faults", self.run, lambda: of_run(self.run)),
        ]

    # ---------------------------------------------------------------- actions of the user

    def renew(self) -> bool:
        """Offer every class that exists now, with its current fields. Return whether a chosen one has changed."""
        return any(form.renew() for form in (self.schemes, self.delays, self.problem, self.optimiser))

    def _changed(self) -> None:
        """Clear the choice of the preset after a change by the user."""
        self.preset.fill({"preset": ""})
        self.steps.record()
        self._notify()

    def _take_preset(self) -> None:
        """Show the chosen preset. If the choice is empty, restore the settings that were shown before a preset."""
        if name := self.preset.values["preset"]:
            self.show(preset_of(name))
            self.steps.record()
        elif own := self.steps.last(lambda state: not state.forms["preset"]["preset"]):
            self.steps.restore(own)
        self._notify()

    def take(self, experiments: Sequence[Experiment]) -> None:
        """Take over the settings of experiments; undo restores the present ones."""
        self.show(experiments)
        self._changed()

    def step(self, kind: Literal["undo", "redo", "reset"]) -> None:
        """Undo or redo a change, or restore the initial settings."""
        {"undo": self.steps.undo, "redo": self.steps.redo, "reset": self.steps.reset}[kind]()
        self._notify()

    def _state(self) -> State:
        common = {**self.forms, "preset": self.preset}
        schemes = tuple((form.scheme, dict(form.form.values)) for form in self.schemes.forms)
        return State(schemes, {name: dict(form.values) for name, form in common.items()})

    def _restore(self, state: State) -> None:
        for name, form in {"preset": self.preset, **self.forms}.items():
            if isinstance(form, ChoiceForm):
                form.take(state.forms[name])
            elif form is not self.shapes.form:
                form.fill(state.forms[name], fresh=True)
        self.shapes.take(state.forms["shape"])
        self.schemes.take(state.schemes)

    def _move(self, shape: Shape, workers: int) -> None:
        """Give all schemes the parameters that belong to a shape."""
        self.schemes.show(with_shape(self.setup(), shape, workers).entries)

    def set_alpha_and_latency(self, stragglers: int, latency: float) -> None:
        """Set straggler fraction and latency after a click on the phase diagram."""
        self.link.fill({"latency": show(latency)})
        self.shapes.set_stragglers(stragglers)
        self._changed()

    # ---------------------------------------------------------------- values

    def setup(self) -> Setup:
        """Return the settings of all forms, valid or not."""
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
        """Check each scheme, and mark invalid fields with the reason."""
        setup = self.setup()
        return self.mark(setup, judge(setup))

    def mark(self, setup: Setup, found: Sequence[Verdict]) -> list[Verdict]:
        """Mark invalid fields, and return the verdicts (one for each scheme) with errors of common fields."""
        forms = self.forms
        shared = {name: form.complaints() for name, form in forms.items()}
        shared["shape"] = {**self.shapes.tree_errors(), **shared["shape"]}
        wrong = next((text for reasons in shared.values() for text in reasons.values()), "")
        self.shapes.reach()
        # the user may remove a scheme while a run ends; the next verdicts then follow at once
        for entry, form, verdict in zip(setup.entries, self.schemes.forms, found, strict=False):
            form.reach(setup.common["workers"])
            mine = form.form.complaints()
            if verdict.experiment is None:
                own = [name for name in ("children", "layers") if not self._of_shape(entry, name)]
                if own and verdict.field == "workers":  # the scheme's own tree has another number of workers
                    verdict = replace(verdict, form="scheme_args", field=own[0])
                self._place(verdict, entry, mine, shared)
            form.form.blame(mine)
        for name, form in forms.items():
            form.blame(shared[name])
        for group in self.groups:
            group.renew()
        return [replace(v, experiment=None, reason=wrong) if wrong and v.experiment else v for v in found]

    def _place(self, verdict: Verdict, entry: Entry, mine: Reasons, shared: Mapping[str, Reasons]) -> None:
        """Add a reason to the field where the user can fix it: in the form of the scheme, or in a shared one."""
        form, name, reason = verdict.form, verdict.field, verdict.reason
        if form == "scheme_args":
            of_shape = name in SHARED_FIELDS and self._of_shape(entry, name)
            (shared["shape"] if of_shape else mine).setdefault(name, reason)
        elif form in entry.own or name in entry.own:
            mine.setdefault("own", reason)
        elif form:
            shared[form].setdefault(name, reason)
        else:
            for place, other in self.forms.items():
                if name in {line.name for line in other.entries}:
                    shared[place].setdefault(name, reason)

    def _of_shape(self, entry: Entry, name: str) -> bool:
        """Return whether a scheme's parameter has the value of the common shape. If so, the shape is at fault."""
        found = self.shapes.numbers()
        return found is None or entry.args.get(name) == shaped(entry, *found).args.get(name)

    # ---------------------------------------------------------------- writing values into forms

    def show(self, experiments: Sequence[Experiment]) -> None:
        """Write experiments into all forms. Classes of user files have the same names as in the menus."""
        setup, first = setup_of(experiments), experiments[0]
        common = dict(setup.common)
        self.shapes.show(shape_of(experiments), common["workers"])
        self.schemes.show(setup.entries)
        delays = {name: value for name, value in common["delays"].items() if name != "kind"}
        self.delays.choose(type(first.delays).kind, delays)
        self.link.show(common["link"])
        self.problem.choose(first.problem_spec.name, common["problem_args"])
        self.optimiser.choose(first.build_optimiser().name, common["optimiser_args"])
        self.run.fill({name: show(common[name]) for name in _RUN_FIELDS}, fresh=True)


def preset_titles() -> dict[str, str]:
    """Return the text of every preset for a menu, by its name."""
    found = presets.titles | others.titles
    return {name: f"{name}: {title}" for name, title in found.items()}


def preset_of(name: str) -> Preset:
    """Return a preset. Raises `SettingError` if there is none of that name."""
    known = preset_titles()
    if name not in known:
        raise unknown_name("preset", name, known)
    return presets[name] if name in presets else others[name]


# ---------------------------------------------------------------- tree and stragglers


class ShapeForm(w.VBox):
    """Form of children, layers, stragglers and workers. `moved` is called with a shape and a number of workers."""

    def __init__(self, moved: Callable[[Shape, int], None], changed: Callable[[], None]) -> None:
        self._moved, self._changed = moved, changed
        workers = next(line for line in fields_of(Experiment) if line.name == "workers")
        self.form = Form("", [*fields_of(Shape), replace(workers, low=None, high=None)])
        self.nearest = Form("", [_trees({})])
        self.alpha = w.HTML()
        self.form.on_change(self._typed)
        self.nearest.on_change(lambda _: self._choose())
        super().__init__([self.form, self.alpha, self.nearest])
        self.add_class("wb-shape")

    def show(self, shape: Shape, workers: int) -> None:
        """Write numbers into the form."""
        self.form.fill(
            {name: str(getattr(shape, name)) for name in SHARED_FIELDS} | {"workers": str(workers)}
        )
        self._say(shape, workers)

    def take(self, values: Mapping[str, str]) -> None:
        """Write texts into the form, including ones that form no tree."""
        self.form.fill(values, fresh=True)
        if (found := self.numbers()) is not None:
            self._say(*found)

    def _say(self, shape: Shape, workers: int) -> None:
        tree = "" if workers == shape.workers else f" (this tree has {shape.workers})"
        share = f", the share α = s/n = {shape.alpha}" if shape.stragglers else ""
        borne = f"; {shape.stragglers or 'none'} of every {shape.children} children may be late{share}"
        # If there are more stragglers than possible, the field shows that it is invalid.
        self.alpha.value = sentence(
            f"{workers} workers{tree}{borne if shape.stragglers < shape.children else ''}"
        )
        lines = (_trees({f"{s.children},{s.layers}": _tree_text(s) for s in nearest(workers)}),)
        if lines != self.nearest.entries:
            self.nearest.reshape(lines)

    def _typed(self, names: set[str]) -> None:
        shape, workers = self.shape(), self.form.shown()["workers"]
        if names == {"workers"}:
            if shape is not None and isinstance(workers, int) and workers > 0:
                self._move(shape, workers)
        elif shape is not None:
            self._move(shape, shape.workers)
        self._changed()

    def _move(self, shape: Shape, workers: int) -> None:
        self.show(shape, workers)
        self._moved(shape, workers)

    def _choose(self) -> None:
        chosen, shape = self.nearest.values["trees"], self.shape() or Shape()
        self.nearest.fill({"trees": ""})
        if chosen:
            children, layers = (int(number) for number in chosen.split(","))
            late = min(shape.stragglers, children - 1)
            new = Shape(children=children, layers=layers, stragglers=late)
            self._move(new, new.workers)
            self._changed()

    def set_stragglers(self, stragglers: int) -> None:
        """Set the stragglers per parent, as if they were typed."""
        self.form.fill({"stragglers": str(stragglers)})
        if (found := self.numbers()) is not None:
            self._move(*found)

    def reach(self) -> None:
        """Set the maximum of the slider of stragglers to all children but one."""
        children = self.form.shown()["children"]
        if isinstance(children, int) and children > 0:
            self.form.reach({"stragglers": min(children, MAX_WORKERS) - 1})

    def numbers(self) -> tuple[Shape, int] | None:
        """Return the shape of the tree and the number of workers, or None if one of them is invalid."""
        shape, workers = self.shape(), self.form.shown()["workers"]
        return (shape, workers) if shape is not None and isinstance(workers, int) else None

    def shape(self) -> Shape | None:
        """Return the shape of the tree, or None if the numbers form no tree."""
        return None if self.tree_errors() else self._read()

    def _read(self) -> Shape:
        return Shape(**{name: value for name, value in self.form.shown().items() if name in SHARED_FIELDS})

    def tree_errors(self) -> dict[str, str]:
        """Return why the numbers form no tree, by field. Empty if they do."""
        try:
            self._read()
        except SettingError as error:
            return {field_at_fault(str(error))[1]: str(error)}
        return {}


def _trees(labels: Mapping[str, str]) -> Field:
    return menu(
        "trees", "nearest trees", {"": "choose …", **labels}, "regular trees of about as many workers"
    )


def _tree_text(shape: Shape) -> str:
    if shape.layers == 1:
        return f"star of {shape.workers}"
    return f"{shape.workers} workers: {shape.children} children, {shape.layers} layers"
