"""Strategies for the inexact schemes."""

from __future__ import annotations

from hypothesis import strategies as st

from tests.support.schemes.approximate import Case, _end


@st.composite
def is_gc(draw: st.DrawFn) -> Case:
    size = draw(st.integers(1, 4))
    kind = draw(st.sampled_from(["cyclic", "fractional", "hybrid"]))
    workers = size * draw(st.integers(1, 5)) + (draw(st.integers(0, 3)) if kind == "cyclic" else 0)
    args = {"replication": size, "placement": kind, "code_seed": draw(st.integers(0, 9))}
    if kind == "hybrid":  # groups have c to c + c1 workers, or fewer if all copies are inside
        inside = draw(st.integers(0, size))
        members, groups = (
            size + draw(st.integers(0, max(0, inside - (inside == size)))),
            draw(st.integers(1, 3)),
        )
        args |= {"group_replication": inside, "groups": groups}
        workers = members * groups
    return {**args, **_end(draw, workers)}, workers


@st.composite
def late(draw: st.DrawFn) -> Case:
    workers = draw(st.integers(1, 14))
    return {"stragglers": draw(st.integers(0, workers - 1))}, workers


@st.composite
def dsag(draw: st.DrawFn) -> Case:
    workers = draw(st.integers(1, 12))
    tolerance = draw(st.sampled_from([0.0, 0.02, 0.5]))
    args = {"pieces": draw(st.integers(1, 4)), "tolerance": tolerance}
    return {**args, "wait_for": draw(st.none() | st.integers(1, workers))}, workers


@st.composite
def ggc(draw: st.DrawFn) -> Case:
    degree = draw(st.integers(1, 5))
    parts = draw(st.integers(degree + 1, 9).filter(lambda parts: parts * degree % 2 == 0))
    workers = parts * degree // 2
    return {"replication": degree, "code_seed": draw(st.integers(0, 9)), **_end(draw, workers)}, workers


@st.composite
def drop_compute(draw: st.DrawFn) -> Case:
    threshold = draw(st.none() | st.sampled_from([1e-3, 0.017, 0.33, 3.1, 47.0]))
    return {"micro_batches": draw(st.integers(1, 6)), "threshold": threshold}, draw(st.integers(1, 10))


@st.composite
def adaptive_k(draw: st.DrawFn) -> Case:
    workers = draw(st.integers(1, 10))
    args = {"start": draw(st.integers(1, workers)), "step": draw(st.integers(1, min(3, workers)))}
    return {**args, "threshold": draw(st.integers(0, 2)), "burn_in": draw(st.integers(0, 2))}, workers


@st.composite
def dbw(draw: st.DrawFn) -> Case:
    return {"window": draw(st.integers(1, 5))}, draw(st.integers(1, 10))


CASES = {
    "AdaptiveK": adaptive_k(),
    "Backup": late(),
    "DBW": dbw(),
    "DSAG": dsag(),
    "DropCompute": drop_compute(),
    "GGC": ggc(),
    "IS-GC": is_gc(),
    "PGC": late(),
}
