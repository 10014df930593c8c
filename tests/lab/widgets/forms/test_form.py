"""Forms: messages of the page, notification of listeners, and marks of errors."""

from __future__ import annotations

from tests.support.widget_messages import types
from workbench.core.contract.delays import delay_models
from workbench.core.contract.links import Link
from workbench.lab.widgets.forms.fields import Field, fields_of
from workbench.lab.widgets.forms.form import ChoiceForm, Form


def form() -> tuple[Form, list[set[str]]]:
    heard: list[set[str]] = []
    made = Form("link", fields_of(Link), {"bandwidth": "8e5"})
    made.on_change(heard.append)
    return made, heard


def test_a_form_begins_with_defaults_and_given_values() -> None:
    made, _ = form()
    assert made.values == {"latency": "0", "bandwidth": "8e5", "downloads": "no", "groups": "[]"}
    assert made.read() == {"bandwidth": 8e5}
    assert made.shown() == {"latency": 0.0, "bandwidth": 8e5, "downloads": False, "groups": []}


def test_form_notifies_listeners_of_user_changes_only() -> None:
    made, heard = form()
    types(made, latency="1e-3")
    types(made, latency="1e-3")
    made.fill({"latency": "0.5"})
    made.reshape(made.entries, {"bandwidth": "8e5"})
    types(made, downloads="yes", bandwidth="")
    assert heard == [{"latency"}, {"downloads", "bandwidth"}]


def test_form_acknowledges_messages_of_the_page() -> None:
    made, heard = form()
    types(made, latency="1e-3", bandwidth="")
    types(made, colour="a field that another choice had")
    assert (made.heard, heard) == ({"page": 2}, [{"latency", "bandwidth"}])
    assert "colour" not in made.values


def test_form_keeps_reasons_only_for_existing_fields() -> None:
    made, _ = form()
    made.blame({"latency": "latency = -1: too small", "colour": "not here"})
    assert made.reasons == {"latency": "latency = -1: too small"}
    made.blame({})
    assert made.reasons == {}


def test_form_marks_an_emptied_required_field() -> None:
    made, _ = form()
    types(made, latency="", bandwidth="")
    assert list(made.complaints()) == ["latency"]


def test_form_sends_complete_lines_to_the_page() -> None:
    (line,) = Form("", [Field("x", "an x", "what x is", "s", low=0.0, high=1.0)]).fields
    assert {
        "name",
        "label",
        "help",
        "unit",
        "kind",
        "choices",
        "labels",
        "low",
        "high",
        "log",
        "minor",
        "empty",
    } <= set(line)


def test_choice_form_shows_the_fields_of_the_choice() -> None:
    delays = ChoiceForm("Delays", "kind", delay_models(), "shifted_exponential")
    heard: list[set[str]] = []
    delays.on_change(heard.append)
    types(delays, shift="1e-4", rate="5")
    types(delays, kind="pareto")
    assert [line.name for line in delays.entries] == ["kind", "fixed", "shift", "shape"]
    assert delays.settings() == {"shift": 1e-4}  # a number with the same name and unit keeps its value
    assert heard[-1] == {"kind"}
    types(delays, kind="two_part")
    assert delays.settings() == {}
    delays.choose("markov", {"p_slow": 0.5})
    assert (delays.chosen, delays.settings()) == ("markov", {"p_slow": 0.5})


def test_choice_form_suggestions_are_for_text_fields() -> None:
    from workbench.core import problems

    made = ChoiceForm(
        "", "problem", {"logistic": problems.get("logistic")}, "logistic", {"data": ["iris"], "l2": ["9"]}
    )
    choices = {line.name: line.choices for line in made.entries}
    assert choices["data"] == ("iris",)
    assert choices["l2"] == ()
