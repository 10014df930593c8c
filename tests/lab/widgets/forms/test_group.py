"""Groups of settings: the summary on their buttons, and that they stay open."""

from __future__ import annotations

import pytest

import workbench as wb
from tests.support.widget_messages import types
from workbench.lab.widgets.forms.controls import Controls


@pytest.fixture
def controls() -> Controls:
    made = Controls(wb.baselines(4, 3, 1, link={"latency": 1e-3, "bandwidth": 1e6}, rounds=20), lambda: None)
    made.verdicts()
    return made


def values(controls: Controls) -> dict[str, str]:
    return {group.fold.title: group.fold.value for group in controls.groups}


def test_group_shows_a_summary_of_its_settings(controls: Controls) -> None:
    assert values(controls) == {
        "Tree and stragglers": "84 workers, tree (4,3), 1 of 4 late",
        "Schemes": "5 schemes",
        "Delays": "shifted exponential",
        "Links": "1 ms, 1 MB/s",
        "Problem and data": "synthetic, logistic",
        "Optimiser": "gd",
        "Rounds, batches, faults": "20 rounds",
    }
    types(controls.delays, kind="pareto")
    types(controls.delays, shape="1.7")
    types(controls.shapes.form, children="")
    types(controls.run, batch="100")
    controls.verdicts()
    assert values(controls)["Rounds, batches, faults"] == "20 rounds, batch 100"
    assert values(controls)["Delays"] == "pareto, shape 1.7"
    assert values(controls)["Tree and stragglers"] == "84 workers, tree (?,3), 1 of ? late"


def test_group_with_a_field_that_cannot_be_used_is_marked_and_opened(controls: Controls) -> None:
    links = controls.groups[3].fold
    assert not links.opened
    types(controls.link, latency="-1")
    controls.verdicts()
    assert [group.fold.title for group in controls.groups if group.fold.bad] == ["Links"]
    assert links.opened
    types(controls.link, latency="0")
    controls.verdicts()
    assert not any(group.fold.bad for group in controls.groups)


@pytest.mark.parametrize(
    ("place", "name", "field", "chosen"),
    [
        (2, "delays", "kind", "pareto"),
        (4, "problem", "problem", "softmax"),
        (5, "optimiser", "optimiser", "nesterov"),
    ],
)
def test_group_stays_open_when_a_kind_is_chosen(
    controls: Controls, place: int, name: str, field: str, chosen: str
) -> None:
    group, form = controls.groups[place], getattr(controls, name)
    group.fold.opened = True
    types(form, **{field: chosen})
    controls.verdicts()
    assert group.fold.opened
    assert getattr(controls, name) is form


def test_group_of_schemes_only_is_marked_for_a_scheme_s_own_value(controls: Controls) -> None:
    cr = controls.schemes.forms[-1].form
    types(cr, stragglers="9")
    controls.verdicts()
    assert set(cr.reasons) == {"stragglers"}
    assert controls.shapes.form.reasons == {}
    assert [group.fold.title for group in controls.groups if group.fold.bad] == ["Schemes"]
