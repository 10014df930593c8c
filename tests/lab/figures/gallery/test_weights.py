"""The figure of decode weights."""

from __future__ import annotations

import numpy as np
import pytest

import workbench as wb
from tests.support.figure_runs import experiment
from workbench.lab.figures.decoding import decode_weights

TREE = {"children": 3, "layers": 2, "stragglers": 1}


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_weights_figure_shows_the_decode_weights(traces: list[wb.Trace], theme: str) -> None:
    for trace in (traces[0], traces[1], traces[4]):
        found = decode_weights(trace, 3)
        figure = wb.figures.weights(trace, 3, theme=theme)  # type: ignore[arg-type]
        assert figure.layout.template == wb.figures.weights(trace, 3, theme=theme).layout.template  # type: ignore[arg-type]
        np.testing.assert_array_equal(figure.data[0].x, found.rank)
        np.testing.assert_array_equal(figure.data[0].y, found.weight[0])
        assert f"{len(found.rank)} messages" in figure.layout.title.subtitle.text
        assert trace.label in figure.layout.title.text


def test_weights_figure_marks_late_workers(traces: list[wb.Trace]) -> None:
    late = next(r for r in range(15) if len(decode_weights(traces[1], r).late))
    figure = wb.figures.weights(traces[1], late)
    np.testing.assert_array_equal(figure.data[1].x, decode_weights(traces[1], late).late)
    assert "too late" in figure.layout.title.subtitle.text


def test_weights_figure_of_fractional_messages() -> None:
    trace = wb.run(experiment("CEGC", {"load": 4, "stragglers": 2, "reduction": 2}))
    figure = wb.figures.weights(trace, 0)
    assert [bar.name for bar in figure.data[:2]] == ["coordinates 0, 2, …", "coordinates 1, 3, …"]


def test_weights_figure_has_a_bar_for_each_message_of_a_worker() -> None:
    """Bars and texts of several messages of one worker are side by side, not over one another."""
    e = wb.Experiment(
        scheme="GC-MMC", workers=8, rounds=3, delays={"kind": "pareto"}, problem_args={"samples": 80}
    )
    trace = wb.run(e)
    round = next(r for r in range(3) if decode_weights(trace, r).number.any())
    found, figure = decode_weights(trace, round), wb.figures.weights(trace, round)
    bars = [trace for trace in figure.data if trace.type == "bar"]
    assert [bar.name for bar in bars] == [f"message {n + 1}" for n in np.unique(found.number)]
    assert figure.layout.barmode == "group"
    assert all(len(set(bar.x)) == len(bar.x) for bar in bars)
    drawn = {
        (rank, number): y for number, bar in enumerate(bars) for rank, y in zip(bar.x, bar.y, strict=True)
    }
    assert drawn == dict(zip(zip(found.rank, found.number, strict=True), found.weight[0], strict=True))
    assert figure.layout.showlegend
