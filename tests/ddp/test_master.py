"""The master of a job, with ranks in this process: commits, late and dead ranks, states, and replicas that disagree."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.ddp.ranks import Rank, exchange, started
from workbench.ddp.master import BLOCK_VALUES, Master, Options, combined
from workbench.ddp.record import Recorder, State, saved_state
from workbench.ddp.replicas import first_pass
from workbench.ddp.rules import rule
from workbench.mpi.launch.processes import awaited


def late(rank: Rank, others: list[Rank], first: int, waits: int) -> None:
    """Let a rank miss two exchanges, and copy a state after `waits` more exchanges.

    `first`: number of the first missed exchange.
    """
    for event in (first, first + 1):
        exchange(others, event)
    rank.answer_late(first)
    last = first + 1 + waits
    for event in range(first + 2, last + 1):
        exchange(others, event)
    assert rank.loaded() == (last, f"state {last} of 0")


def test_commit_is_the_decoded_sum_and_late_rank_takes_it() -> None:
    _, ranks = started("GC", 4, stragglers=1)
    exchange(ranks, 1)
    for rank, value in zip(ranks[:3], (1.0, 2.0, 3.0), strict=True):
        rank.answer(2, value)
    # ranks 0 and 2 have all parts once
    assert [rank.commit() for rank in ranks[:3]] == [(2, [4.0, 8.0])] * 3
    ranks[3].answer(2, 99.0)
    assert ranks[3].commit() == (2, [4.0, 8.0])
    exchange(ranks, 3)


def test_first_exchange_waits_for_all_ranks() -> None:
    master, ranks = started("GC", 4, stragglers=2)
    for rank in ranks[:3]:
        rank.answer(1, 1.0)
    with master.changed:
        assert not master.changed.wait_for(lambda: bool(master._newest), timeout=0.2)
    ranks[3].answer(1, 1.0)
    assert {rank.commit()[0] for rank in ranks} == {1}


def test_rank_that_missed_exchanges_loads_the_newest_state_and_takes_part_again() -> None:
    _, ranks = started("GC", 4, stragglers=1)
    exchange(ranks, 1)
    late(ranks[3], ranks[:3], 2, waits=1)
    exchange(ranks, 5)


def test_rank_that_is_late_after_each_state_takes_them_less_often() -> None:
    master, ranks = started("GC", 4, stragglers=1)
    exchange(ranks, 1)
    first = 2
    for waits in (1, 2, 4, 8, 8):
        late(ranks[3], ranks[:3], first, waits)
        first += 2 + waits
    ranks[3].answer(first, 1.0)  # in time
    with master.changed:
        assert master.changed.wait_for(lambda: any(3 in e.answers for e in master._open.values()), timeout=60)
    exchange(ranks[:3], first)
    assert ranks[3].commit()[0] == first
    late(ranks[3], ranks[:3], first + 1, waits=1)


@pytest.mark.parametrize("when", ["before", "after"])
def test_rank_that_waits_longer_for_a_state_gets_the_last_one(when: str) -> None:
    master, ranks = started("GC", 3, stragglers=1)
    exchange(ranks, 1)
    late(ranks[2], ranks[:2], 2, waits=1)
    for event in (5, 6):
        exchange(ranks[:2], event)
    if when == "before":
        ranks[2].answer(5, 99.0)
        with master.changed:
            assert master.changed.wait_for(lambda: 2 in master._late.until, timeout=60)
    for rank in ranks[:2]:
        rank.send("finished", step=6)
        assert rank.receive()[0]["do"] == "go"
    if when == "after":
        ranks[2].answer(5, 99.0)
    assert ranks[2].loaded() == (6, "state 6 of 0")
    ranks[2].send("finished", step=6)
    assert ranks[2].receive()[0]["do"] == "go"
    assert master.wait() == {"complete": True, "why": ""}


def test_rank_that_waits_longer_is_needed_after_a_death() -> None:
    _master, ranks = started("GC", 4, stragglers=1)
    exchange(ranks, 1)
    late(ranks[3], ranks[:3], 2, waits=1)
    for event in (5, 6):
        exchange(ranks[:3], event)
    ranks[3].answer_late(5)
    ranks[2].die()
    for rank in ranks[:2]:
        rank.answer(7, 1.0)
    assert ranks[0].channel.receive()[0]["do"] == "donate"
    ranks[0].state()
    assert ranks[3].loaded() == (6, "state 6 of 0")
    ranks[3].answer(7, 1.0)
    assert {rank.commit()[0] for rank in (ranks[0], ranks[1], ranks[3])} == {7}


def test_dead_rank_is_a_straggler_and_too_many_end_the_job() -> None:
    master, ranks = started("GC", 4, stragglers=1)
    exchange(ranks, 1)
    ranks[2].die()
    exchange([ranks[0], ranks[1], ranks[3]], 2)
    ranks[0].answer(3, 1.0)
    ranks[1].die()
    why = ranks[0].failure()
    assert why.startswith("step 3: lost ranks 1 (its connection was closed), 2 (")
    assert "more than the scheme tolerates" in why
    ranks[3].answer(3, 1.0)
    assert ranks[3].failure() == why
    assert master.failure == why


def test_death_while_a_late_rank_waits_lets_that_rank_take_part() -> None:
    """After the death of rank 2, ranks 0 and 1 need the answer of rank 3, which must first get a state."""
    _master, ranks = started("GC", 4, stragglers=1)
    exchange(ranks, 1)
    for event in (2, 3):
        exchange(ranks[:3], event)
    ranks[3].answer_late(2)
    ranks[2].die()
    ranks[0].answer(4, 1.0)
    ranks[1].answer(4, 1.0)
    assert ranks[0].channel.receive()[0]["do"] == "donate"
    ranks[0].state()
    assert ranks[3].loaded() == (3, "state 3 of 0")
    ranks[3].answer(4, 1.0)
    assert {rank.commit()[0] for rank in (ranks[0], ranks[1], ranks[3])} == {4}


def test_restarted_rank_takes_the_newest_state() -> None:
    master, ranks = started("GC", 3, stragglers=1)
    for rank in ranks:
        rank.answer(1, 1.0, **{"pass": first_pass([7], ["ab"], [1.0], [])})
    assert {rank.commit()[0] for rank in ranks} == {1}
    ranks[1].die()
    exchange([ranks[0], ranks[2]], 2)
    new = Rank(master, 1)
    new.join()
    with master.changed:
        assert master.changed.wait_for(lambda: 1 in master._late.until, timeout=60)
    exchange([ranks[0], ranks[2]], 3)
    assert new.loaded() == (3, "state 3 of 0")
    report = {"pass": first_pass([7], ["ab"], [0.5], [])}  # of another model than the first pass of rank 0
    new.answer(4, 1.0, **report)
    for rank in (ranks[0], ranks[2]):
        rank.answer(4, 1.0)
    assert {rank.commit()[0] for rank in (ranks[0], new, ranks[2])} == {4}


def test_rank_that_is_late_at_the_end_gets_the_last_state() -> None:
    master, ranks = started("GC", 3, stragglers=1)
    for event in (1, 2, 3):
        exchange(ranks if event == 1 else ranks[:2], event)
    for rank in ranks[:2]:
        rank.send("finished", step=3)
        assert rank.receive()[0]["do"] == "go"
    ranks[2].answer(2, 99.0)
    assert ranks[2].loaded() == (3, "state 3 of 0")
    ranks[2].send("finished", step=3)
    assert ranks[2].receive()[0]["do"] == "go"
    assert master.wait() == {"complete": True, "why": ""}


def test_uncoded_dead_rank_ends_the_job() -> None:
    _, ranks = started("UMW", 3)
    exchange(ranks, 1)
    ranks[0].answer(2, 1.0)
    ranks[1].die()
    assert "lost rank 1" in ranks[0].failure()


@pytest.mark.parametrize(("scheme", "weight"), [("Backup", 4 / 3), ("SGD", 1.0)])
def test_backup_workers_are_ignored_and_scaled(scheme: str, weight: float) -> None:
    _, ranks = started(scheme, 4, stragglers=1)
    exchange(ranks, 1)
    for rank in ranks[:3]:
        rank.answer(2, 1.0)
    np.testing.assert_allclose(ranks[0].commit()[1], [3 * weight, 6 * weight], rtol=1e-6)


def test_models_are_averaged_in_groups_and_then_among_all() -> None:
    _, ranks = started("H-SGD", 4, local_steps=4, levels=((2, 2),))
    for rank in ranks:
        rank.answer(2, float(rank.number), group=(0, rank.number // 2))
    assert [rank.commit()[1][0] for rank in ranks] == [0.5, 0.5, 2.5, 2.5]
    for rank in ranks:
        rank.answer(4, float(rank.number), group=(1, 0))
    assert [rank.commit()[1][0] for rank in ranks] == [1.5] * 4


def test_dead_rank_leaves_the_average_of_its_group() -> None:
    _, ranks = started("H-SGD", 4, local_steps=4, levels=((2, 2),))
    ranks[1].die()
    for rank in (ranks[0], ranks[2], ranks[3]):
        rank.answer(2, float(rank.number), group=(0, rank.number // 2))
    assert [ranks[i].commit()[1][0] for i in (0, 2, 3)] == [0.0, 2.5, 2.5]


def test_replicas_that_disagree_end_the_job() -> None:
    _, ranks = started("GC", 2, stragglers=1)
    for rank, loss in zip(ranks, (1.0, 2.0), strict=True):
        rank.answer(1, 1.0, **{"pass": first_pass([7], ["ab"], [loss], ["Dropout '2'"])})
    why = {rank.failure() for rank in ranks}
    assert len(why) == 1
    assert next(iter(why)).startswith(
        "first step: sample 7: its loss is 1 and 2, though its inputs are equal"
    )
    assert "Dropout '2'" in next(iter(why))


def test_unequal_states_end_the_job() -> None:
    _, ranks = started("GC", 2, stragglers=1)
    exchange(ranks, 1)
    ranks[0].answer(2, 1.0, states=(1, {"optimiser.state.0.exp_avg": "ab"}))
    assert ranks[0].commit()[0] == 2
    ranks[1].answer(2, 1.0, states=(1, {"optimiser.state.0.exp_avg": "cd"}))
    why = "after step 1: optimiser.state.0.exp_avg: differs between ranks 0 and 1"
    assert ranks[1].failure().startswith(why)


def test_unequal_scripts_are_refused() -> None:
    master, _ = started("GC", 2, stragglers=1)
    master = type(master)(master.rule, master.recorder, master.options)
    ranks = [Rank(master, number) for number in range(2)]
    ranks[0].join()
    ranks[1].join(optimiser="Adam")
    why = "optimiser: is SGD at rank 0 and Adam at rank 1; make them equal"
    assert [rank.failure() for rank in ranks] == [why] * 2


def test_second_job_of_a_script_is_refused() -> None:
    master, ranks = started("GC", 2, stragglers=1)
    second = Rank(master, 0)
    second.join()
    assert second.failure() == "rank 0: has joined already; call ddp.prepare once in a script"
    ranks[1].answer(1, 1.0)
    assert ranks[1].failure().startswith("rank 0")


def test_checkpoints_are_written_and_begin_the_next_job(tmp_path: Path) -> None:
    _, ranks = started("GC", 3, folder=tmp_path, every=2, stragglers=1)
    for event in (1, 2, 3):
        exchange(ranks, event)
    # An exchange may end without the answer of rank 0. Then rank 1 sends its state.
    assert awaited(lambda: saved_state(tmp_path) is not None, 30.0)
    saved = saved_state(tmp_path)
    assert saved is not None
    assert saved.step == 2
    assert bytes(saved.values) in (b"state 2 of 0", b"state 2 of 1")
    _, ranks = started("GC", 3, state=saved, stragglers=1)
    exchange(ranks, 3)


def test_a_wrong_secret_is_refused() -> None:
    master, _ = started("UMW", 2)
    master.options = master.options._replace(token="secret")
    rank = Rank(master, 0)
    with pytest.raises(OSError, match="closed"):
        rank.receive()


def test_combined_works_in_blocks() -> None:
    values = [np.arange(2.0 * BLOCK_VALUES + 5) * scale for scale in (1.0, 2.0, 4.0)]
    found = combined(values, np.array([1.0, 0.0, 0.5]), coded=BLOCK_VALUES + 3)
    coded = values[0] + 0.5 * values[2]
    mean = sum(values) / 3
    cut = BLOCK_VALUES + 3
    np.testing.assert_allclose(found, np.concatenate([coded[:cut], mean[cut:]]))


# ------------------------------------------------------------------ jobs that cannot continue


@pytest.mark.parametrize("ranks", [1, 4])
def test_ranks_that_fail_together_and_start_again_are_told_that_no_state_is_left(ranks: int) -> None:
    master, first = started("GC" if ranks > 1 else "UMW", ranks, **({"stragglers": 1} if ranks > 1 else {}))
    for event in (1, 2):
        exchange(first, event)
    for rank in first:
        rank.die()
    with master.changed:
        assert master.changed.wait_for(lambda: len(master.dead) == ranks, 60)
    again = [Rank(master, number) for number in range(ranks)]
    for rank in again:
        rank.join()
    why = "step 3: no rank is left that has the newest state; start the job again, with --resume"
    assert all(rank.failure().startswith(why) for rank in again)


def test_late_rank_does_not_wait_for_the_state_of_a_dead_one() -> None:
    _master, ranks = started("GC", 2, stragglers=1)
    exchange(ranks, 1)
    for event in (2, 3):
        exchange(ranks[:1], event)
    ranks[1].answer_late(2)
    ranks[0].die()
    assert ranks[1].failure().startswith("step 4: no rank is left that has the newest state")


def test_rank_that_dies_before_it_sends_the_first_state_is_a_straggler() -> None:
    master, _ = started("GC", 3, stragglers=1)
    master = type(master)(master.rule, master.recorder, master.options)
    ranks = [Rank(master, number) for number in range(3)]
    for rank in ranks:
        rank.join()
    assert ranks[0].channel.receive()[0]["do"] == "donate"
    ranks[0].die()
    assert ranks[1].receive()[0]["do"] == "go"
    assert ranks[2].loaded() == (0, "state 0 of 1")
    exchange(ranks[1:], 1)


@given(order=st.permutations(range(3)), odd=st.integers(0, 2), values=st.integers(1, 9))
@settings(max_examples=10, deadline=None)
@pytest.mark.parametrize(("scheme", "args"), [("UMW", {}), ("GC", {"stragglers": 1}), ("LocalSGD", {})])
def test_answers_of_different_lengths_are_refused(
    scheme: str, args: dict[str, int], order: list[int], odd: int, values: int
) -> None:
    """Any rank may have the other length, and answer in any order, even after the commit."""
    _, ranks = started(scheme, 3, **args)
    exchange(ranks, 1)
    lengths = [5 + values * (number == odd) for number in range(3)]
    for number in order:
        given = np.ones(lengths[number], dtype="f4")
        ranks[number].send("answer", given, event=2, group=(0, 0), dtype="f4", coded=1)
    why = ranks[odd].failure()
    assert why.startswith("step 2: bytes of an answer: is ")
    assert f"{4 * lengths[odd]} at rank {odd}" in why
    assert "20 at rank" in why


def test_error_in_the_rule_of_a_scheme_ends_the_job_for_all_ranks() -> None:
    master, ranks = started("UMW", 2)

    def weigh(answered: tuple[int, ...], event: int) -> tuple[np.ndarray, float]:
        raise ZeroDivisionError("a fault of the test")

    master.rule = replace(master.rule, weigh=weigh)
    for rank in ranks:
        rank.answer(1, 1.0)
    why = "step 1: exchange_rule raises ZeroDivisionError('a fault of the test'); correct the scheme"
    assert [rank.failure() for rank in ranks] == [why] * 2


# ------------------------------------------------------------------ checkpoints, ends of scripts, unused parameters


@given(every=st.integers(1, 60), period=st.integers(1, 12))
@settings(max_examples=15, deadline=None)
def test_checkpoints_are_written_at_the_first_average_after_each_multiple(every: int, period: int) -> None:
    written: list[int] = []
    master, ranks = started("LocalSGD", 2, every=every, local_steps=period)
    master.recorder.checkpoint = lambda state: written.append(state.step)
    due, last = [], 0
    for event in range(period, 8 * period + 1, period):
        exchange(ranks, event)
        if event // every > last // every:
            due.append(event)
        last = event
    for rank in ranks:  # the states have arrived when their ranks' next request has a reply
        rank.send("finished", step=last)
    assert all(rank.receive()[0]["do"] == "go" for rank in ranks)
    assert [step for step in dict.fromkeys(written) if step < last] == [step for step in due if step < last]


@pytest.mark.parametrize("failed", [{0}, {1, 2}, {0, 1, 2}])
def test_rank_whose_script_ends_with_an_error_has_not_finished(failed: set[int]) -> None:
    """A script that catches an exception and calls `sys.exit(1)` reports its end as any other."""
    master, ranks = started("GC", 3, stragglers=2)
    exchange(ranks, 1)
    for rank in ranks:
        rank.send("finished", step=1)
        assert rank.receive()[0]["do"] == "go"
    for number in range(3):
        master.lost(number, f"status {int(number in failed)}", failed=number in failed)
    end = master.wait()
    assert end["complete"] == (len(failed) < 3)
    assert all(f"rank {number}: status 1" in end["why"] for number in failed)


def test_rank_that_is_started_again_after_it_reported_its_end_takes_part() -> None:
    master, ranks = started("GC", 3, stragglers=1)
    exchange(ranks, 1)
    ranks[2].send("finished", step=1)
    assert ranks[2].receive()[0]["do"] == "go"
    with pytest.raises(OSError, match="closed"):  # the master has ended the first connection
        ranks[2].receive()
    again = Rank(master, 2)
    again.join()
    assert again.loaded() == (1, "state 1 of 2")
    exchange([ranks[0], ranks[1], again], 2)


@given(used=st.lists(st.sets(st.integers(0, 3)), min_size=4, max_size=4))
@settings(max_examples=20, deadline=None)
def test_unused_parameters_are_those_that_no_committed_answer_uses(used: list[set[int]]) -> None:
    """The reply is the same for all ranks, also for one whose answer was dropped or has the weight 0."""
    _, ranks = started("GC", 4, stragglers=1)
    exchange(ranks, 1)
    for rank, mine in zip(ranks, used, strict=True):
        rank.answer(2, 1.0, unused=sorted({0, 1, 2, 3} - mine))
    replies = [rank.receive()[0] for rank in ranks]
    assert len({tuple(reply["unused"]) for reply in replies}) == 1
    # any committed answers have all parts, so that only a rank that is left out may use a parameter alone
    assert set(replies[0]["unused"]) >= {0, 1, 2, 3} - set().union(*used)


def test_state_of_a_rank_that_paused_does_not_replace_a_newer_one(tmp_path: Path) -> None:
    master = Master(rule("GC", {"stragglers": 1}, 3), Recorder(tmp_path), Options(checkpoint_every=1))
    master._store(0, State(3, b"new"))
    master._store(1, State(1, b"old"))
    assert master.state == State(3, b"new")
    assert saved_state(tmp_path).step == 3  # type: ignore[union-attr]


def test_last_rank_sends_its_state_if_a_dead_one_may_start_again() -> None:
    master, ranks = started("GC", 2, stragglers=1)
    exchange(ranks, 1)
    ranks[1].die()
    exchange(ranks[:1], 2)
    ranks[0].send("finished", step=2)
    assert ranks[0].receive()[0]["do"] == "go"  # after its state was asked for
    new = Rank(master, 1)
    new.join()
    assert new.loaded() == (2, "state 2 of 0")
    new.send("finished", step=2)
    assert new.receive()[0]["do"] == "go"
    assert master.wait() == {"complete": True, "why": ""}
