"""Parsing of YAML and JSON in files and on the command line."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

import workbench
from workbench.analysis.planning.profile import ClusterProfile
from workbench.core.base.settings import SettingError
from workbench.core.base.text import MAX_ALIASED_VALUES, dump, parse, read_yaml
from workbench.core.experiment import Experiment
from workbench.lab.batch import Sweep
from workbench.mpi import clusters


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
def test_parse_scalars(text: str, value: object) -> None:
    found = parse(f"a: {text}")["a"]
    assert found == value
    assert isinstance(found, bool) == isinstance(value, bool)


ASCII = st.text(st.characters(min_codepoint=32, max_codepoint=126))


@given(st.floats(allow_nan=False, allow_infinity=False) | st.integers() | st.booleans() | st.none() | ASCII)
def test_parse_reads_json(value: object) -> None:
    assert parse(json.dumps({"a": [value]})) == {"a": [value]}


@pytest.mark.parametrize(
    ("text", "value"), [("NaN", "NaN"), ("-Infinity", "-Infinity"), ("1e-3", 1e-3), ("no", "no")]
)
def test_parse_reads_yaml_that_resembles_json(text: str, value: object) -> None:
    assert parse(f'{{"a": {text}}}') == {"a": value}


@pytest.mark.parametrize(
    "text",
    [
        "!!python/object/apply:os.system ['true']",
        "!!python/name:os.system",
        "a: 1\na: 2",
        '{"a": 1, "a": 2}',
        "[1, 2",
    ],
)
def test_parse_refuses_tags_duplicate_keys_and_partial_files(text: str, tmp_path: Path) -> None:
    with pytest.raises(yaml.YAMLError):
        parse(text)
    file = tmp_path / "sweep.yaml"
    file.write_text(text)
    with pytest.raises(SettingError, match=r"sweep\.yaml: not valid YAML"):
        read_yaml(file, "base:")


def laughs(levels: int, width: int) -> str:
    """Return nested aliases: each list contains the previous one several times.

    The few lines expand to width ** (levels + 1) values.
    """
    lines = [f"a0: &a0 [{', '.join('x' * width)}]"]
    lines += [f"a{i + 1}: &a{i + 1} [{', '.join([f'*a{i}'] * width)}]" for i in range(levels)]
    return "\n".join(lines)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (laughs(9, 9), r"the aliases up to \*a3 expand to more than 10000 values; write them out.*line 5"),
        ("a: &a {" + "b: 1, " * 99 + "c: 1}\n" + "x: {<<: *a}\n" * 200, "expand to more than 10000 values"),
        ("a: &a {b: *a}", r"\*a is within itself"),
        ("&a [1, *a]", r"\*a is within itself"),
        ("a: " + "[" * 900 + "]" * 900, "is 50 levels deep; use fewer levels"),
        ("{a: " * 900 + "1" + "}" * 900, "is 50 levels deep"),
        (
            json.dumps({"a": [[[1]]]}).replace("[[[1]]]", '{"a": ' * 900 + "1" + "}" * 900),
            "is 50 levels deep",
        ),
        ("- " * 900 + "1", "is 50 levels deep"),
        ("rounds: " + "9" * 5000, "'999999999.* cannot be read as int"),
        ("a: !!int many", "'many' cannot be read as int"),
        ("a: !!bool many", "'many' cannot be read as bool"),
        ("!!map 5", "expected a mapping"),
        ("a: !!timestamp 2026-01-01", "timestamp"),
        ("a: !!set {b}", "could not determine a constructor"),
        ("{1: a, '1': b}", "'1' occurs twice"),
        ("{[1]: a}", "unhashable"),
        ("a: \x07", "special characters are not allowed"),
    ],
)
def test_readers_refuse_exponential_aliases(text: str, says: str, tmp_path: Path) -> None:
    file = tmp_path / "spec.yaml"
    file.write_text(text)
    for read in (Experiment.read, Sweep.read, ClusterProfile.load, clusters.load):
        with pytest.raises(SettingError, match=rf"spec\.yaml: not valid YAML.*{says}") as caught:
            read(file)
        assert "\n" not in str(caught.value)


@given(st.integers(0, 4), st.integers(1, 8))
def test_parse_accepts_small_aliases(levels: int, width: int) -> None:
    """The limit counts the expanded size: all values and lists."""
    stands_for = sum(width * sum(width**j for j in range(i + 1)) for i in range(1, levels + 1))
    if stands_for > MAX_ALIASED_VALUES:
        with pytest.raises(yaml.YAMLError, match="expand to more than"):
            parse(laughs(levels, width))
        return
    found: Any = parse(laughs(levels, width))[f"a{levels}"]
    for _ in range(levels):
        assert len(found) == width
        found = found[0]
    assert found == ["x"] * width


def test_text_is_the_only_module_that_reads_yaml() -> None:
    """Two readers could give different values for the same text."""
    root = Path(workbench.__file__).parents[1]
    readers = re.compile(r"^\s*(import|from) yaml\b", re.MULTILINE)
    sources = [file for name in ("workbench", "notebooks") for file in (root / name).rglob("*.py")]
    found = [str(file.relative_to(root)) for file in sources if readers.search(file.read_text())]
    assert found == ["workbench/core/base/text.py"]


def test_read_yaml_refuses_files_without_fields(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="no such file"):
        read_yaml(tmp_path / "nowhere.yaml", "base:")
    file = tmp_path / "list.yaml"
    file.write_text("[1, 2]")
    with pytest.raises(SettingError, match="not a list"):
        read_yaml(file, "base:")
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(
        SettingError, match=r"list\.yaml: is not text in UTF-8 \(invalid start byte at byte 0\)"
    ):
        read_yaml(file, "base:")


WORDS = st.text(alphabet="0123456789eE+-._:xonys<~", max_size=6)


@given(
    st.dictionaries(
        WORDS, st.one_of(WORDS, st.floats(allow_nan=False), st.integers(), st.booleans(), st.none())
    )
)
def test_dump_and_parse_round_trip(fields: dict[str, Any]) -> None:
    """Text that some version of YAML reads as a number is still text afterwards."""
    assert parse(dump(fields)) == fields
    assert yaml.safe_load(dump(fields)) == fields


def test_parse_merge_keys() -> None:
    assert parse("a: &a {x: 1, y: 2}\nb: {<<: *a, y: 3}")["b"] == {"x": 1, "y": 3}
