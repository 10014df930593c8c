"""Tables of figures: each one is restored from the first one and the differences."""

from __future__ import annotations

import json
from base64 import b64decode
from copy import deepcopy
from gzip import decompress
from typing import Any

import numpy as np
import pytest
from workbench_lectures.offline.tables import key, packed, table

from tests.support.lecture_settings import SCRIPTS


def unfolded(found: dict[str, Any], row: str) -> dict[str, Any]:
    figure = deepcopy(found["base"])
    for path, number in found["figures"][row].items():
        *steps, last = path.split("/")
        at: Any = figure
        for step in steps:
            at = at[int(step) if isinstance(at, list) else step]
        if number < 0:
            del at[last]
        else:
            at[int(last) if isinstance(at, list) else last] = found["values"][number]
    return figure


def test_packed_tables_of_every_figure_round_trip() -> None:
    script = SCRIPTS["2-by-hand"]
    part = script.figures["code"]
    found = json.loads(decompress(b64decode(packed(table(script, part)))))
    assert len(found["figures"]) == 10
    for draw in (0, 4, 9):
        knobs = script.knobs(draw=draw)
        (trace,) = (trace for trace in unfolded(found, key(knobs, part.names))["data"] if "z" in trace)
        shown = part.draw(knobs, "light").data[0].z
        assert np.array(trace["z"], float) == pytest.approx(np.array(shown, float), rel=1e-5, nan_ok=True)
