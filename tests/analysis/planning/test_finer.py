"""Refinement of parameters between the best one and its neighbours."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from workbench.analysis.planning.finer import finer


@given(best=st.integers(1, 60), sizes=st.sets(st.integers(1, 60), min_size=1, max_size=6))
def test_finer_ends_at_the_best_of_a_convex_cost(best: int, sizes: set[int]) -> None:
    """From any grid with both ends, repeated refinement reaches the least cost and then its two neighbours."""
    grid = [{"stragglers": s} for s in sorted(sizes | {1, 60})]
    tried = list(grid)
    for _ in range(70):
        here = min(tried, key=lambda args: abs(args["stragglers"] - best))
        new = finer(grid, tried, here)
        assert all(args not in tried and 1 <= args["stragglers"] <= 60 for args in new)
        tried += new
        if not new:
            break
    assert {"stragglers": best} in tried


def test_finer_changes_one_whole_number_at_a_time() -> None:
    grid = [{"replication": r, "wait_for": k, "placement": "cyclic"} for r in (1, 4) for k in (2, 8)]
    found = finer(grid, [grid[0]], grid[0])
    assert [(a["replication"], a["wait_for"]) for a in found] == [(4, 2), (1, 8)]
    assert finer([{"damping": 0.5}], [], {"damping": 0.5}) == []
