"""Clocks of different hosts: each has a zero of its own, so rank 0 measures how far the others' are ahead of its own.

All times in messages are the master's; a rank on another host translates what it sends, what it gets and what it wrote
down. The error is at most half of the quickest exchange, which is told with the run (`clock_error`, s).
"""

import time
from collections.abc import Iterable, Sequence
from typing import Any

from workbench.core.base.arrays import from_bytes, joined
from workbench.core.contract.plan import MASTER
from workbench.mpi.engine.control import Control
from workbench.mpi.engine.transport import Transport
from workbench.mpi.engine.wire import Envelope
from workbench.mpi.launch.processes import ProcessId

EXCHANGES = 12
EXCHANGE_TIMEOUT_S = 5.0  # s for one exchange: a rank may be asleep when the first comes
Word = tuple[int, dict[str, Any], bytes]  # sender, word, bytes behind it
ClockOffsets = dict[str, tuple[float, float]]  # host -> s that its clock is ahead of the master's, error


def measured(control: Control, places: Sequence[ProcessId]) -> ClockOffsets:
    """Rank 0: by how much each host's clock is ahead, from the quickest of some exchanges with one rank of it."""
    first: dict[str, int] = {}
    for rank, place in enumerate(places):
        if rank not in control.dead:
            first.setdefault(place.host, rank)
    others = {host: rank for host, rank in first.items() if host != places[MASTER].host}
    control.send(others.values(), {"what": "clock"})
    found = {host: _exchanged(control, rank) for host, rank in others.items()}
    control.send(others.values(), {"what": "clocked"})
    return {host: pair for host, pair in found.items() if pair is not None}


def _exchanged(control: Control, rank: int) -> tuple[float, float] | None:
    """Difference and error; None for a rank that does not answer."""
    best: tuple[float, float] | None = None
    for _ in range(EXCHANGES):
        before = time.monotonic()
        control.send(rank, {"what": "tick"})
        theirs = _reading_of(control, rank, before + EXCHANGE_TIMEOUT_S)
        after = time.monotonic()
        if theirs is None:
            return best
        error = (after - before) / 2
        if best is None or error < best[1]:
            best = theirs - (before + after) / 2, error
    return best


def _reading_of(control: Control, rank: int, until: float) -> float | None:
    while time.monotonic() < until:
        for sender, message, _ in control.poll():
            if sender == rank and message["what"] == "tock":
                return float(message["at"])
    return None


def answer(control: Control, messages: list[Word]) -> list[Word]:
    """Another rank: tell the time whenever asked, until it is enough.

    `words`: those that have come in already; returns those that are none of this.
    """
    until = time.monotonic() + EXCHANGE_TIMEOUT_S
    while time.monotonic() < until:
        for i, (_, message, _) in enumerate(messages):
            if message["what"] == "clocked":
                return messages[i + 1 :]
            if message["what"] == "tick":
                control.send(MASTER, {"what": "tock", "at": time.monotonic()})
                until = time.monotonic() + EXCHANGE_TIMEOUT_S
        messages = control.poll()
    return []


def carried(office: type[Transport], ahead: float) -> type[Transport]:
    """A kind of post office whose messages tell the master's time, on a host whose clock is so far ahead."""

    class Carried(office):  # type: ignore[valid-type,misc]
        def send(self, to: Iterable[int], envelope: Envelope, value: Any, newest: bool = False) -> None:
            super().send(to, _moved(envelope, -ahead), value, newest)

        def poll(self, now: float = float("inf"), awake: float = 0.0) -> list[tuple[Envelope, Any]]:
            return [(_moved(envelope, ahead), value) for envelope, value in super().poll(now, awake)]

    return Carried


def _moved(envelope: Envelope, by: float) -> Envelope:
    return envelope._replace(sent=envelope.sent + by, arrives=envelope.arrives + by)


def on_masters_clock(ledger: bytes, ahead: float) -> bytes:
    """A ledger's archive with all times as the master's clock would have shown them."""
    if not ahead:
        return ledger
    fields = from_bytes(ledger)
    for name in ("event_start", "event_begun", "event_end"):
        if len(fields[name]):
            fields[name] = fields[name] - ahead
    fields["commits"][:, 0] -= ahead
    return joined(fields)
