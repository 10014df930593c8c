"""Lectures: sliders, figures that follow them, runs to watch on the virtual clock, exercises that check themselves.

A lecture is one module: its sliders (`Knobs`), a function from sliders to a figure for each figure, the experiments
that are run, and three exercises whose answers the package computes. The notebooks in `notebooks/lecture/` hold the
prose, and nothing else.
"""

from types import MappingProxyType

NAMES = MappingProxyType(  # notebook -> module
    {
        "1-stragglers": "stragglers",
        "2-by-hand": "by_hand",
        "3-why-a-tree": "bandwidth",
        "4-communication": "communication",
        "5-not-waiting": "approximate",
        "6-asking-less": "asking_less",
    }
)

__all__ = ["NAMES"]
