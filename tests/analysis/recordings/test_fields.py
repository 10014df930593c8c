"""Checks of a file's fields: whole numbers in the forms of JSON and logs, and errors of one sentence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.analysis.recordings.fields import Fields
from workbench.core.base.settings import SettingError

FIELDS = Fields(Path("a.json"))


@given(st.integers(0, 10**15), st.sampled_from([int, str, float, "{}.0".format, " {} ".format]))
def test_whole_number_is_the_same_in_each_form(number: int, form: Any) -> None:
    assert FIELDS.whole("rank", form(number)) == number


@pytest.mark.parametrize(
    "value", [True, None, -1, 1.5, "1e3", "1_000", "", float("nan"), [1], 10**30, "x" * 500]
)
def test_other_values_are_refused_with_file_and_field(value: Any) -> None:
    with pytest.raises(SettingError, match="is not a whole number from 0") as error:
        FIELDS.whole("entries[0].rank", value)
    assert str(error.value).startswith("path = 'a.json', entries[0].rank = ")
    assert len(str(error.value)) < 150


def test_least_number_may_be_negative() -> None:
    assert FIELDS.whole("status", -1, -1) == -1


def test_damaged_json_and_other_values_than_objects_are_refused() -> None:
    assert FIELDS.object(FIELDS.json(b'{"a": {}}')["a"], "a") == {}
    with pytest.raises(SettingError, match=r"path = 'a.json': is not JSON \(.*line 1 column"):
        FIELDS.json(b'{"a": ')
    with pytest.raises(SettingError, match=r"path = 'a.json', a = \[1\]: is not an object with fields"):
        FIELDS.object([1], "a")
