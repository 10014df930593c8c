"""Strategies for approximate gradient coding and its relatives."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

Case = tuple[dict[str, Any], int]  # scheme_args, workers

DEADLINES = [1e-3, 0.017, 0.33, 3.1, 47.0]  # s: from no worker to all workers in time


def _end(draw: st.DrawFn, workers: int) -> dict[str, Any]:
    """Draw a deadline, a number of answers, or neither."""
    return draw(
        st.one_of(
            st.just({}),
            st.builds(lambda s: {"deadline": s}, st.sampled_from(DEADLINES)),
            st.builds(lambda k: {"wait_for": k}, st.integers(1, workers)),
        )
    )


def _shuffle(draw: st.DrawFn) -> dict[str, Any]:
    kind = draw(st.sampled_from(["none", "random", "cyclic"]))
    return {"shuffle": kind, "code_seed": draw(st.integers(0, 9))}


@st.composite
def frc(draw: st.DrawFn) -> Case:
    size = draw(st.integers(1, 4))
    workers = size * draw(st.integers(1, 5))
    return {"replication": size, **_end(draw, workers), **_shuffle(draw)}, workers


@st.composite
def erasure_head(draw: st.DrawFn) -> Case:
    size = draw(st.integers(1, 4))
    workers = size * draw(st.integers(1, 5))
    return {"replication": size, **_end(draw, workers)}, workers


@st.composite
def free(draw: st.DrawFn, **choices: st.SearchStrategy[Any]) -> Case:
    """Draw a scheme whose replication need not be a divisor of the workers."""
    workers = draw(st.integers(1, 16))
    replication = draw(st.integers(1, min(5, workers)))
    own = {name: draw(values) for name, values in choices.items()}
    return {"replication": replication, **own, **_end(draw, workers), **_shuffle(draw)}, workers


CASES = {
    "FRC": frc(),
    "CRC": free(coefficients=st.sampled_from(["ones", "random"])),
    "ErasureHead": erasure_head(),
    "SGC": free(straggling=st.sampled_from([None, 0.0, 0.3])),
    "BGC": free(),
}
