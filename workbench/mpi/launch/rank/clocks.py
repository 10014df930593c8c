"""Clocks of different hosts. Each has its own zero, so rank 0 measures the offsets from its own clock.

All times in messages are the master's. A rank on another host converts the times that it sends, receives and records.
The error is at most half of the fastest exchange, and is stored with the run (`clock_error`, s).
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
# max time of one exchange, s; it is long because the rank may sleep when the first one arrives
EXCHANGE_TIMEOUT_S = 5.0
ControlMessage = tuple[int, dict[str, Any], bytes]  # sender, fields, bytes
# Host -> (s that its clock is ahead of the master's, error in s)
ClockOffsets = dict[str, tuple[float, float]]


def measured(control: Control, places: Sequence[ProcessId]) -> ClockOffsets:
    """Return the clock offset of each host, measured by rank 0.

    Rank 0 makes `EXCHANGES` exchanges with one rank of each host. The fastest one counts.
    """
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
    """Return offset and error of a rank's clock, or None if the rank does not answer."""
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


def answer(control: Control, messages: list[ControlMessage]) -> list[ControlMessage]:
    """Answer the clock requests of rank 0 until it ends them. Called by the other ranks.

    `messages`: control messages that were received before. Return those that follow the last request.
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


def with_clock_offset(transport: type[Transport], ahead: float) -> type[Transport]:
    """Return a subclass of a transport that sends and receives times on the master's clock.

    `ahead`: s that this host's clock is ahead of the master's.
    """

    class OffsetTransport(transport):  # type: ignore[valid-type,misc]
        def send(self, to: Iterable[int], envelope: Envelope, value: Any, newest: bool = False) -> None:
            super().send(to, _shifted(envelope, -ahead), value, newest)

        def poll(self, now: float = float("inf"), awake: float = 0.0) -> list[tuple[Envelope, Any]]:
            return [(_shifted(envelope, ahead), value) for envelope, value in super().poll(now, awake)]

    return OffsetTransport


def _shifted(envelope: Envelope, by: float) -> Envelope:
    return envelope._replace(sent=envelope.sent + by, arrives=envelope.arrives + by)


def on_masters_clock(ledger: bytes, ahead: float) -> bytes:
    """Return a ledger's archive with all times on the master's clock."""
    if not ahead:
        return ledger
    fields = from_bytes(ledger)
    for name in ("event_start", "event_begun", "event_end"):
        if len(fields[name]):
            fields[name] = fields[name] - ahead
    fields["commits"][:, 0] -= ahead
    return joined(fields)
