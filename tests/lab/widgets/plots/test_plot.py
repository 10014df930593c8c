"""Plots: one plotly.js per page, figures in the theme of the page, clicks."""

from __future__ import annotations

import gzip
import json
from typing import Any

import plotly.graph_objects as go

import workbench as wb
from tests.support.widget_messages import receives
from workbench.lab.figures.design import style_sheet
from workbench.lab.widgets import Player, Plot
from workbench.lab.widgets.assets import library, script
from workbench.lab.widgets.plots.plot import low


def titled(theme: str) -> go.Figure:
    return go.Figure(layout={"title": {"text": f"in {theme}"}, "height": 500})


def test_plot_follows_the_theme_of_the_page() -> None:
    plot = Plot(titled)
    assert json.loads(plot.figure)["layout"]["title"]["text"] == "in light"
    serial = plot.serial
    plot.set_state({"page": "dark"})
    assert json.loads(plot.figure)["layout"]["title"]["text"] == plot.label == "in dark"
    assert plot.serial == serial + 1


def test_plot_library_is_sent_on_request() -> None:
    plot, sent = Plot(titled), []
    plot.send = lambda content, buffers: sent.append((content, buffers))  # type: ignore[method-assign]
    receives(plot, {"kind": "library"})
    ((content, (packed,)),) = sent
    assert content == {"kind": "library"}
    assert packed == library()
    assert b"plotly.js v" in gzip.decompress(packed)[:200]
    assert len(json.dumps(plot.get_state())) < 40_000


def test_plot_reports_clicks() -> None:
    plot, heard = Plot(titled), []
    plot.on_click(heard.append)
    click: dict[str, Any] = {
        "kind": "click",
        "x": 1,
        "y": 2,
        "z": None,
        "index": 3,
        "about": "a",
        "trace": "t",
    }
    receives(plot, click)
    receives(plot, {"kind": "nothing that we know"})
    assert heard == [click]


def test_plot_can_be_saved_in_both_themes() -> None:
    plot = Plot()
    assert plot.current() is None
    assert not plot.drawn
    plot.show(titled)
    assert [plot.current(theme).layout.title.text for theme in ("light", "dark")] == ["in light", "in dark"]  # type: ignore[arg-type, union-attr]


def test_low_reduces_the_height_only() -> None:
    assert low(titled("light"), 300).layout.height == 300
    assert low(titled("light"), 900).layout.height == 500


def test_plot_scripts_have_no_import_and_no_address() -> None:
    for text in (
        script("plot", "plot_main"),
        script("live"),
        script("form"),
        script("plot", "player"),
        style_sheet(),
    ):
        assert "http" not in text
        assert not [line for line in text.splitlines() if line.startswith("import ")]
    assert [line for line in script("live").splitlines() if line.startswith("export ")] == [
        "export default { render };"
    ]


def test_player_has_rounds_moments_and_units() -> None:
    trace = wb.run(wb.Experiment(scheme="GC", scheme_args={"stragglers": 2}, workers=6, rounds=3))
    player = Player()
    player.play(trace, 1)
    times = [time for time, _ in player.moments]
    assert times == sorted(times)
    assert player.end == float(trace.columns["time"][1] - trace.columns["time"][0])
    assert (player.unit_name, player.unit) == ("ms", 1e3)
    assert player.moments[-1][1] == "the master has the gradient"
