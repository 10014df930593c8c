"""The table of runs without a page: select, plot, compare, write, archive, delete, run again, resume."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from threading import Event
from typing import Any

import ipywidgets as w
import numpy as np
import pytest
import yaml

import workbench as wb
from tests.support.foreign_folders import forged
from workbench.analysis.tables.about import keep
from workbench.core.running.run import Run
from workbench.lab.widgets.explorer import runsgrid, runstable
from workbench.lab.widgets.explorer.runstable import RunsTable

SMALL = wb.baselines(3, 2, 1, rounds=4, problem_args={"samples": 60, "features": 3})


@pytest.fixture(scope="module")
def traces() -> list[wb.Trace]:
    return wb.compare(SMALL)


@pytest.fixture
def table(traces: list[wb.Trace], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunsTable:
    for trace in traces:
        keep(trace, tmp_path, trace.label)
    monkeypatch.setattr(runsgrid, "BAR_AFTER_S", 30.0)  # however slow the machine is: all is read at once
    return RunsTable(tmp_path)


def said(table: RunsTable, **content: Any) -> None:
    """Send a message as the page does."""
    table.grid._handle_custom_msg(content, [])


def bad(table: RunsTable) -> str:
    text: str = table.message.value
    table.report("")
    return text


def test_runs_table_plots_selected_runs_on_one_axis(table: RunsTable, traces: list[wb.Trace]) -> None:
    assert table.plot.layout.display == "none"
    table.select("cr", "umw")
    assert table.plot.layout.display == ""
    assert {"CR", "UMW"} <= {curve.name for curve in table.plot.current().data}
    assert table.traces()[0].same(next(t for t in traces if t.label == "CR"))
    table.look()
    assert "selected; click on 1" in bad(table)
    table.select("cr")
    table.look()
    order = [table.children.index(part) for part in (table.round, table.player, table.plot)]
    assert order == sorted(order)  # the opened round is above the curves
    table.round.value = 3
    assert "round 3" in table.player.label.lower()


def test_runs_table_plots_the_chosen_metric(tmp_path: Path) -> None:
    """Runs without the metric are left out of its curves."""
    tested = SMALL[0].replace(problem_args={"samples": 60, "features": 3, "test": 0.3}, batch=30)
    for name, e in (("tested", tested), ("plain", SMALL[1])):
        keep(wb.run(e), tmp_path, name)
    table = RunsTable(tmp_path)
    table.wait()
    assert table.metric.layout.display == "none"
    table.select("tested", "plain")
    assert table.metric.layout.display == ""
    assert len(table.plot.current().data) == 2
    table.metric.value = "test_accuracy"
    (curve,) = table.plot.current().data
    trace = next(t for t in table.traces() if t.experiment.batch)
    known = trace.columns["test_accuracy"][~np.isnan(trace.columns["test_accuracy"])]
    assert np.asarray(curve.y, dtype=float)[-len(known) :].tolist() == known.tolist()
    table.select("plain")
    assert table.metric.value == "loss"


def test_runs_table_shows_differences_and_text(table: RunsTable) -> None:
    table.select("gc", "umw")
    table.differ()
    assert "scheme_args.stragglers" in table.found.value
    assert "problem_args.samples" not in table.found.value
    table.select("gc")
    table.copy()
    text = table.text.value
    gc = next(e for e in SMALL if e.scheme == "GC")
    assert wb.Experiment(**yaml.safe_load(text)) == gc  # the papermill line is a comment
    assert re.search(r"# papermill \S*notebooks/run\.ipynb", text)


def test_runs_table_groups_have_mean_and_band(table: RunsTable) -> None:
    table.of.value, table.by.value = "time", ("scheme",)
    table.group()
    for word in ("UMW", "low", "high", "never"):
        assert word in table.found.value
    assert table.plot.layout.display == ""
    assert "by scheme" in table.plot.label
    assert {"CR", "UMW"} <= {line.name for line in table.plot.current().data}
    table.by.value = ("seed",)
    table.of.value = "time_to" if "time_to" in table.of.options else "loss"
    table.group()
    table.select("cr")  # a new selection removes the groups
    assert table.found.value == ""


def test_runs_table_adds_tags_to_several_runs(table: RunsTable) -> None:
    table.select("cr")
    table.tags.value, table.about.value = "tree", "good"
    table.write()
    table.select("cr", "gc")
    table.tags.value = "coded"
    table.write()
    rows = table.runs.table.set_index("run")
    assert rows["tags"].to_dict() == {"cr": "tree, coded", "gc": "coded", "rar": "", "sgd": "", "umw": ""}
    assert rows.loc["cr", "note"] == "good"


def test_runs_table_archives_and_restores(table: RunsTable) -> None:
    table.select("cr")
    table.archive()
    assert "archived: cr" in table.note.value
    table.archive()  # no run is selected, so that only this error is shown
    assert table.note.value == ""
    assert "are selected" in bad(table)
    assert "cr" not in set(table.grid.rows["run"])
    table.grid.archived = True
    table.select("cr")
    table.archive()
    assert "restored: cr" in table.note.value
    table.grid.archived = False
    assert "cr" in set(table.grid.rows["run"])


def test_runs_table_confirms_deletion(table: RunsTable, tmp_path: Path) -> None:
    table.select("cr")
    table.delete()
    assert "nothing was asked" in bad(table)
    table.ask()
    assert "Delete cr from the disk?" in table.question.value
    table.forget()
    assert (tmp_path / "cr").is_dir()
    table.ask()
    table.select("gc")  # a new selection cancels the question
    table.delete()
    assert (tmp_path / "cr").is_dir()
    assert (tmp_path / "gc").is_dir()
    table.select("cr")
    table.ask()
    table.delete()
    assert not (tmp_path / "cr").exists()
    assert "cr" not in set(table.grid.rows["run"])


def test_runs_table_shows_errors_until_the_next_button(table: RunsTable, tmp_path: Path) -> None:
    (tmp_path / ".cr.tmp").mkdir()
    (tmp_path / "cr" / "spec.json").rename(tmp_path / ".cr.tmp" / "spec.json")
    table.again()
    buttons = {each.description: each for each in walk(table) if isinstance(each, w.Button)}
    buttons["Compare"].click()
    assert "are selected" in table.message.value
    table.select(".cr.tmp")
    for text in ("Delete …", "Delete for good"):
        buttons[text].click()
        assert table.message.value == ""
    assert not (tmp_path / ".cr.tmp").exists()
    assert (tmp_path / "cr").is_dir()


def walk(widget: Any) -> Iterator[Any]:
    yield widget
    for child in getattr(widget, "children", ()):
        yield from walk(child)


def test_runs_table_starts_runs_again(table: RunsTable, traces: list[wb.Trace]) -> None:
    table.select("gc")
    table.rerun()
    assert table.live.wait(60)
    (run,) = table.live.runs
    assert run.result().same(next(t for t in traces if t.label == "GC"))
    table.resume()
    assert "holds no run on real processes" in bad(table)


def test_runs_table_runs_a_folder_with_code_once_trusted(
    traces: list[wb.Trace], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    mine, ran = tmp_path / "mine.py", tmp_path / "ran"
    text = "from pathlib import Path\nfrom workbench.core.schemes.uncoded import UMW\n"
    mine.write_text(f"{text}Path({str(ran)!r}).touch()\nclass Half(UMW):\n    name = 'HalfOfATable'\n")
    spec = keep(traces[0], tmp_path / "runs", "one") / "spec.json"
    fields = {**json.loads(spec.read_text()), "scheme": f"{mine}:Half", "scheme_args": {}}
    spec.write_text(json.dumps(fields))
    forged(spec.parent)
    table = RunsTable(tmp_path / "runs")
    assert table.wait(30)
    table.select("one")
    table.rerun()
    assert "names code" in bad(table)
    assert not ran.exists()
    table.trust.value = True
    table.rerun()
    assert table.live.wait(60)
    assert (ran.exists(), table.trust.value) == (True, False)


def test_runs_table_resumes_runs(
    traces: list[wb.Trace], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[list[Run]] = []
    table = RunsTable(Path(keep(traces[0], tmp_path, "one")).parent, lambda runs: shown.append(list(runs)))
    assert table.wait(30)
    gone: list[Any] = []
    monkeypatch.setattr(runstable, "resume", lambda folder, trust: gone.append(folder) or "a run")
    table.select("one")
    table.resume()
    assert (gone, shown) == ([str(tmp_path / "one")], [["a run"]])


def test_runs_table_lists_damaged_runs(table: RunsTable, tmp_path: Path) -> None:
    (tmp_path / "cr" / "run.json").unlink()
    table.again()
    assert "1 damaged" in table.note.value
    table.select("cr", "gc")
    assert "run.json is missing" in table.note.value
    assert [trace.label for trace in table.traces()] == ["GC"]


def test_runs_table_columns_are_chosen(table: RunsTable) -> None:
    assert {"run", "scheme", "straggler_fraction", "time"} <= set(table.grid.names)
    said(table, kind="columns", names=["loss", "run", "time"])
    assert table.grid.names == ["loss", "run", "time"]
    assert {column["level"] for column in table.grid.columns} == {0}  # a narrow page shows all of them
    table.again()  # refreshing keeps the chosen columns
    assert table.grid.names == ["loss", "run", "time"]
    said(table, kind="columns", names=[])
    assert {"scheme", "state", "when", "loss"} <= set(table.grid.names)


def test_runs_table_selection_follows_its_runs(
    table: RunsTable, traces: list[wb.Trace], tmp_path: Path
) -> None:
    table.select("cr", "umw")
    keep(traces[0], tmp_path, "a new one")  # first by name: all rows move
    table.again()
    assert [line["run"] for line in table.chosen] == ["cr", "umw"]
    assert table.plot.layout.display == ""
    table.pick(("run",))
    assert [line["run"] for line in table.chosen] == ["cr", "umw"]
    (tmp_path / "cr" / "run.json").rename(tmp_path / "cr" / "ron.json")
    table.again()
    assert [line["run"] for line in table.chosen] == ["cr", "umw"]
    table.select()
    assert table.plot.layout.display == "none"


def test_runs_table_shows_rows_while_reading(
    table: RunsTable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Event()
    read = runsgrid.LazyRuns.__iter__

    def slowly(reading: runsgrid.LazyRuns) -> Iterator[int]:
        for count in read(reading):
            yield count
            if count == 3:
                assert gate.wait(30)

    monkeypatch.setattr(runsgrid.LazyRuns, "__iter__", slowly)
    monkeypatch.setattr(runsgrid, "BAR_AFTER_S", 0.0)
    other = RunsTable(tmp_path)
    while not (len(other.runs) and other.bar.value):
        assert not other.wait(0.01)
    assert "of 5 runs read; about" in other.bar.value
    other.select("cr")
    gate.set()
    assert other.wait(30)
    assert (len(other.runs), other.bar.value, other.chosen[0]["run"]) == (5, "", "cr")


@pytest.mark.parametrize("form", ["csv", "ro-crate"])
def test_runs_table_exports_selected_runs(table: RunsTable, tmp_path: Path, form: str) -> None:
    table.export()
    assert "nothing is written there" in bad(table)
    table.select("cr", "gc")
    table.form.value, table.path.value = form, str(tmp_path / "out")
    table.export()
    assert "2 runs written" in table.note.value
    if form == "csv":
        assert (tmp_path / "out").read_text().count("\n") == 3
    else:
        assert len(list((tmp_path / "out" / "runs").iterdir())) == 2
    table.export()
    assert "exists already" in bad(table)


def test_runs_table_target_adds_a_column(table: RunsTable, traces: list[wb.Trace]) -> None:
    target = float(traces[0].columns["loss"][2])
    table.target.value = repr(target)
    sent = dict(zip(table.grid.rows["run"], table.grid.rows["time_to"], strict=True))
    labels = {column["name"]: column["label"] for column in table.grid.columns}
    assert labels["time_to"] == f"To loss {target:g}, s"
    for trace in traces:
        assert float(sent[trace.label.lower()] or "nan") == pytest.approx(
            trace.time_to(target), rel=1e-4, nan_ok=True
        )
    table.target.value = "soon"
    assert ": is not a number; write a loss such as 0.1" in bad(table)
    table.target.value = ""
    assert "time_to" not in table.grid.names


def test_runs_table_numbers_stay_numeric_with_missing_values(table: RunsTable, tmp_path: Path) -> None:
    (tmp_path / "cr" / "run.json").unlink()
    table.again()
    sent = table.grid.rows
    for name in ("workers", "time", "straggler_fraction"):
        assert all(value is None or isinstance(value, int | float) for value in sent[name])
    assert sorted(sent["workers"], key=str) == [12] * 4 + [None]
    assert sent["time"][1] == float(f"{table.runs.table['time'][1]:.6g}")


def test_runs_table_sends_notes_as_they_are(table: RunsTable) -> None:
    """The page inserts notes as text, never as HTML. A test in a browser checks that."""
    table.select("cr")
    table.about.value = "<img src=x onerror=alert(1)>"
    table.write()
    assert "<img src=x onerror=alert(1)>" in table.grid.rows["note"]


def test_runs_table_without_a_selection(table: RunsTable) -> None:
    for action in (table.look, table.show, table.rerun, table.resume, table.differ, table.copy, table.write):
        action()
        assert "are selected" in bad(table)


def test_runs_table_without_runs(tmp_path: Path) -> None:
    empty = RunsTable(tmp_path)
    assert empty.wait(30)
    assert "0 runs" in empty.note.value


def test_runs_table_columns_come_back_after_an_empty_folder(traces: list[wb.Trace], tmp_path: Path) -> None:
    table = RunsTable(tmp_path)
    assert table.wait(30)
    for trace in traces:
        keep(trace, tmp_path, trace.label)
    table.again()
    assert table.wait(30)
    assert {"scheme", "state", "when", "workers", "rounds_done", "time", "loss"} <= set(table.grid.names)


def test_runs_table_menu_acts_on_its_row(traces: list[wb.Trace], tmp_path: Path) -> None:
    used: list[wb.Experiment] = []
    for trace in traces:
        keep(trace, tmp_path, trace.label)
    table = RunsTable(tmp_path, use=used.append)
    assert table.wait(30)
    table.select("cr", "gc")
    row = table.grid.rows["run"].index("umw")
    said(table, kind="act", action="use", row=row)
    assert [e.scheme for e in used] == ["UMW"]
    assert [line["run"] for line in table.chosen] == ["umw"]
    said(table, kind="act", action="copy", row=row)
    assert "scheme: UMW" in table.text.value
    said(table, kind="act", action="delete", row=row)
    assert "Delete umw from the disk?" in table.question.value
    said(table, kind="act", action="archive", row=row)
    assert "umw" not in table.grid.rows["run"]
    assert "use" not in {each["key"] for each in RunsTable(tmp_path).grid.actions}


def test_runs_table_bar_offers_what_fits(table: RunsTable) -> None:
    def offered() -> set[str]:
        return {key for key, each in table.acts.buttons.items() if each.layout.display != "none"}

    assert table.acts.selected.layout.display == "none"
    table.select("cr")
    assert (table.acts.idle.layout.display, table.acts.selected.layout.display) == ("none", "")
    assert not {"compare", "resume"} & offered()
    table.select("cr", "gc")
    assert "compare" in offered()
    assert "2 selected" in table.acts.count.value
    assert "selected" not in table.note.value  # the bar has the number already


def test_runs_table_delete_stands_apart(table: RunsTable) -> None:
    keys = [each["key"] for each in table.grid.actions]
    assert keys[-1] == "delete"
    assert [each["key"] for each in table.grid.actions if each.get("danger")] == ["delete"]
    assert {"wb-danger", "wb-right"} <= set(table.acts.buttons["delete"]._dom_classes)
    others = {
        key for key, each in table.acts.buttons.items() if {"wb-danger", "wb-right"} & set(each._dom_classes)
    }
    assert others == {"delete"}
    shown = [each for each in table.acts.selected.children if each in table.acts.buttons.values()]
    assert [each.description for each in shown[-2:]] == ["Delete …", "Clear"]


def test_runs_table_sends_columns_that_filters_need(table: RunsTable) -> None:
    assert "seed" not in table.grid.rows
    table.grid.asked = {"filters": [{"column": "seed", "op": "at least", "value": "0"}]}
    assert table.grid.rows["seed"] == [0] * 5


def test_runs_table_dates_every_run(table: RunsTable, traces: list[wb.Trace], tmp_path: Path) -> None:
    traces[0].save(tmp_path / "undated")
    table.again()
    dates = dict(zip(table.grid.rows["run"], table.grid.rows["when"], strict=True))
    assert all(datetime.fromisoformat(text) for text in dates.values())
    assert dates["undated"]
