"""The inbox of a rank without emulated links: order and counts of messages. Without MPI."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, cast

import numpy as np
import pytest

import workbench as wb
from tests.support.lone_rank import ROUNDS, GivenMessages, LoneContext
from workbench.core.contract.delays import DelayStream
from workbench.core.contract.programs import LostChildren, deadline, gather
from workbench.core.contract.protocol import (
    CODED,
    MODEL,
    PEER_LOST,
    Close,
    Commit,
    Compute,
    Decode,
    Message,
    Node,
    Recv,
    Send,
)
from workbench.mpi.engine import polling
from workbench.mpi.engine.learner import Learner
from workbench.mpi.engine.wakeup import WakeupPipe
from workbench.mpi.engine.wire import Envelope

pytest.importorskip("mpi4py")

from workbench.mpi.engine.mailbox import MAX_DEFERRED
from workbench.mpi.engine.rank import RankEngine
from workbench.mpi.engine.setup import Emulate, Setup


def master(transport: Any, emulate: Emulate = "nothing", **more: Any) -> RankEngine:
    e = wb.Experiment(scheme="GC", scheme_args={"stragglers": 1}, workers=4, rounds=ROUNDS)
    problem, optimiser = e.build_problem(), e.build_optimiser()
    learner = Learner(e.plan, problem, optimiser, 0, problem.start(), optimiser.start(problem))
    delays = DelayStream(e.delays, 0, e.workers)
    setup = Setup(e.built_scheme, e.plan, ROUNDS, 3, delays, e.link, emulate, **more)
    return RankEngine(setup, LoneContext(transport, learner))


def taken(engine: RankEngine, round: int) -> tuple[int, int]:
    message: Message = engine.handlers[Recv](Recv({CODED: round, PEER_LOST: 0}))
    return message.src, message.round


def counts(engine: RankEngine, round: int) -> dict[str, int]:
    return {name: engine.ledger.counts[name][round] for name in ("messages", "bytes", "stale")}


def test_rank_inbox_takes_messages_in_order_of_arrival() -> None:
    engine = master(GivenMessages([(3, 1), (1, 0)], [(2, 0), (4, 0)]))
    assert [taken(engine, 0) for _ in range(4)] == [(3, 1), (1, 0), (2, 0), (4, 0)]
    assert counts(engine, 0) == {"messages": 3, "bytes": 72, "stale": 0}


def test_rank_inbox_drops_messages_of_closed_rounds() -> None:
    engine = master(GivenMessages([(1, 0)], [(2, 0), (3, 1)]))
    assert taken(engine, 0) == (1, 0)
    engine.handlers[Close](Close(CODED, 1))
    assert taken(engine, 1) == (3, 1)
    assert counts(engine, 0) == {"messages": 1, "bytes": 24, "stale": 1}
    assert [event[2] for event in engine.ledger.events] == ["send", "drop", "send"]


def test_rank_inbox_counts_unused_messages_of_closed_rounds() -> None:
    engine = master(GivenMessages([(1, 0), (2, 0), (3, 1)]))
    assert taken(engine, 0) == (1, 0)
    engine.handlers[Close](Close(CODED, 1))
    assert counts(engine, 0) == {"messages": 2, "bytes": 48, "stale": 1}
    assert taken(engine, 1) == (3, 1)


def test_rank_inbox_does_not_count_a_death_notice() -> None:
    transport = GivenMessages([])
    engine = master(transport)
    transport.dead.add(2)
    assert taken(engine, 0) == (2, 0)
    assert counts(engine, 0) == {"messages": 0, "bytes": 0, "stale": 0}


def decode(engine: RankEngine) -> None:
    engine.handlers[Decode](Decode(20))


def compute(engine: RankEngine) -> None:
    work = engine.setup.plan.work[1]
    assert not engine.computing.cut(Compute(work, None, 0), engine.clock.now + 0.2)


class NotifiedTwice(WakeupPipe):
    """Wake-up pipe that was notified twice before it was read."""

    def __init__(self) -> None:
        super().__init__()
        self.enabled, self.slept = True, list[float]()

    def sleep(self, seconds: float) -> bool:
        self.slept.append(seconds)
        return len(self.slept) == 1


def test_rank_inbox_keeps_the_second_of_two_merged_wakeups() -> None:
    transport = GivenMessages([], [(1, 0)], [], [(2, 1)])  # the second message is not visible at first
    transport.wakeup = NotifiedTwice()
    engine = master(transport)
    engine.handlers[Close](Close(CODED, 1))  # the first message is too late
    assert taken(engine, 1) == (2, 1)
    assert transport.wakeup.slept == [polling.WAKEABLE.max_s, polling.WAKEABLE.min_s]


@pytest.mark.parametrize("busy", [decode, compute])
def test_rank_inbox_is_polled_rarely_while_busy(busy: Callable[[RankEngine], None]) -> None:
    transport = GivenMessages([(1, 0)], [(2, 0)])
    engine = master(transport, "all", decode_rate=100.0)
    began = engine.clock.now
    busy(engine)  # takes 0.2 s
    assert time.monotonic() >= began + 0.199
    assert transport.polls < 100
    assert [taken(engine, 0) for _ in range(2)] == [(1, 0), (2, 0)]


@pytest.mark.parametrize("after", [-0.005, 0.005])
def test_rank_inbox_delivers_after_decoding(after: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """A message that arrives before or after the end of decoding is received, even if the rank's clock is behind."""
    monkeypatch.setattr("workbench.mpi.engine.setup.NodeClock.slack", 10.0)
    transport = GivenMessages([(1, 0)])
    engine = master(transport, "all", decode_rate=1000.0)
    engine.clock.start(time.monotonic() - 0.04)
    end = engine.clock.now + 0.01
    transport.arrives = end + after
    engine.handlers[Decode](Decode(10))
    assert engine.clock.now == end
    assert len(engine.mailbox.inbox) == (after < 0)
    assert taken(engine, 0) == (1, 0)


class Workers(GivenMessages):
    """Transport with four workers that answer every model after some time, on both clocks."""

    seconds = 0.005
    due = float("inf")

    def send(self, to: Any, envelope: Envelope, value: Any, newest: bool) -> None:
        self.due, self.arrives = time.monotonic() + self.seconds, envelope.sent + self.seconds
        self.answers = [(rank, envelope.round) for rank in to]

    def poll(self, now: float, awake: float = 0.0) -> list[tuple[Envelope, Any]]:
        if now >= self.due:
            self.due, self.received = float("inf"), [self.answers]
        return super().poll(now)


@pytest.mark.parametrize("emulate", ["all", "nothing"])
@pytest.mark.parametrize("behind", [0.0, 0.03, 0.3])
def test_rank_inbox_deadline_after_the_master_was_delayed(emulate: Emulate, behind: float) -> None:
    """The master is delayed between two rounds, where no wait hides it, by less and by more than the slack."""
    engine = master(Workers(), emulate)
    plan, start = engine.setup.plan, engine.learner.start()
    node = Node(0, plan, ROUNDS, 3, start, engine.clock.elapsed)
    for round in range(3):
        engine.clock.now -= behind
        engine.handlers[Send](Send(node.children, MODEL, round, node.model))
        got, _ = engine.drive(gather(node, round, deadline(0.02), LostChildren()))
        assert got  # all four, unless the test itself is delayed


def test_rank_inbox_runs_deferred_actions_before_the_model_changes() -> None:
    """Deferred actions run in order: after received messages are taken, and before a commit or the end of a run."""
    transport = GivenMessages([(1, 0), (2, 0)], [], [(3, 0)])
    engine, done = master(transport), list[str]()
    taken(engine, 0)
    for word in ("first", "second"):
        engine.mailbox.defer(done.append, word)
    assert taken(engine, 0) == (2, 0)
    assert not done
    assert taken(engine, 0) == (3, 0)
    assert done == ["first", "second"]
    before = engine.learner.model
    engine.mailbox.defer(lambda: done.append(str(engine.learner.model is before)))
    engine.handlers[Commit](Commit(0.0, 0))
    assert done[2:] == ["True"]


def test_rank_inbox_runs_deferred_actions_of_a_node_that_never_waits() -> None:
    engine, done = master(GivenMessages()), list[int]()
    for number in range(MAX_DEFERRED + 1):
        assert not done
        engine.mailbox.defer(done.append, number)
    assert done == list(range(MAX_DEFERRED + 1))


def test_rank_inbox_records_a_commit_after_the_next_model_is_sent() -> None:
    """The record has the time of the commit, and is made while the node waits or at the end."""
    engine, before = master(GivenMessages()), time.monotonic()
    engine.handlers[Commit](Commit(0.0, 0, residual=0.5))
    after = time.monotonic()
    assert engine.ledger.end == 0
    engine.mailbox.run_deferred()
    assert engine.ledger.commits[0, 1] == 0.5
    assert before <= engine.ledger.commits[0, 0] <= after


class DelayedWorkers(Workers):
    """Workers of which the last one is delayed by its machine, far beyond the time at which its answer is due."""

    late, last = 0.05, float("inf")

    def poll(self, now: float, awake: float = 0.0) -> list[tuple[Envelope, Any]]:
        if now >= self.due:
            self.due, self.last, self.received = float("inf"), now + self.late, [self.answers[:-1]]
        elif now >= self.last:
            self.last, self.received = float("inf"), [self.answers[-1:]]
        return GivenMessages.poll(self, now)


@pytest.mark.parametrize(("slack", "taken"), [(10.0, 4), (0.0, 3)])
def test_rank_inbox_deadline_waits_for_lookahead_within_the_slack(
    slack: float, taken: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workbench.mpi.engine.setup.NodeClock.slack", slack)
    engine = master(DelayedWorkers(), "all")
    node = Node(0, engine.setup.plan, ROUNDS, 3, None, engine.clock.elapsed)
    began = engine.clock.now
    engine.handlers[Send](Send(node.children, MODEL, 0, engine.learner.start()))
    got, _ = engine.drive(gather(node, 0, deadline(0.02), LostChildren()))
    assert len(got) == taken
    assert time.monotonic() < began + 5.0  # the master stops waiting once it has all answers


def test_processor_time_of_a_commit_excludes_the_work_that_follows_it() -> None:
    """The commit of a rank that computes without waiting is recorded after this work."""
    engine = master(GivenMessages([]))
    engine.handlers[Commit](Commit(np.ones(engine.learner.model.shape), 0, 0.0, 1.0))
    begun = time.process_time()
    while time.process_time() < begun + 0.05:  # the work of round 1
        pass
    engine.mailbox.defer(engine.ledger.spent, 1, time.process_time())
    engine.mailbox.run_deferred()
    busy = engine.ledger.counts["busy"]
    assert busy[1] > 40_000
    assert busy[0] < 40_000


def test_optimisers_cannot_write_into_the_gradient_of_a_program() -> None:
    learner, seen = master(GivenMessages([])).learner, list[np.ndarray[Any, Any]]()

    class Kept:
        def update(self, state: Any, model: Any, gradient: Any, problem: Any, t: int) -> tuple[Any, Any]:
            seen.append(gradient)
            return model, state

    learner.optimiser = cast(Any, Kept())
    own = np.ones(learner.model.shape)
    learner.commit(0, own, 0.0)
    with pytest.raises(ValueError, match="read-only"):
        seen[0] *= 2
    assert own.flags.writeable
