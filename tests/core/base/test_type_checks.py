"""Type checks of values: a value is accepted only if it has the type of its field, without conversion."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Annotated, Any, Literal

import numpy as np
import pytest

from workbench.core.base.settings import SettingError, Settings, setting
from workbench.core.base.type_checks import find_mismatch, range_of
from workbench.core.contract.delays import Markov
from workbench.core.contract.links import Link
from workbench.core.contract.optimisers import Nesterov
from workbench.core.experiment import Experiment


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (int, 3),
        (int, -(10**400)),
        (int, np.int8(3)),
        (int | None, None),
        (int | tuple[int, ...], [1, 2]),
        (tuple[int, float], [1, 2]),
        (tuple[int, float], [1]),  # pydantic refuses the length
        (dict[str, float], {"c": 1}),
        (float, 3),
        (float, 0.1),
        (float, np.float32(0.1)),
        (float, Fraction(1, 3)),
        (float, "1e-3"),  # text, as read from YAML
        (float, "2.0E4"),
        (bool, np.True_),
        (str, "2"),
        (Literal["a"], 5),  # pydantic's own message is better
        (tuple[str, ...], "a"),
        (tuple[int, ...], np.array([1])),
        (Sequence[int], (1, 2)),
        (int | str, "2"),
        (dict[str, Any], 5),
    ],
)
def test_find_mismatch_accepts_values_of_the_type(kind: Any, value: Any) -> None:
    assert find_mismatch(kind, value) is None
    assert find_mismatch(Annotated[kind, "whatever"], value) is None


@pytest.mark.parametrize(
    ("kind", "value", "where", "text"),
    [
        (int, "2", "", "is text; write 2 without quotes"),
        (int, "1e3", "", "is text; write 1000 without quotes"),
        (float, "0.5", "", "is text; write 0.5 without quotes"),
        (int, "1_", "", "is not a number"),
        (int, True, "", "is not a number"),
        (int, 7.0, "", "is not a whole number; write 7"),
        (int, 7.5, "", "is not a whole number"),
        (int, 1e200, "", "is not a whole number"),
        (float, np.True_, "", "is not a number"),
        (int | None, "x", "", "is not a number"),
        (float, "nan", "", "is not a number"),
        (float, "1e400", "", "is not a number"),
        (int, "inf", "", "is not a number"),
        (bool, 1, "", "is neither true nor false; write one of the two"),
        (tuple[int, ...], 5, "", "is not a list; write one, such as [1, 2]"),
        (tuple[int, ...], [1, "2"], "[1]", "is text; write 2 without quotes"),
        (tuple[tuple[float, ...], ...], [[1], [2, True]], "[1][1]", "is not a number"),
        (tuple[tuple[int, int], ...], [[1, 2], [1, True]], "[1][1]", "is not a number"),
        (tuple[int, float], [2.0, 1], "[0]", "is not a whole number; write 2"),
        (dict[str, float], {"c": 1.0, "scale": True}, ".scale", "is not a number"),
        (int | tuple[int, ...], [1, 2.0], "[1]", "is not a whole number; write 2"),
    ],
)
def test_find_mismatch_finds_common_mistakes(kind: Any, value: Any, where: str, text: str) -> None:
    found = find_mismatch(kind, value)
    assert found is not None
    assert (found.where, found.text) == (where, text)


@pytest.mark.parametrize(
    ("cls", "field", "value", "text"),
    [
        (Experiment, "rounds", 0, "take 1 or more"),
        (Experiment, "rounds", 2.5, "take 1 or more, the nearest are 2 and 3"),
        (Experiment, "rounds", float("nan"), "take 1 or more"),
        (Experiment, "decode_rate", -1, "take a number above 0, or leave it empty"),
        (Link, "latency", -1, "take 0 or more"),
        (Link, "latency", float("inf"), "take 0 or more"),
        (Experiment, "rounds", 1e23, "take 1 or more"),
        (Experiment, "rounds", 0.5, "take 1 or more"),
        (Markov, "p_slow", 2, "take above 0 to 1, the nearest is 1"),
        (Markov, "p_slow", 0, "take above 0 to 1, e.g. 0.02"),
        (Nesterov, "momentum", 1, "take 0 to below 1, or leave it empty"),
    ],
)
def test_range_of_gives_valid_values(cls: type[Settings], field: str, value: Any, text: str) -> None:
    assert range_of(cls.model_fields[field], value) == text
    with pytest.raises(SettingError) as error:
        cls(**{field: value})
    assert str(error.value).startswith(f"{field} = {value!r}: ")
    assert str(error.value).endswith(text)


def test_experiment_from_json_has_the_same_checks() -> None:
    assert Experiment.model_validate_json('{"scheme": "UMW", "rounds": 2}').rounds == 2
    for text in ('{"rounds": "2"}', '{"rounds": 2.0}', '{"rounds": true}', '{"link": {"downloads": 1}}'):
        with pytest.raises(SettingError, match=r"write|is not a number"):
            Experiment.model_validate_json(text)


class Bounded(Settings):
    """Whole numbers with open bounds."""

    n: int = setting(3, "a number", gt=1, lt=6)


class Only(Settings):
    """Whole numbers with a range of one value."""

    n: int = setting(2, "a number", ge=2, le=2)


@pytest.mark.parametrize("value", [1, 9])
def test_range_of_a_single_number(value: int) -> None:
    with pytest.raises(SettingError, match=rf"^n = {value}: take 2$"):
        Only(n=value)


@pytest.mark.parametrize(("value", "near"), [(1, 2), (9, 5), (-4, 2)])
def test_range_of_whole_numbers_with_open_ends(value: int, near: int) -> None:
    with pytest.raises(SettingError, match=rf"n = {value}: take 2 to 5, the nearest is {near}$"):
        Bounded(n=value)
