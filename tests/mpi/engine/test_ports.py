"""The emulated port: each message passes at the time of the simulator."""

from __future__ import annotations

from itertools import count, zip_longest

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.core.base.types import Array
from workbench.core.contract.delays import Constant, DelayStream
from workbench.core.contract.links import Link
from workbench.core.contract.protocol import CODED, MODEL, PEER_LOST, Message
from workbench.mpi.engine.lookahead import ModelArrivals
from workbench.mpi.engine.ports import Delivery, Port

LINK = Link(latency=0.0, bandwidth=8.0)  # one float per second


def level(round: int) -> Array:
    """Return equal tie-breaks, so that the first received message goes first."""
    return np.zeros(20)


def message(src: int = 1, kind: str = CODED, round: int = 0) -> Message:
    return Message(src, kind, round, 0, None)


def drained(port: Port, now: float) -> list[Delivery]:
    found = []
    while (got := port.next(now)) is not None:
        found.append(got)
    return found


TIMES = st.integers(0, 1000).map(lambda hundredths: hundredths / 100)


@given(st.lists(st.tuples(TIMES, st.integers(0, 3)), max_size=12), st.floats(0.01, 3))
def test_port_serves_one_message_at_a_time(messages: list[tuple[float, int]], poll_every: float) -> None:
    """The times are those of a queue with one server, for any polling interval."""
    port = Port(LINK, lambda message: False, level)
    for src, (at, floats) in enumerate(messages):
        port.put(message(src), at, at, floats)
    found: list[Delivery] = []
    for k in count():
        if len(found) == len(messages):
            break
        found += drained(port, k * poll_every)
    free = 0.0
    for got, (at, floats) in zip(found, sorted(messages, key=lambda p: p[0]), strict=True):
        assert got.begun == pytest.approx(max(free, at))
        assert got.end == pytest.approx(got.begun + floats)
        assert not got.late
        free = got.end


@given(st.permutations(range(1, 7)), st.integers(0, 99), st.lists(st.sampled_from([-4e-10, 0.0, 4e-10])))
def test_port_breaks_ties_by_sender(come: list[int], round: int, off: list[float]) -> None:
    """The tie-break does not depend on the order of receiving, or on rounding of the times, as on the virtual clock."""
    ties = DelayStream(Constant(), 3, 6).ties
    port = Port(LINK, lambda message: False, ties)
    port.put(message(1), 0.0, 0.5, 1)
    for src, error in zip_longest(come, off[:6], fillvalue=0.0):
        port.put(message(int(src), round=round), 0.0, 1.0 + error, 1)
    found = [got.pending.message.src for got in drained(port, 10.0)]
    assert found == [1, *(1 + np.argsort(ties(round)))]


def test_port_time_of_unwanted_messages_is_zero() -> None:
    port = Port(LINK, lambda message: message.round < 1, level)
    port.put(message(1, round=0), 0.0, 0.0, 5)
    port.put(message(2, round=1), 0.0, 0.0, 2)
    assert [(g.pending.message.src, g.late, g.end) for g in drained(port, 10.0)] == [
        (1, True, 0.0),
        (2, False, 2.0),
    ]


def test_port_cancels_transfers_of_a_closed_round() -> None:
    floor = 0
    port = Port(LINK, lambda message: message.round < floor, level)
    port.put(message(1, round=0), 0.0, 0.0, 5)
    port.put(message(2, round=1), 0.0, 1.0, 2)
    assert port.next(2.0) is None
    floor = 1
    cut = port.cut(2.0)
    assert cut is not None
    assert cut.late
    assert [(g.begun, g.end) for g in drained(port, 10.0)] == [(2.0, 4.0)]


def test_port_does_not_queue_models_behind_gradients() -> None:
    port = Port(LINK, lambda message: False, level)
    port.put(message(1), 0.0, 0.0, 100)
    port.put(message(0, MODEL), 0.0, 1.0, 100)
    assert [g.pending.message.kind for g in drained(port, 1.0)] == [MODEL]
    assert port.wake() == 100.0


def test_port_delivers_death_notices_at_once() -> None:
    port = Port(LINK, lambda message: False, level)
    port.put(message(1), 0.0, 0.0, 100)
    port.put(message(2, PEER_LOST), 0.0, 2.0, 0)
    assert [g.pending.message.kind for g in drained(port, 2.0)] == [PEER_LOST]


def test_port_waits_for_all_messages_of_a_sender() -> None:
    """The port waits for every message of a sender, so that a round does not end without its later messages."""
    port = Port(LINK, lambda message: False, level, ModelArrivals({1, 2}))
    port.sent_down(3, 0.0, [1, 2])
    assert port.awaits(())
    for number in (1, 2):  # in the first and last rounds, some numbers are skipped
        port.put(Message(1, CODED, 3, number, None), 0.0, 0.0, 1)
    port.put(Message(2, CODED, 3, 1, None), 0.0, 0.0, 1)
    assert port.awaits(())
    assert not port.awaits({2})
    port.put(Message(2, CODED, 3, 2, None), 0.0, 0.0, 1)
    assert not port.awaits(())
    port.sent_down(4, 1.0, [1, 2])
    assert port.awaits(())
