"""Forms from metadata: every class of settings has one, and the shown text is parsed to the same value."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import workbench as wb
from workbench.core import problems
from workbench.core.base.settings import Settings, setting
from workbench.core.contract.delays import delay_models
from workbench.core.contract.links import Link
from workbench.core.contract.optimisers import Optimiser
from workbench.lab.widgets.forms.fields import (
    Field,
    fields_of,
    lines_of,
    menu,
    read,
    show,
    text_error,
    values_of,
)

CLASSES: list[type[Settings]] = [
    wb.Experiment,
    Link,
    *delay_models().values(),
    *Optimiser.catalogue.values(),
    *(problems.get(name) for name in problems.names()),
    *(wb.schemes.get(name) for name in wb.schemes.names()),
]


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_fields_of_every_class_have_their_defaults(cls: type[Settings]) -> None:
    lines = {line.name: line for line in fields_of(cls)}
    for spec in cls.fields():
        nested = any(key in spec for key in ("$ref", "oneOf", "const")) or spec.get("type") == "object"
        nested &= spec.get("additionalProperties") != {"type": "number"}  # text of the form {name: number}
        assert (spec["name"] in lines) is not nested
        if not nested:
            line, default = lines[spec["name"]], spec.get("default")
            back = read(line, line.default)
            assert back == (list(default) if isinstance(default, tuple) else default) or default is None
            assert line.help and line.label  # noqa: PT018


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_fields_of_slider_ranges_are_within_bounds(cls: type[Settings]) -> None:
    for line, spec in ((line, s) for line in fields_of(cls) for s in cls.fields() if s["name"] == line.name):
        if line.low is None or line.high is None:
            continue
        options = [spec, *spec.get("anyOf", [])]
        least = [o[k] for o in options for k in ("minimum", "exclusiveMinimum") if k in o]
        most = [o[k] for o in options for k in ("maximum", "exclusiveMaximum") if k in o]
        assert line.low < line.high
        assert line.low >= least[0]
        assert not most or line.high <= most[0]
        if isinstance(spec.get("default"), int | float):
            assert line.low <= spec["default"] <= line.high


def test_fields_of_a_new_class() -> None:
    class Mine(Settings):
        share: float = setting(0.5, "a share", "", ge=0, le=1)
        rate: float | None = setting(None, "a rate; empty = none", "bytes/s", gt=0)
        colour: str = setting("red", "any")
        seed: int = setting(0, "random", ge=0)
        order: int | tuple[int, ...] = setting(2, "one or several")

    kinds = {line.name: (line.kind, line.empty, line.log, line.minor) for line in fields_of(Mine)}
    assert kinds == {
        "share": ("number", False, False, False),
        "rate": ("number", True, True, False),
        "colour": ("text", False, False, False),
        "seed": ("whole", False, False, True),
        "order": ("list", False, False, False),
    }


NUMBER, WHOLE, FLAG, LIST = (Field("x", "x", kind=kind) for kind in ("number", "whole", "flag", "list"))  # type: ignore[arg-type]


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_show_prints_all_digits(value: float) -> None:
    assert read(NUMBER, show(value)) == value


@given(
    st.recursive(
        st.integers() | st.booleans() | st.floats(allow_nan=False, allow_infinity=False),
        st.lists,
        max_leaves=9,
    )
)
def test_show_prints_lists_as_read_parses_them(value: Any) -> None:
    if isinstance(value, list):
        assert read(LIST, show(value)) == value


@pytest.mark.parametrize(
    ("field", "text", "value"),
    [
        (NUMBER, "1e-3", 0.001),
        (NUMBER, " 5 ", 5),
        (NUMBER, "1:30", "1:30"),
        (WHOLE, "x", "x"),
        (WHOLE, "1.5", 1.5),
        (FLAG, "yes", True),
        (LIST, "6, 8, 10", [6, 8, 10]),
        (LIST, "[6, 8", "[6, 8"),
        (LIST, "6", 6),
        (LIST, "{worker: 3, round: 5}", {"worker": 3, "round": 5}),
        (LIST, "", None),
    ],
)
def test_read_parses_typed_values(field: Field, text: str, value: Any) -> None:
    assert read(field, text) == value


def test_values_of_are_those_that_differ_from_defaults() -> None:
    lines = fields_of(Link)
    texts = {"latency": "0.0", "bandwidth": "8e5", "downloads": "no"}
    assert values_of(lines, texts) == {"bandwidth": 8e5}
    assert Link(**values_of(lines, texts)) == Link(bandwidth=8e5)


def test_fields_that_are_optional_can_be_emptied() -> None:
    (features,) = (line for line in fields_of(problems.get("cnn")) if line.name == "features")
    assert values_of([features], {"features": ""}) == {"features": None}


def test_error_of_an_empty_required_field() -> None:
    rounds = next(line for line in fields_of(wb.Experiment) if line.name == "rounds")
    bandwidth = next(line for line in fields_of(Link) if line.name == "bandwidth")
    assert text_error(rounds, " ") == "rounds: is empty; write a value, e.g. 100"
    assert text_error(rounds, "7") == text_error(bandwidth, "") == ""


def test_a_menu_has_labels() -> None:
    line = menu("preset", "Preset", {"": "choose", "fig8": "Figure 8"})
    assert (line.choices, line.labels) == (("", "fig8"), ("choose", "Figure 8"))


def test_labels_are_words() -> None:
    """Labels have no underscores, since a browser would break such a name in mid-word."""
    texts = {"download_delays.kind": "markov"}
    labels = [line.label for line in lines_of(Link, texts) if line.name.startswith("download_delays")]
    assert labels[0] == "download delays"
    assert "download delays p slow" in labels
