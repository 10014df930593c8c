"""Strategies for distributed SGD and Adam, CADA and its relatives, and LAGC."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

import workbench as wb
from tests.support.specs import Case

ETA = 1e-4
DIGITS: dict[str, Any] = {
    "problem": "least_squares",
    "problem_args": {"data": "digits"},
    "workers": 12,
    "rounds": 60,
    "delays": {"kind": "exponential", "mean": ETA},
    "optimiser": "amsgrad",
}


def run(scheme: str, args: dict[str, Any] | None = None, **changes: Any) -> wb.Trace:
    return wb.run(wb.Experiment(scheme=scheme, scheme_args=args or {}, **{**DIGITS, **changes}))


def uploads(trace: wb.Trace) -> list[list[int]]:
    """Return the ranks whose answers the master used, round by round."""
    sent = trace.events.query("kind == 'send' and to == 0")
    return [sorted(sent["rank"][sent["round"] == r]) for r in range(len(trace.rounds))]


def _lazy(draw: st.DrawFn) -> dict[str, Any]:
    return {"c": draw(st.sampled_from([0.0, 0.3, 2.0, 50.0])), "max_age": draw(st.integers(1, 12))}


def _batch(draw: st.DrawFn) -> dict[str, Any]:
    """Draw fields for whole shards: by default, or by an explicit None."""
    return draw(st.sampled_from([{}, {"worker_batch": None}]))


@st.composite
def everybody(draw: st.DrawFn) -> Case:
    return _batch(draw), draw(st.integers(1, 15))


@st.composite
def cada(draw: st.DrawFn) -> Case:
    return {**_lazy(draw), **_batch(draw)}, draw(st.integers(1, 15))


@st.composite
def gcada(draw: st.DrawFn) -> Case:
    groups, size = draw(st.integers(1, 5)), draw(st.integers(1, 5))
    return {**_lazy(draw), **_batch(draw), "groups": groups}, groups * size


@st.composite
def rules(draw: st.DrawFn) -> Case:
    args = {"c": draw(st.sampled_from([0.0, 5e-4, 0.1, 50.0])), "max_age": draw(st.integers(1, 12))}
    return {**args, "window": draw(st.integers(1, 12)), **_batch(draw)}, draw(st.integers(1, 15))


@st.composite
def lagc(draw: st.DrawFn) -> Case:
    groups, size = draw(st.integers(1, 4)), draw(st.integers(1, 5))
    late = draw(st.integers(0, size - 1))
    return {**_lazy(draw), "groups": groups, "stragglers": late}, groups * size


CASES = {"D-SGD": everybody(), "D-Adam": everybody(), "CADA": cada(), "G-CADA": gcada(), "LAGC": lagc()}
CASES |= {"CADA1": rules(), "CADA2": rules()}
