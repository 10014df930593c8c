"""Numbers and colours in the JSON of a figure, for tests of properties that all figures have."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import plotly.graph_objects as go

from workbench.core.base.types import ROUNDING

SMALL = re.compile(r"\de[-−](1[3-9]|[2-9]\d)")  # a number below 1e-12 in a text
LOOKS = ("template", "marker", "line", "hovertemplate")


def values(part: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield all texts and arrays of numbers of a figure's JSON, except styles, with their paths."""
    if isinstance(part, dict):
        for name, inner in part.items():
            if name not in LOOKS:
                yield from values(inner, f"{path}.{name}")
    elif isinstance(part, list | tuple | np.ndarray):
        try:
            yield path, np.asarray(part, dtype=float)
        except (ValueError, TypeError):
            for i, inner in enumerate(part):
                yield from values(inner, f"{path}[{i}]")
    elif isinstance(part, str):
        yield path, part


def rounding_errors(figure: go.Figure) -> list[str]:
    """Return the places of a figure in which rounding errors are shown as if they were data."""
    found = []
    for path, each in values(figure.to_dict()):
        if isinstance(each, str):
            found += [f"{path}: {each}"] if SMALL.search(each) else []
            continue
        known = each[np.isfinite(each)]
        size = np.abs(known)
        if not len(known) or not size.max():
            continue
        least, most = size[size > 0].min(), size.max()
        if most < 10 * ROUNDING or least < ROUNDING * most or 0 < np.ptp(known) < ROUNDING * most:
            found.append(f"{path}: {least:g} to {most:g}")
    return found


def contrast(one: str, other: str) -> float:
    """Return the contrast of two colours #rrggbb, from 1 to 21, as defined by WCAG 2."""
    lights = []
    for color in (one, other):
        parts = np.array([int(color[i : i + 2], 16) for i in (1, 3, 5)]) / 255
        linear = np.where(parts <= 0.03928, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
        lights.append(float(linear @ [0.2126, 0.7152, 0.0722]))
    return (max(lights) + 0.05) / (min(lights) + 0.05)


def over(color: str, ground: str) -> str:
    """Return a colour of a scale, #rrggbb or rgba(...), as #rrggbb on a background."""
    if color.startswith("#"):
        return color
    *parts, opacity = map(float, re.findall(r"[\d.]+", color))
    below = [int(ground[i : i + 2], 16) for i in (1, 3, 5)]
    mixed = [round(opacity * a + (1 - opacity) * b) for a, b in zip(parts, below, strict=True)]
    return "#" + "".join(f"{each:02x}" for each in mixed)
