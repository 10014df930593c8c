"""Damaged files of PyTorch's profiler, and files with unexpected values: the error names file and place."""

from __future__ import annotations

import gzip
import json
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import workbench as wb
from tests.support.profiler_files import Event, events, refused, seconds, write
from workbench.core.base.settings import SettingError


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"ts": None}, "ts = None"),
        ({"ts": "noon"}, "ts = 'noon'"),
        ({"ts": False}, "ts = False"),
        ({"ts": float("nan")}, "ts = nan"),
        ({"dur": "long"}, "dur = 'long'"),
        ({"dur": -1}, "dur = -1: is negative"),
        ({"dur": [1]}, "dur = [1]"),
        ({"ts": 10**400}, "ts = 1000"),
    ],
)
def test_times_that_are_not_numbers_are_refused_with_file_and_event(
    tmp_path: Path, change: Event, text: str
) -> None:
    some = events([0.4, 0.4, 0.4])
    for place in (2, 3):
        wrong = [each | change if at == place else each for at, each in enumerate(some)]
        file = write(tmp_path / "rank0.json", wrong)
        refused(file, "rank0.json", f"traceEvents[{place}] ({some[place]['name']})", text)
        refused(tmp_path, "rank0.json", f"traceEvents[{place}]", text)


def test_numbers_as_text_events_without_names_and_other_phases_are_read(tmp_path: Path) -> None:
    some: list[Any] = [each | {"ts": str(each["ts"]), "dur": str(each["dur"])} for each in events([0.4, 0.5])]
    odd = [
        None,
        3,
        {},
        {"ph": "X"},
        {"ph": "M", "name": None, "args": None},
        {"ph": "?", "name": "ProfilerStep#7", "cat": None},
    ]
    odd += [{"ph": "X", "cat": "cpu_instant_event", "name": "[memory]", "ts": None, "args": None}]
    write(tmp_path / "rank0.json", [*odd, *some])
    assert seconds(wb.traces.load(tmp_path)) == {0: [0.4, 0.5]}


TEXT = json.dumps({"traceEvents": events([0.4, 0.5])}, indent=1)


@pytest.mark.parametrize(
    "raw",
    [
        TEXT.encode("utf-8-sig"),
        TEXT.encode("utf-16"),
        TEXT.replace('"schema', '"\x01schema')
        .replace("gloo:all", "gloo:all")
        .replace('"ph"', '"other": "a\x02\tb\nc", "ph"')
        .encode(),
        TEXT.replace('"ph"', '"other": "caf\xe9", "ph"').encode("latin-1"),
        gzip.compress(TEXT.encode(), mtime=0),
    ],
    ids=["utf-8-sig", "utf-16", "control", "latin-1", "gzip"],
)
def test_files_that_can_be_read_nevertheless(tmp_path: Path, raw: bytes) -> None:
    (tmp_path / "rank0.pt.trace.json").write_bytes(raw)
    assert seconds(wb.traces.load(tmp_path)) == {0: [0.4, 0.5]}
    (tmp_path / "rank0.pt.trace.json").rename(tmp_path / "rank0.json")
    assert seconds(wb.traces.load(tmp_path / "rank0.json")) == {0: [0.4, 0.5]}


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (b"", "is empty"),
        (b" \n", "is empty"),
        (TEXT.encode()[:300], "the file is cut off at its end"),
        (gzip.compress(TEXT.encode(), mtime=0)[:-20], "its compressed data are damaged"),
        (gzip.compress(TEXT.encode()[:-20], mtime=0), "the file is cut off at its end"),
        (TEXT.replace("gloo", "C:\\data").encode(), "Invalid \\escape at line"),
        (TEXT.replace("gloo", "C:\\data").encode(), "a backslash is written twice in JSON"),
        (TEXT.replace('"dur"', "dur").encode(), "enclosed in double quotes at line 10, column 4"),
        (b"[" * 100_000, "is not JSON"),
        (b"[]", "has no ProfilerStep; give profile() a schedule"),
        (b'{"traceEvents": null}', "has no list of traceEvents"),
        (b'{"traceEvents": []}', "has no ProfilerStep; give profile() a schedule"),
        (b'{"traceEvents": [], "distributedInfo": 3}', "rank0.pt.trace.json"),
    ],
)
def test_damaged_files_are_named_with_the_reason_and_the_place(tmp_path: Path, raw: bytes, text: str) -> None:
    write(tmp_path / "rank1.pt.trace.json", events([0.4]))
    file = tmp_path / "rank0.pt.trace.json"
    file.write_bytes(raw)
    for path in (file, tmp_path):
        refused(path, "rank0.pt.trace.json", text)


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (b"", "is empty"),
        (gzip.compress(TEXT.encode(), mtime=0)[:40], "its compressed data are damaged"),
        (b"<!DOCTYPE html><html>404: Not Found</html>", "is not JSON"),
        (b"version https://git-lfs.github.com/spec/v1\n", "is not JSON"),
    ],
    ids=["empty", "cut off", "web page", "pointer"],
)
def test_damaged_files_are_named_in_folders_without_the_names_of_the_handler(
    tmp_path: Path, raw: bytes, text: str
) -> None:
    """Other JSON files are still skipped, and a damaged file alone does not make a folder one of the profiler."""
    for rank in (1, 2):
        write(tmp_path / f"rank{rank}.json", events([0.4]))
    (tmp_path / "settings.json").write_text('{"workers": 3}')
    assert seconds(wb.traces.load(tmp_path)) == {1: [0.4], 2: [0.4]}
    (tmp_path / "rank0.json").write_bytes(raw)
    refused(tmp_path, "rank0.json", text)
    for rank in (1, 2):
        (tmp_path / f"rank{rank}.json").unlink()
    refused(tmp_path, "is not of a known kind")


@given(st.integers(0, len(TEXT.encode()) - 1), st.booleans())
def test_a_file_that_is_cut_anywhere_is_named(length: int, packed: bool) -> None:
    with tempfile.TemporaryDirectory() as name:
        file = Path(name) / "rank0.pt.trace.json"
        raw = gzip.compress(TEXT.encode(), mtime=0) if packed else TEXT.encode()
        file.write_bytes(raw[: length % len(raw)])
        refused(file, "rank0.pt.trace.json")


JUNK = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=5),
    st.just([]),
    st.just({}),
    st.just([{}]),
)


@given(
    key=st.sampled_from(["ph", "cat", "name", "ts", "dur", "pid", "tid"]),
    place=st.integers(0, 3),
    junk=JUNK,
    word=st.sampled_from(
        ["traceEvents", "distributedInfo", "host_name", "baseTimeNanoseconds", "schemaVersion"]
    ),
    other=JUNK,
)
def test_any_other_value_gives_a_recording_or_a_sentence(
    key: str, place: int, junk: Any, word: str, other: Any
) -> None:
    with tempfile.TemporaryDirectory() as name:
        some = events([0.4, 0.5])
        some[place] |= {key: junk}
        fields = {"traceEvents": some, word: other}
        for r in range(2):
            (Path(name) / f"rank{r}.pt.trace.json").write_text(json.dumps(fields))
        with suppress(SettingError):
            assert len(wb.traces.load(Path(name)).frame)


@pytest.mark.parametrize("packed", [False, True])
def test_traces_that_are_only_a_list_of_events_are_read(tmp_path: Path, packed: bool) -> None:
    """The format of Chrome's traces permits a list without an object around it."""
    for number in range(2):
        text = json.dumps(events([0.4 + 0.2 * number] * 3)).encode()
        name = f"rank{number}.json" + ".gz" * packed
        (tmp_path / name).write_bytes(gzip.compress(text) if packed else text)
    assert seconds(wb.traces.load(tmp_path)) == {0: [0.4] * 3, 1: [0.6] * 3}
