"""Types of fields: every field of every scheme refuses values of another type, without conversion."""

from __future__ import annotations

from typing import Any, Literal, get_args, get_origin

import numpy as np
import pytest

import workbench as wb
from workbench.core.base.settings import SettingError

NAN, INF = float("nan"), float("inf")
NO_COUNT: list[Any] = ["2", " 2", "two", "", b"2", 2.0, 2.5, np.float64(2.0), 1e300, NAN, INF, True, {}, 1j]
NO_MEASURE: list[Any] = ["2", "0.5", "two", b"2", NAN, INF, -INF, True, [], [2.0], {}, 10**400]
NO_TRUTH: list[Any] = ["yes", "true", "0", 0, 1, 1.0, None, []]
NO_CHOICE: list[Any] = ["nonsense", "", 1, True, None, []]
NO_MATRIX: list[Any] = ["2", 2, True, {}, [1, 2], [["1", "2"], ["0", "1"]], [[True]], [["x"]], [[NAN]]]
FIELDS = [(name, field) for name in wb.schemes.names() for field in wb.schemes.get(name).model_fields]


def wrong(kind: Any) -> list[Any]:
    """Return values that a field of that kind must refuse."""
    members = get_args(kind) if get_origin(kind) not in (None, Literal, tuple) else (kind,)
    nothing = [] if type(None) in members else [None]
    if bool in members:
        return NO_TRUTH
    if float in members:
        return NO_MEASURE + nothing
    if int in members:
        lists = [["2"], [2.0], [True], [None]] if len(members) > 1 + (not nothing) else [[2]]
        return NO_COUNT + nothing + lists
    return NO_CHOICE if get_origin(members[0]) is Literal else NO_MATRIX


@pytest.mark.parametrize(("name", "field"), FIELDS)
def test_scheme_fields_refuse_other_types(name: str, field: str) -> None:
    for value in wrong(wb.schemes.get(name).model_fields[field].annotation):
        with pytest.raises(SettingError) as error:
            wb.Experiment(scheme=name, scheme_args={field: value}, problem="unit")
        text = str(error.value)
        assert text.startswith(f"scheme_args.{field}"), (value, text)
        assert any(word in text for word in ("take ", "write ", "give ", "should be ")), (value, text)
        assert "\n" not in text, (value, text)


def test_scheme_field_error_names_the_nearest_valid_value() -> None:
    for args, text in [
        ({"stragglers": -3}, "take 0 or more"),
        ({"stragglers": 1.5}, "take 0 or more, the nearest are 1 and 2"),
        ({"stragglers": -0.5}, "take 0 or more"),
        ({"stragglers": 3.0}, "is not a whole number; write 3"),
        ({"stragglers": "3"}, "is text; write 3 without quotes"),
        ({"matrix": [["1.5"]]}, "scheme_args.matrix[0][0] = '1.5': is text; write 1.5 without quotes"),
    ]:
        with pytest.raises(SettingError) as error:
            wb.Experiment(scheme="GC", scheme_args=args)
        assert text in str(error.value)


@pytest.mark.parametrize(
    ("levels", "text"),
    [
        (
            [[2]],
            "scheme_args.levels.0 = [2]: has too few values; give averages of groups .*: pairs of a period",
        ),
        ([[2, 2], [4, 2, 1]], "scheme_args.levels.1 = [4, 2, 1]: has more than 2 values; give 2 or fewer"),
    ],
)
def test_scheme_field_error_counts_the_values_of_a_pair(levels: Any, text: str) -> None:
    with pytest.raises(SettingError, match=text.replace("[", r"\[")):
        wb.Experiment(scheme="H-SGD", scheme_args={"levels": levels})


@pytest.mark.parametrize(
    ("scheme", "args", "workers", "fields"),
    [
        ("CR", {"layers": 10**9}, 12, "the (3,1000000000) tree has more workers; nearest regular trees"),
        ("CR", {"children": 1, "layers": 10**9, "stragglers": 0}, 12, "nearest regular trees"),
        ("SGC", {"straggling": 1.0}, 12, "take 0 to below 1, or leave it empty"),
        ("FRC", {"deadline": 0}, 12, "take a number above 0, or leave it empty"),
        ("CADA", {"c": -1.0}, 12, "take 0 or more"),
    ],
)
def test_scheme_fields_refuse_numbers_out_of_reach(
    scheme: str, args: dict[str, Any], workers: int, fields: str
) -> None:
    with pytest.raises(SettingError) as error:
        wb.Experiment(scheme=scheme, scheme_args=args, workers=workers)
    assert fields in str(error.value)


def test_max_age_infinite_is_none() -> None:
    """A deque of infinite length cannot be created."""
    e = wb.Experiment(
        scheme="CADA", scheme_args={"max_age": 10**30}, workers=2, rounds=3, problem="least_squares"
    )
    assert len(wb.run(e).rounds) == 3
