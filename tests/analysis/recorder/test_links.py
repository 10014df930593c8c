"""Turns of a probe: no rank has two messages at once, and each link has a turn."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.analysis.recorder.links import _turn


@given(st.integers(2, 200))
def test_probe_turns_never_meet_at_a_rank(ranks: int) -> None:
    turns = [_turn(rank, ranks) for rank in range(ranks)]
    assert {*turns} <= {0, 1, 2}
    assert all(turns[rank] != turns[rank - 1] for rank in range(ranks))


@pytest.mark.parametrize(("ranks", "turns"), [(2, 2), (4, 2), (3, 3), (7, 3)])
def test_probe_takes_a_third_turn_for_odd_rings_only(ranks: int, turns: int) -> None:
    assert len({_turn(rank, ranks) for rank in range(ranks)}) == turns
