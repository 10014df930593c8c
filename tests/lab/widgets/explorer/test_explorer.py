"""The explorer without a page: change, forecast, run, stop, open a round, save."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from base64 import b64decode
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from threading import enumerate as enumerate_threads
from typing import Any

import ipywidgets as w
import numpy as np
import pandas as pd
import pytest

import workbench as wb
from tests.support.widget_messages import receives, types
from workbench.core.base.version import __version__
from workbench.core.running.start import ENGINES
from workbench.lab.figures.decoding import decode_weights
from workbench.lab.figures.speedups import common_target
from workbench.lab.widgets.explorer import tabs
from workbench.lab.widgets.explorer.commands import NOTEBOOK
from workbench.lab.widgets.explorer.explorer import EXAMPLE, Explorer, explore

SMALL = wb.baselines(
    3, 2, 1, rounds=12, problem_args={"samples": 120, "features": 4}, link={"latency": 1e-3, "bandwidth": 1e4}
)


@pytest.fixture
def explorer(tmp_path: Path) -> Explorer:
    return explore(SMALL, tmp_path / "runs")


def figure(plot: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(plot.figure)
    return found


def click(plot: Any, **where: Any) -> None:
    receives(
        plot,
        {
            "kind": "click",
            "x": None,
            "y": None,
            "z": None,
            "index": None,
            "about": None,
            "trace": "",
            **where,
        },
    )


# ---------------------------------------------------------------- before a run


def test_explorer_preview_follows_every_change(explorer: Explorer) -> None:
    assert "mean round" in explorer.preview.times.html
    first = explorer.preview.ahead[4].forecast
    types(explorer.controls.link, latency="0.1")
    second = explorer.preview.ahead[4].forecast
    assert first is not None and second is not None and second.mean > first.mean  # noqa: PT018
    drawn = explorer.preview.times.current()
    assert drawn is not None
    assert drawn.layout.title.text == explorer.preview.times.label == "Time per round"


def test_explore_a_preset_by_name(tmp_path: Path) -> None:
    found = explore("fig9c", tmp_path)
    assert [e.scheme for e in found.experiments] == ["UMW", "GC", "RAR", "SGD", "CR"]
    assert found.controls.preset.values["preset"] == "fig9c"
    with pytest.raises(wb.SettingError, match="preset = 'fig99'"):
        explore("fig99", tmp_path)
    with pytest.raises(wb.SettingError, match="folder = 5: is not a path"):
        explore("fig9c", 5)  # type: ignore[arg-type]


def test_explore_one_experiment_and_the_default(tmp_path: Path) -> None:
    assert [e.scheme for e in explore(SMALL[4], tmp_path).experiments] == ["CR"]
    assert [e.workers for e in explore(folder=tmp_path).experiments] == [84] * 5


def test_explorer_example_shows_stragglers() -> None:
    """Quartiles of the round times are far apart, except for SGD.

    SGD does not wait for its stragglers, so that only the port determines its round times.
    """
    for e in wb.baselines(4, 3, 1, **EXAMPLE):
        seconds = np.concatenate([wb.forecast(e.replace(seed=seed)).seconds for seed in range(5)])
        low, middle, high = np.quantile(seconds, (0.25, 0.5, 0.75))
        assert high - low > 0.15 * middle or e.scheme == "SGD"


def test_explorer_figures_of_the_chosen_scheme(explorer: Explorer) -> None:
    preview = explorer.preview
    assert preview.entry.options == ("UMW", "GC", "RAR", "SGD", "CR")
    assert "CR (children 3" in preview.picture.label
    preview.entry.value = "GC"
    assert "GC (stragglers 4)" in preview.picture.label
    preview.view.value = "Code"
    assert preview.picture.label == "Encoding matrix of GC (stragglers 4)"
    types(explorer.controls.shapes.form, stragglers="2")
    assert preview.entry.value == "GC"
    assert "GC (stragglers 8)" in preview.picture.label


def test_explorer_click_on_a_worker_shows_its_data(explorer: Explorer) -> None:
    click(explorer.preview.picture, trace="nodes", about=7)
    assert explorer.preview.detail.label == "CR: what rank 7 computes"
    click(explorer.preview.picture, trace="data held", y=2)
    assert explorer.preview.detail.label == "CR: what rank 2 computes"
    click(explorer.preview.picture, trace="nodes", about=0)
    assert explorer.preview.detail.layout.display == "none"


def test_explorer_phase_diagram_can_be_clicked(explorer: Explorer) -> None:
    preview = explorer.preview
    preview.view.value = "Fastest scheme"
    thread = preview._map.thread
    assert thread is not None
    thread.join()
    assert preview.picture.label == "Fastest scheme"
    click(preview.picture, trace="fastest", x=3, y=2)
    assert [e.link.latency for e in explorer.experiments] == [pytest.approx(1e-4)] * 5
    assert explorer.experiments[4].scheme_args["stragglers"] == 2
    assert preview._map.thread is thread  # the map is the same, only the mark has moved
    assert figure(preview.picture)["data"][-1]["x"] == [3.0]
    types(explorer.controls.delays, rate="1e3")
    assert preview._map.thread is not thread
    preview._map.thread.join()
    click(preview.picture, trace="now", x=0, y=0)
    assert explorer.experiments[4].scheme_args["stragglers"] == 2


def test_explorer_reports_a_bad_setting(explorer: Explorer) -> None:
    types(explorer.controls.shapes.form, stragglers="3")
    assert explorer.running.button.disabled
    assert "cannot tolerate it" in explorer.running.note.value
    assert "cannot tolerate it" in explorer.preview.message.value
    assert "may be late" not in explorer.controls.shapes.alpha.value  # s = n is refused
    assert [e.scheme for e in explorer.experiments] == ["UMW", "GC", "RAR", "SGD"]
    with pytest.raises(wb.SettingError, match="cannot tolerate it"):
        explorer.run()
    types(explorer.controls.shapes.form, stragglers="1")
    assert not explorer.running.button.disabled
    assert explorer.running.note.value == explorer.preview.message.value == ""


def test_explorer_reports_missing_data_before_a_run(explorer: Explorer) -> None:
    types(explorer.controls.problem, data="nowhere.csv", samples="", features="")
    assert "nowhere.csv" in explorer.preview.message.value
    assert "Traceback" not in explorer.preview.message.value


@pytest.mark.parametrize(
    ("form", "texts", "field"),
    [
        ("problem_args", {"data": "nowhere"}, "data"),
        ("problem_args", {"data": "nowhere.csv"}, "data"),
        ("problem_args", {"data": "digits", "target": "price"}, "target"),
        ("problem_args", {"data": "digits"}, "problem"),
        ("delays", {"kind": "replay", "path": "nowhere.csv"}, "path"),
    ],
)
@pytest.mark.parametrize("sizes", [{"samples": "", "features": ""}, {"samples": "100", "features": "3"}])
def test_explorer_marks_the_field_of_data_that_cannot_be_used(
    explorer: Explorer, form: str, texts: dict[str, str], field: str, sizes: dict[str, str]
) -> None:
    """The field is marked by the forecast or, if the forecast does not need the data, by the run."""
    controls = explorer.controls
    types(controls.problem, **sizes)
    types(controls.forms[form], **texts)
    if not controls.forms[form].reasons:
        explorer.run()
    forms = {**controls.forms, **{entry.scheme: entry.form for entry in controls.schemes.forms}}
    marked = {name: set(each.reasons) for name, each in forms.items() if each.reasons}
    assert marked == {form: {field}}
    assert [group.fold.bad for group in controls.groups].count(True) == 1
    fixed = {"data": "synthetic", "target": ""} if form == "problem_args" else {"kind": "constant"}
    types(controls.forms[form], **fixed)
    assert not any(each.reasons for each in forms.values())


def test_explorer_without_a_scheme(explorer: Explorer) -> None:
    for form in list(explorer.controls.schemes.forms):
        form.remove.click()
    assert explorer.running.button.disabled
    assert "no scheme is chosen" in explorer.running.note.value
    assert explorer.preview.times.layout.display == "none"


# ---------------------------------------------------------------- a run


def test_explorer_offers_the_available_engines(explorer: Explorer) -> None:
    assert [value for _, value in explorer.running.engine.options] == list(ENGINES)
    assert explorer.running.cluster.options == ()
    explorer.running.engine.value = "mpi"
    assert explorer.running.cluster.options == ("local",)
    assert explorer.running.cluster.value == "local"
    assert explorer.running.cluster.layout.display == ""
    explorer.running.engine.value = "sim"
    assert not explorer.running.cluster.value
    explorer.running.engine.value = "mpi"
    assert explorer.running.cluster.value == "local"


@pytest.mark.mpi
@pytest.mark.xdist_group("mpi")
def test_explorer_real_runs_stopped_early_have_not_failed(explorer: Explorer) -> None:
    explorer.running.engine.value = "mpi"
    explorer.running.start()
    explorer.running.plot.stop()
    assert explorer.running.plot.wait(120)
    assert [row["state"] for row in explorer.running.plot.status] == ["stopped"] * 5
    assert explorer.running.plot.status[-1]["note"] == "stopped before the first round"
    assert explorer.running.note.value == ""


def test_explorer_run_gives_the_traces_of_wb_compare(explorer: Explorer) -> None:
    traces = explorer.run(60)
    for found, expected in zip(traces, wb.compare(explorer.experiments), strict=True):
        assert found.same(expected)
    assert [curve["name"] for curve in explorer.running.plot.curves] == ["UMW", "GC", "RAR", "SGD", "CR"]


def test_explorer_speedup_table_follows_the_target(explorer: Explorer) -> None:
    traces = explorer.run(60)
    plot = explorer.running.plot
    assert plot.target == pytest.approx(max(t.columns["loss"].min() for t in traces))
    assert "times as long as CR" in explorer.running.table.value
    plot.set_state({"target": float(traces[4].columns["loss"][0])})  # dragged in the page
    table = explorer.running.table.value
    seconds = traces[0].columns["time"][0] / traces[4].columns["time"][0]
    assert f"{seconds:.3g}×" in table
    plot.set_state({"target": 1e-9})
    assert "never" in explorer.running.table.value
    plot.set_state({"target": None})
    assert explorer.running.table.value == ""


def test_explorer_aims_at_the_metric_that_is_plotted(explorer: Explorer) -> None:
    """Each metric has its own target. The residual of a commit has no target."""
    types(explorer.controls.problem, test="0.3")
    types(explorer.controls.run, batch="84", evaluate_every="2")
    traces, plot = explorer.run(60), explorer.running.plot
    assert all("test_accuracy" in plot.metrics and t.experiment.batch == 84 for t in traces)
    for metric in ("test_accuracy", "test_loss", "loss"):
        plot.set_state({"y": metric})  # chosen in the page
        assert plot.target == pytest.approx(common_target(traces, metric))
        assert "times as long as CR" in explorer.running.table.value
    plot.set_state({"y": "residual"})
    assert plot.target is None
    assert explorer.running.table.value == ""


def test_explorer_adds_curves_to_earlier_ones(explorer: Explorer) -> None:
    explorer.run(60)
    explorer.running.keep.value = True
    types(explorer.controls.shapes.form, stragglers="2")
    assert len(explorer.run(60)) == 10
    explorer.running.keep.value = False
    assert len(explorer.run(60)) == 5


def test_explorer_failed_run_is_a_sentence(explorer: Explorer) -> None:
    types(explorer.controls.run, faults="[{worker: 1, round: 2}, {worker: 2, round: 2}]")
    traces = explorer.run(60)
    assert {t.label for t in traces} == {"GC", "SGD"}
    assert "UMW: round 2: the master lost worker" in explorer.running.message.value


# ---------------------------------------------------------------- one round


def test_explorer_opens_a_round(explorer: Explorer) -> None:
    explorer.run(60)
    round = explorer.round
    assert round.player.label == "CR, 12 workers: round 0"
    types(round.form, round="5")
    assert round.player.label == "CR, 12 workers: round 5"
    assert round.decoding.label == "CR: decode weights of the master in round 5"
    found = decode_weights(explorer.traces[4], 5)
    assert figure(round.decoding)["data"][0]["name"] == "weight"
    assert str(len(found.rank)) in figure(round.decoding)["layout"]["title"]["subtitle"]["text"]
    click(round.player, y=2, trace="computes")
    assert round.form.values["node"] == "2"
    assert round.placement.label == "CR: what rank 2 computes"
    assert round.decoding.label == "CR: decode weights of rank 2 in round 5"
    click(round.player, y=9, trace="computes")
    assert round.decoding.layout.display == "none"
    types(round.form, run="1")
    assert round.player.label == "GC, 12 workers: round 5"


def test_explorer_refuses_missing_rounds_and_nodes(explorer: Explorer) -> None:
    explorer.run(60)
    types(explorer.round.form, round="12")
    assert explorer.round.form.reasons == {"round": "round = 12: the run has rounds 0 to 11"}
    types(explorer.round.form, round="11")
    assert explorer.round.form.reasons == {}
    types(explorer.round.form, node="99")
    assert explorer.round.form.reasons == {"node": "node = 99: there are ranks 0 to 12"}


def test_explorer_reports_that_a_ring_has_no_weights(explorer: Explorer) -> None:
    explorer.run(60)
    types(explorer.round.form, run="2")
    assert "nobody sends it anything to decode" in explorer.round.message.value
    assert explorer.round.player.label == "RAR, 12 workers: round 0"


def test_explorer_before_any_run(explorer: Explorer) -> None:
    assert "run something first" in explorer.round.message.value


# ---------------------------------------------------------------- keeping


def keep_tab(explorer: Explorer) -> Any:
    explorer.tabs.selected_index = 0
    explorer.tabs.selected_index = explorer.tabs.titles.index("Save / export")
    return explorer.keeping


def exports(explorer: Explorer) -> list[str]:
    return sorted(path.name for path in (explorer.keeping.root / "exports").iterdir())


def test_explorer_saves_setting_as_yaml_and_command(explorer: Explorer) -> None:
    keeping = keep_tab(explorer)
    keeping.setting.value = "CR"
    assert keeping.command.value.startswith(f"papermill {NOTEBOOK} out.ipynb -p scheme CR")
    keeping.save_setting()
    assert exports(explorer) == ["CR.sh", "CR.yaml"]
    assert wb.Experiment.read(keeping.root / "exports" / "CR.yaml") == explorer.experiments[4]
    keeping.save_setting()
    assert "CR-1.yaml" in exports(explorer)
    types(explorer.controls.run, rounds="7")  # while the tab is open
    assert " -p rounds 7 " in keeping.command.value


def test_explorer_saves_data_in_both_formats(explorer: Explorer) -> None:
    explorer.run(60)
    keeping = keep_tab(explorer)
    keeping.data.value = "GC"
    for form in ("parquet", "csv"):
        keeping.data_format.value = form
        keeping.save_data()
    folder = keeping.root / "exports"
    pd.testing.assert_frame_equal(pd.read_parquet(folder / "GC-rounds.parquet"), explorer.traces[1].rounds)
    assert len(pd.read_csv(folder / "GC-rounds.csv")) == 12


def test_explorer_saves_every_shown_figure(explorer: Explorer) -> None:
    explorer.run(60)
    click(explorer.preview.picture, trace="nodes", about=7)
    keeping = keep_tab(explorer)
    names = keeping.figure.options
    assert names == (
        "convergence",
        "forecast of round times",
        "Who holds what",
        "what a worker holds",
        "rounds",
        "one round",
        "decode weights of the master",
    )
    for name in names:
        path = keeping._path(name, "html")
        keeping._save(keeping.drawings[name]("light"), path)
        assert "plotly" in path.read_text(encoding="utf-8")


@pytest.mark.parametrize("ran", [False, True], ids=["forecast", "runs"])
def test_explorer_report_is_one_page_that_reproduces_it(explorer: Explorer, ran: bool) -> None:
    if ran:
        explorer.run(60)
    keeping = keep_tab(explorer)
    (press,) = (each for each in buttons(keeping) if each.description == "Report")
    press.click()
    written = keeping.root / "exports" / "report.html"
    for thread in [each for each in enumerate_threads() if each.name == "workbench-report"]:
        thread.join(60)
    assert f"written: {written}" in unescape(keeping.note.value)
    assert exports(explorer) == ["report.html"]
    assert written.stat().st_size < 6_000_000
    page = written.read_text(encoding="utf-8")
    assert not re.search(r'(?:src|href)="(?!data:)', page)  # one file, which needs no network
    heads = re.findall(r"<h2>(.+?)</h2>", page)
    assert heads[-2:] == ["Settings", "Reproduce"]
    assert "<dt>workers</dt><dd>12</dd>" in page
    assert page.count('<div class="wb-plot"') >= 1
    for scheme in ("UMW", "GC", "RAR", "SGD", "CR"):
        assert re.search(rf"<th[^>]*>{scheme}</th>", page), scheme  # a row of the table of results
    assert f"workbench {__version__}" in page
    links = re.findall(r'download="([^"]+)" href="data:text/plain;base64,([^"]+)"', page)
    files = {name: b64decode(text).decode() for name, text in links}
    (keeping.root / "CR.yaml").write_text(files["CR.yaml"])
    assert wb.Experiment.read(keeping.root / "CR.yaml") == explorer.experiments[4]
    assert "workbench run" in page


def buttons(widget: Any) -> Iterator[w.Button]:
    yield from [widget] if isinstance(widget, w.Button) else []
    for child in getattr(widget, "children", ()):
        yield from buttons(child)


def test_explorer_with_nothing_to_save(explorer: Explorer) -> None:
    keeping = explorer.keeping
    for action in (
        keeping.save_figure,
        keeping.save_data,
        keeping.keep_run,
    ):
        action()
        assert keeping.message.value
        assert "Traceback" not in keeping.message.value
        keeping.report("")


def test_explorer_saved_run_life_cycle(explorer: Explorer) -> None:
    traces = explorer.run(60)
    keeping = keep_tab(explorer)
    keeping.run.value, keeping.name.value, keeping.about.value, keeping.tags.value = (
        "CR",
        "My tree",
        "good",
        "a, b",
    )
    keeping.keep_run()
    keeping.name.value = "Another"
    keeping.keep_run()
    explorer.tabs.selected_index = explorer.tabs.titles.index("Runs")
    table = explorer.history.table
    assert table.wait(30)
    assert sorted(table.runs.table["name"]) == ["Another", "My tree"]
    table.select("my-tree")
    assert (table.name.value, table.about.value, table.tags.value) == ("My tree", "good", "a, b")
    table.about.value = "better"
    table.write()
    assert table.wait(30)
    assert set(table.runs.table["note"]) == {"good", "better"}
    table.select("my-tree")
    table.show()
    assert explorer.tabs.selected_index == explorer.tabs.titles.index("Run")
    assert len(explorer.traces) == 6  # five runs, and the recorded one
    assert explorer.traces[5].same(traces[4])
    assert explorer.running.plot.status[5]["note"] == "recorded"


def test_explorer_first_figure_imports_little(tmp_path: Path) -> None:
    code = """
import sys, workbench as wb
explorer = wb.explore("fig9a")
assert explorer.preview.times.html
print(sorted({"pandas", "pyarrow", "scipy", "optuna", "nbformat"} & set(sys.modules)))

before = set(sys.modules)
explorer.controls.shapes.set_stragglers(3)
explorer.refresh()
print([name for name in sorted(set(sys.modules) - before)])
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout.split("\n")[:2] == ["[]", "[]"]


def test_explorer_offers_to_resume_recent_real_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # not where hundreds of runs of other tests lie, each of which the table would read
    late = tmp_path / "late"
    monkeypatch.setattr(tabs.history, "cache_folder", {"runs": late}.__getitem__)
    begun = late / "begun"
    begun.mkdir(parents=True)
    SMALL[0].write(begun / "spec.json")
    (begun / "task.json").write_text("{}")
    explorer = explore(SMALL, tmp_path / "runs")
    explorer.tabs.selected_index = explorer.tabs.titles.index("Runs")
    history = explorer.history
    history.where.value = late
    assert history.table.wait(30)
    rows = history.table.runs.table.set_index("run")
    assert (rows.loc["begun", "state"], rows.loc["begun", "scheme"]) == ("unfinished", "UMW")
    assert str(late) in history.table.note.value
    assert str(begun) == rows.loc["begun", "folder"]
