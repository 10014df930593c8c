"""Recorded times: `wb.traces.load` and the delay model "replay" have one reader, with the same columns and errors."""

from __future__ import annotations

import csv
import gzip
import io
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import workbench as wb
from workbench.core.base.settings import SettingError
from workbench.core.base.tables import natural
from workbench.core.checking.delays import PROPERTIES
from workbench.core.checking.property import Property
from workbench.core.contract.delays import law_of, recorded
from workbench.core.contract.recorded import unit_of

HOSTS = [
    "NA",
    "null",
    "None",
    "nan",
    "n/a",
    "True",
    "eu,west",
    "a;b",
    'h"1"',
    "two\nlines",
    "1e5",
    "100000",
    "007",
]
WORKERS = [
    *HOSTS,
    "7",
    "1E5",
    "9007199254740993",
    "9007199254740992",
    "w10",
    "w2",
    "12345678901234567890123",
    "-0",
]
ENDINGS = [".csv", ".CSV", ".tsv", ".csv.gz", ".txt", ".parquet"]
serial = count()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("recorded")


def write(path: Path, rows: list[dict[str, str]], ends: str = "\n", quoting: int = csv.QUOTE_MINIMAL) -> Path:
    """Write a table with Python's or Arrow's writer. All names are text."""
    if path.suffix == ".parquet":
        numbers = {name: float for name in ("seconds",) if name in rows[0]}
        pd.DataFrame(rows).astype(numbers).to_parquet(path)
        return path
    out = io.StringIO(newline="")
    delimiter = "\t" if path.suffix == ".tsv" else ","
    writer = csv.DictWriter(
        out,
        list(rows[0]),
        delimiter=delimiter,
        lineterminator=ends,
        quoting=quoting,  # type: ignore[arg-type]
    )
    writer.writeheader()
    writer.writerows(rows)
    content = out.getvalue().encode()
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


def as_loaded(path: Path, **more: str) -> pd.DataFrame:
    """Return the seconds of every worker (columns) in every step (rows)."""
    return wb.traces.load(path, source="table", **more).table()


@given(data=st.data())
def test_recorded_and_load_read_the_same_names_and_times(folder: Path, data: st.DataObject) -> None:
    """This holds for any names, and for any order of rows and columns."""
    workers = data.draw(st.lists(st.sampled_from(WORKERS), min_size=1, max_size=5, unique=True))
    host_of = {worker: data.draw(st.sampled_from(HOSTS)) for worker in workers}
    steps = data.draw(st.integers(1, 4))
    first = data.draw(st.sampled_from([0, 1, 2**53 + 1]))
    times = np.random.default_rng(0).random((steps, len(workers))) + 0.5
    step_name = data.draw(st.sampled_from(["step", "iteration"]))
    rows = [
        {
            "worker": worker,
            "host": host_of[worker],
            step_name: str(first + t),
            "seconds": repr(float(times[t, w])),
        }
        for w, worker in enumerate(workers)
        for t in range(steps)
    ]
    rows = data.draw(st.permutations(rows))
    columns = data.draw(st.permutations(list(rows[0])))
    rows = [{name: row[name] for name in columns} for row in rows]
    ends = data.draw(st.sampled_from(["\n", "\r\n"]))
    quoting = data.draw(st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]))
    last = data.draw(st.sampled_from(ENDINGS))
    path = write(folder / f"{next(serial)}{last}", rows, ends, quoting)
    made = wb.traces.load(path, source="table")
    found = made.table()
    ordered = sorted(workers, key=natural)
    if not all(w.lstrip("-").isdecimal() for w in workers):
        assert found.columns.tolist() == ordered
    assert sorted(map(str, found.columns)) == sorted(workers)
    assert found.index.tolist() == [first + t for t in range(steps)]
    for w, worker in enumerate(workers):
        column = next(c for c in found.columns if str(c) == worker)
        np.testing.assert_array_equal(found[column], times[:, w])
    hosts = made.frame.groupby(made.frame["worker"].astype(str))["host"].unique()
    assert {worker: list(hosts[worker]) for worker in workers} == {w: [h] for w, h in host_of.items()}
    replayed, lengths = recorded(str(path))
    np.testing.assert_array_equal(replayed, found.to_numpy().T)
    assert lengths.tolist() == [steps] * len(workers)
    again = wb.traces.load(made.write(folder / f"{next(serial)}.csv"))
    pd.testing.assert_frame_equal(again.table(), found)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("worker,step,seconds\n0,0,7,1.0\n", "line 2: has more fields than its first line (4, not 3)"),
        ("worker,step,seconds\n0,0,1.0,\n", "line 2: has more fields than its first line (4, not 3)"),
        ("worker;step;seconds\n0;0;1,5\n", "separates its columns by ';'; write it with commas between them"),
        ('worker,step,seconds\n"a\nb",0,1\n\n0,0,"1,5"\n', "line 5: seconds = '1,5': times are finite"),
        ("worker,step,seconds\n0,0,1_000\n", "line 2: seconds = 1_000: times are finite"),
        ("worker,step,seconds\n0,0.5,1\n", "line 2: step = 0.5: steps are whole numbers"),
        ("worker,step,seconds\n0,,1\n", "line 2: step is empty: steps are whole numbers"),
        ("worker,step,seconds\n0,0,-1\n", "line 2: seconds = -1: times are finite and at least 0"),
        ("worker,step,seconds\n0,0,1.7e9\n", "line 2: seconds = 1700000000.0: is that a point in time"),
        ("worker,step,seconds\n0,0,1\n\n ,0,1\n", "line 4: worker is empty; fill it in"),
        ("worker,host,step,seconds\n0,NA,0,1\n1,,0,1\n", "line 3: host is empty; fill it in for every row"),
        (
            "worker,step,seconds\n1e5,0,1\n1,0,1\n1e5,0,1\n",
            "line 4: step = 0: worker and step are those of a row",
        ),
        ("worker,step,iteration,seconds\n0,0,1,1\n", "has columns 'step' and 'iteration', which differ"),
        ("worker,step,seconds,seconds\n0,0,1,1\n", "has 2 columns 'seconds'; rename all but one"),
        (
            "worker,step,duration\n0,0,1\n",
            "lacks columns ['seconds']; it has ['worker', 'step', 'duration']: 'dur",
        ),
        (
            "worker,step,took_ms,time_us\n0,0,1,1\n",
            "has the times 'took_ms', 'time_us'; call the one to read seconds",
        ),
        ("0,0,1.0\n1,0,1.5\n", "line 1: starts with numbers, not with a header line"),
        ("worker,step,seconds\n", "there is no row"),
    ],
)
def test_recorded_and_load_refuse_with_the_same_sentence(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "times.csv"
    path.write_text(text)
    messages = []
    for field, read in (("path", lambda: wb.traces.load(path)), ("delays.path", lambda: recorded(str(path)))):
        with pytest.raises(SettingError) as error:
            read()
        head = f"{field} = {str(path)!r}"
        assert str(error.value).startswith(head)
        messages.append(str(error.value).removeprefix(head).lstrip(":, "))
    # the loader also accepts column names as arguments, so its error is longer
    assert messages[0].startswith(messages[1])
    assert messages[1].startswith(says)
    assert "\n" not in messages[0]


@pytest.mark.parametrize(
    ("column", "unit", "per_second"),
    [
        ("seconds", None, 1), ("ms", None, 1e3), ("us", None, 1e6), ("took_ms", None, 1e3), ("durationNs", None, 1e9),
        ("Time [µs]", None, 1e6), ("duration_s", None, 1), ("latency (milliseconds)", None, 1e3), ("took", None, 1),
        ("took", "ms", 1e3), ("duration", "us", 1e6), ("seconds", "ms", 1e3), ("hours", None, 1 / 3600),
    ],
)  # fmt: skip
def test_recorded_times_have_the_stated_unit(
    tmp_path: Path, column: str, unit: str | None, per_second: float
) -> None:
    """The unit is in `unit` or in the column's name. Without either, a column that `seconds` names has seconds."""
    times = np.array([[0.05, 0.06], [0.07, 0.055]])
    rows = [
        {"worker": str(w), "step": str(t), column: repr(float(times[t, w] * per_second))}
        for t in range(2)
        for w in range(2)
    ]
    path = write(tmp_path / "times.csv", rows)
    found = wb.traces.load(path, unit=unit, seconds=column).table()
    np.testing.assert_allclose(found.to_numpy(), times, rtol=1e-12)
    if unit is None and unit_of(column):
        np.testing.assert_allclose(wb.traces.load(path).table(), times, rtol=1e-12)
        np.testing.assert_allclose(recorded(str(path))[0], times.T, rtol=1e-12)


@pytest.mark.parametrize(
    ("column", "unit", "says"),
    [
        ("time_min", None, "column 'time_min' may be in minutes or not; say it with unit = 's' or 'min'"),
        ("took_ms", "s", "unit = 's': the name of column 'took_ms' says 'ms'; leave one of them out"),
        ("took", "weeks", "unit = 'weeks': choose one of 's', 'ms', 'us', 'ns', 'min', 'h'"),
    ],
)
def test_recorded_refuses_an_ambiguous_unit(tmp_path: Path, column: str, unit: str | None, says: str) -> None:
    path = write(tmp_path / "times.csv", [{"worker": "0", "step": "0", column: "1"}])
    with pytest.raises(SettingError) as raised:
        wb.traces.load(path, unit=unit, seconds=column)
    assert says in str(raised.value)


def test_recorded_processor_times_have_their_own_unit(tmp_path: Path) -> None:
    rows = [{"worker": w, "step": "0", "took_ms": "50", "processor_seconds": "0.04"} for w in "ab"]
    made = wb.traces.load(write(tmp_path / "times.csv", rows))
    assert made.frame["seconds"].tolist() == [0.05, 0.05]
    assert made.frame["processor_seconds"].tolist() == [0.04, 0.04]


def test_recorded_keeps_whole_numbers_of_parquet_exact(tmp_path: Path) -> None:
    path = tmp_path / "times.parquet"
    large = 2**53
    ids = pd.array([large, large + 1, None], dtype="Int64")
    rows = pd.DataFrame({"worker": ids, "step": [0, 0, 0], "seconds": [1.0, 1.5, 1.0]})
    rows.iloc[:2].to_parquet(path)
    assert as_loaded(path).columns.tolist() == [large, large + 1]
    rows.to_parquet(path)
    with pytest.raises(SettingError, match="row 3: worker is empty"):
        wb.traces.load(path)
    rows.set_index(["worker", "step"]).iloc[:2].to_parquet(path)  # names of columns in the index of the frame
    assert as_loaded(path).columns.tolist() == [large, large + 1]


def test_recorded_phases_and_samples_are_read_alike(tmp_path: Path) -> None:
    rows = [
        {"worker": w, "step": "0", "phase": phase, "seconds": seconds, "samples": "5"}
        for w, seconds in (("a", "1"), ("b", "2"))
        for phase in ("compute: conv", "compute: dense", "wait")
    ]
    path = write(tmp_path / "times.csv", rows)
    assert as_loaded(path).to_numpy().tolist() == [[2.0, 4.0]]
    assert recorded(str(path))[0].tolist() == [[2.0], [4.0]]


def test_recorded_refuses_an_unknown_host(tmp_path: Path) -> None:
    """The master of a run has no host. In a frame, a missing host is refused like an empty field of a file."""
    frame = pd.DataFrame({"worker": [0, 1, 2], "step": [0, 0, 0], "seconds": [1.0, 1.5, 1.2]})
    made = wb.traces.Recording.of_rows(frame.assign(host=["", "NA", "b"]), "mine")
    assert made.frame["host"].tolist() == ["", "NA", "b"]
    with pytest.raises(SettingError, match=r"^path = 'mine', row 2: host is empty; fill it in for every row"):
        wb.traces.Recording.of_rows(frame.assign(host=["a", None, "b"]), "mine")
    assert set(wb.traces.Recording.of_rows(frame.assign(host=np.nan), "mine").frame["host"]) == {""}


def written(folder: Path, text: str) -> str:
    path = folder / "times.csv"
    path.write_text(text)
    return str(path)


@pytest.mark.parametrize("checked", PROPERTIES, ids=lambda checked: checked.name)
@pytest.mark.parametrize(
    "fields",
    [{}, {"block": 3}, {"resample_seed": 2, "resample_block": 2}, {"same_workers": True}, {"scale": 2.0, "fixed": 5}],
)  # fmt: skip
def test_replay_passes_the_property(tmp_path: Path, checked: Property[Any], fields: dict[str, Any]) -> None:
    """Its mean and quantiles are those of the recorded times. Recorded workers have equal weights, at any length."""
    rows = [f"{w},{i},{1 + w + i % 3}\n" for w, steps in enumerate((4, 20, 10)) for i in range(steps)]
    path = written(tmp_path, "worker,iteration,seconds\n" + "".join(rows))
    model = law_of({"kind": "replay", "path": path, "samples": 10, **fields})
    assert checked.name == "memory" or checked.but(model) == ""
    checked.test(model, {"seed": 5, "workers": 8, "samples": 3})


def test_mixtures_and_groups_of_replays_have_quantiles(tmp_path: Path) -> None:
    """A quantile of the whole is not declared if it depends on which worker has which times and which speed."""
    path = written(tmp_path, "worker,iteration,seconds\n1,0,1\n1,1,2\n2,0,3\n2,1,4\n")
    replay = {"kind": "replay", "path": path, "samples": 1}
    mixed = law_of(
        {"kind": "mixture", "components": [replay, {"kind": "constant", "shift": 9.0}], "shares": [0.5, 0.5]}
    )
    assert [mixed.quantile(q, 1) for q in (0.1, 0.2, 0.3, 0.45, 0.6)] == [1, 2, 3, 4, 9]
    assert mixed.expected(1) == pytest.approx(5.75)
    speeds: dict[str, Any] = {
        "kind": "groups",
        "common": {"kind": "constant", "shift": 0.0},
        "speeds": (1.0, 2.0),
    }
    assert law_of({**speeds, "base": replay}).quantile(0.45, 1) == pytest.approx(1.5)
    for fields in ({"same_workers": True}, {"as_recorded": False, "common_start": True}):
        assert law_of({**speeds, "base": {**replay, **fields}}).quantile(0.5, 1) is None
    for fields in ({"as_recorded": True}, {"common_start": True}):
        assert law_of({**replay, **fields}).quantile(0.5, 1) is None
