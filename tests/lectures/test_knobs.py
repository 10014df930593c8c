"""Sliders: typed values are checked, one slider may limit another, and all views have the same values."""

from __future__ import annotations

from typing import ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st
from workbench_lectures.knobs import Knobs, SliderHost

from tests.support.lecture_settings import FEW_EXAMPLES, SCRIPTS, settings_of
from tests.support.widget_messages import types
from workbench.core.base.settings import SettingError, setting


class Pair(Knobs):
    """Three numbers, of which the first limits the second."""

    labels: ClassVar = {"most": "most n"}
    logs: ClassVar = frozenset({"pace"})

    most: int = setting(5, "limit of the other", ge=1, le=9)
    some: int = setting(2, "at most the other", ge=0, le=9)
    pace: float = setting(1.0, "how fast", "s", ge=0.1, le=10)

    def fit(self) -> Pair:
        """Keep the second below the first."""
        return self.replace(some=min(self.some, self.most))


def test_knobs_lines_are_made_from_fields() -> None:
    most, some, pace = Pair.entries()
    assert (most.label, some.label, pace.label) == ("most n", "some", "pace")
    assert (most.low, most.high, most.log) == (1, 9, False)
    assert (pace.low, pace.high, pace.log, pace.unit) == (0.1, 10.0, True, "s")


def test_desk_panels_follow_typed_values() -> None:
    desk, notified = SliderHost(Pair()), []
    first, second = desk.panel(["most", "some"]), desk.panel(["some", "pace"])
    desk.on_move(["some"], lambda: notified.append(desk.knobs.some))
    types(first, some="4")
    assert desk.knobs == Pair(some=4)
    assert second.values["some"] == "4"
    types(second, pace="2.5")
    assert notified == [4]  # notified only of its own sliders
    types(first, most="3")  # changes the other slider as well
    assert desk.knobs == Pair(most=3, some=3, pace=2.5)
    assert (first.values, second.values["some"]) == ({"most": "3", "some": "3"}, "3")
    assert notified == [4, 3]


@pytest.mark.parametrize("text", ["", "0", "12", "many", "2.5"])
def test_desk_marks_invalid_values_and_changes_nothing(text: str) -> None:
    desk = SliderHost(Pair())
    panel = desk.panel(["most", "some"])
    types(panel, most=text)
    assert desk.knobs == Pair()
    assert list(panel.reasons) == ["most"]
    assert panel.reasons["most"].startswith("most")
    types(panel, most="7")
    assert panel.reasons == {}
    assert desk.knobs.most == 7


def test_desk_keeps_a_partly_typed_number() -> None:
    desk = SliderHost(Pair())
    panel = desk.panel(["pace"])
    types(panel, pace="1.50")
    assert panel.values["pace"] == "1.50"
    assert desk.knobs.pace == 1.5


def test_desk_refuses_an_invalid_move() -> None:
    desk = SliderHost(Pair())
    with pytest.raises(SettingError, match="most = 99"):
        desk.move(most=99)
    with pytest.raises(SettingError, match="no such field"):
        desk.move(least=1)
    assert desk.knobs == Pair()


@pytest.mark.parametrize("name", SCRIPTS)
def test_knobs_have_label_help_and_range(name: str) -> None:
    for line in SCRIPTS[name].knobs.entries():
        assert line.label
        assert line.help
        assert line.kind == "choice" or (line.low is not None and line.high is not None)
        assert len(line.labels) == len(line.choices)


@pytest.mark.parametrize("name", SCRIPTS)
@FEW_EXAMPLES
@given(st.data())
def test_knobs_fit_is_idempotent(name: str, data: st.DataObject) -> None:
    knobs = data.draw(settings_of(SCRIPTS[name]))
    assert knobs.fit() == knobs
    desk = SliderHost(knobs)
    panel = desk.panel(type(knobs).model_fields)
    assert panel.complaints() == {}
    assert type(knobs)(**panel.shown()) == knobs
