"""The tree and the stragglers: numbers that many schemes share, the number of workers, the nearest regular trees."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import ipywidgets as w

from workbench.base.settings import SettingError
from workbench.experiment import Experiment
from workbench.widgets.forms.fields import Field, fields_of, menu
from workbench.widgets.forms.form import Form
from workbench.widgets.forms.setup import SHARED, Shape, blamed, nearest
from workbench.widgets.guard import sentence


class ShapeForm(w.VBox):
    """Children, layers, stragglers and workers. `moved` is called with a shape and a number of workers."""

    def __init__(self, moved: Callable[[Shape, int], None], changed: Callable[[], None]) -> None:
        self._moved, self._changed = moved, changed
        workers = next(line for line in fields_of(Experiment) if line.name == "workers")
        self.form = Form("Tree and stragglers", [*fields_of(Shape), replace(workers, low=None, high=None)])
        self.nearest = Form("", [_trees({})])
        self.alpha = w.HTML()
        self.form.on_change(self._typed)
        self.nearest.on_change(lambda _: self._choose())
        super().__init__([self.form, self.alpha, self.nearest])
        self.add_class("wb-shape")

    def show(self, shape: Shape, workers: int) -> None:
        """Write the numbers into the form."""
        self.form.fill({name: str(getattr(shape, name)) for name in SHARED} | {"workers": str(workers)})
        self._say(shape, workers)

    def _say(self, shape: Shape, workers: int) -> None:
        tree = "" if workers == shape.workers else f" (this tree has {shape.workers})"
        self.alpha.value = sentence(f"{workers} workers{tree}; {_borne(shape)}")
        lines = (_trees({f"{s.children},{s.layers}": _words(s) for s in nearest(workers)}),)
        if lines != self.nearest.lines:
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
        """Set the stragglers per parent, as if they had been typed."""
        self.form.fill({"stragglers": str(stragglers)})
        shape, workers = self.shape(), self.form.shown()["workers"]
        if shape is not None and isinstance(workers, int):
            self._move(shape, workers)

    def reach(self) -> None:
        """Let the stragglers' slider go up to all children but one."""
        children = self.form.shown()["children"]
        if isinstance(children, int) and children > 0:
            self.form.reach({"stragglers": children - 1})

    def shape(self) -> Shape | None:
        """The tree's numbers; None where they make no tree."""
        return None if self.complaint() else self._read()

    def _read(self) -> Shape:
        return Shape(**{name: value for name, value in self.form.shown().items() if name in SHARED})

    def complaint(self) -> dict[str, str]:
        """Why the numbers make no tree, by field; empty where they do."""
        try:
            self._read()
        except SettingError as error:
            return {blamed(str(error))[1]: str(error)}
        return {}


def _borne(shape: Shape) -> str:
    late, all_ = shape.stragglers, shape.children
    share = f", the share α = s/n = {shape.alpha}" if late else ""
    return f"{late or 'none'} of every {all_} children may be late{share}"


def _trees(words: Mapping[str, str]) -> Field:
    return menu("trees", "nearest trees", {"": "choose …", **words}, "regular trees of about as many workers")


def _words(shape: Shape) -> str:
    if shape.layers == 1:
        return f"star of {shape.workers}"
    return f"{shape.workers} workers: {shape.children} children, {shape.layers} layers"
