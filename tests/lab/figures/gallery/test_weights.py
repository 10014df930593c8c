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
