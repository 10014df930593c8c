"""Recordings with one damaged value: every reader refuses it with file, row and reason, and none ignores it."""

from __future__ import annotations

import json
import pickle
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml

import workbench as wb
from tests.support.profiler_files import events, rank, write
from workbench.analysis.planning.measuring import simulated
from workbench.analysis.recorder.steps import ROW, Place, write_steps
from workbench.core.base.settings import SettingError

RANKS, STEPS, ROW_OF_DAMAGE = 3, 6, 7  # the damaged value is that of rank 1 in step 2
NUMBERS = {"nan": "nan", "negative": "-0.5", "text": "abc", "commas": "1,234", "empty": ""}


def lines(form: Callable[[int, int, str], str], value: str, cut: bool, first: str = "") -> str:
    """Return a line for each rank and step. `cut`: the damaged one ends before its value."""
    found = [form(r, t, "0.5") for t in range(STEPS) for r in range(RANKS)]
    mark = form(1, 2, "@")
    found[ROW_OF_DAMAGE] = mark.partition("@")[0].rstrip("|,") if cut else mark.replace("@", value)
    return first + "\n".join(found) + "\n"


def in_text(name: str, form: Callable[[int, int, str], str], first: str = "") -> Callable[..., Path]:
    def build(folder: Path, value: str, cut: bool) -> Path:
        (folder / name).write_text(lines(form, value, cut, first))
        return folder / name

    return build


def quoted(value: str) -> str:
    return f'"{value}"' if "," in value else value


def as_number(value: str) -> Any:
    """Return the value as a file of types would hold it: a number if it is one, else text or nothing."""
    try:
        return float(value)
    except ValueError:
        return value or None


def bytedance(folder: Path, value: str, cut: bool) -> Path:
    table = pd.DataFrame([
        {"dp_rank": r, "stage": 0, "rank": r, "step": t, "optype": "forward-compute", "start_ts": 0.0,
         "duration": 0.5, "seq_id": 0} for t in range(STEPS) for r in range(RANKS)
    ]).astype({"rank": object, "duration": object})  # fmt: skip
    table.at[ROW_OF_DAMAGE, "rank" if cut else "duration"] = None if cut else as_number(value)
    if not isinstance(as_number(value), str) or cut:
        table = table.astype({"rank": float, "duration": float})
    else:
        table = table.astype({"rank": float, "duration": str})
    table.to_parquet(folder / "trace-AR.parquet")
    return folder / "trace-AR.parquet"


def lambdas(folder: Path, value: str, cut: bool) -> Path:
    rounds: list[dict[str, Any]] = [
        {"round": t, "results": [{"worker_id": r, "started": 0.0, "finished": 0.5} for r in range(RANKS)]}
        for t in range(STEPS)
    ]
    damaged = rounds[2]["results"][1]
    damaged["finished"] = as_number(value)
    if cut:
        del damaged["finished"]
    (folder / "w3-n2-l0.pkl").write_bytes(pickle.dumps(rounds))
    return folder / "w3-n2-l0.pkl"


def recorder(folder: Path, value: str, cut: bool) -> Path:
    for r in range(RANKS):
        rows = np.zeros(STEPS, ROW)
        rows["step"], rows["forward"], rows["exchange"] = np.arange(STEPS), 0.5, 0.1
        if r == 1:
            rows["forward"][2] = as_number(value)
        write_steps(folder, Place(r, 0, 0), rows, {"format": 1, "host": "a", "cores": 8})
    return folder


def traceml(folder: Path, value: str, cut: bool) -> Path:
    rows = {
        str(r): {"identity": {"global_rank": r}, "metrics": {"forward_ms": 500.0, "backward_ms": 9.0}}
        for r in range(RANKS)
    }
    rows["1"]["metrics"]["forward_ms"] = as_number(value)
    if cut:
        del rows["1"]["metrics"]
    section = {"global": {}, "groups": {"rows": rows}}
    file = folder / "final_summary.json"
    file.write_text(json.dumps({"schema_version": 1.7, "primary_diagnosis": {}, "step_time": section}))
    return file


def reports(folder: Path, value: str, cut: bool) -> Path:
    text = "".join(
        f"GPU relative performance:\n{''.join(f'  Rank={r} Node=n Score=@{t}{r}@' + chr(10) for r in range(RANKS))}\n"
        for t in range(STEPS)
    )
    text = text.replace("Score=@21@", "" if cut else f"Score={value}")
    (folder / "train.log").write_text(re.sub(r"@\d+@", "0.5", text))
    return folder / "train.log"


def kineto(folder: Path, value: str, cut: bool) -> Path:
    for r in range(RANKS):
        some = events([0.4] * STEPS)
        if r == 1:
            some[5]["dur"] = as_number(value)
            if cut:
                del some[5]["ts"]
        write(folder / f"n{r}_1.1.pt.trace.json", some, **rank(r))
    return folder


def profile(folder: Path, value: str, cut: bool) -> Path:
    file = simulated(wb.Experiment(scheme="UMW", workers=RANKS), rounds=8, resamples=1).save(
        folder / "c.yaml"
    )
    fields = yaml.safe_load(file.read_text())
    row = fields["recorded"][0]["seconds"][2]
    row[1] = as_number(value)
    if cut:
        del row[1]
    file.write_text(yaml.safe_dump(fields))
    return file


READERS: dict[str, Callable[..., Path]] = {
    "table": in_text("t.csv", lambda r, t, s: f"{r},{t},{quoted(s)}", "worker,step,seconds\n"),
    "ddp": in_text(
        "times.csv", lambda r, t, s: f"{r},{t},{quoted(s)},0.1,4,1", "worker,step,seconds,cpu,samples,used\n"
    ),
    "alibaba": in_text(
        "job_1_norm.csv", lambda r, t, s: f"{r},{t},{quoted(s)}", "worker,time,batch_time_norm\n"
    ),
    "ec2": in_text("data4.txt", lambda r, t, s: f"h{r}_{s}"),
    "sacct": in_text(
        "j.txt", lambda r, t, s: f"{t}_{r}|train|COMPLETED|{s.replace('0.5', '00:01:00')}",
        "JobID|JobName|State|Elapsed\n",
    ),
    "steps": in_text("train.log", lambda r, t, s: f"rank {r} step {t} step_time: {s} ms"),
    "json": in_text(
        "train.jsonl", lambda r, t, s: json.dumps({"rank": r, "step": t, "step_time_s": as_number(s)})
        if s != "@" else f'{{"rank": {r}, "step": {t}, "step_time_s": "@"}}',
    ),
    "bytedance": bytedance, "lambda": lambdas, "recorder": recorder, "traceml": traceml, "nvrx": reports,
    "kineto": kineto, "profile": profile,
}  # fmt: skip
# a value that is documented to be missing, which is left out: there is nothing to refuse
LEFT_OUT = {
    ("steps", "text"), ("steps", "empty"), ("steps", "short"),  # lines without a time
    ("traceml", "empty"), ("nvrx", "nan"), ("nvrx", "short"), ("nvrx", "empty"),  # metrics and scores not measured
    ("kineto", "empty"),  # an operation without an end: its step is unfinished
    ("recorder", "text"), ("recorder", "commas"), ("recorder", "empty"), ("recorder", "short"),  # fields of numbers
}  # fmt: skip
CASES = [(name, kind) for name in READERS for kind in (*NUMBERS, "short") if (name, kind) not in LEFT_OUT]
PLACES = r"line \d+|row \d+|step \d+|\[\d+\]|\[1\]|round \d+|seconds\.\d+"


@pytest.mark.parametrize(("name", "kind"), CASES)
def test_damaged_value_is_refused_with_file_and_row(name: str, kind: str, tmp_path: Path) -> None:
    path = READERS[name](tmp_path, NUMBERS.get(kind, "0.5"), kind == "short")
    with pytest.raises(SettingError) as found:
        wb.traces.load(path)
    text = str(found.value)
    assert path.name in text
    assert re.search(PLACES, text), text
    assert "\n" not in text


@pytest.mark.parametrize("name", READERS)
def test_recording_without_damage_is_read(name: str, tmp_path: Path) -> None:
    found = wb.traces.load(READERS[name](tmp_path, "00:01:00" if name == "sacct" else "0.5", False))
    job = found.job(found.names[0])
    assert job.frame["worker"].nunique() == RANKS
    assert np.isfinite(job.frame["seconds"]).all()


@pytest.mark.parametrize("name", ["t.csv", "times.csv", "job_1_norm.csv", "data4.txt", "train.log", "a.parquet",
                                  "w3-n2-l0.pkl", "final_summary.json", "a.pt.trace.json", "c.yaml"])  # fmt: skip
def test_empty_file_is_refused(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(b"")
    with pytest.raises(SettingError, match=re.escape(name)) as found:
        wb.traces.load(tmp_path / name)
    assert "\n" not in str(found.value)


@pytest.mark.parametrize(
    "name", ["sacct", "ec2", "bytedance", "lambda", "recorder", "nvrx", "kineto", "traceml"]
)
def test_unit_of_a_file_with_its_own_is_refused(name: str, tmp_path: Path) -> None:
    path = READERS[name](tmp_path, "00:01:00" if name == "sacct" else "0.5", False)
    with pytest.raises(SettingError, match=r"unit = 'ms': .* has its own unit"):
        wb.traces.load(path, unit="ms")


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("rank 0 step 1 step_time: 1,234", "line 1: step_time = 1,234: is not a time"),
        ("rank 0 step 1 step_time: 1,234.5", "line 1: step_time = 1,234.5: is not a time"),
        ("rank 0 step 1,234 step_time: 5", "line 1: step = 1,234: write it without commas"),
        ("rank 0 step 1 step_time: -3", "line 1: step_time = -3: is not a time"),
        ("rank 0 step 1 step_time: 1e400", "line 1: step_time = 1e400: is not a time"),
    ],
)
def test_numbers_of_a_log_are_not_read_in_part(line: str, why: str, tmp_path: Path) -> None:
    (tmp_path / "train.log").write_text(line + "\n")
    with pytest.raises(SettingError, match=re.escape(why)):
        wb.traces.load(tmp_path / "train.log", unit="ms")
