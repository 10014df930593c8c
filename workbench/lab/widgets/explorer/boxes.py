"""Boxes of round times as HTML: a row per scheme with its picture and its numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import NamedTuple

import numpy as np

from workbench.analysis.planning.quantities import LONG_UNITS, quantity_of
from workbench.core.base.types import Array
from workbench.lab.figures.gallery.round_times import MAX_EQUAL_RATIO, QUANTILES
from workbench.lab.figures.style import scheme_style

MARGIN = 4.0  # % of the axis at both ends
MIN_TICK_DISTANCE = 22.0  # min distance of labels, % of the axis
CHARACTER_WIDTH = 2.8  # approximate width of a character of a label, % of the axis


class Axis(NamedTuple):
    """Axis of times in s. The axis is logarithmic unless `low` is 0."""

    low: float
    high: float

    @classmethod
    def of(cls, seconds: Sequence[Array]) -> Axis:
        """Return an axis with the drawn quantiles and means of all times. Rounding errors do not determine it.

        >>> Axis.of([np.array([3.0, 3.0])])
        Axis(low=2.0, high=4.5)
        """
        ends = np.array(
            [[*np.quantile(each, (QUANTILES[0], QUANTILES[-1])), each.mean()] for each in seconds]
        )
        low, high = float(ends.min()), float(ends.max())
        if low <= 0:
            return cls(0.0, high or 1.0)
        return cls(low, high) if high > MAX_EQUAL_RATIO * low else cls(low * 2 / 3, high * 3 / 2)

    def place(self, second: float) -> float:
        """Return the position of a time in percent.

        >>> Axis(0.1, 10.0).place(1.0), Axis(0.0, 2.0).place(1.0)
        (50.0, 50.0)
        """
        if self.low > 0:
            low, high = np.log(self.low), np.log(self.high)
            share = (np.log(max(second, self.low / 10)) - low) / (high - low)
        else:
            share = second / self.high
        return round(MARGIN + (100 - 2 * MARGIN) * float(share), 2)

    @property
    def ticks(self) -> list[float]:
        """Times with a label, which do not cover one another: powers of ten first.

        >>> Axis(0.2, 3.5).ticks
        [0.2, 0.5, 1.0, 2.0]
        """
        found: list[float] = []
        for value in self._candidates():
            at = self.place(value)
            if 0 <= at <= 100 and all(abs(at - self.place(one)) >= _room(value, one) for one in found):
                found.append(value)
        return sorted(found)

    def _candidates(self) -> list[float]:
        if self.low <= 0:
            return [0.0, self.high / 2, self.high]
        middle = np.sqrt(self.low) * np.sqrt(self.high)  # labels are round numbers of its unit
        unit = next((size for least, size, _ in LONG_UNITS if middle >= least), 1.0)
        decades = range(int(np.log10(self.low / unit) // 1), int(np.log10(self.high / unit) // 1) + 2)
        powers = {digit: [float(f"{digit}e{k}") * unit for k in decades] for digit in (1, 2, 5, 3)}
        return [value for values in powers.values() for value in values if self.low <= value <= self.high]


def _room(one: float, other: float) -> float:
    """Return the min distance of two labels, % of the axis."""
    return max(MIN_TICK_DISTANCE, CHARACTER_WIDTH * len(quantity_of(one) + quantity_of(other)) / 2)


def box(name: str, seconds: Array, axis: Axis) -> str:
    """Return the picture of the times of a scheme as SVG: middle half, median, 5 to 95 %, and mean."""
    quantiles = [float(q) for q in np.quantile(seconds, QUANTILES)]
    low, q1, median, q3, high = map(axis.place, quantiles)
    mean, color = float(seconds.mean()), scheme_style(name.split(" ")[0]).color
    spans = [quantity_of(quantiles[i]) for i in (1, 3, 0, 4)]
    half, most = " to ".join(spans[:2]), " to ".join(spans[2:])
    about = f"{name}: mean {quantity_of(mean)}, middle half {half}, 5 to 95 % {most}"
    lines = [_line(low, q1), _line(q3, high), *(_mark(end, 5) for end in (low, high))]
    width = max(q3 - q1, 0.0)
    return (
        f'<svg class="wb-box" role="img" aria-label="{escape(about)}"><title>{escape(about)}</title>{_grid(axis)}'
        f'<svg y="50%"><g style="stroke:{color};--c:{color}">{"".join(lines)}'
        f'<rect x="{q1}%" width="{width:.2f}%" y="-9" height="18" rx="1.5"/>{_mark(median, 9)}</g>'
        f'<svg x="{axis.place(mean)}%"><path d="M0-6 6 0 0 6-6 0z"/></svg></svg></svg>'
    )


def scale(axis: Axis) -> str:
    """Return the labels of the axis as SVG."""
    texts = (_tick(axis.place(t), quantity_of(t)) for t in axis.ticks)
    return f'<svg class="wb-box" aria-hidden="true">{"".join(texts)}</svg>'


def _tick(x: float, text: str) -> str:
    """Return a label as SVG. Near the end of the axis, it is moved inside."""
    cut = x + CHARACTER_WIDTH * len(text) / 2 > 100
    look = ' style="text-anchor: end"' * cut
    return f'<text x="{100 if cut else x}%" y="14"{look}>{text}</text>'


def _grid(axis: Axis) -> str:
    places = (axis.place(t) for t in axis.ticks)
    return "".join(f'<line class="wb-grid-line" x1="{x}%" x2="{x}%" y1="0" y2="100%"/>' for x in places)


def _line(start: float, end: float) -> str:
    return f'<line x1="{start}%" x2="{end}%" y1="0" y2="0"/>'


def _mark(x: float, half: int) -> str:
    return f'<line x1="{x}%" x2="{x}%" y1="-{half}" y2="{half}"/>'


def table_of_boxes(
    times: Mapping[str, Array | None], columns: Mapping[str, Sequence[str]], best: str = "", caption: str = ""
) -> str:
    """Return an HTML table: name, box of the round times, and numbers.

    `times`: round times, s, of each scheme, or None without a forecast. `columns`: heading -> a text for each scheme.
    `best`: name of the scheme whose numbers are bold.
    """
    axis = Axis.of([each for each in times.values() if each is not None])
    heads = ['<th scope="col">scheme</th>', '<th scope="col" class="wb-plotted">time per round</th>']
    heads += [
        f'<th scope="col" class="wb-number" data-column="{escape(c)}">{escape(c)}</th>' for c in columns
    ]
    rows = []
    for i, (name, seconds) in enumerate(times.items()):
        color = scheme_style(name.split(" ")[0]).color
        cells = [
            f'<th scope="row"><i style="background:{color}"></i>{escape(name)}</th>',
            f'<td class="wb-plotted">{box(name, seconds, axis) if seconds is not None else ""}</td>',
            *(
                f'<td class="wb-number" data-column="{escape(c)}">{escape(texts[i])}</td>'
                for c, texts in columns.items()
            ),
        ]
        mark = ' class="wb-best"' if name == best else ""
        rows.append(f"<tr{mark}>{''.join(cells)}</tr>")
    foot = f'<tr><td></td><td class="wb-plotted">{scale(axis)}</td><td colspan="{len(columns)}"></td></tr>'
    return (
        f'<div class="wb"><table class="wb-boxed" aria-label="{escape(caption)}"><thead><tr>{"".join(heads)}'
        f"</tr></thead><tbody>{''.join(rows)}</tbody><tfoot>{foot}</tfoot></table></div>"
    )
