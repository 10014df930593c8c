"""Impossible file names, in any field: the error is one sentence that can be printed."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import plotly.graph_objects as go
import pytest

import workbench as wb
from workbench.analysis.planning.profile import ClusterProfile
from workbench.analysis.recordings.recording import Recording
from workbench.analysis.tables.about import keep
from workbench.core.problems.data.options import DataError
from workbench.lab.batch import background
from workbench.lab.figures.save import save
from workbench.mpi.running.replay import replay_arrivals

NAMES = {
    "half of a surrogate pair": "a\ud800b",
    "bytes of a file's name": "caf\udce9",
    "a zero": "a\0b",
    "a long name": "n" * 300,
    "a name of many bytes": "é" * 128,
    "a long path": "/".join(["p" * 200] * 30),
    "a deep path": "x/" * 2040 + "y",
}
SPEC = wb.Experiment(scheme="UMW", workers=4, rounds=2)
PLAN = {"base": {"scheme": "UMW", "workers": 4, "rounds": 2}, "seeds": 2}


def recording() -> Recording:
    rows = pd.DataFrame({"worker": [0, 1], "step": [0, 0], "seconds": [0.5, 0.7]})
    return Recording.of_rows(rows, "two")


TYPED: dict[str, Callable[[str], object]] = {
    "run": lambda p: wb.run(SPEC, engine="mpi", folder=p),
    "cluster": lambda p: wb.run(SPEC, engine="mpi", cluster=p),
    "save": lambda p: wb.run(SPEC).save(p),
    "load": wb.Trace.load,
    "runs": wb.runs,
    "export a table": lambda p: wb.runs(".").export(p, "csv"),
    "export to MLflow": lambda p: wb.runs(".").export(p, "mlflow"),
    "export a crate": lambda p: wb.runs(".").export(p, "ro-crate"),
    "keep": lambda p: keep(wb.run(SPEC), p, "name"),
    "attach": wb.attach,
    "resume": wb.resume,
    "replay": replay_arrivals,
    "stream": wb.stream,
    "diagnose": wb.diagnose,
    "traces": wb.traces.load,
    "profile": ClusterProfile.load,
    "read a spec": wb.Experiment.read,
    "write a spec": SPEC.write,
    "a sweep's plan": lambda p: wb.batch.sweep(p, "out"),
    "a sweep's folder": lambda p: wb.batch.sweep(PLAN, p),
    "a sweep's notebook": lambda p: wb.batch.sweep(PLAN, "out", notebook=p),
    "start a sweep": lambda p: wb.batch.start(PLAN, p),
    "attach to a sweep": background.attach,
    "write a recording": lambda p: recording().write(p + ".csv"),
    "save a figure": lambda p: save(go.Figure(), p + ".html"),
    "explore": lambda p: wb.explore("", p),
    "the table": wb.RunsTable,
    "data": lambda p: wb.run(SPEC.replace(problem_args={"data": p + ".csv"})),
    "recorded delays": lambda p: wb.run(SPEC.replace(delays={"kind": "replay", "path": p + ".csv"})),
}


@pytest.mark.parametrize("where", TYPED)
def test_user_path_refuses_an_impossible_name(
    where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for kind, name in NAMES.items():
        with pytest.raises((wb.SettingError, DataError)) as caught:
            TYPED[where](name)
        text = str(caught.value)
        assert "\n" not in text, kind
        assert len(text) < 400, kind
        text.encode()
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(os.name != "posix", reason="names are bytes")
def test_runs_shows_folders_whose_names_are_not_text(tmp_path: Path) -> None:
    saved = wb.run(SPEC).save(tmp_path / "good")
    saved.rename(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9"))
    wb.run(SPEC).save(tmp_path / "good")
    runs = wb.runs(tmp_path)
    assert sorted(runs.table["state"]) == ["damaged", "done"]
    (row,) = runs.table[runs.table["state"] == "damaged"].to_dict("records")
    assert row["run"] == "caf\\xe9"
    assert "not text in UTF-8" in row["error"]
    repr(runs).encode()
    runs.export(tmp_path / "t.csv").read_text()
    for form in ("mlflow", "ro-crate"):
        runs.export(tmp_path / form, form)


def test_runs_reports_a_removed_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    with pytest.raises(wb.SettingError):
        wb.runs("runs")
