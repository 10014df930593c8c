"""Static images for readers without a kernel: stored in the notebook, and hidden by widgets."""

from __future__ import annotations

from typing import Any

import pytest

import workbench as wb
from tests.support.widget_messages import receives
from workbench.analysis.tables.status import write_plan
from workbench.lab.figures.design import style_sheet
from workbench.lab.widgets.plots import plot as still
from workbench.lab.widgets.plots.liveplot import LivePlot


class Handle:
    def __init__(self, shown: list[Any]) -> None:
        self.shown = shown

    def update(self, what: Any) -> None:
        self.shown[-1] = what.data


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    found: list[Any] = []

    def display(what: Any, raw: bool = False, **options: bool) -> Handle:
        found.append(what if raw else what.data)
        return Handle(found)

    monkeypatch.setattr(still, "display", display)
    return found


def test_static_image_of_a_live_plot(shown: list[Any]) -> None:
    plot = LivePlot()
    assert not plot.still  # no image is drawn unless it is stored
    plot._ipython_display_()
    assert plot.still
    assert "application/vnd.jupyter.widget-view+json" in shown[0]
    assert shown[1] == '<div class="wb-still"></div>'
    receives(plot, {"kind": "still", "png": "QUJD"})
    receives(plot, {"kind": "still", "png": "REVG"})
    assert shown[1].count("<img") == 1
    assert "data:image/png;base64,REVG" in shown[1]
    assert 'alt="curves"' in shown[1]


def test_static_image_of_the_explorer(shown: list[Any], tmp_path: Any) -> None:
    explorer = wb.explore(wb.Experiment(scheme="UMW", workers=3, rounds=2), tmp_path)
    explorer._ipython_display_()
    receives(explorer.running.plot, {"kind": "still", "png": "Uk=="})
    receives(explorer.preview.times, {"kind": "still", "png": "Rk=="})
    assert shown[1].index("Rk==") < shown[1].index("Uk==")


def test_static_images_of_stream_and_sweep(shown: list[Any], tmp_path: Any) -> None:
    rounds = wb.stream(wb.run(wb.Experiment(scheme="UMW", workers=3, rounds=2)))
    sweep = wb.watch(wb.batch.attach(swept(tmp_path)))
    for widget, drawn in ((rounds, rounds.stream), (sweep, sweep.plot)):
        shown.clear()
        widget._ipython_display_()
        receives(drawn, {"kind": "still", "png": "QUJD"})
        assert "application/vnd.jupyter.widget-view+json" in shown[0]
        assert "run the cell" in shown[0]["text/plain"]  # an instruction for users, and nothing about widgets
        assert "data:image/png;base64,QUJD" in shown[1]
    assert sweep.wait(60)


def swept(folder: Any) -> Any:
    write_plan(folder, {}, ["missing"], total=1)
    return folder


def test_static_image_is_hidden_by_widgets() -> None:
    assert ".wb-still { display: none; }" in style_sheet()
