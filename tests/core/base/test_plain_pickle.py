"""Pickles of plain data are read as the standard reader reads them; anything that would be executed is refused."""

from __future__ import annotations

import pickle
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.core.base.plain_pickle import parse_pickle

LEAVES = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary()
KEYS = st.integers() | st.text()
PLAIN = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner) | st.tuples(inner, inner) | st.dictionaries(KEYS, inner) | st.frozensets(KEYS)
    ),
    max_leaves=20,
)


@given(PLAIN, st.sampled_from([4, 5]))
def test_parse_pickle_of_plain_data_gives_what_was_written(value: Any, protocol: int) -> None:
    found = parse_pickle(pickle.dumps(value, protocol))
    assert found == value
    assert type(found) is type(value)


@given(
    st.recursive(st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(), st.lists)
)
def test_parse_pickle_reads_the_protocols_of_older_writers(value: Any) -> None:
    for protocol in (2, 3):
        assert parse_pickle(pickle.dumps(value, protocol)) == value


class _Opens:
    """Object whose pickle creates a file when the standard reader reads it."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return open, (self.path, "w")


@pytest.mark.parametrize("protocol", range(6))
def test_parse_pickle_executes_nothing(tmp_path: Path, protocol: int) -> None:
    made = tmp_path / "made"
    content = pickle.dumps({"version": "2.9", "entries": [_Opens(str(made))]}, protocol)
    with pytest.raises(
        ValueError, match=r"has the instruction (GLOBAL|STACK_GLOBAL|PUT) at byte \d+; only plain data"
    ):
        parse_pickle(content)
    assert not made.exists()


@pytest.mark.parametrize(
    "content",
    [
        b"cos\nsystem\n(S'true'\ntR.",  # a function and its call
        b"I1\n.",  # a number of protocol 0
        b"(S'true'\nios\nsystem\n.",  # INST
        b"(cos\nsystem\nS'true'\no.",  # OBJ
        b"\x80\x02Pname\n.",  # a persistent object
        b"\x80\x02\x82\x01.",  # an extension
    ],
)
def test_parse_pickle_refuses_every_way_to_name_an_object(content: bytes) -> None:
    with pytest.raises(ValueError, match=r"has the instruction \w+ at byte \d+"):
        parse_pickle(content)


def test_parse_pickle_of_deeply_nested_data_does_not_exceed_the_stack() -> None:
    deep = b"\x80\x02" + 200_000 * b"(" + b")" + 200_000 * b"t"
    found = parse_pickle(deep + b".")
    assert isinstance(found, tuple)
    with pytest.raises(ValueError, match="is not a complete pickle"):
        parse_pickle(b"\x80\x02}" + deep[2:] + b"K\x01s.")  # as a key


def test_parse_pickle_reports_damage() -> None:
    whole = pickle.dumps({"a": [1, 2, ("b", 2.5)]}, 2)
    for end in range(len(whole)):
        with pytest.raises(ValueError, match=r"is cut off|is not a complete pickle"):
            parse_pickle(whole[:end])
    for damaged in (
        b"\x80\x02e.",
        b"\x80\x02(]u.",
        b"\x80\x02h\x05.",
        b"\x80\x02}(]K\x01u.",
        b"\x80\x02(.",
        b"",
    ):
        with pytest.raises(ValueError, match=r"is cut off|is not a complete pickle"):
            parse_pickle(damaged)


@given(st.binary(max_size=200))
def test_parse_pickle_of_any_bytes_is_data_or_a_value_error(content: bytes) -> None:
    with suppress(ValueError):
        parse_pickle(b"\x80\x02" + content)
