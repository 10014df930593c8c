"""Text that a spreadsheet would evaluate: escaped on writing, restored on reading."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import workbench as wb
from workbench.analysis.recordings.recording import Recording
from workbench.analysis.tables.about import keep
from workbench.core.base.formulas import escaped, restored, to_csv
from workbench.core.contract.delays import Replay
from workbench.core.contract.delays.base import CounterRNG

STARTS = "=+-@\t\r\n"
FORMULAS = [
    "=cmd|' /C calc'!A0",
    "+1+1",
    "-2+3+cmd|' /C calc'!A0",
    "@SUM(A1)",
    "\t=1",
    "\r=1",
    "=HYPERLINK(1)",
]


@given(st.text(st.sampled_from("=+-@'\t\r\n,\"1a.e "), max_size=6))
def test_escaped_text_is_never_a_formula_and_is_restored(text: str) -> None:
    written = escaped(text)
    assert restored(written) == text
    assert not written.startswith(tuple(STARTS)) or _is_number(text)


def _is_number(text: str) -> bool:
    try:
        return np.isfinite(float(text))
    except ValueError:
        return False


@pytest.mark.parametrize("value", [-1.5, -3, float("-inf"), True, None, "-1.5", "+2", "-1e-3", "plain"])
def test_escaped_keeps_numbers_and_plain_text(value: Any) -> None:
    assert escaped(value) is value


def cells(content: bytes) -> list[list[str]]:
    return list(csv.reader(io.StringIO(content.decode(), newline="")))


def test_to_csv_escapes_names_of_columns() -> None:
    frame = pd.DataFrame([[-1.5, "=1", -2]], columns=["=cmd", "b", "c"])
    assert cells(to_csv(frame)) == [["'=cmd", "b", "c"], ["-1.5", "'=1", "-2"]]
    back = pd.read_csv(io.BytesIO(to_csv(frame))).rename(columns=restored).map(restored)
    pd.testing.assert_frame_equal(back, frame)


def test_runs_table_exports_no_formula(tmp_path: Path) -> None:
    experiment = wb.Experiment(scheme="UMW", workers=4, rounds=2)
    for i, text in enumerate(FORMULAS):
        name = f"{text.strip()} {i}"
        keep(
            wb.run(experiment.replace(seed=i)), tmp_path / "runs", name, note=f"{text} x", tags=[f"{text} y"]
        )
    table = wb.runs(tmp_path / "runs")
    content = table.export(tmp_path / "t.csv").read_bytes()
    header, *rows = cells(content)
    for row in rows:
        for cell in row:
            assert not cell.startswith(tuple(STARTS)) or _is_number(cell), cell
    assert [float(row[header.index("loss")]) for row in rows] == table.table["loss"].tolist()
    assert {row[header.index("note")].lstrip("'") for row in rows} == set(table.table["note"])


def test_recording_names_round_trip_despite_escaping(tmp_path: Path) -> None:
    names = [*FORMULAS[:4], "-1", "w"]
    rows = [(name, step, 1.0 + step + i / 10) for i, name in enumerate(names) for step in range(3)]
    recording = Recording.of_rows(pd.DataFrame(rows, columns=["worker", "step", "seconds"]), "=job")
    file = recording.write(tmp_path / "t.csv")
    assert all(not cell.startswith(tuple("=+@")) for row in cells(file.read_bytes()) for cell in row)
    again = wb.traces.load(file)
    assert set(map(str, again.frame["worker"])) == set(names)
    assert again.names == ["=job"]
    delay_model = Replay(path=str(file), experiment="=job")
    assert delay_model.draw(CounterRNG(0), 0, 4, 0, None).shape[-1] == 4
