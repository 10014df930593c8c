"""Names and contents of files of recorded steps."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.analysis.recorder.steps import ROW, Place, next_attempt, place_of, places, write_steps


@given(st.builds(Place, st.integers(0, 10**6), st.integers(0, 10**4), st.integers(0, 10**7)))
def test_place_is_read_back_from_its_name(place: Place) -> None:
    assert place_of(Path("folder") / place.name) == place


@pytest.mark.parametrize(
    "name", ["rank1.npz", "rank1.0.0.npz", "rank1.0.000000.npz.tmp", "xrank1.0.000000.npz"]
)
def test_place_of_other_files_is_none(name: str) -> None:
    assert place_of(Path(name)) is None


def test_write_steps_replaces_a_segment_and_leaves_nothing_else(tmp_path: Path) -> None:
    for count in (1, 3):
        write_steps(tmp_path, Place(2, 1, 0), np.zeros(count, ROW), {"rank": 2})
    (place,) = places(tmp_path)
    assert len(list(tmp_path.iterdir())) == 1
    with np.load(tmp_path / place.name, allow_pickle=False) as found:
        assert len(found["steps"]) == 3
        assert json.loads(str(found["about"])) == {"rank": 2}
    assert (next_attempt(tmp_path, 2), next_attempt(tmp_path, 0)) == (2, 0)
