"""Lectures: answers are judged, stored, and restored on a reloaded page."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import workbench_lectures
from workbench_lectures import scripts, stragglers
from workbench_lectures.lecture import Lecture
from workbench_lectures.question import Question

from tests.support.lecture_settings import SCRIPTS
from tests.support.widget_messages import types
from workbench.core.base.settings import SettingError


def asks(question: Question, **content: Any) -> None:
    """Simulate a message from the page."""
    question._handle_custom_msg(content, [])


def answered(lecture: Lecture[Any]) -> list[tuple[str, str, bool]]:
    return [(q.verdict, q.given, bool(q.why)) for q in lecture.quiz.questions]


def test_lecture_judges_counts_and_explains_answers() -> None:
    lecture = stragglers.lecture(workers=4)
    first, second, third = lecture.quiz.questions
    asks(first, kind="check", given="25/12")
    assert (first.verdict, first.given) == ("right", "25/12")
    assert "1 of 3 right" in lecture.quiz.score.value
    asks(second, kind="check", given="-1")
    assert second.verdict == "wrong"
    asks(third, kind="check", given="a few")
    assert third.verdict == "unclear"
    assert third.why == ""
    asks(third, kind="why")
    assert "<sub>" in third.why
    asks(third, kind="why")
    assert third.why == ""
    asks(third, kind="something else")
    assert answered(lecture)[2] == ("unclear", "a few", False)


def test_lecture_slider_clears_the_verdict() -> None:
    lecture = stragglers.lecture(workers=4)
    first = lecture.quiz.questions[0]
    asks(first, kind="check", given="25/12")
    lecture.desk.move(tail=2.0)  # a slider that does not affect the first question
    assert first.verdict == "right"
    asks(first, kind="why")
    lecture.desk.move(workers=5)
    assert first.verdict == ""
    assert first.given == "25/12"
    assert "N</i> = 5" in first.text
    assert "<sub>5</sub>" in first.why


@pytest.mark.parametrize("name", SCRIPTS)
def test_lecture_views_share_one_desk(name: str) -> None:
    lecture = SCRIPTS[name]()
    views = [lecture.show(part) for part in lecture.script.figures]
    assert lecture.show(next(iter(lecture.script.figures))) is views[0]
    line = views[0].panel.entries[0]
    before = [view.plot.serial for view in views]
    value = line.choices[-1] if line.kind == "choice" else str(int(line.high or 0))
    types(views[0].panel, **{line.name: value})
    for view, serial in zip(views, before, strict=True):
        moved = line.name in {other.name for other in view.panel.entries}
        assert (view.plot.serial > serial) == moved
        assert view.message.value == ""


@pytest.mark.parametrize("name", SCRIPTS)
def test_lecture_state_survives_a_new_kernel(name: str) -> None:
    first = SCRIPTS[name]()
    line = first.script.knobs.entries()[0]
    assert first.memory.kept == ""  # nothing to restore yet
    first.desk.move(**{line.name: line.choices[-1] if line.kind == "choice" else line.low})
    question, exercise = first.quiz.questions[0], first.quiz.exercises[0]
    asks(question, kind="check", given=str(exercise.answer(first.desk.knobs)))
    asks(first.quiz.questions[1], kind="check", given="123456")
    asks(first.quiz.questions[2], kind="why")
    second = SCRIPTS[name]()
    kept = json.loads(first.memory.kept)  # parsed from an address, where digits are numbers
    kept["knobs"] = {n: int(v) if str(v).isdigit() else v for n, v in kept["knobs"].items()}
    second.memory.set_state({"recalled": json.dumps(kept)})
    assert second.desk.knobs == first.desk.knobs
    assert answered(second) == answered(first)
    assert answered(second)[0][0] == "right"
    assert json.loads(second.memory.kept) == json.loads(first.memory.kept)


def test_lecture_run_is_attached_by_the_next_kernel() -> None:
    first = stragglers.lecture(workers=4)
    first.race.start()
    first.desk.move(workers=6)
    second = stragglers.lecture()
    second.memory.set_state({"recalled": first.memory.kept})
    runs = [[run.experiment.model_dump() for run in lecture.race.plot.runs] for lecture in (first, second)]
    assert runs[0] == runs[1]
    assert second.race.plot.runs[0].experiment.workers == 4
    assert second.desk.knobs.workers == 6
    for lecture in (first, second):
        lecture.race.plot.stop()
        assert lecture.race.plot.wait(60)


@pytest.mark.parametrize(
    "text",
    [
        "no JSON",
        "[]",
        "{}",
        '{"knobs": {"workers": 99}, "quiz": [], "race": {}}',
        '{"knobs": {"children": 3}, "quiz": [], "race": {}}',
        '{"knobs": {}, "quiz": 7, "race": {}}',
        '{"knobs": {}, "quiz": [], "race": {"film": {"pace": 1}}}',
    ],
)
def test_lecture_ignores_state_that_cannot_be_restored(text: str) -> None:
    lecture = stragglers.lecture(workers=7)
    lecture.memory.set_state({"recalled": text})
    assert lecture.desk.knobs.workers == 7
    assert lecture.race.plot.runs == []


def test_lecture_refuses_an_invalid_parameter() -> None:
    with pytest.raises(SettingError, match="workers = 1: take 2"):
        stragglers.lecture(workers=1)


@pytest.mark.parametrize(
    ("name", "given", "read", "value"),
    [
        ("1-stragglers", {"workers": 20}, "workers", 20),
        ("2-by-hand", {"late": "2"}, "answered", (0, 2)),
        ("4-communication", {}, "best", (4, 3)),
        ("5-not-waiting", {"copies": 3}, "copies", 2),  # copies must divide 8
        ("6-asking-less", {"groups": 5}, "groups", 4),  # groups must divide 12
    ],
)
def test_lecture_sliders_start_at_the_nearest_valid_value(
    name: str, given: dict[str, Any], read: str, value: object
) -> None:
    assert getattr(SCRIPTS[name](**given).desk.knobs, read) == value


def test_lecture_in_a_new_file_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine.py").write_text(
        "from dataclasses import replace\nfrom workbench_lectures import stragglers\n"
        "lecture = replace(stragglers.lecture, notebook='9-mine')\n"
    )
    monkeypatch.setattr(workbench_lectures, "__path__", [*workbench_lectures.__path__, str(tmp_path)])
    assert list(scripts()) == [*SCRIPTS, "9-mine"]
    assert len(scripts()["9-mine"]().quiz.questions) == 3
