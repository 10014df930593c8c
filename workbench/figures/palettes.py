"""Colours of a light and of a dark page."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Palette:
    """Colours of a theme that are no scheme's."""

    background: str
    text: str
    muted: str  # secondary text, edges of a graph
    grid: str
    neutral: str  # a value near zero on a diverging scale; stands out from the background


PALETTES: dict[str, Palette] = {
    "light": Palette("#FFFFFF", "#1B1F24", "#5B636E", "#E4E7EB", "#D3D7DC"),
    "dark": Palette("#14171C", "#EEF0F3", "#A9B1BC", "#2D333B", "#4A525D"),
}
