"""Wrong and extreme texts in the explorer's fields: each is refused at its field, or accepted with finite numbers."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from math import isfinite
from typing import Any

import pytest

import workbench as wb
from tests.support.widget_messages import types
from workbench.lab.widgets.explorer.tabs.running import doubt
from workbench.lab.widgets.forms.controls import Controls
from workbench.lab.widgets.forms.fields import Field
from workbench.lab.widgets.forms.form import Form

INFINITE = [
    "inf",
    "-inf",
    "+Infinity",
    ".inf",
    "-.Inf",
    "∞",
    "1e999",
    "-1e999",
    "1e400",
    "9" * 5000,
]
NOT_A_NUMBER = [
    "nan",
    "-NaN",
    ".nan",
    "0x10",
    "--5",
    "5e",
    "1/3",
    "5 %",
    "true",
    "~",
    "[]",
    "{}",
    "12:30:45",
    "5;6",
]
EXTREME = [
    "9" * 400,
    "[1, 2]",
    "1e308",
    "1e-320",
    "1e30",
    "-1",
    "-0.0",
    "0",
    "1e23",
    "100000000",
    "2.5",
    "1,5",
    "&a *a",
    "!!int 5",
    "٣",
    "017",
]
SMALL = wb.baselines(2, 2, 1, problem_args={"samples": 40, "features": 3}, rounds=4)
FORMS = ["", "delays", "link", "problem_args", "optimiser_args", "shape", "scheme 1", "scheme 4"]


@pytest.fixture
def controls() -> Controls:
    return Controls(SMALL, lambda: None)


def every_form(controls: Controls) -> dict[str, Form]:
    return {**controls.forms, **{f"scheme {i}": each.form for i, each in enumerate(controls.schemes.forms)}}


def marks(controls: Controls) -> dict[str, set[str]]:
    return {name: {*form.reasons} for name, form in every_form(controls).items() if form.reasons}


def numbers(form: Form) -> Iterator[Field]:
    return (entry for entry in list(form.entries) if entry.kind in ("whole", "number", "list"))


@pytest.mark.parametrize("name", FORMS)
def test_extreme_texts_are_refused_at_their_field_or_usable(controls: Controls, name: str) -> None:
    form = every_form(controls)[name]
    for entry in numbers(form):
        before = form.values[entry.name]
        for text in [*INFINITE, *NOT_A_NUMBER, *EXTREME]:
            types(form, **{entry.name: text})
            verdicts = controls.verdicts()
            check(controls, name, entry.name, text, [v.experiment for v in verdicts])
            types(form, **{entry.name: before})
            controls.verdicts()
            assert marks(controls) == {}, (entry.name, text)


def check(controls: Controls, name: str, field: str, text: str, found: list[Any]) -> None:
    wrong = marks(controls)
    (kind,) = (entry.kind for entry in every_form(controls)[name].entries if entry.name == field)
    if text in (*INFINITE, *NOT_A_NUMBER) and kind != "list":
        assert wrong, (field, text)
    if wrong:
        # a part of the link is refused as a whole while models take no time; a tree is too large as a whole
        others = {field.rpartition(".")[0] + ".kind"} | (
            {"workers", "stragglers"} if name == "shape" else set()
        )
        assert set(wrong) == {name}, (field, text, wrong)
        assert len(wrong[name]) == 1, (field, text, wrong)
        assert wrong[name] <= {field} | (others if text in EXTREME else set()), (field, text, wrong)
        (reason,) = every_form(controls)[name].reasons.values()
        assert len(reason) < 360, (field, text)
        assert "\n" not in reason, (field, text)
        return
    assert None not in found, (field, text)
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        question = doubt([e for e in found if e is not None], "mpi")
    assert "inf" not in question, (field, text)
    assert "nan" not in question, (field, text)


@pytest.mark.parametrize(
    ("form", "field", "text", "words"),
    [
        ("", "rounds", "100000000", "rounds = 100,000,000: computing"),
        ("delays", "shift", "1e30", "delays: a round of UMW takes about"),
        ("delays", "shift", "1e306", "delays: a round of UMW takes about"),
        ("link", "latency", "1e308", "delays: a round of UMW takes about"),
    ],
)
def test_extreme_but_possible_settings_are_questions(
    controls: Controls, form: str, field: str, text: str, words: str
) -> None:
    before = controls.forms[form].values[field]
    types(controls.forms[form], **{field: text})
    found = [v.experiment for v in controls.verdicts() if v.experiment is not None]
    types(controls.forms[form], **{field: before})
    assert len(found) == len(SMALL)
    for engine in ("sim", "mpi"):
        question = doubt(found, engine)
        assert question.startswith(words)
        assert question.endswith("run that?")
    assert all(isfinite(e.rounds) for e in found)


@pytest.mark.parametrize("text", [*INFINITE, "1_000_000_000_000"])
def test_summaries_show_a_refused_number_as_typed(controls: Controls, text: str) -> None:
    for form, field, title in (("", "rounds", "Rounds, batches, faults"), ("link", "bandwidth", "Links")):
        before = controls.forms[form].values[field]
        types(controls.forms[form], **{field: text})
        controls.verdicts()
        fold = next(group.fold for group in controls.groups if group.fold.title == title)
        shown, bad = fold.value, fold.bad
        types(controls.forms[form], **{field: before})
        controls.verdicts()
        assert bad or text == "1_000_000_000_000"
        assert len(shown) < 60
