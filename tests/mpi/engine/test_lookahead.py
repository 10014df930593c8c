"""Lookahead: answers that leaves send early are recorded and used as if they had been sent in time. Without MPI."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

import workbench as wb
from workbench.core.contract.delays import Constant, DelayStream
from workbench.core.contract.links import Link
from workbench.core.contract.protocol import CODED, Message
from workbench.mpi.engine.ledger import Ledger
from workbench.mpi.engine.lookahead import LookaheadWork, ModelArrivals, lookahead_ranks
from workbench.mpi.engine.ports import Port

TIMES = st.integers(0, 10_000).map(lambda ms: ms / 1e3)
FREE = Link()
NAMES = ("started", "computed", "samples", "abandoned", "overrun")


@given(st.lists(TIMES, min_size=1, max_size=5), TIMES)
def test_lookahead_work_is_done_or_abandoned_by_the_next_model(ends: list[float], model: float) -> None:
    """A load has several parts, computed one after another from time 0."""
    ledger = Ledger(1, 1)
    lookahead = LookaheadWork(ledger)
    starts = [0.0, *sorted(ends)[:-1]]
    for start, end in zip(starts, sorted(ends), strict=True):
        lookahead.add(0, 10, 10, start, end, overrun=True)
    lookahead.resolve(model)
    lookahead.resolve(100.0)  # recorded work is not changed
    counts = {name: ledger.counts[name][0] for name in NAMES}
    begun, done = sum(start <= model for start in starts), sum(end <= model for end in ends)
    assert list(counts.values()) == [10 * begun, done, 10 * done, begun - done, done]
    assert len(ledger.events) == done


MODELS = st.lists(st.tuples(st.sets(st.integers(1, 3)), st.floats(0.1, 2.0)), max_size=6)


@given(MODELS, st.integers(1, 3), st.integers(0, 6), TIMES)
def test_model_arrivals_of_a_later_round(
    models: list[tuple[set[int], float]], child: int, round: int, moment: float
) -> None:
    arrivals, sent, now = ModelArrivals({1, 2}), [], 0.0
    for k, (to, after) in enumerate(models):
        now += after
        arrivals.add(k, now, sorted(to))
        sent.append((k, now, to))
    there = [at for k, at, to in sent if k > round and child in to]
    assert arrivals.newer(child, round, moment) == (child in (1, 2) and any(at < moment for at in there))


def answered(port: Port, src: int, round: int, sent: float) -> None:
    port.put(Message(src, CODED, round, 0, None), sent, sent, 3)


@given(st.booleans(), TIMES, TIMES)
def test_model_arrivals_drop_answers_that_would_not_be_sent(first: bool, model: float, sent: float) -> None:
    """The answer may be received before the model is sent, or after.

    An answer that was sent before the model arrived is late.
    """
    floor = 0
    port = Port(
        FREE, lambda message: message.round < floor, DelayStream(Constant(), 0, 3).ties, ModelArrivals({1})
    )
    if first:
        answered(port, 1, 0, sent)
    floor = 1
    port.sent_down(1, model, (1, 2))
    if not first:
        answered(port, 1, 0, sent)
    got = port.next(100.0)
    assert (got is None) == (sent > model)
    assert got is None or got.late


def test_model_arrivals_keep_wanted_and_relayed_answers() -> None:
    port = Port(
        FREE, lambda message: message.round < 1, DelayStream(Constant(), 0, 3).ties, ModelArrivals({1})
    )
    port.sent_down(2, 1.0, (1, 2))
    answered(port, 1, 1, 5.0)
    answered(port, 2, 0, 5.0)
    assert [port.next(9.0) is not None for _ in range(3)] == [True, True, False]


def sending_ahead(**spec: Any) -> frozenset[int]:
    e = wb.Experiment(**spec)
    return lookahead_ranks(e.built_scheme, e.plan)


def test_lookahead_ranks_of_tree_star_and_ring() -> None:
    tree = {"children": 2, "layers": 2, "stragglers": 1}
    assert sending_ahead(scheme="CR", scheme_args=tree, workers=6) == {3, 4, 5, 6}
    assert sending_ahead(scheme="UMW", workers=3) == {1, 2, 3}
    assert sending_ahead(scheme="RAR", workers=3) == frozenset()


def test_lookahead_waits_with_each_of_several_answers() -> None:
    assert wb.Experiment(scheme="UC-MMC", workers=6).plan.answers > 1
    assert sending_ahead(scheme="UC-MMC", workers=6) == frozenset()
    assert wb.Experiment(scheme="M-SGC", workers=3).plan.answers > 1
    assert sending_ahead(scheme="M-SGC", workers=3) == {1, 2, 3}


def test_lookahead_is_off_for_stale_work() -> None:
    assert sending_ahead(scheme="DSAG", workers=3) == frozenset()
    assert sending_ahead(scheme="SR-SGC", workers=3) == {1, 2, 3}
