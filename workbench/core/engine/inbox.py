"""Inbox: the messages that a node has received and its program has not used yet. Engines have one for each rank."""

from typing import Any

from workbench.core.contract.protocol import Match, Message


class Inbox(list[tuple[Any, ...]]):
    """Messages in order of arrival. Each entry is a tuple of the message and the engine's data about it.

    `floor`: kind -> first round whose messages are not yet closed.
    """

    __slots__ = ("floor",)

    def __init__(self) -> None:
        self.floor: dict[str, int] = {}

    def find(self, match: Match) -> int | None:
        """Return the index of the first message that matches, or None."""
        for i, message in enumerate(self):
            _, kind, round, _, _ = message[0]
            if kind in match and round >= match[kind]:
                return i
        return None

    def late(self, message: Message) -> bool:
        """Return whether the round of a message is closed."""
        return message.round < self.floor.get(message.kind, 0)

    def close(self, kind: str, round: int) -> list[tuple[Any, ...]]:
        """Close the rounds before `round` for messages of a kind. Remove and return the messages of these rounds."""
        if round > self.floor.get(kind, 0):
            self.floor[kind] = round
        gone = [message for message in self if message[0][1] == kind and message[0][2] < round]
        if gone:
            self[:] = [message for message in self if message[0][1] != kind or message[0][2] >= round]
        return gone
