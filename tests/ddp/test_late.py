"""Late ranks: pauses double up to a limit, and end when an answer is in time or the job ends."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from workbench.ddp.late import MAX_PAUSE_EXCHANGES, LateRanks
from workbench.ddp.record import State


@given(times=st.integers(1, 8), period=st.integers(1, 5))
def test_pauses_of_a_rank_that_is_late_after_each_state(times: int, period: int) -> None:
    late, pauses = LateRanks(period), []
    for newest in range(100, 100 * times + 1, 100):
        late.add(3, newest)
        pauses.append((late.until[3] - newest) / period)
    assert pauses == [0, 2, 4, 8, 8, 8, 8, 8][:times]
    assert late.due(100 * times + MAX_PAUSE_EXCHANGES * period)
    assert not late.due(100 * times - 1)
    late.in_time(3)
    late.add(3, 5000)
    assert late.until == {3: 5000}


def test_pauses_end_with_the_job() -> None:
    late = LateRanks(period=1)
    for newest in (10, 20, 30):
        late.add(3, newest)
    late.end_pauses(31, last=True)
    assert late.until == {3: 31}
    late.add(3, 40)
    assert late.until == {3: 40}


def test_ranks_that_all_wait_take_the_newest_state_if_the_master_has_it() -> None:
    late, state = LateRanks(period=1), State(5, b"")
    for newest in (1, 3, 5):
        late.add(3, newest)
    assert late.until == {3: 9}
    assert not late.stranded([3, 4], state, newest=5)  # rank 4 does not wait
    assert not late.stranded([3], state, newest=5)
    assert late.until == {3: 5}
    assert late.stranded([3], State(4, b""), newest=5)
    assert late.stranded([3], None, newest=5)
