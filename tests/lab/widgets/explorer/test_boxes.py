"""Boxes of round times as HTML: positions, labels and rows."""

from __future__ import annotations

import re
from html import unescape
from itertools import pairwise
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.analysis.planning.quantities import quantity_of
from workbench.lab.figures.gallery.round_times import QUANTILES
from workbench.lab.widgets.explorer.boxes import (
    CHARACTER_WIDTH,
    MIN_TICK_DISTANCE,
    Axis,
    box,
    scale,
    table_of_boxes,
)

MAX_CHARACTERS = 13  # max length of a time as text
TIMES = st.lists(st.one_of(st.floats(1e-9, 1e9), st.floats(1e9, 1e300)), min_size=1, max_size=20).map(
    np.array
)


@given(st.lists(TIMES, min_size=1, max_size=6))
def test_every_drawn_time_is_on_the_axis(times: list[np.ndarray]) -> None:  # type: ignore[type-arg]
    axis = Axis.of(times)
    drawn = [float(q) for each in times for q in (*np.quantile(each, QUANTILES), each.mean())]
    places = [axis.place(second) for second in sorted(drawn)]
    assert places == sorted(places)
    assert min(places) >= 0
    assert max(places) <= 100


@given(st.lists(TIMES, min_size=1, max_size=6))
def test_labels_of_the_axis_are_apart(times: list[np.ndarray]) -> None:  # type: ignore[type-arg]
    axis = Axis.of(times)
    places, texts = [axis.place(tick) for tick in axis.ticks], [quantity_of(tick) for tick in axis.ticks]
    assert all(b - a >= MIN_TICK_DISTANCE for a, b in pairwise(places))
    # half of each of the two texts is between them
    for (left, right), (one, other) in zip(pairwise(places), pairwise(texts), strict=True):
        assert right - left >= CHARACTER_WIDTH * (len(one) + len(other)) / 2
    assert all(len(text) <= MAX_CHARACTERS for text in texts)


@pytest.mark.parametrize(("seconds", "ticks"), [(3e5, "5 days"), (1e9, "50 years"), (1e30, "5e+22 years")])
def test_labels_of_long_times_are_round_numbers_of_a_long_unit(seconds: float, ticks: str) -> None:
    axis = Axis.of([np.array([seconds, 2.5 * seconds])])
    assert ticks in [quantity_of(tick) for tick in axis.ticks]


def test_axis_of_rounds_without_time_is_linear() -> None:
    axis = Axis.of([np.zeros(3)])
    assert axis.low == 0
    assert axis.ticks[0] == 0
    assert axis.place(axis.high / 2) == 50


def test_box_is_labelled_with_its_numbers() -> None:
    seconds = np.array([0.1, 0.2, 0.3, 0.4, 0.5])
    picture = ElementTree.fromstring(box("CR", seconds, Axis.of([seconds])))
    assert (
        picture.get("aria-label")
        == "CR: mean 300 ms, middle half 200 ms to 400 ms, 5 to 95 % 120 ms to 480 ms"
    )
    (rect,) = picture.iter("rect")
    assert float(str(rect.get("width")).rstrip("%")) > 0


@pytest.mark.parametrize(("seconds", "inside"), [(2.7e7, True), (2.0, False)])
def test_label_at_the_end_of_the_axis_is_moved_inside(seconds: float, inside: bool) -> None:
    """At 93 % of a phone's axis, half of "300 days" would be outside. A short label has room."""
    labels = ElementTree.fromstring(scale(Axis(seconds / 20, seconds)))
    assert (labels[-1].get("style") == "text-anchor: end", labels[-1].get("x") == "100%") == (inside, inside)


@pytest.mark.parametrize("missing", [False, True])
def test_table_has_a_row_per_scheme(missing: bool) -> None:
    times = {"<UMW>": np.array([2.0, 3.0]), "CR": None if missing else np.array([1.0, 1.5])}
    html = table_of_boxes(times, {"mean": ["2.5 s", "–"]}, "CR", "costs")
    assert "<UMW>" not in html
    rows = re.findall(r"<tr[^>]*>(.*?)</tr>", html.partition("<tbody>")[2].partition("</tbody>")[0])
    assert [unescape(re.sub("<svg.*</svg>|<[^>]+>", " ", row)).split() for row in rows] == [
        ["<UMW>", "2.5", "s"], ["CR", "–"],
    ]  # fmt: skip
    assert rows[1].count("<svg") == (0 if missing else 3)
    assert html.count("wb-best") == 1
