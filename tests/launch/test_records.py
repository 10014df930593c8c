"""What a run that goes on finds in its folder."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from workbench.launch.records import ARRIVALS, LIVE, ROWS, Arrivals, read_arrivals, rewind


@pytest.mark.parametrize("rounds", [0, 1, 2, 3, 5])
def test_a_round_that_is_gone_through_again_keeps_only_its_second_answers(
    tmp_path: Path, rounds: int
) -> None:
    first = Arrivals(tmp_path, 0)
    for round in range(3):
        first([(round, 1, 0), (round, 2, 0)])
    with (tmp_path / ARRIVALS / "0.i64").open("ab") as torn:
        torn.write(b"half a row")
    np.zeros((3, len(LIVE))).tofile(tmp_path / ROWS)
    rewind(tmp_path, min(rounds, 3), 4)
    kept = {round: [(1, 0), (2, 0)] for round in range(min(rounds, 3))}
    assert read_arrivals(tmp_path, 0) == kept
    Arrivals(tmp_path, 0)([(rounds, 2, 0), (rounds, 3, 1)])
    assert read_arrivals(tmp_path, 0) == {**kept, rounds: [(2, 0), (3, 1)]}
