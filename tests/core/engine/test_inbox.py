"""The inbox of a node: messages by kind and round in order of arrival, removed when their round is closed."""

from __future__ import annotations

from workbench.core.contract.protocol import CODED, PEER_LOST, Message
from workbench.core.engine.inbox import Inbox


def message(src: int, round: int, kind: str = CODED) -> Message:
    return Message(src, kind, round, 0, None)


def test_inbox_finds_the_first_match() -> None:
    inbox = Inbox()
    inbox += [(message(3, 0),), (message(1, 2), 0.5), (message(2, 1),)]
    assert inbox.find({CODED: 1}) == 1
    assert inbox.find({CODED: 0, PEER_LOST: 0}) == 0
    assert inbox.find({PEER_LOST: 0}) is None
    assert inbox.find({CODED: 3}) is None


def test_inbox_returns_messages_of_a_closed_round_in_order() -> None:
    inbox, dead = Inbox(), (message(4, 0, PEER_LOST),)
    floor = inbox.floor  # a reference sees later changes
    inbox += [(message(3, 0), "x"), dead, (message(1, 2),), (message(2, 1),)]
    assert inbox.close(CODED, 2) == [(message(3, 0), "x"), (message(2, 1),)]
    assert list(inbox) == [dead, (message(1, 2),)]
    assert [inbox.late(message(1, r)) for r in (1, 2)] == [True, False]
    assert not inbox.late(message(1, 0, PEER_LOST))
    assert inbox.close(CODED, 1) == []  # an earlier round stays closed
    assert floor == {CODED: 2}
