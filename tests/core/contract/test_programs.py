"""Sums over the messages of children, equal to the plain weighted sum; and children that are lost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from workbench.core.base.errors import QuorumLost
from workbench.core.contract import programs as subprograms
from workbench.core.contract.plan import star_plan
from workbench.core.contract.programs import (
    LostChildren,
    StopRule,
    at_least,
    deadline,
    from_children,
    gather,
    one_of_each,
    weighted_sum,
)
from workbench.core.contract.protocol import PEER_LOST, Message, Node


@example(17, 3, 0)  # the last piece has one message
@given(st.integers(1, 70), st.integers(1, 30), st.integers(0, 2**32 - 1))
def test_subprograms_sum_to_the_whole(count: int, floats: int, seed: int) -> None:
    """Values above the memory limit are summed 16 at a time, so up to 70 values form up to five pieces."""
    rng = np.random.default_rng(seed)
    weights, values = rng.standard_normal(count), list(rng.standard_normal((count, floats)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(subprograms, "MAX_BLOCK_BYTES", 1)
        found = weighted_sum(weights, values)
    np.testing.assert_allclose(found, weights @ np.stack(values), rtol=0, atol=1e-12 * (1 + count))


def report_deaths(rule: StopRule, dead: Sequence[int], answers: int) -> None:
    """Report dead children to a master of three children that gathers by a rule."""
    plan = replace(star_plan(np.eye(3), 3), answers=answers)
    node = Node(0, plan, 1, 1, None, lambda: 0.0)
    program = gather(node, 0, rule, LostChildren())
    next(program)
    for rank in dead:
        program.send(Message(rank, PEER_LOST, 0, 0, None))


@pytest.mark.parametrize("answers", [1, 2, 5])
def test_a_lost_child_ends_the_round_however_many_answers_the_others_may_send(answers: int) -> None:
    report_deaths(from_children(2), [2], answers)
    for rule, dead in ((from_children(3), [2]), (from_children(2), [2, 3]), (at_least(3 * answers), [2])):
        with pytest.raises(QuorumLost) as lost:
            report_deaths(rule, dead, answers)
        assert list(lost.value.missing) == dead


SIMPLE_RULES = st.one_of(
    st.integers(0, 5).map(at_least),
    st.integers(0, 3).map(from_children),
    st.integers(1, 3).map(lambda groups: one_of_each(lambda rank: rank % groups, groups)),
    st.sampled_from([1.0, 9.0]).map(deadline),
)
RULES = st.recursive(
    SIMPLE_RULES,
    lambda rules: st.builds(lambda a, b, both: a & b if both else a | b, rules, rules, st.booleans()),
    max_leaves=4,
)


@given(RULES, st.sets(st.tuples(st.integers(1, 4), st.integers(0, 1))))
def test_a_rule_never_holds_with_fewer_answers_than_its_least(
    rule: StopRule, got: set[tuple[int, int]]
) -> None:
    assert len(got) >= rule.least or not rule.ready(got, 0.0, 5.0)


def test_the_least_number_of_answers_of_combined_rules() -> None:
    assert (at_least(3) | at_least(2)).least == 2
    assert (at_least(3) & at_least(2)).least == 3
    assert (at_least(3) | deadline(1.0)).least == 0


def test_weighted_sum_of_long_vectors_is_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []

    def stack(values: list[np.ndarray]) -> np.ndarray:
        sizes.append(len(values))
        return np.array(values)

    monkeypatch.setattr(np, "stack", stack)
    values = [np.full(5001, float(k)) for k in range(40)]
    np.testing.assert_array_equal(weighted_sum(np.ones(40), values), np.full(5001, 780.0))
    assert sizes == [16, 16, 8]
