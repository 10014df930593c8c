"""The figure of a tree: the graph of the plan, and the samples of each worker."""

from __future__ import annotations

from typing import Any

import numpy as np
import plotly.graph_objects as go
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import workbench as wb
from tests.support.figure_runs import experiment
from tests.support.strategies import CASES, experiments
from workbench.core.base.settings import SettingError
from workbench.core.contract.plan import Plan, star_plan
from workbench.lab.figures import tree
from workbench.lab.figures.gallery.tree import MAX_RANKS, MAX_STRIPS, strips_of
from workbench.lab.figures.layout import REST_NODE, RING_NODES, place


def panel(figure: go.Figure, name: str) -> Any:
    return next(trace for trace in figure.data if trace.name == name)


@settings(max_examples=25)
@given(experiments(list(CASES)))
def test_tree_strips_are_the_held_samples(spec: dict[str, Any]) -> None:
    plan = wb.Experiment(**spec).plan
    held = np.zeros((plan.ranks, plan.samples))
    bar = panel(tree(plan), "data held")
    for rank, start, width, coefficient in zip(bar.y, bar.base, bar.x, bar.marker.color, strict=True):
        held[rank, start : start + width] += coefficient
    np.testing.assert_allclose(held, np.repeat(plan.matrix(), plan.sizes, axis=1), rtol=1e-9)


@settings(max_examples=40)
@given(experiments(list(CASES)))
def test_tree_edges_are_the_plan_and_nodes_do_not_overlap(spec: dict[str, Any]) -> None:
    plan = wb.Experiment(**spec).plan
    layout = place(plan, MAX_RANKS)
    pairs = {tuple(edge) for edge in layout.edges.tolist()}
    if layout.ring:
        assert pairs == {(r, 1 + r % plan.workers) for r in range(1, plan.ranks)}
    else:
        assert pairs == {(int(p), r) for r, p in enumerate(plan.parent) if p >= 0}
        assert all(layout.layer[b] == layout.layer[a] + 1 for a, b in pairs)
    points = np.stack([layout.x, layout.y], axis=1)
    gaps = np.linalg.norm(points[:, None] - points[None], axis=2) + np.eye(len(points))
    assert gaps.min() > 1e-3


@pytest.mark.parametrize(("children", "layers"), [(12, 1), (3, 2), (2, 4)])
def test_place_tree_in_rank_order(children: int, layers: int) -> None:
    args = {"children": children, "layers": layers, "stragglers": 1}
    workers = sum(children**layer for layer in range(1, layers + 1))
    plan = experiment("CR", args, workers=workers).plan
    layout = place(plan, MAX_RANKS)
    for depth in range(1, layers + 1):
        assert np.all(np.diff(layout.x[layout.layer == depth]) > 0)
    for rank, kids in enumerate(plan.children):
        if kids:
            assert layout.x[rank] == pytest.approx(np.mean(layout.x[list(kids)]))
            assert np.all(layout.y[list(kids)] < layout.y[rank])


def test_place_many_workers_on_circles() -> None:
    args = {"children": 12, "layers": 2, "stragglers": 1}
    layout = place(
        experiment("CR", args, workers=156, problem_args={"samples": 1560, "features": 2}).plan, 400
    )
    np.testing.assert_allclose(np.hypot(layout.x, layout.y), layout.layer, atol=1e-12)
    leaves = np.unwrap(np.arctan2(layout.x, layout.y)[layout.layer == 2])
    np.testing.assert_allclose(np.diff(leaves), 2 * np.pi / 144)


def test_tree_hover_shows_rank_layer_samples_and_parts() -> None:
    e = experiment("CR", {"children": 3, "layers": 2, "stragglers": 1})
    nodes = panel(tree(e), "nodes")
    held = e.plan.indices[e.plan.indptr[5] : e.plan.indptr[6]]
    assert nodes.hovertext[5].startswith(
        f"<b>rank 5</b>, layer 2<br>{e.plan.loads[5]} samples<br>parts {held[0]}"
    )
    assert "3 children" in nodes.hovertext[0]


def test_tree_node_size_follows_the_load() -> None:
    plan = star_plan(np.array([[1.0, 1.0, 1.0, 1.0], [1.0, 0.0, 0.0, 0.0]]), 400)
    sizes = panel(tree(plan), "nodes").marker.size
    assert sizes[1] == pytest.approx(2 * sizes[2])  # four times the load has four times the area


def test_tree_of_a_ring_has_arrows() -> None:
    figure = tree(experiment("RAR"))
    assert len(figure.layout.annotations) == 12
    assert "outside the ring" in panel(figure, "nodes").hovertext[0]


def large(scheme: str, workers: int, **args: int) -> Plan:
    data = {"samples": 30_000, "features": 2}
    return experiment(scheme, args, workers=workers, problem_args=data).plan


@settings(max_examples=10)
@given(st.sampled_from([(4, 5), (10, 3), (21, 2), (500, 1), (2, 9), (7, 4)]), st.integers(0, 1))
def test_tree_of_a_very_large_plan_shows_one_branch(shape: tuple[int, int], stragglers: int) -> None:
    children, layers = shape
    workers = sum(children**layer for layer in range(1, layers + 1))
    assert workers > MAX_RANKS
    plan = large("CR", workers, children=children, layers=layers, stragglers=stragglers)
    layout, figure = place(plan, MAX_RANKS), tree(plan)
    below: dict[int, int] = {}  # parent -> number of its children, with those in a node "+n"
    for a, b in layout.edges.tolist():
        below[a] = below.get(a, 0) + int(layout.number[b])
        if layout.rank[b] != REST_NODE:
            assert plan.parent[layout.rank[b]] == layout.rank[a]
    assert below == dict.fromkeys(below, children)
    assert len(below) == layers
    text = figure.layout.yaxis.ticktext
    assert [int(word.split("<br>")[1].split(" ")[0]) for word in text[1:]] == [
        children**layer for layer in range(1, layers + 1)
    ]
    assert "one branch drawn" in figure.layout.title.subtitle.text
    points = np.stack([layout.x, layout.y], axis=1)
    gaps = np.linalg.norm(points[:, None] - points[None], axis=2) + 10 * np.eye(len(points))
    assert gaps.min() >= 1.0 - 1e-9


def test_tree_of_a_very_large_ring_shows_every_nth_worker() -> None:
    layout = place(large("RAR", 1000), MAX_RANKS)
    rank = layout.rank[1:]
    assert (len(rank), rank[0]) == (RING_NODES, 1)
    assert set(np.diff(rank)) == {25}
    np.testing.assert_allclose(
        np.arctan2(layout.x[1:], layout.y[1:]) % (2 * np.pi), 2 * np.pi * (rank - 1) / 1000
    )
    ends = [(layout.rank[a], layout.rank[b]) for a, b in layout.edges]
    assert all((b - a) % 1000 == 25 for a, b in ends)
    assert f"{RING_NODES} of the ring’s workers drawn" in tree(large("RAR", 1000)).layout.title.subtitle.text


def test_strips_of_stops_at_the_available_width() -> None:
    parts = MAX_STRIPS // 2
    matrix = np.tile([1.0, 2.0], (5, parts // 2))  # the coefficients of neighbouring parts differ
    strips = strips_of(star_plan(matrix, parts), 6)
    assert np.unique(strips.rank, return_counts=True)[1].tolist() == [parts, parts]


def test_tree_refuses_wrong_input() -> None:
    wrong: Any = "CR"
    with pytest.raises(SettingError, match=r"^plan = str: cannot be drawn"):
        tree(wrong)
