"""Master of a job: it combines the answers of ranks, and sends the newest state to late ranks.

One thread for each connection receives and sends. A rank sends an answer and waits for the commit. So the master sends
only to ranks that wait, and a late rank delays no other rank. The answer of a late rank is dropped. A rank that missed
one exchange takes the commit of that exchange. If a rank missed more, another rank sends a state after the next
exchange, and the late rank continues from that state. A rank that is late again after it took a state waits for more
exchanges before it gets the next state. The master itself stores no model.
"""

from __future__ import annotations

import hmac
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from workbench.core.base.errors import RunError
from workbench.core.base.types import Array
from workbench.core.contract.exchanges import ExchangeRule, Group
from workbench.ddp.late import LateRanks
from workbench.ddp.record import Recorder, State
from workbench.ddp.replicas import LOSS_TOLERANCE, Comparison, unequal_scripts
from workbench.ddp.wire import Channel

BLOCK_VALUES = 2**15  # values that are combined at once, so that they stay in the cache
ALL: Group = (-1, 0)  # group of all ranks, at any level
Message = tuple[dict[str, Any], Any]  # header and values


@dataclass
class Exchange:
    """One exchange of a group: the answers so far, and the commit once the exchange has ended."""

    event: int
    group: Group
    answers: dict[int, Array] = field(default_factory=dict)
    headers: dict[int, dict[str, Any]] = field(default_factory=dict)
    commit: Array | None = None
    reply: dict[str, Any] = field(default_factory=dict)
    donor: int | None = None  # rank that is asked for its state after this exchange

    def add(self, rank: int, header: dict[str, Any], values: memoryview) -> str | None:
        """Add an answer, unless the exchange has ended. Return a sentence if its length differs from other ones."""
        self.headers[rank] = {**header, "bytes": len(values)}
        if self.commit is None:
            self.answers[rank] = np.frombuffer(values, dtype=header["dtype"])
        some = {next(iter(self.headers)), rank}
        why = unequal_scripts({at: {"bytes of an answer": self.headers[at]["bytes"]} for at in some})
        return why and f"step {self.event}: {why}"

    def end(self, rule: ExchangeRule) -> tuple[tuple[int, ...], float]:
        """Combine the answers into the commit. Return their ranks and the residual."""
        ranks = tuple(sorted(self.answers))
        weights, residual = rule.weights(ranks, self.event)
        values = [self.answers[rank] for rank in ranks]
        self.commit = combined(values, np.asarray(weights, dtype=float), self.headers[ranks[0]]["coded"])
        used = [self.headers[rank] for rank, weight in zip(ranks, weights, strict=True) if weight]
        unused = set.intersection(*(set(each.get("unused", ())) for each in used or [{}]))
        self.reply = {"event": self.event, "loss": float(self.commit[0]), "unused": sorted(unused)}
        self.answers.clear()
        return ranks, residual


class Options(NamedTuple):
    """Options of a master.

    `checkpoint_every`: steps between checkpoints; 0: one checkpoint, at the end. `loss_tolerance`: max relative
    difference between the losses of one sample on two ranks. `token`: secret that the first message must contain.
    """

    checkpoint_every: int = 0
    loss_tolerance: float = LOSS_TOLERANCE
    token: str = ""

    def is_due(self, step: int, period: int) -> bool:
        """Return whether a checkpoint was due in the last `period` of `step` steps."""
        every = self.checkpoint_every
        return bool(every and step) and step // every > (step - period) // every


class Master:
    """Master of one job. `serve` is called once for each connection, in a thread of its own."""

    def __init__(
        self, rule: ExchangeRule, recorder: Recorder, options: Options, state: State | None = None
    ) -> None:
        self.rule, self.recorder, self.options, self.state = rule, recorder, options, state
        self.changed = threading.Condition()
        self.alive: set[int] = set()
        self.dead: dict[int, str] = {}
        self.finished: set[int] = set()
        self.launchers: set[int] = set()  # ranks whose launchers have reported the end of the script
        self.failure: str | None = None
        self._source: int | None = None  # rank whose state all ranks begin with
        self._pending: dict[int, dict[str, Any]] = {}  # rank -> request whose reply the rank waits for
        self._awaited: dict[int, Exchange] = {}  # rank -> exchange whose commit the rank waits for
        self._late = LateRanks(rule.period)
        self._asked: set[int] = set()  # ranks that are asked for their state at once
        self._open: dict[tuple[int, Group], Exchange] = {}
        self._newest: dict[Group, Exchange] = {}
        self._comparison = Comparison(options.loss_tolerance)

    # -------------------------------------------------------------- connections

    def serve(self, channel: Channel) -> None:
        """Serve one connection until it is closed."""
        rank: int | None = None
        try:
            hello = channel.receive_hello()
            if not hmac.compare_digest(str(hello.get("token", "")), self.options.token):
                return
            if "launcher" in hello:
                channel.send(self._until_end(hello))
                with self.changed:
                    self.launchers.add(hello["launcher"])
                    self.changed.notify_all()
                return
            rank = int(hello["rank"])
            self._converse(rank, channel)
        except (OSError, ValueError, RunError):
            pass
        finally:
            if rank is not None:
                self.lost(rank, "its connection was closed")
            channel.close()

    def _converse(self, rank: int, channel: Channel) -> None:
        room = None
        while True:
            header, values = channel.receive(room)
            if header["what"] == "state":  # values in `room` are overwritten by the next answer
                values = memoryview(bytes(values)) if values is room else values
            elif header["what"] == "answer":
                room = values
            reply = self._handle(rank, header, values)
            if reply is not None:
                channel.send(*reply)
            if rank in self.finished:
                return

    def _handle(self, rank: int, header: dict[str, Any], values: memoryview) -> Message | None:
        with self.changed:
            if header["what"] == "state":
                self._store(rank, State(header["step"], values, header.get("loop", 0)))
            else:
                self._pending[rank] = header
                self.failure = self.failure or self._comparison.add(rank, header)
                requests = {"join": self._join, "answer": self._answer, "finished": self._finish}
                requests[header["what"]](rank, header, values)
                self._settle()
            self.changed.notify_all()
            return self._reply_to(rank)

    def _reply_to(self, rank: int) -> Message | None:
        """Wait for the reply to the pending request of a rank. Return None if no request is pending."""
        while rank in self._pending:
            if self.failure:
                return {"do": "fail", "why": self.failure}, b""
            if rank in self._asked:
                self._asked.discard(rank)
                return {"do": "donate"}, b""
            reply = self._reply(rank, self._pending[rank])
            if reply is not None:
                del self._pending[rank]
                self._late.until.pop(rank, None)
                return reply
            self.changed.wait()
        return None

    def _reply(self, rank: int, request: dict[str, Any]) -> Message | None:
        if rank in self._late.until:
            found = self.state
            if found is None or found.step < self._late.until[rank]:
                return None
            return {"do": "load", "step": found.step, "loop": found.loop}, found.values
        if request["what"] == "answer":
            exchange = self._awaited[rank]
            if exchange.commit is None:
                return None
            return {"do": "commit", **exchange.reply, "donate": exchange.donor == rank}, exchange.commit
        if request["what"] == "join" and (self.state is None or self._source is None):
            return None
        return {"do": "go"}, b""

    # -------------------------------------------------------------- requests

    def _join(self, rank: int, header: dict[str, Any], values: memoryview) -> None:
        if rank in self.alive - self.finished:
            self.failure = f"rank {rank}: has joined already; call ddp.prepare once in a script"
        self.alive.add(rank)
        self.finished.discard(rank)
        self.dead.pop(rank, None)
        if self._source is not None:  # its script was started again
            self._late.until[rank] = self._newest_step
        self._begin()

    def _begin(self) -> None:
        """Take the first state from a checkpoint, or from the first rank, once all ranks have joined or are dead."""
        missing = self.rule.ranks - len(self.alive) - len(self.dead)
        if missing or not self.alive or self._newest or self._source is not None:
            return
        self.failure = unequal_scripts({rank: self._pending[rank]["script"] for rank in self.alive})
        self._source = min(self.alive)
        if self.state is None:
            self._asked.add(self._source)
            self._late.until.update(dict.fromkeys(self.alive - {self._source}, 0))
        else:
            self._late.until.update(dict.fromkeys(self.alive, self.state.step))

    def _answer(self, rank: int, header: dict[str, Any], values: memoryview) -> None:
        event, group = header["event"], tuple(header["group"])
        exchange = self._newest.get(self._key(group)) or Exchange(0, group)
        fresh = event > exchange.event
        self.recorder.answer(rank, event, header, used=fresh)
        if event < exchange.event:
            self._late.add(rank, self._newest_step)
            return
        if fresh:
            self._late.in_time(rank)
            exchange = self._open.setdefault((event, group), Exchange(event, group))
            self.failure = self.failure or apart([step for step, where in self._open if where == group])
        self._awaited[rank] = exchange
        self.failure = self.failure or exchange.add(rank, header, values)

    def _finish(self, rank: int, header: dict[str, Any], values: memoryview) -> None:
        self._late.end_pauses(header["step"], last=True)
        others = (self.alive | self.dead.keys()) - self.finished - {rank}  # a dead rank may be started again
        if (others or self.recorder.folder) and (self.state is None or self.state.step < header["step"]):
            self._asked.add(rank)  # the rank counts as finished once its state has arrived
        else:
            self.finished.add(rank)

    def _store(self, rank: int, state: State) -> None:
        self._asked.discard(rank)
        last = self._pending.get(rank, {}).get("what") == "finished"
        if self.state is None or state.step >= self.state.step:  # a rank that paused may send an older one
            self.state = state
            if last or self.options.is_due(state.step, self.rule.period):
                self.recorder.checkpoint(state)
        if last:
            self.finished.add(rank)
            self._settle()

    # -------------------------------------------------------------- exchanges

    @property
    def _newest_step(self) -> int:
        """Number of steps that are complete after the newest exchange of all ranks."""
        return self._newest[ALL].event if ALL in self._newest else 0

    def _key(self, group: Sequence[int]) -> Group:
        level, number = group
        return ALL if self.rule.is_whole((level, number)) else (level, number)

    def possible(self, group: Group) -> set[int]:
        """Return the ranks of a group that can still answer."""
        return (self.alive - self.finished) & set(self.rule.members(group))

    def _settle(self) -> None:
        """End the exchanges that have enough answers, or the job if one cannot get enough. Wake waiting late ranks."""
        for exchange in list(self._open.values()):
            try:
                if self.failure is None:
                    self._advance(exchange)
            except Exception as error:  # for example, of the rule of a user's scheme
                self.failure = f"step {exchange.event}: exchange_rule raises {error!r}; correct the scheme"
        left = self.alive - self.finished
        if not self.failure and self._late.stranded(left, self.state, self._newest_step):
            why = "no rank is left that has the newest state; start the job again, with --resume if it has checkpoints"
            self.failure = f"step {self._newest_step + 1}: {why}"

    def _advance(self, exchange: Exchange) -> None:
        possible, answered = self.possible(exchange.group), set(exchange.answers)
        if not self.rule.ready(exchange.group, possible | answered, possible):
            missing = [rank for rank in self.rule.members(exchange.group) if rank not in possible]
            reasons = {rank: self.dead.get(rank, "it has finished") for rank in missing}
            self.failure = too_many(exchange.event, reasons)
        # in the first exchange, all live ranks must answer, so that replicas are compared
        elif self.rule.ready(exchange.group, answered, possible) and (self._newest or answered >= possible):
            self._end(exchange)
        elif answered and not possible - answered - self._late.waiting(self.state):
            self._late.end_pauses(self._newest_step)
            self._asked.add(min(answered & self.alive, default=min(answered)))

    def _end(self, exchange: Exchange) -> None:
        ranks, residual = exchange.end(self.rule)
        key = self._key(exchange.group)
        if key == ALL:
            if self._late.due(exchange.event) or self.options.is_due(exchange.event, self.rule.period):
                exchange.donor = min(set(ranks) & self.alive, default=None)
            self.recorder.step(exchange.event, exchange.reply["loss"], residual, ranks)
        del self._open[exchange.event, exchange.group]
        self._newest[key] = exchange

    # -------------------------------------------------------------- deaths and the end

    def lost(self, rank: int, why: str, failed: bool = False) -> None:
        """Count a rank as dead, unless it has finished. `failed`: whether its script has ended with an error."""
        with self.changed:
            if failed or rank not in self.finished:
                self.finished.discard(rank)
                self.dead[rank] = why
                for waiting in (self._pending, self._late.until):
                    waiting.pop(rank, None)
                self.alive.discard(rank)
                self._asked.discard(rank)
                if rank == self._source and self.state is None:  # another rank must send the first state
                    self._source = None
                    self._late.until.clear()
                self._begin()
                self._settle()
            self.changed.notify_all()

    def _until_end(self, hello: dict[str, Any]) -> dict[str, Any]:
        self.lost(hello["launcher"], hello["why"], failed=hello["wait"])
        return self.wait() if hello["wait"] else {"complete": True}

    def wait_for_launchers(self, timeout: float) -> None:
        """Wait until the launchers of all other ranks have reported, at most `timeout` seconds."""
        with self.changed:
            self.changed.wait_for(lambda: len(self.launchers) >= self.rule.ranks - 1, timeout)

    def wait(self) -> dict[str, Any]:
        """Wait for the end of all ranks. Return whether the job is complete, and the reason if it is not."""
        with self.changed:
            self.changed.wait_for(lambda: len(self.finished | self.dead.keys()) >= self.rule.ranks)
            dead = "; ".join(f"rank {rank}: {why}" for rank, why in sorted(self.dead.items()))
            complete = bool(self.finished) and self.failure is None
            return {"complete": complete, "why": self.failure or dead}


def too_many(event: int, lost: Mapping[int, str]) -> str:
    """Return the error sentence for more lost ranks than the scheme tolerates. `lost`: rank -> reason.

    >>> too_many(3, {1: "killed by SIGKILL"})
    'step 3: lost rank 1 (killed by SIGKILL), more than the scheme tolerates; take one with more stragglers'
    """
    named = ", ".join(f"{rank} ({why})" for rank, why in lost.items())
    what = f"step {event}: lost rank{'s' * (len(lost) > 1)} {named}"
    return f"{what}, more than the scheme tolerates; take one with more stragglers"


def apart(steps: Sequence[int]) -> str | None:
    """Return the error sentence for a group whose ranks wait for exchanges after several steps, or None for one step.

    >>> apart([8, 5])
    'steps 5 and 8: some ranks exchange after one step, some after the other; leave loops after the same step'
    """
    why = "some ranks exchange after one step, some after the other; leave loops after the same step"
    return f"steps {min(steps)} and {max(steps)}: {why}" if len(steps) > 1 else None


def combined(values: Sequence[Array], weights: Array, coded: int) -> Array:
    """Return the weighted sum of the first `coded` values of the answers, and the plain mean of their other values.

    >>> combined([np.array([1.0, 4.0]), np.array([2.0, 6.0])], np.array([1.0, 0.5]), coded=1).tolist()
    [2.0, 5.0]
    """
    out = np.empty_like(values[0])
    used = [(value, weight) for value, weight in zip(values, weights.tolist(), strict=True) if weight]
    equal = [(value, 1 / len(values)) for value in values]
    for first, last, terms in ((0, coded, used), (coded, len(out), equal)):
        for begin in range(first, last, BLOCK_VALUES):
            block = slice(begin, min(begin + BLOCK_VALUES, last))
            _weighted_sum(out[block], [(value[block], weight) for value, weight in terms])
    return out


def _weighted_sum(out: Array, terms: Sequence[tuple[Array, float]]) -> None:
    (first, weight), *rest = terms
    np.multiply(first, out.dtype.type(weight), out=out)
    for value, weight in rest:
        out += value if weight == 1 else value * out.dtype.type(weight)
