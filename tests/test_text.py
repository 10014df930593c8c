"""YAML as people mean it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from workbench.settings import SettingError
from workbench.text import dump, parse, read_yaml


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-3", 1e-3),
        ("2E4", 2e4),
        (".5", 0.5),
        ("-7", -7),
        ("no", "no"),
        ("off", "off"),
        ("1:30", "1:30"),
        ("010", 10),
        ("1_000", "1_000"),
        ("2026-01-01", "2026-01-01"),
        ("true", True),
        ("null", None),
        ("", None),
        ("'1'", "1"),
    ],
)
def test_scalars(text: str, value: object) -> None:
    found = parse(f"a: {text}")["a"]
    assert found == value
    assert isinstance(found, bool) == isinstance(value, bool)


ASCII = st.text(st.characters(min_codepoint=32, max_codepoint=126))


@given(st.floats(allow_nan=False, allow_infinity=False) | st.integers() | st.booleans() | st.none() | ASCII)
def test_json_is_read_as_json_is_meant(value: object) -> None:
    assert parse(json.dumps({"a": [value]})) == {"a": [value]}


@pytest.mark.parametrize(
    "text", ["!!python/object/apply:os.system ['true']", "!!python/name:os.system", "a: 1\na: 2", "[1, 2"]
)
def test_code_twice_given_keys_and_half_a_file_are_refused(text: str, tmp_path: Path) -> None:
    with pytest.raises(yaml.YAMLError):
        parse(text)
    file = tmp_path / "sweep.yaml"
    file.write_text(text)
    with pytest.raises(SettingError, match=r"sweep\.yaml: not valid YAML"):
        read_yaml(file, "base:")


def test_files_that_hold_no_fields(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="no such file"):
        read_yaml(tmp_path / "nowhere.yaml", "base:")
    file = tmp_path / "list.yaml"
    file.write_text("[1, 2]")
    with pytest.raises(SettingError, match="not a list"):
        read_yaml(file, "base:")
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(SettingError, match=r"list\.yaml"):
        read_yaml(file, "base:")


WORDS = st.text(alphabet="0123456789eE+-._:xonys<~", max_size=6)


@given(
    st.dictionaries(
        WORDS, st.one_of(WORDS, st.floats(allow_nan=False), st.integers(), st.booleans(), st.none())
    )
)
def test_what_is_written_is_read_again_by_either_version(fields: dict[str, Any]) -> None:
    """Text that one version of YAML takes for a number stays text."""
    assert parse(dump(fields)) == fields
    assert yaml.safe_load(dump(fields)) == fields


def test_fields_can_be_merged() -> None:
    assert parse("a: &a {x: 1, y: 2}\nb: {<<: *a, y: 3}")["b"] == {"x": 1, "y": 3}
