"""Recorded stragglers: load, show, fit and replay them.

To add a source, add a file to `sources` with a `SOURCE`; nothing else needs an edit.
"""

from workbench.analysis.recordings.card import Card
from workbench.analysis.recordings.loading import at_hand, home, known, load
from workbench.analysis.recordings.recording import Recording

__all__ = ["Card", "Recording", "at_hand", "home", "known", "load"]


def __dir__() -> list[str]:
    return sorted(__all__)
