"""Reading of flight recorder dumps: formats of several versions, and errors of one sentence for other files."""

from __future__ import annotations

import gzip
import json
import pickle
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import workbench as wb
from tests.support.flight_dumps import DEFAULT, dump, four, operation, write
from workbench.analysis.recordings.hangs import dumps
from workbench.core.base.plain_pickle import parse_pickle
from workbench.core.base.settings import SettingError


class _Opens:
    """Object whose pickle creates a file when the standard reader reads it."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return open, (self.path, "w")


def refused(path: Path, *text: str) -> None:
    with pytest.raises(SettingError) as error:
        wb.diagnose(path)
    assert all(word in str(error.value) for word in text), str(error.value)
    assert "\n" not in str(error.value)


def test_read_dumps_executes_nothing(tmp_path: Path) -> None:
    folder, made = four(tmp_path / "stuck"), tmp_path / "made"
    fields = dump([operation(1, frames=[_Opens(str(made))])], {DEFAULT: range(4)})
    (folder / "nccl_trace_rank_1").write_bytes(pickle.dumps(fields, 2))
    refused(folder, "nccl_trace_rank_1", "has the instruction GLOBAL at byte", "nothing is executed")
    assert not made.exists()


def test_read_dumps_shortens_values_that_repeat_each_other(tmp_path: Path) -> None:
    """Sixty lists, each twice in the next one, would be 10^18 items as text."""
    value: list[Any] = []
    for _ in range(60):
        value = [value, value]
    fields = dump([operation(1, collective_seq_id=value, profiling_name=value)], {DEFAULT: range(2)})
    refused(write(tmp_path, {0: fields}), "entries[0].collective_seq_id = [", "is not a whole number from 0")


def test_read_dumps_of_older_versions(tmp_path: Path) -> None:
    """PyTorch 2.3 wrote pg_name and seq_id, and no description, status or configuration of groups."""
    for rank, numbers in enumerate(([1, 2], [1], [1, 2])):
        entries = [
            {
                "record_id": number,
                "pg_id": 0,
                "pg_name": "0",
                "seq_id": number,
                "profiling_name": "nccl:all_reduce",
                "state": "completed" if number == 1 else "scheduled",
                "retired": number == 1,
                "input_sizes": [[2]],
            }
            for number in numbers
        ]
        fields = {"version": "2.1", "entries": entries}
        (tmp_path / f"nccl_trace_rank_{rank}").write_bytes(pickle.dumps(fields, 2))
    found = wb.diagnose(tmp_path)
    assert found.culprits == (1,)  # type: ignore[union-attr,comparison-overlap]


def test_tells_only_dumps(tmp_path: Path) -> None:
    assert dumps.tells(four(tmp_path / "stuck"))
    assert dumps.tells(tmp_path / "stuck" / "nccl_trace_rank_0")
    others = tmp_path / "others"
    others.mkdir()
    (others / "other.json").write_text('{"traceEvents": [], "pg_config": {}}')
    (others / "mine.pkl").write_bytes(pickle.dumps([1, 2]))
    (others / "times.csv").write_text("worker,step,seconds\n")
    assert not dumps.tells(others)
    assert not dumps.tells(tmp_path / "none")


def test_read_dumps_refuses_two_of_one_rank(tmp_path: Path) -> None:
    folder = four(tmp_path / "stuck")
    four(folder, as_json=True)
    refused(folder, "nccl_trace_rank_0 and trace_rank_0.json are both of rank 0")


def test_read_dumps_refuses_a_name_without_rank(tmp_path: Path) -> None:
    folder = four(tmp_path / "stuck")
    (folder / "nccl_trace_rank_1").rename(folder / "nccl_trace_other")
    refused(folder, "nccl_trace_other", "its name does not end with the rank")


def test_read_dumps_refuses_damage(tmp_path: Path) -> None:
    folder = four(tmp_path / "stuck")
    file = folder / "nccl_trace_rank_3"
    whole = file.read_bytes()
    file.write_bytes(whole[:-200])
    refused(folder, "nccl_trace_rank_3", "is not a complete pickle")
    file.unlink()
    (folder / "trace_rank_3.json").write_text(json.dumps(dump([operation(1)], {DEFAULT: range(4)}))[:-30])
    refused(folder, "trace_rank_3.json", "is not JSON (", "line 1 column")


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (
            {"collective_seq_id": "many"},
            "entries[0].collective_seq_id = 'many': is not a whole number from 0",
        ),
        ({"record_id": -4}, "entries[0].record_id = -4: is not a whole number from 0"),
        ({"process_group": None}, "entries[0].process_group = None: is not a name and a description"),
    ],
)
def test_read_dumps_names_the_field(tmp_path: Path, change: dict[str, Any], text: str) -> None:
    refused(
        write(tmp_path, {0: dump([operation(1, **change)], {DEFAULT: range(2)})}), "nccl_trace_rank_0", text
    )


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"entries": {"a": 1}}, "entries = {'a': 1}: is not a list of operations"),
        ({"entries": [3]}, "entries[0] = 3: is not an object with fields"),
        ({"pg_config": [1]}, "pg_config = [1]: is not an object with fields"),
        (
            {"pg_config": {"7": {"ranks": "0 and 1"}}},
            "pg_config[7].ranks = '0 and 1': is not a list of ranks",
        ),
        ({"pg_config": {"7": {"ranks": "[0, -1]"}}}, "pg_config[7].ranks = -1: is not a whole number from 0"),
        (
            {"pg_status": {"0": {"last_enqueued_collective": 1.5}}},
            "pg_status[0].last_enqueued_collective = 1.5",
        ),
    ],
)
def test_read_dumps_names_the_field_of_the_file(tmp_path: Path, change: dict[str, Any], text: str) -> None:
    refused(write(tmp_path, {0: dump([operation(1)], {DEFAULT: range(2)}) | change}), text)


ANY = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 10**18) | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)


@given(value=ANY, place=st.integers(0, 27), rank=st.integers(0, 2))
def test_any_other_value_gives_a_hang_or_a_sentence(value: Any, place: int, rank: int) -> None:
    groups = {DEFAULT: range(3)}
    entries = [operation(1, ended=True, frames=[{"filename": "/a/train.py", "line": 3}]), operation(2)]
    found = {r: dump(entries, groups, {"0": (2, 1)}) for r in range(3)}
    fields = found[rank]
    entry, status = dict(entries[1]), dict(fields["pg_status"]["0"])
    targets = [(fields, key) for key in fields] + [(status, key) for key in status]
    targets += [(entry, key) for key in sorted(entry)]
    where, key = targets[place % len(targets)]
    where[key] = value
    if where is not fields:
        fields |= {"entries": [entries[0], entry], "pg_status": {"0": status}}
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder), found)
        try:
            output = str(wb.diagnose(folder))
        except SettingError as error:
            output = str(error) if "nccl_trace_rank_" in str(error) and "\n" not in str(error) else ""
    assert output


def test_read_dumps_refuses_an_empty_dump(tmp_path: Path) -> None:
    """A rank may have ended while it wrote. Its dump must not count as one that was never there."""
    folder = four(tmp_path / "stuck")
    (folder / "nccl_trace_rank_2").write_bytes(b"")
    refused(folder, "nccl_trace_rank_2", "is empty; without the file, its rank counts as one without a dump")
    (folder / "nccl_trace_rank_2").write_bytes(b"\0" * 40)
    refused(folder, "nccl_trace_rank_2", "is not")
    (folder / "nccl_trace_rank_2").unlink()
    (cause,) = wb.diagnose(folder).causes  # type: ignore[union-attr]
    assert cause.ranks == (2,)


@pytest.mark.parametrize("as_json", [False, True])
def test_read_dumps_unpacks_gzip_files(tmp_path: Path, as_json: bool) -> None:
    folder = four(tmp_path / "stuck", as_json)
    expected = str(wb.diagnose(folder))
    for file in sorted(folder.iterdir())[1:]:
        Path(f"{file}.gz").write_bytes(gzip.compress(file.read_bytes()))
        file.unlink()
    assert str(wb.diagnose(folder)) == expected
    last = max(folder.iterdir())
    last.write_bytes(last.read_bytes()[:-20])
    refused(folder, last.name, "its compressed data are damaged")


def test_read_dumps_refuses_a_dump_of_another_run(tmp_path: Path) -> None:
    folder = four(tmp_path / "stuck")
    file = folder / "nccl_trace_rank_3"
    whole = parse_pickle(file.read_bytes())
    file.write_bytes(pickle.dumps(whole | {"version": "2.4"}, 2))
    refused(folder, "nccl_trace_rank_0 and nccl_trace_rank_3 have different versions; give one dump")
    file.write_bytes(pickle.dumps(dump(whole["entries"], {DEFAULT: range(8)}), 2))
    refused(folder, "nccl_trace_rank_0 and nccl_trace_rank_3 have different ranks in process group 0")
    file.rename(folder / "nccl_trace_rank_7")
    refused(folder, "nccl_trace_rank_0 and nccl_trace_rank_7 have different ranks in process group 0")


def test_read_dumps_finds_those_in_a_folder_for_each_host(tmp_path: Path) -> None:
    expected = wb.diagnose(four(tmp_path / "stuck"))
    for rank in range(4):
        host = tmp_path / "job" / f"host{rank // 2}"
        host.mkdir(parents=True, exist_ok=True)
        (tmp_path / "stuck" / f"nccl_trace_rank_{rank}").rename(host / f"nccl_trace_rank_{rank}")
    assert wb.diagnose(tmp_path / "job").causes == expected.causes  # type: ignore[union-attr]
    four(tmp_path / "job" / "other")
    refused(tmp_path / "job", "host0/nccl_trace_rank_0 and other/nccl_trace_rank_0 are both of rank 0")
