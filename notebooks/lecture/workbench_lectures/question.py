"""Exercises on a page: a field, Check, feedback, and the solution on demand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import anywidget
import ipywidgets as w
import traitlets as t

from workbench.lab.widgets.callbacks import Pane, guarded
from workbench_lectures.assets import script, style
from workbench_lectures.exercises import Exercise
from workbench_lectures.knobs import K, SliderHost


class Question(anywidget.AnyWidget):
    """Widget of one exercise. The page sends the answer. `verdict` and `words` are the feedback."""

    _esm = t.Unicode(script("question")).tag(sync=True)
    _css = t.Unicode(style()).tag(sync=True)
    title = t.Unicode().tag(sync=True)
    text = t.Unicode().tag(sync=True)  # HTML, like `words` and `why`
    unit = t.Unicode().tag(sync=True)
    choices = t.List(t.List(t.Unicode())).tag(sync=True)  # [value, label]; empty if the answer is a number
    given = t.Unicode().tag(sync=True)
    verdict = t.Unicode().tag(sync=True)
    words = t.Unicode().tag(sync=True)
    why = t.Unicode().tag(sync=True)  # "" until it is requested

    def __init__(self, asked: Callable[[dict[str, Any]], None], **traits: Any) -> None:
        super().__init__(**traits)
        self.on_msg(lambda _, content, __: asked(content))


class Quiz(Pane):
    """Exercises at the end of a lecture, for the current sliders. `changed` is called after a student's action."""

    def __init__(
        self,
        desk: SliderHost[K],
        exercises: Sequence[Exercise[K]],
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        self.desk, self.exercises, self._changed = desk, tuple(exercises), changed
        self.questions = [self._question(i) for i in range(len(self.exercises))]
        self.score = w.HTML()
        desk.on_move(type(desk.knobs).model_fields, self._moved, later=True)
        super().__init__([*self.questions, self.score])
        self.add_class("wb-quiz")
        self._moved()

    def _question(self, i: int) -> Question:
        exercise = self.exercises[i]
        return Question(lambda content: self._asked(i, content), title=exercise.title, unit=exercise.unit)

    @guarded
    def _moved(self) -> None:
        """Update the questions whose text or answer depends on changed sliders."""
        for question, exercise in zip(self.questions, self.exercises, strict=True):
            knobs = self.desk.knobs
            choices = exercise.choices(knobs) if exercise.choices else {}
            with question.hold_sync():
                question.text = exercise.text(knobs)
                question.choices = [[value, texts] for value, texts in choices.items()]
                text = question.verdict, question.words
                if question.verdict and exercise.judge(knobs, question.given) != text:
                    question.verdict = question.words = ""
                if question.why:
                    question.why = exercise.why(knobs)
        self._count()

    @guarded
    def _asked(self, i: int, content: dict[str, Any]) -> None:
        question, exercise = self.questions[i], self.exercises[i]
        if content.get("kind") == "check":
            self.check(i, str(content.get("given", "")))
        elif content.get("kind") == "why":
            question.why = "" if question.why else exercise.why(self.desk.knobs)
        self._changed()

    def check(self, i: int, given: str) -> None:
        """Check an answer to the i-th exercise."""
        question, judgement = self.questions[i], self.exercises[i].judge(self.desk.knobs, given)
        with question.hold_sync():
            question.given, question.verdict, question.words = given, judgement.verdict, judgement.words
        self._count()

    def _count(self) -> None:
        right = sum(question.verdict == "right" for question in self.questions)
        text = f"{right} of {len(self.questions)} right" if right else ""
        self.score.value = f'<div class="wb wb-score">{text}</div>'

    def kept(self) -> list[dict[str, Any]]:
        """Return the state that a reloaded page needs."""
        return [{"given": q.given, "checked": bool(q.verdict), "why": bool(q.why)} for q in self.questions]

    def recall(self, kept: Sequence[dict[str, Any]]) -> None:
        """Restore the state of another page."""
        for i, state in enumerate(kept[: len(self.questions)]):
            self.questions[i].given = str(state.get("given", ""))
            if state.get("checked"):
                self.check(i, self.questions[i].given)
            if state.get("why"):
                self.questions[i].why = self.exercises[i].why(self.desk.knobs)
