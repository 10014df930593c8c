"""CodedReduce against paper 1: the worked example to the digit, Theorem 1, sizes that do not divide."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import workbench as wb
from workbench.core.contract.protocol import (
    CODED,
    MODEL,
    Close,
    Commit,
    Compute,
    Decode,
    Message,
    Node,
    Recv,
    Send,
)
from workbench.core.schemes.coded_reduce import CR, nearest_trees, tree_size

B = ((0.5, 1.0, 0.0), (0.0, 1.0, -1.0), (0.5, 0.0, 1.0))
EXAMPLE = CR(children=3, layers=2, stragglers=1, matrix=B)


def test_cr_worked_example_allocation() -> None:
    """In the (3,2) tree with s = 1, the data of node (1,1) and its children are 1/2 D1 u D2, cut into 5 pieces.

    Node (1,1) keeps two pieces, and its children get the other three.
    """
    held = EXAMPLE.allocate(15)  # D1 = 0..4, D2 = 5..9, D3 = 10..14; a fifth of 10 samples is 2
    pieces = [
        [(int(a), int(b), float(w)) for _, a, b, w in zip(*held.of(node), strict=True)] for node in range(12)
    ]
    assert pieces[0] == [(0, 4, 0.5)]  # (1,1): p1 and p2, both of 1/2 D1
    # left: p3 = {1/2 sample 4, sample 5}, p4 = {6, 7}, p5 = {8, 9}
    assert pieces[3] == [(4, 5, 0.25), (5, 6, 0.5), (6, 8, 1.0)]  # 1/2 p3, p4
    assert pieces[4] == [(6, 8, 1.0), (8, 10, -1.0)]  # p4, -p5
    assert pieces[5] == [(4, 5, 0.25), (5, 6, 0.5), (8, 10, 1.0)]  # 1/2 p3, p5
    assert EXAMPLE.loads(12, 15).tolist() == [4] * 12  # r = 4/15
    assert EXAMPLE.plan(12, 15).loads.tolist() == [0] + [4] * 12


def test_cr_worked_example_decoding() -> None:
    """A = [[0,1,2],[1,0,1],[2,-1,0]]. Node (1,1) makes 2 m1 - m2 from its first two children."""
    code = EXAMPLE.code()
    for answered, weights in {(1, 2): [1, 2], (0, 2): [1, 1], (0, 1): [2, -1]}.items():
        np.testing.assert_allclose(code.decode(answered).weights, weights, atol=1e-12)


def test_cr_worked_example_by_hand() -> None:
    """Without an engine: check the messages that relay (1,1) receives and sends."""
    plan = EXAMPLE.plan(12, 15)
    program = EXAMPLE.program(Node(1, plan, 1, 15, None, lambda: 0.0))
    assert isinstance(next(program), Recv)
    assert isinstance(program.send(Message(0, MODEL, 0, 0, "w0")), Close)
    down = program.send(None)
    assert isinstance(down, Send)
    assert down.to == (4, 5, 6)
    assert down.value == "w0"
    ask = program.send(None)
    assert isinstance(ask, Compute)
    assert ask.work.samples == 4
    assert ask.unless == {MODEL: 1}
    own = np.zeros(15)
    own[0:4] = 0.5
    m1, m2 = np.zeros(15), np.zeros(15)
    m1[4], m1[5], m1[6:8] = 0.25, 0.5, 1.0
    m2[6:8], m2[8:10] = 1.0, -1.0
    assert isinstance(program.send(own), Recv)
    assert isinstance(program.send(Message(5, CODED, 0, 0, m2)), Recv)  # the order of arrival has no effect
    assert isinstance(program.send(Message(4, CODED, 0, 0, m1)), Close)
    assert isinstance(program.send(None), Decode)
    up = program.send(None)
    assert isinstance(up, Send)
    assert up.to == 0
    np.testing.assert_allclose(up.value, [0.5] * 5 + [1.0] * 5 + [0.0] * 5, atol=1e-12)  # 1/2 D1 u D2


def test_cr_worked_example_at_the_master() -> None:
    program = EXAMPLE.program(Node(0, EXAMPLE.plan(12, 15), 1, 15, None, lambda: 0.0))
    assert isinstance(next(program), Send)
    assert isinstance(program.send(None), Recv)
    first, third = np.r_[[0.5] * 5, [1.0] * 5, [0.0] * 5], np.r_[[0.5] * 5, [0.0] * 5, [1.0] * 5]
    program.send(Message(1, CODED, 0, 0, first))
    assert isinstance(program.send(Message(3, CODED, 0, 0, third)), Close)
    assert isinstance(program.send(None), Decode)
    commit = program.send(None)
    assert isinstance(commit, Commit)
    np.testing.assert_allclose(commit.gradient, 1.0, atol=1e-12)


@given(st.integers(1, 6), st.integers(1, 4), st.data())
def test_cr_load_meets_theorem_1(children: int, layers: int, data: st.DataObject) -> None:
    late = data.draw(st.integers(0, children - 1))
    scheme = CR(children=children, layers=layers, stragglers=late)
    q = Fraction(children, late + 1)
    load = 1 / sum(q**layer for layer in range(1, layers + 1))
    samples = load.denominator * children**layers  # divisible at every cut
    workers = tree_size(children, layers)
    assert scheme.loads(workers, samples).tolist() == [int(load * samples)] * workers
    assert wb.theory.cr_load(children, layers, late) == pytest.approx(float(load), rel=1e-14)


@given(st.integers(1, 5), st.integers(1, 3), st.integers(1, 500), st.data())
def test_cr_parts_of_any_size_are_within_a_sample_for_each_cut(
    children: int, layers: int, samples: int, data: st.DataObject
) -> None:
    late = data.draw(st.integers(0, children - 1))
    scheme = CR(children=children, layers=layers, stragglers=late)
    loads = scheme.loads(tree_size(children, layers), samples)
    q = Fraction(children, late + 1)
    ideal = float(samples / sum(q**layer for layer in range(1, layers + 1)))
    # cuts whose rounding can add up in one worker's samples
    cuts = sum((late + 1.0) ** k for k in range(1, layers + 1))
    assert np.abs(loads - ideal).max() <= cuts + layers
    held = scheme.allocate(samples)
    assert held.sizes(tree_size(children, layers)).tolist() == loads.tolist()
    assert scheme.plan(tree_size(children, layers), samples).loads[1:].tolist() == loads.tolist()


@given(st.integers(2, 400))
def test_the_nearest_trees_are_trees(workers: int) -> None:
    shapes = nearest_trees(workers)
    best = min(abs(tree_size(n, layers) - workers) for n in range(2, 25) for layers in range(2, 9))
    assert abs(tree_size(*shapes[0]) - workers) == best


@pytest.mark.parametrize(
    ("args", "workers", "fields"),
    [
        ({"children": 12, "layers": 2}, 150, ["workers = 150", "156 workers", "children 12, layers 2"]),
        ({"children": 4, "layers": 1, "stragglers": 4}, 4, ["scheme_args.stragglers = 4", "0 to 3"]),
        ({"children": 0, "layers": 1}, 4, ["scheme_args.children = 0", "take 1 or more"]),
        (
            {"children": 2, "layers": 1, "stragglers": 1, "matrix": ((1, 0), (0, 1))},
            2,
            ["matrix", "rows [0]"],
        ),
        ({"children": 2, "layers": 1, "stragglers": 1, "matrix": ((1, 0),)}, 2, ["matrix", "2 rows"]),
    ],
)
def test_cr_refuses_wrong_parameters(args: dict[str, object], workers: int, fields: list[str]) -> None:
    with pytest.raises(wb.SettingError) as error:
        wb.Experiment(scheme="CR", scheme_args=args, workers=workers)
    assert all(word in str(error.value) for word in fields), str(error.value)
    assert "\n" not in str(error.value)
