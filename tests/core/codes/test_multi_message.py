"""Several messages per worker: Example 1 of the paper, and every larger case by sampling."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.survivor_sets import every, miss, some
from workbench.core.base.settings import SettingError
from workbench.core.codes import MultiMessage, amplification, correlated, measured_error, uncorrelated

CASES = [(6, (3, 2)), (5, (5, 3)), (4, (1, 2, 4)), (3, (2,)), (4, (2, 2))]


def sent(code: MultiMessage, counts: dict[int, int]) -> tuple[int, ...]:
    """Return the distinct messages after worker w has sent its first counts[w] ones."""
    return tuple(sorted({int(row) for w, count in counts.items() for row in code.messages[w, :count]}))


def test_example_1_correlated() -> None:
    code = correlated(6, load=3, order=2)
    assert code.after == (2, 3)
    assert code.needed == 5
    assert sent(code, {0: 2, 1: 2, 3: 2}) == (0, 1, 2, 3, 4)  # workers 1, 2 and 4 send c1..c5
    assert miss(code, (0, 1, 2, 3, 4)) < 1e-12
    for row in range(6):
        assert np.flatnonzero(code.matrix[row]).tolist() == sorted([row, (row + 1) % 6])


def test_example_1_correlated_any_five_decode_and_not_any_four() -> None:
    code = correlated(6, load=3, order=2)
    assert max(code.decode(f).residual for f in combinations(range(6), 5)) < 1e-24
    assert max(code.decode(f).residual for f in combinations(range(6), 4)) > 0.1


@pytest.mark.parametrize("construction", ["joint", "separate"])
def test_example_1_uncorrelated(construction: str) -> None:
    code = uncorrelated(6, [3, 2], construction=construction)
    assert code.needed == 8
    assert max(miss(code, f) for f in combinations(range(12), 8)) < 1e-9
    three_two_one = sent(code, {0: 2, 2: 2, 5: 2, 1: 1, 3: 1})
    assert len(three_two_one) == 8
    assert miss(code, three_two_one) < 1e-9


def test_example_1_uncorrelated_seven_decode_unless_they_lack_a_part() -> None:
    """Any eight of the 12 messages decode. Of the 792 sets of seven messages, only the 6 that lack a part fail."""
    code = uncorrelated(6, [3, 2])
    held = code.matrix != 0
    failed = [f for f in combinations(range(12), 7) if code.decode(f).residual > 1e-9]
    assert len(failed) == 6
    assert all(not held[list(f)].any(axis=0).all() for f in failed)


@pytest.mark.parametrize("construction", ["joint", "separate"])
@pytest.mark.parametrize(("parts", "orders"), CASES)
def test_uncorrelated_windows(parts: int, orders: tuple[int, ...], construction: str) -> None:
    code = uncorrelated(parts, orders, construction=construction)
    assert code.matrix.shape == (parts * len(orders), parts)
    assert code.after == orders
    for w in range(parts):
        for j, order in enumerate(orders):
            held = sorted((w + t) % parts for t in range(order))
            assert np.flatnonzero(code.matrix[code.messages[w, j]]).tolist() == held


@pytest.mark.parametrize("construction", ["joint", "separate"])
@pytest.mark.parametrize(("parts", "orders"), CASES)
def test_uncorrelated_decodes_every_set(parts: int, orders: tuple[int, ...], construction: str) -> None:
    code = uncorrelated(parts, orders, construction=construction)
    assert max(miss(code, answered) for answered in every(code)) < 1e-8


def test_joint_code_needs_all_messages_if_parts_are_many() -> None:
    """Each worker's two messages combine 5 and 3 of 5 parts. Any 3 of the 10 messages decode, and no 2 do."""
    code = uncorrelated(5, (5, 3))
    assert code.needed == 3
    assert min(code.decode(f).residual for f in combinations(range(10), 2)) > 1e-6


def test_separate_code_has_the_hybrid_rule() -> None:
    """One message that combines all parts is the full gradient."""
    code = uncorrelated(5, (3, 5), construction="separate")
    assert all(code.decode((int(code.messages[w, 1]),)).residual < 1e-24 for w in range(5))


@given(st.integers(1, 12), st.data())
def test_correlated_any_sizes(parts: int, data: st.DataObject) -> None:
    load = data.draw(st.integers(1, parts))
    order = data.draw(st.integers(1, load))
    code = correlated(parts, load, order)
    assert code.messages.shape == (parts, load - order + 1)
    assert code.after == tuple(range(order, load + 1))
    for w, row in enumerate(code.messages):
        for after, message in zip(code.after, row, strict=True):
            done = {(w + t) % parts for t in range(after)}
            assert set(np.flatnonzero(code.matrix[message]).tolist()) <= done
    answered = tuple(data.draw(st.permutations(range(parts)))[: code.needed])
    assert miss(code, answered) < 1e-8


@pytest.mark.parametrize(("parts", "orders"), [(10, (6, 8, 10)), (40, (6, 8, 10)), (12, (4, 3, 2))])
def test_multi_message_codes_at_the_papers_sizes(parts: int, orders: tuple[int, ...]) -> None:
    joint = uncorrelated(parts, orders)
    separate = uncorrelated(parts, orders, construction="separate")
    sets = list(some(joint.workers, joint.stragglers, 200))
    assert max(miss(joint, answered) for answered in sets) < 1e-8
    assert measured_error(separate, np.float64, sets) < 1e-11
    assert amplification(separate, sets) < amplification(joint, sets)


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: correlated(6, 7, 2), "load = 7: a worker computes on some of the 6 parts; take 1 to 6"),
        (lambda: correlated(6, 3, 4), "order = 4: a message combines some of the 3 gradients"),
        (lambda: uncorrelated(6, []), "orders = (): a worker sends at least one message"),
        (lambda: uncorrelated(6, [3, 7]), "orders = 7: a message combines some of the 6 parts; take 1 to 6"),
        (lambda: uncorrelated(6, [3], construction="joined"), "construction = 'joined': no such name"),
    ],
)
def test_multi_message_codes_refuse_invalid_sizes(make: object, sentence: str) -> None:
    with pytest.raises(SettingError) as error:
        make()  # type: ignore[operator]
    assert str(error.value).startswith(sentence)
