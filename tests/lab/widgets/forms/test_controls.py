"""The controls of the explorer: changes by the user, the resulting settings, and marks of errors."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import pytest

import workbench as wb
from tests.support.widget_messages import types
from workbench.core.base.settings import SettingError
from workbench.core.presets.others import others
from workbench.lab.widgets.forms.controls import Controls, preset_of, preset_titles
from workbench.lab.widgets.forms.fields import fields_of
from workbench.lab.widgets.forms.setup import reaches

RIVALS = wb.baselines(4, 3, 1, rounds=20)


class CallCounter:
    """Callback that counts its calls."""

    def __init__(self) -> None:
        self.times = 0

    def __call__(self) -> None:
        self.times += 1


@pytest.fixture
def controls() -> Controls:
    return Controls(RIVALS, CallCounter())


def valid(controls: Controls) -> list[wb.Experiment]:
    return [v.experiment for v in controls.verdicts() if v.experiment is not None]


def reasons(controls: Controls) -> dict[str, dict[str, str]]:
    return {name: form.reasons for name, form in controls.forms.items() if form.reasons}


def same(found: list[wb.Experiment], expected: Any) -> bool:
    """Return whether two lists of experiments are equal, with or without explicit defaults."""
    return [_whole(e) for e in found] == [_whole(e) for e in expected]


def _whole(e: wb.Experiment) -> dict[str, Any]:
    dump = e.model_dump(mode="json")
    parts = {
        "scheme_args": e.built_scheme,
        "problem_args": e.problem_spec,
        "optimiser_args": e.build_optimiser(),
    }
    return {**dump, **{name: part.model_dump(mode="json") for name, part in parts.items()}}


def test_controls_return_what_they_were_given(controls: Controls) -> None:
    assert same(valid(controls), RIVALS)
    assert not reasons(controls)


@pytest.mark.parametrize("name", list(preset_titles()))
def test_controls_offer_every_published_experiment(name: str) -> None:
    calls = CallCounter()
    controls = Controls(RIVALS, calls)
    types(controls.preset, preset=name)
    assert calls.times == 1
    assert same(valid(controls), preset_of(name))
    assert controls.preset.values["preset"] == name


def test_preset_titles_include_every_paper() -> None:
    titles = preset_titles()
    assert set(titles) == {*wb.presets, *others}
    with pytest.raises(wb.SettingError, match="did you mean 'fig8'"):
        preset_of("fig88")


def test_controls_mark_a_changed_preset(controls: Controls) -> None:
    types(controls.preset, preset="fig8")
    types(controls.link, latency="1e-3")
    assert controls.preset.values["preset"] == ""


def test_controls_tree_sets_the_parameters_of_schemes(controls: Controls) -> None:
    types(controls.shapes.form, children="12", layers="2")
    types(controls.shapes.form, stragglers="3")
    assert same(valid(controls), wb.baselines(12, 2, 3, rounds=20))
    assert "α = s/n = 1/4" in controls.shapes.alpha.value
    assert controls.shapes.form.values["workers"] == "156"


def test_controls_offer_trees_for_workers_that_form_none(controls: Controls) -> None:
    types(controls.shapes.form, workers="150")
    found = controls.verdicts()
    assert [v.experiment is None for v in found] == [False, False, False, False, True]
    assert controls.shapes.form.reasons["workers"].startswith("workers = 150: the (4,3) tree has 84 workers")
    assert [e.workers for e in valid(controls)] == [150] * 4
    assert valid(controls)[1].scheme_args["stragglers"] == 38  # a quarter of 150, rounded
    offered = controls.shapes.nearest.entries[0].choices
    assert "12,2" in offered
    types(controls.shapes.nearest, trees="12,2")
    assert same(valid(controls), wb.baselines(12, 2, 1, rounds=20))
    assert not reasons(controls)


@pytest.mark.parametrize("text", ["", "many", "0", "2.5"])
def test_controls_keep_invalid_workers_as_typed(controls: Controls, text: str) -> None:
    types(controls.shapes.form, workers=text)
    assert not valid(controls)
    assert controls.shapes.form.values["workers"] == text
    assert controls.shapes.form.reasons["workers"].startswith("workers")
    types(controls.shapes.form, workers="84")
    assert same(valid(controls), RIVALS)


@pytest.mark.parametrize(
    ("field", "text"), [("children", "x"), ("layers", "9"), ("stragglers", "-1"), ("children", "")]
)
def test_controls_mark_numbers_that_form_no_tree(controls: Controls, field: str, text: str) -> None:
    types(controls.shapes.form, **{field: text})
    assert not valid(controls)
    assert set(reasons(controls)["shape"]) == {field}


def test_controls_mark_too_many_stragglers(controls: Controls) -> None:
    types(controls.shapes.form, stragglers="4")
    assert [v.experiment is None for v in controls.verdicts()] == [False, False, False, False, True]
    assert "cannot tolerate it; take 0 to 3" in controls.shapes.form.reasons["stragglers"]
    assert not any(form.form.reasons for form in controls.schemes.forms)  # only the tree has a message


@pytest.mark.parametrize(
    ("form", "field", "text"),
    [
        ("link", "latency", "-1"),
        ("link", "bandwidth", "fast"),
        ("delays", "shift", "-1"),
        ("problem_args", "l2", "-1"),
        ("optimiser_args", "decay", "2"),
        ("", "rounds", "0"),
        ("", "rounds", ""),
        ("", "faults", "[{worker: 99, round: 0}]"),
        ("", "faults", "worker 3"),
        ("", "decode_rate", "0"),
    ],
)
def test_controls_mark_a_bad_value_with_a_sentence(
    controls: Controls, form: str, field: str, text: str
) -> None:
    types(controls.forms[form], **{field: text})
    found = controls.verdicts()
    assert found[0].experiment is None
    assert found[0].reason
    assert set(reasons(controls)) == {form}
    (reason,) = reasons(controls)[form].values()
    assert set(reasons(controls)[form]) == {field}
    assert field in reason and "\n" not in reason  # noqa: PT018


def test_controls_clear_the_mark_of_a_fixed_value(controls: Controls) -> None:
    types(controls.link, latency="-1")
    assert not valid(controls)
    types(controls.link, latency="1e-3")
    assert [e.link.latency for e in valid(controls)] == [1e-3] * 5
    assert not reasons(controls)


def test_controls_set_mini_batches(controls: Controls) -> None:
    types(controls.run, batch="200", evaluate_every="5")
    assert {(e.batch, e.evaluate_every) for e in valid(controls)} == {(200, 5)}
    types(controls.run, batch="10000000")
    assert not valid(controls)
    assert "there are" in reasons(controls)[""]["batch"]
    types(controls.run, batch="", evaluate_every="")
    assert {(e.batch, e.evaluate_every) for e in valid(controls)} == {(None, None)}


def test_controls_add_change_and_remove_schemes(controls: Controls) -> None:
    types(controls.schemes.further, scheme="FRC")
    assert [e.scheme for e in valid(controls)] == ["UMW", "GC", "RAR", "SGD", "CR", "FRC"]
    assert controls.schemes.further.values["scheme"] == ""
    types(controls.schemes.forms[-1].form, replication="5")
    controls.verdicts()
    assert "groups of 5 do not divide 84" in controls.schemes.forms[-1].form.reasons["replication"]
    types(controls.schemes.forms[-1].form, replication="3")
    assert valid(controls)[-1].scheme_args == {"replication": 3}
    controls.schemes.forms[-1].remove.click()
    controls.schemes.forms[0].remove.click()
    assert [e.scheme for e in valid(controls)] == ["GC", "RAR", "SGD", "CR"]


@pytest.mark.parametrize("scheme", wb.schemes.names())
def test_controls_have_a_form_for_every_scheme(scheme: str) -> None:
    controls = Controls(wb.baselines(4, 3, 1, problem="least_squares"), CallCounter())
    types(controls.schemes.further, scheme=scheme)
    form = controls.schemes.forms[-1].form
    assert {spec["name"] for spec in wb.schemes.get(scheme).fields()} <= {line.name for line in form.entries}
    assert valid(controls)[-1].scheme == scheme


def test_controls_scheme_may_override_fields_of_the_experiment(controls: Controls) -> None:
    sgd = controls.schemes.forms[3].form
    assert sgd.values["own"] == "{optimiser: inverse_time}"
    types(sgd, own="{optimiser: nesterov, rounds: 7}")
    assert (valid(controls)[3].optimiser, valid(controls)[3].rounds) == ("nesterov", 7)
    types(sgd, own="{optimiser_args: {step: -1}}")
    assert "optimiser_args.step = -1" in controls.verdicts()[3].reason
    assert "optimiser_args.step" in sgd.reasons["own"]
    assert not reasons(controls)
    types(sgd, own="nesterov")
    controls.verdicts()
    assert "own" in sgd.reasons


def test_controls_show_what_a_scheme_overrides_and_can_drop_it(controls: Controls) -> None:
    gd, sgd = controls.schemes.forms[0], controls.schemes.forms[3]
    assert [form.override.layout.display for form in (gd, sgd)] == ["none", ""]
    assert "Own optimiser: inverse time" in sgd.own.value
    types(controls.optimiser, step="0.1")
    assert [e.optimiser_args for e in valid(controls)] == [{"step": 0.1}] * 3 + [{}, {"step": 0.1}]
    sgd.common.click()
    assert (sgd.override.layout.display, sgd.own.value) == ("none", "")
    assert [(e.optimiser, e.optimiser_args) for e in valid(controls)] == [("gd", {"step": 0.1})] * 5


def test_controls_follow_a_click_on_the_phase_diagram(controls: Controls) -> None:
    controls.set_alpha_and_latency(2, 3.16e-4)
    assert same(valid(controls), wb.baselines(4, 3, 2, rounds=20, link={"latency": 3.16e-4}))


def test_controls_slider_ranges_follow_the_cluster(controls: Controls) -> None:
    """The maximum of GC's slider is the largest number of stragglers for 156 workers."""
    types(controls.shapes.form, children="12", layers="2", stragglers="5")
    controls.verdicts()
    ends = {
        form.scheme: {line.name: line.high for line in form.form.entries} for form in controls.schemes.forms
    }
    assert (ends["GC"]["stragglers"], ends["SGD"]["stragglers"], ends["CR"]["stragglers"]) == (155, 155, 11)
    assert next(line.high for line in controls.shapes.form.entries if line.name == "stragglers") == 11
    gc = next(form for form in controls.schemes.forms if form.scheme == "GC")
    types(gc.form, stragglers="155")
    assert len(valid(controls)) == 5
    types(gc.form, stragglers="156")
    assert len(valid(controls)) == 4


# Fields without a largest valid number: an experiment accepts numbers beyond the slider.
ENDLESS = ("layers", "max_age", "local_steps", "buffer", "pieces", "window")


@pytest.mark.parametrize("scheme", wb.schemes.names())
def test_reaches_include_every_usable_number(scheme: str) -> None:
    """With 24 workers, all valid values below 40 of a whole number are on its slider, except for `ENDLESS`."""
    defaults = {name: field.default for name, field in wb.schemes.get(scheme).model_fields.items()}
    lines = [
        line for line in fields_of(wb.schemes.get(scheme)) if line.kind == "whole" and line.high is not None
    ]
    for line in lines:
        end = reaches(scheme, defaults, 24).get(line.name, line.high)
        beyond = valid_values(scheme, line.name, range(int(end) + 1, 40))
        assert not beyond or line.name in ENDLESS, (line.name, beyond)


def valid_values(scheme: str, name: str, values: Iterable[int]) -> list[int]:
    """Return the values for which there is an experiment with 24 workers."""
    found = []
    for value in values:
        with suppress(SettingError):
            wb.Experiment(scheme=scheme, workers=24, scheme_args={name: value})
            found.append(value)
    return found


def test_controls_moving_the_end_of_a_slider(controls: Controls) -> None:
    form = next(form for form in controls.schemes.forms if form.scheme == "GC").form
    before, values = list(form.entries), dict(form.values)
    form.reach({"stragglers": 999, "code_seed": 3})
    assert form.values == values
    assert [line for line in form.entries if line.name != "stragglers"] == [
        line for line in before if line.name != "stragglers"
    ]
    assert next(field["high"] for field in form.fields if field["name"] == "stragglers") == 999.0


def test_controls_offer_schedules_of_every_optimiser(controls: Controls) -> None:
    types(controls.optimiser, optimiser="adamw")
    types(controls.optimiser, **{"schedule.kind": "cosine"})
    assert {"schedule.warmup", "schedule.length", "schedule.end"} <= set(controls.optimiser.values)
    types(controls.optimiser, **{"schedule.warmup": "5", "schedule.end": "0.1", "rate": "0.01"})
    args = {"rate": 0.01, "schedule": {"kind": "cosine", "warmup": 5, "end": 0.1}}
    assert [(e.optimiser, e.optimiser_args) for e in valid(controls)[:3]] == [("adamw", args)] * 3
    types(controls.optimiser, optimiser="sgd")  # both optimisers have the same schedules
    assert valid(controls)[0].optimiser_args == {"schedule": args["schedule"]}
    types(controls.optimiser, **{"schedule.kind": "exponential"})
    assert "schedule.end" not in controls.optimiser.values
    assert valid(controls)[0].optimiser_args == {"schedule": {"kind": "exponential", "warmup": 5}}
    types(controls.optimiser, **{"schedule.kind": "constant", "schedule.warmup": "0"})
    assert valid(controls)[0].optimiser_args == {}


@pytest.mark.parametrize(
    ("kind", "field", "text"),
    [
        ("constant", "schedule.warmup", "-1"),
        ("exponential", "schedule.decay", "2"),  # `gd` also has a field `decay`
        ("steps", "schedule.milestones", ""),
        ("cosine", "schedule.end", ""),
    ],
)
def test_controls_mark_a_field_of_a_schedule(controls: Controls, kind: str, field: str, text: str) -> None:
    types(controls.optimiser, **{"schedule.kind": kind})
    types(controls.optimiser, **{field: text})
    assert {e.scheme for e in valid(controls)} <= {"SGD"}  # SGD keeps its own optimiser
    assert set(reasons(controls)) == {"optimiser_args"}
    assert set(reasons(controls)["optimiser_args"]) == {field}


@pytest.mark.parametrize(
    "fields",
    [
        {"optimiser": "sgd", "optimiser_args": {"step": 0.1, "schedule": {"kind": "steps", "every": 7}}},
        {"optimiser_args": {"schedule": {"kind": "steps", "milestones": (3, 9), "warmup": 2}}},
        {"delays": {"kind": "changing", "at": 9}},
        {"delays": {"kind": "changing", "before": {"kind": "constant"}, "after": {"kind": "pareto"}}},
        {"delays": {"kind": "changing", "after": {"kind": "shifted_exponential", "rate": 7.0}}},
        {
            "delays": {
                "kind": "changing",
                "after": {"kind": "changing", "after": {"kind": "constant"}, "at": 70},
            }
        },
    ],
)
def test_controls_return_nested_settings_as_given(fields: dict[str, Any]) -> None:
    experiments = [e.replace(**fields) for e in RIVALS if e.optimiser == "gd"]
    controls = Controls(experiments, CallCounter())
    assert same(valid(controls), experiments)
    assert not reasons(controls)
