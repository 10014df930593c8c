"""Lecture: sliders, figures that follow them, a run to watch, exercises."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic

import ipywidgets as w

from workbench_lectures.exercises import Exercise
from workbench_lectures.knobs import K, SliderHost
from workbench_lectures.memory import Memory
from workbench_lectures.question import Quiz
from workbench_lectures.race import Entries, Race
from workbench_lectures.view import Drawing, View


@dataclass(frozen=True)
class LectureFigure(Generic[K]):
    """Figure of a lecture: its drawing function, and its sliders."""

    names: Sequence[str]
    draw: Drawing[K]


@dataclass(frozen=True)
class Script(Generic[K]):
    """Contents of a lecture; `entries`: the experiments that are run, `race_names`: the knobs shown with them.

    `places`: positions of sliders on a page without a server, for figures that a browser cannot compute. Such figures
    are made in advance; see `workbench_lectures.offline`. `about`: what the lecture shows, as one sentence for the list
    of lectures.
    """

    notebook: str  # name of the notebook, which begins with the lecture's number
    knobs: type[K]
    figures: Mapping[str, LectureFigure[K]]
    entries: Entries[K]
    race_names: Sequence[str]
    exercises: Sequence[Exercise[K]]
    axes: tuple[str, str] = ("time", "loss")  # axes of the run: horizontal, vertical
    places: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    about: str = ""

    def __call__(self, **values: Any) -> Lecture[K]:
        """Open the lecture with sliders at these values. Raises `SettingError` for an invalid value."""
        return Lecture(self, **values)


class Lecture(w.VBox, Generic[K]):
    """Running lecture. Its own display is invisible, and restores a reloaded page.

    `show(name)` is a figure with its sliders, `race` the run to watch, `quiz` the exercises.
    """

    def __init__(self, script: Script[K], **values: Any) -> None:
        self.script = script
        self.desk: SliderHost[K] = SliderHost(script.knobs(**values))
        self.memory = Memory(self.recall)
        self.views: dict[str, View] = {}
        self.race = Race(self.desk, script.entries, script.race_names, *script.axes, changed=self.keep)
        self.quiz = Quiz(self.desk, script.exercises, changed=self.keep)
        self.desk.on_move(script.knobs.model_fields, self.keep, later=True)
        super().__init__([self.memory])

    def show(self, name: str) -> View:
        """Return the figure of this name, with its sliders."""
        if name not in self.views:
            figure = self.script.figures[name]
            self.views[name] = View(self.desk, figure.names, figure.draw)
        return self.views[name]

    def keep(self) -> None:
        """Send the page the state that it needs after a reload."""
        knobs = self.desk.knobs.model_dump(mode="json")
        self.memory.keep({"knobs": knobs, "race": self.race.kept(), "quiz": self.quiz.kept()})

    def recall(self, state: Mapping[str, Any]) -> None:
        """Restore the state of an earlier page. Raises `SettingError` or `KeyError` for a page of another lecture."""
        now = self.desk.knobs.model_dump()
        asked = {name: value for name, value in state["knobs"].items() if name in now}
        # An address does not distinguish the text "1" from the number.
        self.desk.move(**{name: str(v) if isinstance(now[name], str) else v for name, v in asked.items()})
        self.quiz.recall(state["quiz"])
        self.race.recall(state["race"])
        self.keep()
