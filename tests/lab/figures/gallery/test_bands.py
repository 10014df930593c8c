"""The figure of means with confidence bands."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pandas as pd
import plotly.graph_objects as go
import pytest

import workbench as wb
from tests.support.figure_runs import RATES
from workbench.analysis.tables.table import Runs
from workbench.core.base.settings import SettingError
from workbench.lab.figures import bands, convergence_bands, scheme_style
from workbench.lab.figures.labels import axis
from workbench.lab.widgets.plots.sweepplot import group_labels


@pytest.fixture(scope="module")
def runs(many: list[wb.Trace], tmp_path_factory: pytest.TempPathFactory) -> Runs:
    root = tmp_path_factory.mktemp("runs")
    for i, trace in enumerate(many):
        trace.save(root / f"{i:02}")
    return wb.runs(root)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_bands_have_a_line_and_a_band_per_scheme(runs: Runs, theme: str) -> None:
    summary = runs.mean("time", by=["scheme", "delays.rate"])
    figure = bands(summary, theme=theme)  # type: ignore[arg-type]
    lines = {trace.name: trace for trace in figure.data if trace.showlegend}
    assert set(lines) == {"UMW", "SGD"}
    assert figure.layout.xaxis.type == "log"
    for name, line in lines.items():
        rows = summary[summary["scheme"] == name]
        assert list(line.x) == list(RATES)
        assert list(line.y) == rows["mean"].tolist()
        assert line.line.color == scheme_style(name).color
        (area,) = (t for t in figure.data if t.name == f"{name} band")
        assert list(area.x) == [*RATES, *RATES[::-1]]
        assert np.allclose(area.y, [*rows["high"], *rows["low"][::-1]])


def test_bands_name_the_settings_over_which_runs_are_pooled(runs: Runs) -> None:
    apart = bands(runs.mean("time", by=["scheme", "delays.rate"])).layout.title.subtitle.text
    pooled = bands(runs.mean("time", by=["scheme"])).layout.title.subtitle.text
    assert "differ" not in apart
    assert pooled.endswith(" · each mean is over runs that also differ in rate of the delays")


def test_bands_are_clipped_only_on_a_logarithmic_axis() -> None:
    for top, floor in ((3.0, -5.0), (300.0, 0.2)):
        table = pd.DataFrame(
            {"x": [1.0, 2.0], "n": 2, "mean": [2.0, top], "low": [-5.0, top - 0.1], "high": [9.0, top + 0.1]}
        )
        table.attrs.update(of="loss", by=["x"], level=0.95)
        figure = bands(table)
        assert (figure.layout.yaxis.type == "log") == (floor > 0)
        (area,) = (trace for trace in figure.data if trace.fill)
        assert min(area.y) == pytest.approx(floor)
        (line,) = (trace for trace in figure.data if trace.showlegend)
        # the hover text has the unclipped values
        assert line.customdata.tolist() == table[["low", "high"]].values.tolist()


def test_bands_of_text_settings_are_points_with_error_bars(runs: Runs) -> None:
    figure = bands(runs.where({"delays.rate": 1e3}).mean("time", by="scheme"))
    assert [trace.mode for trace in figure.data] == ["markers", "markers"]
    assert {trace.name: trace.line.color or trace.marker.color for trace in figure.data} == {
        name: scheme_style(name).color for name in ("UMW", "SGD")
    }
    assert all(trace.error_y.array[0] == pytest.approx(trace.error_y.arrayminus[0]) for trace in figure.data)


def test_single_runs_have_no_band(runs: Runs) -> None:
    figure = bands(runs.where(seed=0).mean("time", by=["scheme", "delays.rate"]))
    assert len(figure.data) == 2
    assert "no band" in figure.layout.title.subtitle.text


def test_bands_distinguish_equal_settings(runs: Runs) -> None:
    figure = bands(runs.mean("time", by=["scheme", "delays.rate"]), x="scheme")
    names = [trace.name for trace in figure.data]
    assert len(names) == len(set(names)) == 6
    assert "UMW, rate=1000" in names


def test_bands_refuse_what_is_not_a_summary(runs: Runs) -> None:
    for table in (pd.DataFrame(), runs.table, runs.mean("time", by=[])):
        with pytest.raises(SettingError, match="summary"):
            bands(table)
    with pytest.raises(SettingError, match="x = 'rate'"):
        bands(runs.mean("time", by=["scheme"]), x="rate")
    with pytest.raises(SettingError, match="is empty"):
        bands(runs.where(scheme="GC").mean("time", by=["scheme"]))


def titles(figure: go.Figure) -> list[str]:
    layout = figure.layout
    return [layout.title.text, layout.xaxis.title.text, layout.yaxis.title.text]


def test_bands_titles_and_axes_are_readable(runs: Runs, many: list[wb.Trace]) -> None:
    assert titles(bands(runs.mean("time", by=["scheme", "delays.rate"]))) == [
        "Time of the whole run versus rate of the delays",
        "rate of the delays: rate of the exponential part (samples/s)",
        "time of the whole run (s)",
    ]
    assert titles(bands(runs.mean("loss", by="scheme")))[0] == "Training loss at the end by scheme"
    drawn = [bands(runs.mean(of, by=["scheme", "delays.rate"])) for of in ("messages", "bytes", "round_time")]
    drawn += [convergence_bands(many, metric) for metric in ("loss", "samples", "relative_error")]
    for text in (text for figure in drawn for text in titles(figure)):
        assert " " in text
        assert not re.search(r"_|[a-z]\.[a-z]", text), text


@pytest.mark.parametrize(
    "name", sorted({n for s in wb.schemes.names() for n in wb.schemes.get(s).model_fields})
)
def test_axis_distinguishes_parameters_of_one_name(name: str) -> None:
    """If schemes use one name for different parameters, the axis has all of them, each with its schemes."""
    known = {s: wb.schemes.get(s).model_fields for s in wb.schemes.names()}
    meant = {s: fields[name].description.split(";")[0] for s, fields in known.items() if name in fields}
    units = {s: known[s][name].json_schema_extra["unit"] for s in meant}
    lines = axis(f"scheme_args.{name}", list(meant)).split("<br>")
    if len(set(meant.values())) == 1:
        assert len(lines) == 1
        return
    assert lines[0] == f"{name.replace('_', ' ')}, not the same for all:"
    texts = {
        scheme: text
        for line in lines[1:]
        for who, text in [line.split(": ", 1)]
        for scheme in who.split(", ")
    }
    assert texts.keys() == meant.keys()
    for scheme, text in meant.items():
        named = not units[scheme] or units[scheme] in text.split()
        assert texts[scheme] == (text if named else f"{text} ({units[scheme]})")


def test_bands_name_the_scheme_of_an_ambiguous_parameter() -> None:
    rows = [(scheme, late, 4, 0, 1.0 + late, 0.5, 3.0) for scheme in ("GC", "CR") for late in (1, 2)]
    columns = ["scheme", "scheme_args.stragglers", "n", "never", "mean", "low", "high"]
    table = pd.DataFrame(rows, columns=columns)
    table.attrs.update(of="time", by=columns[:2], level=0.95)
    text = titles(bands(table))[1]
    assert "GC: workers that may be late or dead (S)" in text
    assert "CR: children per parent that may be late or dead (s)" in text


@pytest.mark.parametrize("x", ["workers", "scheme"])
def test_bands_mark_schemes_that_follow_an_abstract(x: str) -> None:
    rows = [(scheme, n, 4, 0, 1.0, 0.5, 3.0) for scheme in ("GC", "SGC") for n in (4, 8)]
    table = pd.DataFrame(rows, columns=["scheme", "workers", "n", "never", "mean", "low", "high"])
    table.attrs.update(of="time", by=["scheme", "workers"], level=0.95)
    figure = bands(table, x=x)
    names = {line.name.partition(",")[0]: line for line in figure.data if line.showlegend}
    assert set(names) == {"GC", "SGC†"}
    assert names["SGC†"].line.color == scheme_style("SGC").color
    assert "†: written after the abstract" in figure.layout.title.subtitle.text
    if x == "scheme":
        assert set(names["SGC†"].x) == {"SGC†"}
    assert {label.partition(",")[0] for label in group_labels(table, x)} == {"GC", "SGC†"}


def test_bands_use_a_logarithmic_axis_for_wide_ranges(runs: Runs, many: list[wb.Trace]) -> None:
    wide = bands(runs.mean("time", by=["scheme", "delays.rate"]))
    narrow = bands(runs.where({"delays.rate": 1e3}).mean("time", by="scheme"))
    assert (wide.layout.yaxis.type, narrow.layout.yaxis.type) == ("log", None)
    ends = [trace.columns["time"][-1] for trace in many]
    assert max(ends) > 6 * min(ends)
    figure = convergence_bands(many)
    assert figure.layout.xaxis.type == "log"
    assert min(min(curve.x) for curve in figure.data) > 0
    alike = [
        trace for trace in many if trace.experiment.delays.rate == 1e3 and trace.experiment.scheme == "UMW"
    ]
    assert convergence_bands(alike).layout.xaxis.type is None
    assert convergence_bands(many, x="round").layout.xaxis.type is None


def test_bands_are_saved(runs: Runs, tmp_path: Path) -> None:
    page = wb.figures.save(bands(runs.mean("time", by=["scheme", "delays.rate"])), tmp_path / "bands.html")
    assert page.stat().st_size > 1e6


def test_bands_draw_schemes_that_lack_the_swept_parameter() -> None:
    """UMW has no `stragglers`: its mean is a line over the whole axis, beside the curve of GC."""
    rows = [("GC", late, seed, 1.0 / late + seed / 9) for late in (1, 2, 4) for seed in range(3)]
    rows += [("UMW", np.nan, seed, 2.0 + seed / 9) for seed in range(3)]
    table = pd.DataFrame(rows, columns=["scheme", "scheme_args.stragglers", "seed", "time"]).assign(
        state="done"
    )
    means = Runs(table, ("scheme", "scheme_args.stragglers", "seed")).mean("time")
    assert means.attrs["by"] == ["scheme", "scheme_args.stragglers"]
    lines = {line.name: line for line in bands(means).data if line.showlegend}
    assert set(lines) == {"GC", "UMW"}
    assert list(lines["UMW"].x) == [1.0, 4.0]
    assert list(lines["UMW"].y) == pytest.approx([2.0 + 1 / 9] * 2)
    assert list(lines["GC"].x) == [1, 2, 4]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("by", [["scheme"], ["scheme", "workers"]])
def test_bands_of_equal_runs_have_no_band(by: list[str]) -> None:
    rows = {"scheme": ["UMW", "GC"], "workers": [4, 4], "n": 3, "never": 0, "mean": [1.0, 2.0]}
    table = pd.DataFrame(rows | {"low": [1.0, 2.0], "high": [1.0, 2.0]})
    table.attrs.update(of="time", by=by, level=0.95)
    figure = bands(table)
    assert sorted(mark.name for mark in figure.data) == ["GC", "UMW"]
    assert all(mark.error_y.array is None for mark in figure.data)
    assert figure.layout.title.subtitle.text == "the runs of a mean are equal: no band"
