"""Exercises: only the correct answer is accepted, for any sliders."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from workbench_lectures import approximate, asking_less, bandwidth, by_hand, communication, stragglers
from workbench_lectures.exercises import Exercise, read_number
from workbench_lectures.knobs import SliderHost

from tests.support.lecture_settings import FEW_EXAMPLES, SCRIPTS, settings_of
from tests.support.widget_messages import types
from workbench.core import theory

ALL = [pytest.param(name, i, id=f"{name}-{i + 1}") for name in SCRIPTS for i in range(3)]


def written(exercise: Exercise[Any], answer: float) -> list[str]:
    """Return spellings of a correct answer."""
    plain = f"{answer:.0f}" if exercise.whole else f"{answer:.6g}"
    return [plain, f" {plain} ", plain.replace(".", ","), f"{plain} {exercise.unit}".strip()]


def wrong_answers(exercise: Exercise[Any], answer: float) -> list[float]:
    """Return wrong numbers, near the answer and far from it."""
    if exercise.whole:
        return [answer + 1, answer - 1, 10 * answer + 3]
    off = max(3 * exercise.tolerance * abs(answer), 3 * exercise.absolute)
    return [answer + off, answer - off, -answer - 1, 10 * answer + 1]


@pytest.mark.parametrize(("name", "i"), ALL)
@FEW_EXAMPLES
@given(st.data())
def test_exercise_accepts_only_the_right_answer(name: str, i: int, data: st.DataObject) -> None:
    script = SCRIPTS[name]
    exercise, knobs = script.exercises[i], data.draw(settings_of(script))
    answer = exercise.answer(knobs)
    if exercise.choices is not None:
        choices = exercise.choices(knobs)
        assert answer in choices
        verdicts = {choice: exercise.judge(knobs, choice).verdict for choice in choices}
        assert verdicts == {choice: "right" if choice == answer else "wrong" for choice in choices}
        return
    assert isinstance(answer, float | int)
    for text in written(exercise, answer):
        assert exercise.judge(knobs, text).verdict == "right", text
    for value in wrong_answers(exercise, answer):
        assert exercise.judge(knobs, repr(float(value))).verdict == "wrong", value
    for text in ("", "   ", "a lot", "1/0"):
        assert exercise.judge(knobs, text).verdict == "unclear"


@pytest.mark.parametrize(("name", "i"), ALL)
@FEW_EXAMPLES
@given(st.data())
def test_exercise_hints_do_not_reveal_the_answer(name: str, i: int, data: st.DataObject) -> None:
    script = SCRIPTS[name]
    exercise, knobs = script.exercises[i], data.draw(settings_of(script))
    answer = exercise.answer(knobs)
    assert exercise.text(knobs) != exercise.why(knobs)
    if isinstance(answer, str):
        return
    likely = [wrong(knobs) for wrong, _ in exercise.slips]
    for given_ in [-17.5, *(value for value in likely if isinstance(value, float | int))]:
        text = exercise.judge(knobs, repr(float(given_)))
        if text.verdict == "right":  # for these sliders, the typical mistake gives the correct answer
            continue
        numbers = re.findall(r"(?<![\w.])-?\d+\.\d+", text.words)
        assert not any(abs(float(n) - answer) < 5e-3 * abs(answer) for n in numbers), text.words


@pytest.mark.parametrize("name", SCRIPTS)
def test_exercise_recognises_likely_mistakes(name: str) -> None:
    script = SCRIPTS[name]
    knobs = script.knobs().fit()
    for exercise in script.exercises:
        for wrong, text in exercise.slips:
            if exercise.judge(knobs, str(wrong(knobs))).verdict == "right":
                continue
            assert text in exercise.judge(knobs, str(wrong(knobs))).words
        if exercise.choices is None:
            assert exercise.hint(knobs) in exercise.judge(knobs, "-123456").words


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("4/15", 4 / 15),
        ("−0,5", -0.5),
        ("1e-3", 1e-3),
        ("12 %", 0.12),
        ("1/0", None),
        ("", None),
        ("x", None),
        ("1e999", None),
        ("-1e999", None),
        ("1e999999999", None),  # as a fraction, this number would have a gigabyte
        ("nan", None),
        ("inf", None),
        ("0x10", None),
        ("1_000", None),
        ("\uff11", None),
        ("1.5/3", None),
        ("3 apples", None),
        ("5/" + "9" * 400, None),
    ],
)
def test_read_number_accepts_common_spellings(text: str, value: float | None) -> None:
    assert read_number(text) == value


def test_exercise_escapes_typed_text() -> None:
    exercise, knobs = stragglers.EXERCISES[0], stragglers.Stragglers(workers=4)
    text = exercise.judge(knobs, "<img src=x>")
    assert text.words == "“&lt;img src=x&gt;” is not a finite number; write one such as 0.25 or 4/15"


# ---------------------------------------------------------------- numbers of the papers


def test_exercise_answers_agree_with_the_papers() -> None:
    slowest = stragglers.EXERCISES[0].answer(stragglers.Stragglers(workers=4))
    assert slowest == pytest.approx(1 + 1 / 2 + 1 / 3 + 1 / 4)
    tree = bandwidth.Bandwidth(children=3, layers=2, stragglers=1)
    assert bandwidth.EXERCISES[0].judge(tree, "4/15").verdict == "right"  # the worked example of paper 1
    assert bandwidth.EXERCISES[1].judge(tree, "4").verdict == "right"
    table3 = communication.Communication()
    assert table3.best == (4, 3)
    assert communication.EXERCISES[1].answer(table3) == pytest.approx(100 * (1 - 21.3697 / 36.1138), rel=1e-4)
    agc = approximate.Approximate()
    assert approximate.EXERCISES[0].answer(agc) == pytest.approx(0.247)
    assert approximate.EXERCISES[1].answer(agc) == pytest.approx(0.4881, abs=1e-4)
    assert "a paper prints it" in approximate.EXERCISES[1].judge(agc, "1.976").words.lower()
    assert asking_less.implied() == 3
    assert asking_less.EXERCISES[0].answer(asking_less.AskingLess()) == pytest.approx(3.10321)


def test_exercise_worked_example_on_three_workers() -> None:
    one_late = by_hand.ByHand(late="1", g1=1.0, g2=2.0, g3=-0.5)
    assert by_hand.EXERCISES[0].judge(one_late, "0").verdict == "right"  # 1/2 of 1, and -0.5
    assert by_hand.EXERCISES[1].judge(one_late, "1").verdict == "right"
    two_late = one_late.replace(late="2")
    assert by_hand.EXERCISES[1].judge(two_late, "1").verdict == "right"
    three_late = one_late.replace(late="3")
    assert by_hand.EXERCISES[1].judge(three_late, "2").verdict == "right"  # 2 m1 - m2
    assert by_hand.break_even() == pytest.approx(6.0)


def test_exercise_choice_of_scheme_follows_the_forecast() -> None:
    near, far = (bandwidth.Bandwidth(message=6.0, latency=latency) for latency in (0.0, 5.0))
    assert (bandwidth.fastest(near), bandwidth.fastest(far)) == ("RAR", "CR")


def test_exercise_gap_of_a_lazy_worker_is_the_inverse_of_the_bound() -> None:
    knobs = asking_less.AskingLess(c=0.6, max_age=10)
    assert asking_less.gap(knobs) == 3  # 0.25 tau <= 0.6 up to tau = 2
    assert theory.cada_selected([0.5], 0.6, 10) == pytest.approx(1 / 3)


NOT_FINITE = [
    "inf",
    "-inf",
    "+Infinity",
    ".inf",
    "∞",
    "-∞",
    "nan",
    "NaN",
    "1e999",
    "-1e999",
    "1e999 %",
    "1e400/2",
    "9" * 400,
]


@pytest.mark.parametrize("text", [*NOT_FINITE, "5/0", "0x1F", "1e", "½", "--1", "1 2/3e9"])
@pytest.mark.parametrize("name", list(SCRIPTS))
def test_exercises_refuse_what_is_not_a_finite_number(name: str, text: str) -> None:
    script = SCRIPTS[name]
    knobs = script.knobs().fit()
    for exercise in script.exercises:
        found = exercise.judge(knobs, text)
        if exercise.choices is None and text != "1 2/3e9":
            assert found.verdict == "unclear", exercise.title
            assert "is not a finite number" in found.words
        assert found.verdict != "right", exercise.title


@pytest.mark.parametrize("text", NOT_FINITE)
@pytest.mark.parametrize("name", list(SCRIPTS))
def test_sliders_of_lectures_refuse_what_is_not_a_finite_number(name: str, text: str) -> None:
    script = SCRIPTS[name]
    host = SliderHost(script.knobs().fit())
    before, names = host.knobs, [e.name for e in script.knobs.entries() if e.kind in ("whole", "number")]
    panel = host.panel(names)
    for each in names:
        types(panel, **{each: text})
        assert list(panel.reasons) == [each]
        types(panel, **{each: str(getattr(before, each))})
        assert panel.reasons == {}
    assert host.knobs == before
