"""Several schemes on one cluster: tree shapes, error messages, and conversion between experiments and controls."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

import workbench as wb
from workbench.core.presets.others import others
from workbench.lab.widgets.forms.setup import (
    Entry,
    Setup,
    Shape,
    added,
    field_at_fault,
    judge,
    nearest,
    setup_of,
    shape_of,
    with_shape,
)

EVERY = [*wb.presets.values(), *(others[name] for name in others)]


@pytest.mark.parametrize("preset", EVERY, ids=lambda preset: preset.name)
def test_setup_of_published_experiments_round_trips(preset: wb.published.Preset) -> None:  # type: ignore[name-defined]
    assert [verdict.experiment for verdict in judge(setup_of(preset))] == list(preset)


@pytest.mark.parametrize("preset", list(wb.presets.values()), ids=lambda preset: preset.name)
def test_a_shape_gives_back_the_published_numbers(preset: wb.published.Preset) -> None:  # type: ignore[name-defined]
    shaped = with_shape(setup_of(preset), shape_of(preset))
    assert [verdict.experiment for verdict in judge(shaped)] == list(preset)


@given(st.integers(1, 12), st.integers(1, 3), st.data())
def test_shape_of_baselines(children: int, layers: int, data: st.DataObject) -> None:
    late = data.draw(st.integers(0, children - 1))
    shape = Shape(children=children, layers=layers, stragglers=late)
    before = setup_of(wb.baselines(3, 2, 1, rounds=5))
    after = [verdict.experiment for verdict in judge(with_shape(before, shape))]
    assert after == list(wb.baselines(children, layers, late, rounds=5))
    assert shape_of([e for e in after if e is not None]) == shape


def test_with_shape_distributes_stragglers_over_groups() -> None:
    entries = tuple(
        Entry(name, {"groups": 4} if name == "LAGC" else {}) for name in ("GC", "SGD", "LAGC", "CEGC", "FRC")
    )
    shaped = with_shape(Setup(entries, {}), Shape(children=4, layers=2, stragglers=2), 20)
    assert [entry.args.get("stragglers") for entry in shaped.entries] == [10, 10, 2, 10, None]
    assert shaped.common["workers"] == 20


@pytest.mark.parametrize("scheme", wb.schemes.names())
def test_added_scheme_fits_or_gives_the_reason(scheme: str) -> None:
    setup = setup_of(wb.baselines(4, 3, 1, problem="least_squares"))
    entry = added(setup, scheme, Shape())
    (verdict,) = judge(Setup((entry,), setup.common))
    assert verdict.experiment is not None, verdict.reason
    assert verdict.experiment.scheme == scheme


TYPED = {
    "gd": {"step": 0.3, "decay": 0.5, "milestones": (3,)},
    "nesterov": {"step": 0.3, "momentum": 0.5},
    "amsgrad": {"rate": 0.3},
    "inverse_time": {"c2": 3.0},
}


@pytest.mark.parametrize("scheme", wb.schemes.names())
def test_entry_optimiser_takes_no_value_of_the_common_one(scheme: str) -> None:
    setup = setup_of(wb.baselines(4, 3, 1, problem="least_squares"))
    fitting = added(setup, scheme, Shape())
    for common, typed in TYPED.items():
        of_all = Setup((), {**setup.common, "optimiser": common, "optimiser_args": typed})
        for own, theirs in TYPED.items():
            for mine in ({}, {"optimiser_args": theirs}):
                entry = Entry(scheme, fitting.args, {"optimiser": own, **mine})
                (verdict,) = judge(Setup((entry,), of_all.common))
                assert verdict.experiment is not None, verdict.reason
                assert verdict.experiment.optimiser_args == mine.get("optimiser_args", {})
            entry = Entry(scheme, fitting.args, {"optimiser": own})
            (verdict,) = judge(Setup((entry,), of_all.common))
            assert verdict.experiment is not None, verdict.reason
            again = setup_of([wb.Experiment(**of_all.spec(fitting)), verdict.experiment])
            assert judge(again)[1].experiment == verdict.experiment


def test_entry_problem_keeps_the_typed_parameters_it_has() -> None:
    common = {"problem": "least_squares", "problem_args": {"samples": 40, "features": 3, "l2": 0.1}}
    entries = (Entry("UMW"), Entry("GC", {}, {"problem": "unit"}), Entry("GC", {}, {"problem": "nowhere"}))
    found = judge(Setup(entries, common))
    assert found[1].experiment is not None, found[1].reason
    assert found[1].experiment.problem_args == {"samples": 40}
    assert found[2].reason.startswith("problem = 'nowhere': no such name")


def test_added_scheme_takes_the_fraction_of_stragglers() -> None:
    entry = added(setup_of(wb.baselines(4, 3, 1)), "GC", Shape())
    assert entry.args["stragglers"] == 21


@pytest.mark.parametrize(
    ("common", "entry", "form", "field"),
    [
        ({"workers": 13}, Entry("CR"), "", "workers"),
        ({"workers": "many"}, Entry("UMW"), "", "workers"),
        ({"workers": 12}, Entry("CR", {"stragglers": 3}), "scheme_args", "stragglers"),
        ({"delays": {"kind": "pareto", "shape": 0.5}}, Entry("UMW"), "delays", "shape"),
        ({"link": {"latency": -1}}, Entry("UMW"), "link", "latency"),
        ({"problem_args": {"l2": "x"}}, Entry("UMW"), "problem_args", "l2"),
        ({"optimiser_args": {"step": 0}}, Entry("UMW"), "optimiser_args", "step"),
        ({"faults": [{"worker": 0, "round": 1}]}, Entry("UMW"), "", "faults"),
        ({"problem": "logistic"}, Entry("LCC"), "", "problem"),
        ({}, Entry("UMW", {}, {"colour": "red"}), "", "colour"),
    ],
)
def test_judge_names_form_and_field(common: dict, entry: Entry, form: str, field: str) -> None:  # type: ignore[type-arg]
    (verdict,) = judge(Setup((entry,), common))
    assert verdict.experiment is None
    assert (verdict.form, verdict.field) == (form, field)
    assert verdict.reason.startswith(form or field)
    assert "\n" not in verdict.reason


def test_form_at_fault_is_none_for_errors_without_a_field() -> None:
    assert field_at_fault("Something is wrong") == ("", "")


@given(st.integers(1, 3000))
def test_nearest_trees_are_sorted_by_distance_and_end_with_the_star(workers: int) -> None:
    *trees, star = nearest(workers)
    distances = [abs(tree.workers - workers) for tree in trees]
    assert distances == sorted(distances)
    assert (star.workers, star.layers, star.alpha) == (workers, 1, Fraction(0))
