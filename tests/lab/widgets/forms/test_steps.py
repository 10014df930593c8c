"""Undo, redo, reset, and the return from a preset."""

from __future__ import annotations

import pytest

import workbench as wb
from tests.support.widget_messages import types
from workbench.lab.widgets.forms import steps
from workbench.lab.widgets.forms.controls import Controls

RIVALS = wb.baselines(4, 3, 1, rounds=20)


@pytest.fixture
def controls(monkeypatch: pytest.MonkeyPatch) -> Controls:
    monkeypatch.setattr(steps, "MERGED_S", -1.0)  # changes are not merged
    return Controls(RIVALS, lambda: None)


def experiments(controls: Controls) -> list[wb.Experiment | None]:
    return [verdict.experiment for verdict in controls.verdicts()]


def test_steps_undo_and_redo_every_kind_of_change(controls: Controls) -> None:
    states = [experiments(controls)]
    types(controls.shapes.form, stragglers="2")
    states.append(experiments(controls))
    types(controls.delays, kind="pareto")
    states.append(experiments(controls))
    types(controls.delays, shape="1.7")
    states.append(experiments(controls))
    types(controls.schemes.further, scheme="FRC")
    states.append(experiments(controls))
    types(controls.optimiser, optimiser="adam")
    states.append(experiments(controls))
    types(controls.preset, preset="fig8")
    states.append(experiments(controls))
    for expected in reversed(states[:-1]):
        controls.step("undo")
        assert experiments(controls) == expected
    assert controls.steps.undoes == ""
    controls.step("undo")
    assert experiments(controls) == states[0]
    for expected in states[1:]:
        controls.step("redo")
        assert experiments(controls) == expected
    assert controls.steps.redoes == ""
    controls.step("reset")
    assert experiments(controls) == states[0]
    controls.step("undo")
    assert experiments(controls) == states[-1]


def test_steps_describe_their_change(controls: Controls) -> None:
    types(controls.shapes.form, stragglers="2")
    assert controls.steps.undoes == "stragglers 2 to 1"
    controls.step("undo")
    assert controls.steps.redoes == "stragglers 1 to 2"
    types(controls.schemes.further, scheme="FRC")
    assert controls.steps.undoes == "6 to 5 schemes"
    assert controls.steps.redoes == ""  # a change removes the undone steps


def test_steps_of_a_slider_are_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps, "MERGED_S", 1e9)
    controls = Controls(RIVALS, lambda: None)
    for latency in ("0.1", "0.2", "0.3"):
        types(controls.link, latency=latency)
    types(controls.run, rounds="7")
    controls.step("undo")
    assert controls.link.values["latency"] == "0.3"
    controls.step("undo")
    assert controls.link.values["latency"] == "0"


def test_steps_restore_texts_that_cannot_be_used(controls: Controls) -> None:
    types(controls.shapes.form, children="x")
    types(controls.shapes.form, children="3")
    controls.step("undo")
    assert controls.shapes.form.values["children"] == "x"
    assert None in experiments(controls)


def test_steps_undo_a_preset(controls: Controls) -> None:
    types(controls.shapes.form, stragglers="2")
    before = experiments(controls)
    types(controls.preset, preset="fig8")
    assert experiments(controls) != before
    types(controls.preset, preset="")
    assert experiments(controls) == before
    controls.step("undo")
    assert controls.preset.values["preset"] == "fig8"
