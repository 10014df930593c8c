"""Figures fitted to a width.

On pages, js/fit.js fits them in the browser. For papers and notebooks this module fits them, by estimated widths of
letters.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from textwrap import wrap
from typing import Any

from workbench.core.base.reading import read_text

FIT = "workbenchFit"  # name of the functions in a page
LETTER_WIDTH = 0.58  # mean width of a letter, as a share of its font's size
LINE_HEIGHT = 1.3  # height of a line, as a share of the font's size
MIN_LETTERS = 12  # min number of letters in a line, however narrow the figure is
_AXIS = re.compile("[xy]axis[0-9]*")


@cache
def page_script() -> str:
    """Return JavaScript that defines `workbenchFit`, from `js/fit.js`. Its `keep` fits a drawn figure to its box."""
    text = read_text(Path(__file__).parent / "js" / "fit.js")
    text = re.sub(r"^\s*//[^\n]*\n|/\*\*.*?\*/\n", "", text, flags=re.MULTILINE | re.DOTALL)
    names = "fitted, freed, redraw, grown, worded, PHONE, keep: (plot) => keepFitted(Plotly, plot)"
    return f"globalThis.{FIT} ??= (() => {{\n{text}\nreturn {{ {names} }};\n}})();"


def broken(text: str, size: float, width: float) -> tuple[str, int]:
    """Break a text into lines for a width in px. Return it with `<br>`, and the number of additional lines.

    >>> broken("two words", 20.0, 140.0)
    ('two words', 0)
    >>> broken("two words of one line that is long", 20.0, 200.0)
    ('two words of one<br>line that is long', 1)
    """
    most = max(MIN_LETTERS, int(width / (LETTER_WIDTH * size)))
    before = text.split("<br>")
    lines = [piece for line in before for piece in wrap(line, most, break_long_words=False) or [""]]
    return "<br>".join(lines), len(lines) - len(before)


def fitted(layout: Mapping[str, Any], width: float) -> dict[str, Any]:
    """Return a layout (plotly's JSON) whose titles and axis titles fit a width in px. Its height grows if needed."""
    look = {name: layout[name] for name in layout}
    base = look.get("template", {}).get("layout", {})
    margin = {"l": 80, "r": 80, "t": 100, "b": 80, **base.get("margin", {}), **look.get("margin", {})}
    inner = max(width - margin["l"] - margin["r"], 1.0)
    below = 0.0
    for name in [name for name in look if _AXIS.fullmatch(name)]:
        found, more = _axis_title(look[name], base.get(name[:5], {}), inner, look.get("height", 480) - 160)
        look[name] = found
        below = max(below, more if name.startswith("x") else 0.0)
    return _titled(look, base, margin, inner, below)


def _axis_title(
    axis: Mapping[str, Any], base: Mapping[str, Any], across: float, down: float
) -> tuple[dict[str, Any], float]:
    title = axis.get("title", {})
    if not title.get("text"):
        return dict(axis), 0.0
    size = {**base.get("title", {}).get("font", {}), **title.get("font", {})}.get("size", 14)
    low, high = axis.get("domain", (0, 1))
    horizontal = str(axis.get("anchor", "y")).startswith("y")
    text, more = broken(title["text"], size, (high - low) * (across if horizontal else down))
    return {**axis, "title": {**title, "text": text}}, more * LINE_HEIGHT * size


def _titled(
    look: dict[str, Any], base: Mapping[str, Any], margin: Mapping[str, float], inner: float, below: float
) -> dict[str, Any]:
    title, height = look.get("title", {}), look.get("height", 480)
    if not title.get("text"):
        return {**look, "height": height + below}
    sizes = [{"size": 22, **base.get("title", {}).get("font", {}), **title.get("font", {})}["size"]]
    subtitle = title.get("subtitle", {})
    sizes.append(subtitle.get("font", {}).get("size", 16))
    texts = [
        broken(text, size, inner)
        for text, size in zip((title["text"], subtitle.get("text") or ""), sizes, strict=True)
    ]
    more = sum(lines * LINE_HEIGHT * size for (_, lines), size in zip(texts, sizes, strict=True))
    whole = height + more + below
    place = {} if title.get("y") is None else {"y": 1 - (1 - title["y"]) * height / whole}
    words = {"text": texts[0][0], "subtitle": {**subtitle, "text": texts[1][0]}, **place}
    return {
        **look,
        "height": whole,
        "margin": {**margin, "t": margin["t"] + more},
        "title": {**title, **words},
    }
