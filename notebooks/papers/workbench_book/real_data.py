"""Real data if available, placed by hand or downloaded where that is allowed, or else a named replacement."""

from __future__ import annotations

from workbench.core.presets.codedreduce import Preset
from workbench.core.problems.data import DataError
from workbench.core.problems.data.openml import find, placed_file
from workbench_book.setting import Setting

GISETTE = "openml:gisette"


def at_hand(source: str, setting: Setting) -> bool:
    """Return whether a file of this OpenML set was placed by hand, or may be downloaded.

    >>> at_hand("openml:no-such-set", Setting())
    False
    """
    return setting.download or placed_file(find(source)) is not None


def for_preset(preset: Preset, setting: Setting) -> tuple[Preset, str, str]:
    """Return a preset on its real data, if available and suitable, a sentence about the data, and their name."""
    samples, size = preset[0].shape()
    if preset[0].problem != "logistic":
        note = f"Synthetic, as in the paper (equation 10): {samples} samples, {size} features."
        return preset, note, "synthetic data, as in the paper"
    why = "it is not at hand"
    if not setting.quick and at_hand(GISETTE, setting):
        try:
            real = preset.on(GISETTE)
            real[0].build_problem()
        except DataError as error:
            why = str(error)
        else:
            return real, f"GISETTE, {samples} samples (real data).", "GISETTE (real)"
    elif setting.quick:
        why = "quick form"
    note = f"A synthetic stand-in of GISETTE's size ({samples} x {size}), in place of GISETTE: {why}."
    return preset, note, "a synthetic stand-in for GISETTE"
