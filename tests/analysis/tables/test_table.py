"""The table of all runs, read from their folders."""

from __future__ import annotations

import json
import os
import pickle
import re
import shutil
import time
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import workbench as wb
from tests.support.foreign_folders import forged
from tests.support.sampled_cases import sampled_cases
from workbench.analysis.tables.about import delete
from workbench.analysis.tables.exports import export
from workbench.analysis.tables.importance import importance
from workbench.analysis.tables.rows import settings_of
from workbench.analysis.tables.status import Status
from workbench.analysis.tables.table import Runs
from workbench.cli.main import cli
from workbench.core.base.intervals import band
from workbench.core.base.locks import Lock
from workbench.core.base.settings import SettingError
from workbench.lab.figures.speedups import speedups

CASES = [
    {"scheme": "UMW"},
    {"scheme": "GC", "scheme_args": {"stragglers": 1}},
    {"scheme": "GC", "scheme_args": {"stragglers": 2}},
]


@pytest.fixture(scope="module")
def traces() -> list[wb.Trace]:
    return wb.compare(
        [wb.Experiment(workers=4, rounds=6, seed=seed, **case) for case in CASES for seed in range(3)]
    )


@pytest.fixture(scope="module")
def folder(traces: list[wb.Trace], tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("runs")
    for i, trace in enumerate(traces):
        trace.save(root / "some" / f"{i}")
    return root


@pytest.fixture
def runs(folder: Path) -> Runs:
    return wb.runs(folder)


def test_runs_results_equal_the_traces(runs: Runs, traces: list[wb.Trace]) -> None:
    assert list(runs.table["run"]) == [f"some/{i}" for i in range(9)]
    for row, trace in zip(runs.table.to_dict("records"), traces, strict=True):
        rounds = trace.rounds
        assert row["time"] == rounds["time"].iloc[-1]
        assert row["round_time"] == pytest.approx(rounds["time"].diff().fillna(rounds["time"]).mean())
        assert row["loss"] == rounds["loss"].iloc[-1]
        assert row["accuracy"] == rounds["accuracy"].iloc[-1]
        for name in ("messages", "bytes", "downloads", "samples", "stale"):
            assert row[name] == rounds[name].sum()
        assert row["residual"] == rounds["residual"].mean()
        assert row["seed"] == trace.experiment.seed


def test_every_setting_has_a_column_with_its_own_type(runs: Runs) -> None:
    stragglers = runs.table["scheme_args.stragglers"]
    assert stragglers.isna().tolist() == [True] * 3 + [False] * 6
    assert stragglers.dropna().tolist() == [1] * 3 + [2] * 3
    assert "float" not in str(stragglers.dtype)
    assert set(settings_of(wb.Experiment(**CASES[0]))) <= set(runs.table)
    assert runs.table["delays.kind"].unique().tolist() == ["shifted_exponential"]


def test_runs_varied_columns_are_the_users(runs: Runs) -> None:
    assert runs.differing == ["scheme", "seed", "scheme_args.stragglers"]
    assert "scheme_args.code" not in runs.short()
    assert runs.where(scheme="UMW").differing == ["seed"]


def test_runs_where_filters_rows(runs: Runs) -> None:
    assert len(runs.where(scheme="GC")) == 6
    assert len(runs.where({"scheme_args.stragglers": [1, 2]}, seed=0)) == 2
    assert len(runs.where(seed=lambda seed: seed > 0)) == 6
    assert len(runs.where({"scheme_args.stragglers": lambda s: s > 0})) == 6  # UMW has no such parameter
    assert set(runs.where({"scheme_args.stragglers": None}).table["scheme"]) == {"UMW"}
    assert len(runs.where(scheme="GD")) == 0
    assert "no runs" in repr(runs.where(scheme="GD"))
    with pytest.raises(SettingError, match=r"column = 'schme'.*scheme"):
        runs.where(schme="GC")


def test_means_and_bands_over_seeds(runs: Runs) -> None:
    table = runs.mean("time")
    assert table.columns.tolist()[:2] == ["scheme", "scheme_args.stragglers"]
    assert table["n"].tolist() == [3, 3, 3]
    for row in table.to_dict("records"):
        chosen = runs.where(scheme=row["scheme"])
        if row["scheme"] == "GC":
            chosen = chosen.where({"scheme_args.stragglers": row["scheme_args.stragglers"]})
        known = band(chosen.table["time"].to_numpy())
        assert (row["mean"], row["low"], row["high"]) == (
            pytest.approx(known.mean),
            pytest.approx(known.low),
            pytest.approx(known.high),
        )
    assert runs.mean("loss", by="scheme")["n"].tolist() == [6, 3]
    wide, narrow = (runs.mean("time", level=level)["high"] for level in (0.99, 0.5))
    assert (wide > narrow).all()
    alone = runs.where(seed=0, scheme="UMW").mean("time")
    assert alone["n"].tolist() == [1]
    assert alone[["low", "high", "std"]].isna().all(axis=None)
    with pytest.raises(SettingError, match="not a column of numbers"):
        runs.mean("scheme")


def test_runs_time_to_target(folder: Path, traces: list[wb.Trace]) -> None:
    target = float(np.median([trace.columns["loss"][2] for trace in traces]))
    table = wb.runs(folder, target=target).table
    expected = [trace.time_to(target) for trace in traces]
    assert np.array_equal(table["time_to"], expected, equal_nan=True)
    assert np.isfinite(expected).any()
    never = wb.runs(folder, target=0.0).mean("time_to", by="scheme")
    assert (never["n"].tolist(), never["never"].tolist()) == ([0, 0], [6, 3])
    with pytest.raises(SettingError, match="metric = 'lss'"):
        wb.runs(folder, target=1.0, metric="lss")


@pytest.mark.parametrize("batch", [None, 60])
def test_runs_time_to_a_metric_of_held_out_samples(tmp_path: Path, batch: int | None) -> None:
    args = {"data": "breast_cancer", "test": 0.25}
    e = wb.Experiment(scheme="UMW", workers=4, rounds=20, problem_args=args, batch=batch)
    trace = wb.run(e)
    trace.save(tmp_path / "run")
    target = float(np.quantile(trace.columns["test_accuracy"], 0.6))
    row = wb.runs(tmp_path, target=target, metric="test_accuracy").table.iloc[0]
    assert row["time_to"] == trace.time_to(target, "test_accuracy") > 0
    assert row["rounds_to"] == 1 + trace.columns["time"].tolist().index(row["time_to"])
    assert row["test_auc"] == trace.columns["test_auc"][-1]
    assert row["problem_args.test"] == 0.25


def test_export_and_traces(runs: Runs, traces: list[wb.Trace], tmp_path: Path) -> None:
    csv = pd.read_csv(runs.export(tmp_path / "deep" / "table.csv"))
    parquet = pd.read_parquet(runs.export(tmp_path / "table.parquet"))
    assert csv["time"].tolist() == parquet["time"].tolist() == runs.table["time"].tolist()
    assert csv["scheme_args.stragglers"].dropna().tolist() == [1] * 3 + [2] * 3
    assert all(a.same(b) for a, b in zip(runs.traces(), traces, strict=True))
    with pytest.raises(SettingError, match=r"no format for '\.xlsx'"):
        runs.export(tmp_path / "table.xlsx")
    assert "UMW" in runs._repr_html_()


def test_runs_table_lists_unfinished_runs_without_results(tmp_path: Path, traces: list[wb.Trace]) -> None:
    spec = wb.Experiment(rounds=7).model_dump(mode="json")
    for state in ("failed", "interrupted", "running"):
        (tmp_path / state).mkdir()
        Status(state, spec, error="why" if state == "failed" else "").write(tmp_path / state)
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "status.json").write_text("{")
    for name in ("spec.json", "rounds.parquet"):
        traces[0].save(tmp_path / f"half-{name}")
        (tmp_path / f"half-{name}" / name).write_text("{")
    table = wb.runs(tmp_path).table.set_index("run")
    assert table["state"].to_dict() == {
        "broken": "damaged",
        "failed": "failed",
        "half-rounds.parquet": "damaged",
        "half-spec.json": "damaged",
        "interrupted": "interrupted",
        "running": "unfinished",  # no sweep process is active for this folder
    }
    assert table.loc["failed", ["error", "rounds", "scheme"]].tolist() == ["why", 7, "CR"]
    assert (table.loc[table["state"] == "damaged", "error"] != "").all()
    assert len(wb.runs(tmp_path).traces()) == 0
    aimed = wb.runs(tmp_path, target=0.1).table.set_index("run")
    assert (
        aimed["error"].to_dict() == table["error"].to_dict()
    )  # runs without rounds are not searched for the target


ODD = {
    "run.json": ["", "{", "[]", "3", "null", '{"engine": ["sim"]}', '"engine"', "\0", "[" * 5000],
    "spec.json": ["", "[]", "3", "null", '{"scheme": "no such"}', '{"workers": []}', "{" * 3000],
    "status.json": ["", "[]", "3", '{"state": []}', '{"state": "done", "spec": 3}', '{"x": 1}', "[" * 5000],
    "about.json": ["", "[]", '{"tags": 3}', '{"when": 3}', '{"name": ["x"]}', '{"note": {}}', "[" * 5000],
    "rounds.parquet": ["", "PAR1", "PAR1 and more PAR1"],
}


@pytest.mark.parametrize(("sums", "name"), sampled_cases("odd files", 3, product([True, False], ODD)))
def test_runs_table_with_one_unreadable_file(
    tmp_path: Path, traces: list[wb.Trace], name: str, sums: bool
) -> None:
    for label in ("a", "z"):
        traces[0].save(tmp_path / label)
    for i, text in enumerate(ODD[name]):
        folder = traces[1].save(tmp_path / f"odd{i}")
        (folder / name).write_text(text)
        if not sums:
            forged(folder)
    (tmp_path / "sweep.json").write_text('{"runs": [["a"], 3, {"x": 1}, "z"]}')
    runs = wb.runs(tmp_path, target=0.1)
    table = runs.table.set_index("run")
    assert len(table) == len(ODD[name]) + 2
    assert [table["state"][label] for label in ("a", "z")] == ["done", "done"]
    odd = table[table.index.str.startswith("odd")]
    if name == "about.json":  # a file without results
        assert (odd["state"] == "done").all()
    elif name != "status.json":
        assert (odd["state"] == "damaged").sum() >= len(ODD[name]) - 1
        assert (odd.loc[odd["state"] == "damaged", "error"] != "").all()
    assert not runs.differing or repr(runs)
    assert table.loc["a", "scheme"] == traces[0].experiment.scheme
    for found_text in ("name", "tags", "note", "when"):
        assert all(isinstance(text, str) for text in table[found_text])


FILES = ("spec.json", "run.json", "rounds.parquet", "events.parquet", "model.npy", "SHA256SUMS", "about.json")
CUTS = st.dictionaries(  # damage to some files: missing, truncated, overwritten at some place, replaced by a folder
    st.sampled_from(FILES),
    st.one_of(
        st.none(), st.just("folder"), st.floats(0, 1), st.tuples(st.floats(0, 0.999), st.binary(max_size=9))
    ),
    min_size=1,
)


def damage(file: Path, how: Any) -> None:
    content = file.read_bytes() if file.exists() else b"{}"
    file.unlink(missing_ok=True)
    if how == "folder":
        file.mkdir()
    elif isinstance(how, float):
        file.write_bytes(content[: int(how * len(content))])
    elif how is not None:
        at = int(how[0] * len(content))
        file.write_bytes(content[:at] + how[1] + content[at + len(how[1]) :])


def rows(table: pd.DataFrame, names: list[str], columns: list[str]) -> list[dict[str, Any]]:
    found = table.set_index("run", drop=False).loc[names, columns].astype(object)
    return list(found.where(found.notna(), None).to_dict("records"))


@given(cuts=CUTS)
@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_runs_table_has_a_row_for_any_damaged_folder(
    folder: Path, traces: list[wb.Trace], tmp_path: Path, cuts: dict[str, Any]
) -> None:
    shutil.rmtree(tmp_path / "b", ignore_errors=True)
    for name, number in (("a", 0), ("b", 1), ("c", 2)):
        if not (tmp_path / name).exists():
            shutil.copytree(folder / "some" / str(number), tmp_path / name)
    before = wb.runs(tmp_path).table
    for name, how in cuts.items():
        damage(tmp_path / "b" / name, how)
    table = wb.runs(tmp_path, target=0.5).table
    assert rows(table, ["a", "c"], list(before)) == rows(before, ["a", "c"], list(before))
    files = [name for name in FILES[:5] if (tmp_path / "b" / name).is_file()]
    # With fewer than two files it is not a run folder.
    assert table["run"].tolist() == (["a", "b", "c"] if len(files) > 1 else ["a", "c"])
    for row in table[table["run"] == "b"].to_dict("records"):
        assert row["state"] == "done" or (row["state"], bool(row["error"])) == ("damaged", True)


def test_runs_table_has_a_row_for_a_folder_in_place_of_a_file(tmp_path: Path, traces: list[wb.Trace]) -> None:
    traces[0].save(tmp_path / "a")
    for name in ("rounds.parquet", "SHA256SUMS"):
        folder = traces[1].save(tmp_path / f"odd-{name}")
        (folder / name).unlink()
        (folder / name).mkdir()
    pipe = traces[1].save(tmp_path / "pipe") / "rounds.parquet"
    pipe.unlink()
    os.mkfifo(pipe)  # opening it for reading would block forever
    table = wb.runs(tmp_path).table.set_index("run")
    assert table["state"].tolist() == ["done", "damaged", "damaged", "damaged"]
    assert "rounds.parquet is missing" in table["error"]["pipe"]


def test_runs_table_follows_links_to_runs_only(tmp_path: Path, traces: list[wb.Trace]) -> None:
    traces[0].save(tmp_path / "elsewhere" / "deep" / "a")
    traces[1].save(tmp_path / "here" / "b")
    for name, place in (
        ("c", "../elsewhere/deep/a"),
        ("loop", "."),
        ("up", ".."),
        ("gone", "nowhere"),
        (".#x", "me"),
    ):
        (tmp_path / "here" / name).symlink_to(place, target_is_directory=True)
    runs = wb.runs(tmp_path / "here")
    table = runs.table.set_index("run")
    assert table["state"].to_dict() == {"b": "done", "c": "done", "gone": "damaged"}
    assert "cannot be read" in table["error"]["gone"]
    assert any(found.same(traces[0]) for found in runs.traces())
    with pytest.raises(SettingError, match="is a link to"):
        delete(tmp_path / "here" / "c")
    assert (tmp_path / "elsewhere" / "deep" / "a" / "spec.json").exists()


def test_runs_table_has_one_row_for_a_partial_run_folder(tmp_path: Path, traces: list[wb.Trace]) -> None:
    half = traces[0].save(tmp_path / "half")
    (half / "run.json").unlink()
    traces[1].save(half / "below")
    traces[0].save(tmp_path / ".0123456789abcdef.tmp")
    for name in ("run.json", "rounds.parquet", "events.parquet", "model.npy"):
        (tmp_path / ".0123456789abcdef.tmp" / name).unlink()
    begun = tmp_path / "begun"
    begun.mkdir()
    traces[2].experiment.write(begun / "spec.json")
    (begun / "task.json").write_text("{}")
    traces[0].experiment.write(tmp_path / "spec.json")  # an experiment file without a run
    (tmp_path / "mlruns" / "0").mkdir(parents=True)
    (tmp_path / "mlruns" / "0" / "meta.yaml").write_text("name: another program's")
    table = wb.runs(tmp_path).table.set_index("run")
    assert table["state"].to_dict() == {
        ".0123456789abcdef.tmp": "damaged",
        "begun": "unfinished",
        "half": "damaged",
        "half/below": "done",
    }
    assert "run.json is missing" in table.loc["half", "error"]
    assert "wb.resume" in table.loc["begun", "error"]
    assert "problem" not in wb.runs(tmp_path).differing  # the other half of the settings is unknown
    assert table.loc["begun", "scheme"] == traces[2].experiment.scheme
    lock = Lock(begun / ".lock")
    lock.take()
    assert wb.runs(tmp_path).table.set_index("run").loc["begun", "state"] == "running"
    lock.release()


def test_runs_table_has_a_row_for_an_unreadable_folder(
    tmp_path: Path, traces: list[wb.Trace], monkeypatch: pytest.MonkeyPatch
) -> None:
    traces[0].save(tmp_path / "good")
    (tmp_path / "locked").mkdir()
    scandir = os.scandir

    def refuse(path: Any) -> Any:
        if str(path).endswith("locked"):
            raise PermissionError(13, "Permission denied", str(path))
        return scandir(path)

    monkeypatch.setattr("os.scandir", refuse)
    table = wb.runs(tmp_path).table.set_index("run")
    assert table["state"].to_dict() == {"good": "done", "locked": "damaged"}
    assert "Permission denied" in table.loc["locked", "error"]


def test_runs_table_derived_columns(runs: Runs, traces: list[wb.Trace]) -> None:
    for row, trace in zip(runs.table.to_dict("records"), traces, strict=True):
        late = trace.experiment.scheme_args.get("stragglers", 0)
        assert (row["straggler_fraction"] == late / 4) if late else np.isnan(row["straggler_fraction"])
        assert row["load"] == wb.forecast(trace.experiment, rounds=1).load
        assert row["rounds_done"] == 6
    assert not {"load", "straggler_fraction"} & set(runs.settings)


def test_runs_diff_names_all_differences(runs: Runs) -> None:
    found = runs.diff("some/0", "some/4")
    assert {"scheme", "seed", "scheme_args.stragglers", "time"} <= set(found.index)
    for name in [*runs.settings, "time", "loss", "stale"]:
        one, other = runs.table[name].astype(object).where(runs.table[name].notna(), None)[[0, 4]]
        assert (name in found.index) == (one != other)
        if name in found.index and one is not None:
            assert found.loc[name, "some/0"] == one
    assert runs.diff(3, "some/3").empty
    with pytest.raises(SettingError, match="run = 'some/99'"):
        runs.diff("some/99", 0)


def test_runs_table_in_a_notebook_is_a_widget_with_a_static_table(runs: Runs) -> None:
    bundle = runs._repr_mimebundle_()
    assert {"application/vnd.jupyter.widget-view+json", "text/html", "text/plain"} <= set(bundle)
    assert "UMW" in bundle["text/html"]
    many = replace(runs, table=pd.concat([runs.table] * 50, ignore_index=True))
    assert many._repr_html_().count("<tr") < 70
    assert len(repr(many).splitlines()) < 70


def test_runs_refuses_folders_without_runs(tmp_path: Path) -> None:
    assert len(wb.runs(tmp_path)) == 0
    assert "no runs" in repr(wb.runs(tmp_path))
    (tmp_path / "other.json").write_text(json.dumps({}))
    assert len(wb.runs(tmp_path).mean("time")) == 0
    with pytest.raises(SettingError, match="no such folder"):
        wb.runs(tmp_path / "nowhere")


@pytest.mark.parametrize("seed", [2**60 + 1, 2**63 + 5])
def test_runs_table_keeps_all_digits_of_whole_numbers(tmp_path: Path, seed: int) -> None:
    e = wb.Experiment(scheme="UMW", workers=2, rounds=2, problem="unit", seed=seed)
    wb.run(e).save(tmp_path / "a")
    wb.run(e.replace(seed=3, delays={"kind": "shifted_exponential", "rate": 1e19})).save(tmp_path / "b")
    wb.run(e).save(tmp_path / "c")
    (tmp_path / "c" / "spec.json").write_text("{")
    found = wb.runs(tmp_path).table
    assert found["seed"].tolist()[:2] == [seed, 3]
    assert found["seed"].isna().tolist() == [False, False, True]
    assert found["delays.rate"].tolist()[:2] == [2e4, 1e19]


def cells(page: str) -> list[list[str]]:
    """Return the texts of an HTML table, row by row, with the header."""
    rows = re.findall(r"<tr.*?>(.*?)</tr>", page, re.DOTALL)
    return [re.findall(r"<t[hd].*?>(.*?)</t[hd]>", row, re.DOTALL) for row in rows]


def test_runs_table_exports_have_no_column_of_row_numbers(tmp_path: Path) -> None:
    for seed in range(4):
        e = wb.Experiment(scheme=("UMW", "GC")[seed % 2], rounds=4, seed=seed // 2)
        wb.run(e).save(tmp_path / "runs" / f"{seed}")
    runs = wb.runs(tmp_path / "runs")
    some = runs.where(scheme="GC")
    shown = [
        runs.mean("time", by=["scheme"]),
        runs.mean(),
        importance(runs),
        some.table,
        some.done,
        runs.short(),
    ]
    shown += [runs.done.sort_values("time").tail(2), speedups(runs.traces(), 0.7)]
    for frame in shown:
        head, *rows = cells(frame._repr_html_())
        names = head if "..." in head else list(frame)
        assert head == names
        assert len(rows) == len(frame)
        assert all(len(row) == len(head) for row in rows)
        assert repr(frame).split()[0] == frame.columns[0]
    head, *rows = cells(runs._repr_html_())
    assert (head, len(rows)) == (list(runs.short()), 4)
    assert repr(runs).split()[0] == "run"
    for table in (some.table, runs.mean()):
        csv = export(table, tmp_path / "t.csv")
        assert csv.read_text().splitlines()[0].split(",") == list(table)
        assert pq.read_schema(export(table, tmp_path / "t.parquet")).names == list(table)
    for text in ([], ["--by", "scheme"], ["--of", "time"]):
        found = CliRunner().invoke(cli, ["runs", str(tmp_path / "runs"), *text])
        assert found.output.split()[0] in ("run", "scheme"), found.output


def test_runs_table_shows_names_of_rows(tmp_path: Path) -> None:
    for seed in range(2):
        wb.run(wb.Experiment(rounds=4, seed=seed)).save(tmp_path / f"{seed}")
    runs = wb.runs(tmp_path)
    assert "seed" in str(runs.diff(0, 1)).split()
    assert {"count", "mean", "max"} <= set(str(runs.table.describe()).split())
    assert runs.table.equals(pickle.loads(pickle.dumps(runs.table)))


def test_runs_table_separates_stopped_runs_from_those_that_ran_to_their_end(tmp_path: Path) -> None:
    """A stopped run has results, is drawn and exported, but is not part of a mean."""
    e = wb.Experiment(scheme="UMW", workers=4, rounds=10**6)
    run = wb.start(e)
    while run.rounds_done < 3:
        time.sleep(0.01)
    run.stop()
    trace = run.result()
    trace.save(tmp_path / "cut")
    wb.run(e.replace(rounds=5)).save(tmp_path / "whole")
    table = wb.runs(tmp_path, target=float(trace.columns["loss"][2]))
    cut, whole = table.where(run="cut"), table.where(run="whole")
    count = len(trace.columns["time"])
    assert [row["state"] for row in (cut.table.iloc[0], whole.table.iloc[0])] == ["stopped", "done"]
    assert cut.table.iloc[0]["error"] == f"stopped after {count} of 1000000 rounds"
    assert cut.table.iloc[0]["rounds_done"] == count
    assert cut.table.iloc[0]["time_to"] <= trace.columns["time"][2]
    assert list(table.done["run"]) == ["whole"]
    assert table.mean("time", by=["scheme"])["n"].tolist() == [1]
    assert sorted(len(each.rounds) for each in table.traces()) == sorted([5, count])
    shown = wb.RunsTable(table)
    shown.select("cut")
    assert len(shown.traces()[0].rounds) == count
    assert "stopped after" in shown.note.value
    assert [row["state"] for row in wb.runs(tmp_path).table.to_dict("records")] == ["stopped", "done"]
