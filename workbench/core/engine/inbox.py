"""What a node has received and its program has not asked for yet; both engines keep one for each rank."""

from typing import Any

from workbench.core.contract.protocol import Match, Message


class Inbox(list[tuple[Any, ...]]):
    """Messages in order of arrival, each first in a tuple with what its engine notes about it.

    `floor`: kind -> first round that is still wanted.
    """

    __slots__ = ("floor",)

    def __init__(self) -> None:
        self.floor: dict[str, int] = {}

    def find(self, match: Match) -> int | None:
        """Place of the first message that matches."""
        for i, message in enumerate(self):
            _, kind, round, _, _ = message[0]
            if kind in match and round >= match[kind]:
                return i
        return None

    def late(self, message: Message) -> bool:
        """Is a message of a round that is over?"""
        return message.round < self.floor.get(message.kind, 0)

    def close(self, kind: str, round: int) -> list[tuple[Any, ...]]:
        """Rounds before `round` are over for messages of that kind; returns those that were here for nothing."""
        if round > self.floor.get(kind, 0):
            self.floor[kind] = round
        gone = (
            [message for message in self if message[0][1] == kind and message[0][2] < round] if self else []
        )
        if gone:
            self[:] = [message for message in self if message[0][1] != kind or message[0][2] >= round]
        return gone
