"""Figures for papers: with a width in centimetres, text of 8 points, and no title."""

from __future__ import annotations

import re
from collections.abc import Mapping
from math import ceil
from typing import Any

import plotly.graph_objects as go

from workbench.core.base.settings import SettingError, short
from workbench.lab.figures.fit import LETTER_WIDTH, LINE_HEIGHT, fitted
from workbench.lab.figures.page import Figure

PX_PER_UNIT = {"cm": 96 / 2.54, "mm": 96 / 25.4, "in": 96.0, "pt": 96 / 72}
MIN_WIDTH_PX, MAX_WIDTH_PX = 150.0, 2000.0
TEXT_PX = 8 * 96 / 72  # 8 points, the size of a caption
USUAL_TEXT_PX = 16.0  # text size in the figures' style
MARGIN_TOP_PX, TITLE_PX = 8, 96  # px above the axes, without a title and with one
MIN_PANELS_PX = 720  # min width for panels side by side, in px of the figures' style
SYMBOL_PX = 44  # width of a legend entry without its text, in the figures' style
_LENGTH = re.compile(r"\s*([0-9]+(?:\.[0-9]*)?)\s*(cm|mm|in|pt)\s*")
_SIZES = {"size", "width", "arrowsize", "thickness", "standoff", "ticklen", "itemwidth", "tracegroupgap"}
_MARGINS = {"l", "r", "t", "b"}
_OWN_WIDTH = {"bar", "box"}  # types of traces whose `width` is in units of the axis, and not in px


def length(text: str) -> float:
    """Return a length in px (1/96 inch).

    Raises `SettingError` unless it is a number with cm, mm, in or pt, of 4 to 50 cm.

    >>> round(length("5.08cm") + length("4 in"))
    576
    """
    found = _LENGTH.fullmatch(text) if isinstance(text, str) else None
    pixels = float(found[1]) * PX_PER_UNIT[found[2]] if found else 0.0
    if not MIN_WIDTH_PX <= pixels <= MAX_WIDTH_PX:
        raise SettingError(
            f'width = {short(text)}: take 4 to 50 cm, with a unit: "8.5cm", "86mm", "3.4in", "246pt"'
        )
    return pixels


def for_paper(figure: go.Figure, width: float) -> Figure:
    """Return a figure of a width in px whose text has 8 points, its legend below, without title.

    Lines and symbols shrink as the text does. Heights keep their proportion to the text.

    Raises `SettingError` if the width is too small for panels that stand side by side.
    """
    by = TEXT_PX / USUAL_TEXT_PX
    data, layout = [trace.to_plotly_json() for trace in figure.data], figure.layout.to_plotly_json()
    if layout.get("meta") and width / by < MIN_PANELS_PX:
        least = MIN_PANELS_PX * by / PX_PER_UNIT["cm"]
        raise SettingError(
            f"width = {width / PX_PER_UNIT['cm']:.3g} cm: this figure's panels need {least:.0f} cm"
        )
    margin = layout.get("margin", {})
    margin = {
        **margin,
        "t": MARGIN_TOP_PX + max(0, margin.get("t", 0) - TITLE_PX),
        "r": max(12, margin.get("r", 0)),
    }
    bare = {**layout, "title": {}, "margin": margin, "height": layout.get("height", 480) - 60}
    made = scaled({"data": data, "layout": _legend_below(data, fitted(bare, width / by), width / by)}, by)
    made["layout"]["height"] *= by
    return Figure(data=made["data"], layout=made["layout"], _validate=False)


def _legend_below(data: list[Mapping[str, Any]], layout: dict[str, Any], width: float) -> dict[str, Any]:
    listed = (trace for trace in data if trace.get("showlegend") is not False and trace["type"] != "heatmap")
    names = [str(trace.get("name", "")) for trace in listed]
    if not layout.get("showlegend", len(names) > 1) or not names:
        return {**layout, "showlegend": False}
    each = max(map(len, names)) * LETTER_WIDTH * 15 + SYMBOL_PX
    title = layout.get("legend", {}).get("title", {}).get("text") or ""
    rows = ceil(len(names) / max(1, int(width / each))) + (title.count("<br>") + 1 if title else 0)
    place = {"orientation": "h", "x": 0, "xanchor": "left", "y": 0, "yref": "container", "yanchor": "bottom"}
    legend = {**layout.get("legend", {}), **place}
    if title:
        legend["title"] = {**legend["title"], "side": "top"}
    return {**layout, "legend": legend, "height": layout["height"] + rows * LINE_HEIGHT * 15}


def scaled(value: Any, by: float, of: str = "", kind: str = "") -> Any:
    """Return plotly's JSON with all sizes in px multiplied by a factor.

    >>> scaled({"font": {"size": 16}, "margin": {"l": 10}, "x": [1]}, 0.5)
    {'font': {'size': 8.0}, 'margin': {'l': 5.0}, 'x': [1]}
    """
    if isinstance(value, Mapping):
        kind = (
            str(value.get("type", "")) if "type" in value and not of.endswith("axis") else kind if of else ""
        )
        return {name: _scaled_field(name, inner, by, of, kind) for name, inner in value.items()}
    if isinstance(value, (list, tuple)) and value and isinstance(value[0], Mapping):
        return [scaled(inner, by, of) for inner in value]
    return value


def _scaled_field(name: str, inner: Any, by: float, of: str, kind: str) -> Any:
    pixels = name in _SIZES and not (name == "width" and kind in _OWN_WIDTH and of in ("data", ""))
    pixels = pixels or (of == "margin" and name in _MARGINS)
    number = isinstance(inner, (int, float)) and not isinstance(inner, bool)
    return inner * by if pixels and (number or hasattr(inner, "dtype")) else scaled(inner, by, name, kind)
