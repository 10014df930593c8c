"""The format of a recording: refused files, and properties that replays preserve."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import workbench as wb
from tests.support.synthetic_recordings import healthy, public, recording
from workbench.analysis.recordings import Recording
from workbench.analysis.recordings.spells import lengths
from workbench.core.base.settings import SettingError
from workbench.core.contract.delays import DelayStream

GOOD = pd.DataFrame({"worker": [0, 1], "step": [0, 0], "seconds": [1.0, 2.0]})


@pytest.mark.parametrize(
    ("rows", "text"),
    [
        (GOOD.assign(seconds=[1.0, -2.0]), "row 2: seconds = -2.0: times are finite and at least 0"),
        (GOOD.assign(seconds=[1.0, np.nan]), "row 2: seconds = nan"),
        (GOOD.assign(seconds=["1", "soon"]), "row 2: seconds = soon"),
        (GOOD.assign(step=[0, 0.5]), "row 2: step = 0.5: steps are whole numbers"),
        (
            GOOD.assign(processor_seconds=[0.5, -1.0]),
            "row 2: processor_seconds = -1.0: a processor's seconds",
        ),
        (GOOD.assign(worker=[0, 0]), "row 2: step = 0: worker and step are those of a row before"),
        (GOOD.assign(worker=[None, 0]), "row 1: worker is empty; fill it in"),
        (GOOD[:0], "there is no row"),
        (GOOD.drop(columns="seconds"), r"lacks columns \['seconds'\]; it has \['worker', 'step'\]"),
    ],
)
def test_recording_refuses_bad_rows(rows: pd.DataFrame, text: str) -> None:
    with pytest.raises(SettingError, match=text):
        Recording.of_rows(rows, "mine")


JOB = pd.DataFrame(
    [(w, t, 1.0 + 0.1 * w) for t in range(12) for w in range(5)], columns=["worker", "step", "seconds"]
)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_recording_reports_file_and_line_of_a_bad_value(data: st.DataObject) -> None:
    """In any row, a bad value is refused: negative, missing, not a number, a date, or after a change of the clock."""
    place = data.draw(st.integers(0, len(JOB) - 1))
    value = data.draw(
        st.sampled_from([np.nan, np.inf])
        | st.floats(-1e6, -1e-9)
        | st.floats(2e8, 1e18)
        | st.floats(1.5e4, 9e7)
    )
    rows = JOB.copy()
    rows.loc[place, "seconds"] = value
    with pytest.raises(SettingError) as told:
        Recording.of_rows(rows, "mine", file="mine.csv")
    assert str(told.value).startswith(f"path = 'mine.csv', line {place + 2}: seconds = ")
    assert any(word in str(told.value) for word in ("Leave", "Give"))


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 4), st.sampled_from([1e3, 1e-3, 1e6, 1e-6]))
def test_recording_detects_a_worker_in_other_units(worker: int, factor: float) -> None:
    rows = JOB.assign(seconds=JOB["seconds"] * np.where(JOB["worker"] == worker, factor, 1.0))
    with pytest.raises(SettingError, match=rf"row {worker + 1}: seconds = .*Bring all to one unit"):
        Recording.of_rows(rows, "mine")


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 4), st.sampled_from([1e3, 1e-3]))
def test_recording_with_a_stated_unit_may_have_a_worker_that_is_far_apart(worker: int, factor: float) -> None:
    rows = JOB.assign(seconds=JOB["seconds"] * np.where(JOB["worker"] == worker, factor, 1.0))
    found = wb.diagnose(Recording.of_rows(rows, "mine", unit="s"))
    notice = f"worker {worker}: times are over 300 times as long as others"
    assert (notice in str(found)) == (factor > 1)
    assert (notice in found.card().split("<details>")[0]) == (factor > 1)
    assert "check their units" not in str(wb.diagnose(Recording.of_rows(JOB, "mine")))
    pair = rows[rows["worker"].isin([worker, (worker + 1) % 5])]  # the median of two workers is not usual
    longest = worker if factor > 1 else (worker + 1) % 5
    assert f"worker {longest}: times are over" in str(wb.diagnose(Recording.of_rows(pair, "two", unit="s")))


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 11), st.sampled_from([1e3, 1e-3, 1e6, 1e-6]))
def test_recording_detects_a_change_of_units(step: int, factor: float) -> None:
    """One or two longer steps at an end are accepted, since a job may compile first or be delayed."""
    rows = JOB.assign(seconds=JOB["seconds"] * np.where(JOB["step"] >= step, factor, 1.0))
    if 3 <= step <= 9:
        with pytest.raises(SettingError, match=rf"row {5 * step + 1}: .*before.*Bring all to one unit"):
            Recording.of_rows(rows, "mine")
    elif 1e-3 <= factor <= 1e3:
        assert Recording.of_rows(rows, "mine").steps == 12


def test_recording_takes_no_waiting_for_a_change_of_units() -> None:
    """A worker becomes slow halfway. Before that, the others hardly wait."""
    slow = (JOB["worker"] == 3) & (JOB["step"] >= 5)
    work = JOB.assign(phase="compute", seconds=JOB["seconds"] + slow)
    late = (JOB["step"] >= 5) & (JOB["worker"] != 3)
    waits = JOB.assign(phase="wait", seconds=np.where(late, 0.9, 1e-6))
    assert Recording.of_rows(pd.concat([work, waits]), "mine").steps == 12


@settings(max_examples=30, deadline=None)
@given(st.floats(1e-6, 1e5), st.floats(1.0, 100.0))
def test_recording_accepts_slow_workers_and_scaled_times(scale: float, slow: float) -> None:
    seconds = JOB["seconds"] * scale * np.where(JOB["worker"] == 3, slow, 1.0)
    assert Recording.of_rows(JOB.assign(seconds=seconds), "mine").steps == 12


def test_recording_separates_several_jobs() -> None:
    both = Recording.of_rows(pd.concat([GOOD.assign(recording=name) for name in ("a", "b")]), "two")
    assert both.names == ["a", "b"]
    assert both.job("b").table().shape == (1, 2)
    with pytest.raises(SettingError, match="recording = None: choose one of 'a', 'b'"):
        both.table()


def test_recording_table_is_of_one_phase() -> None:
    rows = pd.concat([GOOD.assign(phase="compute"), GOOD.assign(phase="exchange", seconds=[9.0, 8.0])])
    found = Recording.of_rows(rows, "two phases")
    assert found.table().to_numpy().tolist() == [[1.0, 2.0]]
    assert found.table("exchange").to_numpy().tolist() == [[9.0, 8.0]]
    with pytest.raises(SettingError, match="phase = 'port': choose one of 'compute', 'exchange'"):
        found.table("port")


def replayed(made: Recording, how: str, rounds: int, workers: int, seed: int = 0, **more: int) -> np.ndarray:
    delay_model = made.delays(how, **more)  # type: ignore[arg-type]
    stream = DelayStream(delay_model, seed, workers)
    return np.stack([delay_model.compute(stream.draw(r), np.ones(workers)) for r in range(rounds)])


@pytest.mark.parametrize("workers", [1, 4, 9])
def test_recording_replay_keeps_the_recorded_order(workers: int) -> None:
    times = np.random.default_rng(0).random((30, 4)) + 1.0
    found = replayed(recording(times), "recorded", 45, workers)
    for column in found.T:
        matches = [
            all(np.isclose(column[r], times[(start + r) % 30, w]) for r in range(45))
            for w in range(4)
            for start in range(30)
        ]
        assert any(matches)


def test_recording_replay_in_blocks_keeps_short_bursts() -> None:
    rng = np.random.default_rng(1)
    times = np.ones((400, 6))
    for worker in range(6):
        for start in rng.choice(39, 12, replace=False) * 10 + rng.integers(0, 5, 12):
            times[start : start + 5, worker] = 3.0
    made = recording(times)
    kept = {how: lengths(replayed(made, how, 400, 60) > 2).mean() for how in ("recorded", "blocks")}
    alone = lengths(replayed(made, "blocks", 400, 60, block=1) > 2).mean()
    whole = lengths(times > 2).mean()
    assert abs(kept["recorded"] - whole) < 0.5
    assert 0.6 * whole < kept["blocks"] < whole + 0.5  # bursts are cut at the ends of blocks
    assert alone < 1.5
    for how in (
        "recorded",
        "blocks",
    ):  # round times are preserved, since workers were late at different times
        assert np.isclose(replayed(made, how, 400, 6).max(axis=1).mean(), times.max(axis=1).mean(), rtol=0.1)


def test_recording_fitted_law_replays_on_any_number_of_workers() -> None:
    rng = np.random.default_rng(2)
    made = recording(1.0 + rng.exponential(0.5, (200, 8)))
    delay_model = made.delays("fitted", samples=1000 / 12)
    assert delay_model.kind == "shifted_exponential"  # type: ignore[attr-defined]
    wb.run(wb.Experiment(scheme="GC", workers=12, rounds=5, delays=delay_model))


def test_recording_save_and_load_round_trip(tmp_path: Path) -> None:
    made = recording(healthy(20, 5, np.random.default_rng(3)))
    for ending in (".csv", ".parquet"):
        back = wb.traces.load(made.write(tmp_path / f"times{ending}"))
        np.testing.assert_allclose(back.table().to_numpy(), made.table().to_numpy(), rtol=1e-15)


def test_recording_of_ec2_times_runs() -> None:
    made = wb.traces.load(public("ec2_traces.csv")).job("ec2-6")
    delay_model = made.delays("blocks")
    trace = wb.run(
        wb.Experiment(scheme="UMW", workers=20, rounds=10, delays=delay_model, problem_args={"samples": 20})
    )
    assert trace.columns["time"][0] >= 20.0


def test_recording_replay_states_what_it_keeps() -> None:
    """Replays preserve bursts and slow workers. The fitted model preserves only what its parameters describe."""
    rng = np.random.default_rng(5)
    times = 1 + 0.1 * rng.exponential(size=(300, 6))
    times[:, 2] *= 2.0
    for start in rng.choice(29, 8, replace=False) * 10:
        times[start : start + 6, 4] *= 4.0
    found = recording(times).replays(rounds=300)
    assert list(found.index) == ["as it was", "recorded", "blocks", "fitted"]
    assert np.isclose(found.loc["recorded", "burst"], found.loc["as it was", "burst"], rtol=0.35)
    assert found.loc["fitted", "maximum"] != found.loc["as it was", "maximum"]


def test_recording_metadata_are_croissant(tmp_path: Path) -> None:
    made = recording(healthy(20, 5, np.random.default_rng(3)))
    told = made.croissant("times.csv")
    (file,) = told["distribution"]
    written = made.write(tmp_path / "times.csv").read_bytes()
    assert file["sha256"] == hashlib.sha256(written).hexdigest()
    header = written.decode().splitlines()[0].split(",")
    assert [field["source"]["extract"]["column"] for field in told["recordSet"][0]["field"]] == header
    with pytest.raises(SettingError, match="file = "):
        made.croissant("times.xlsx")


TABLE = pd.DataFrame({"worker": [0, 1, 0, 1], "step": [0, 0, 1, 1], "seconds": [0.5, 0.7, 0.6, 0.5]})
ODD: list[Any] = [
    np.inf,
    np.nan,
    -1,
    None,
    "x",
    "",
    [],
    {},
    [1],
    object(),
    1e300,
    1 + 2j,
    np.ones((3, 3)),
    b"x",
    pd.NaT,
]


@pytest.mark.parametrize("given", ODD, ids=lambda value: f"{type(value).__name__} {value}"[:20])
def test_recording_refuses_what_is_not_a_table_of_times(given: Any) -> None:
    for make, field in (
        (lambda: Recording(given), "frame"),
        (lambda: Recording.of_rows(given, "mine"), "rows"),
    ):
        with pytest.raises(SettingError, match=rf"^{field} = .*: give a pandas DataFrame; "):
            make()


@pytest.mark.parametrize(
    "column", ["worker", "step", "seconds", "host", "phase", "recording", "processor_seconds"]
)
@pytest.mark.parametrize("given", ODD, ids=lambda value: f"{type(value).__name__} {value}"[:20])
def test_recording_accepts_or_refuses_odd_values(column: str, given: Any) -> None:
    frame = Recording.of_rows(TABLE, "mine").frame.astype(object)
    frame.at[1, column] = given
    for make in (lambda: Recording(frame), lambda: Recording.of_rows(frame, "mine")):
        text = ""
        try:
            assert str(make().card())
        except SettingError as error:
            text = str(error)
        assert "\n" not in text


@pytest.mark.parametrize(
    ("frame", "says"),
    [
        (TABLE[["worker", "step"]], r"lacks columns \['recording', 'host'"),
        (Recording.of_rows(TABLE, "mine").frame.iloc[:0], "there is no row"),
        (pd.concat([TABLE, TABLE], axis=1), "has more than one column worker, step, seconds"),
        (
            TABLE.assign(recording="a", host="", phase="compute", samples=1.0, processor_seconds=-1.0),
            "at least 0",
        ),
        (
            TABLE.assign(
                seconds=-TABLE["seconds"],
                recording="a",
                host="",
                phase="compute",
                samples=1.0,
                processor_seconds=1.0,
            ),
            "at least 0",
        ),
    ],
)
def test_recording_refuses_tables_of_the_wrong_shape(frame: pd.DataFrame, says: str) -> None:
    with pytest.raises(SettingError, match=says):
        Recording(frame)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda job: job.replays(workers=np.inf), "workers = inf"),
        (lambda job: job.replays(rounds=0), "rounds = 0: take 1 or more"),
        (lambda job: job.replays(seed=-1), "seed = -1: take 0 or more"),
        (lambda job: job.delays("blocks", block=0), "block = 0: take 1 or more"),
        (lambda job: job.delays("new"), "how = 'new': choose one of 'recorded', 'blocks', 'fitted'"),
        (lambda job: job.table(values="x"), "values = 'x': choose one of 'seconds', 'processor_seconds'"),
        (lambda job: job.table(phase=[1]), r"phase = \[1\]: choose one of 'compute'"),
        (lambda job: job.job([1]), r"recording = \[1\]: choose one of 'mine'"),
        (lambda job: job.croissant(5), "file = 5"),
    ],
)
def test_recording_refuses_invalid_arguments(call: Callable[[Recording], Any], says: str) -> None:
    with pytest.raises(SettingError, match=f"^{says}"):
        call(Recording.of_rows(TABLE, "mine"))
