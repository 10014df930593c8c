"""DSAG: the sum of the newest gradients of all pieces of the data. Some are fresh, others are from earlier rounds.

A. Severinson, E. Rosnes, S. El Rouayheb, A. Graell i Amat, "DSAG: A mixed synchronous-asynchronous iterative method
for straggler-resilient learning", 2021, and its public program (severinson/CodedComputing.jl: `src/pca/logreg.jl`,
`src/treegradient.jl`). The master stores the newest gradient of every piece of the data. In every iteration it waits
for w fresh answers, and then a little longer. Late answers replace stored gradients that are older. The sum is divided
by the share of the samples whose gradients are stored. The authors' load balancer, which cuts the data of slow workers
into more pieces during the run, is not implemented.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import replace
from itertools import cycle
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from workbench.core.base.settings import SettingError, setting
from workbench.core.base.types import Array
from workbench.core.codes.checks import between
from workbench.core.contract.batches import BatchSampler
from workbench.core.contract.plan import MASTER, Plan, shard_sizes, star_plan
from workbench.core.contract.programs import AnswerProgram, LostChildren, master_program, plain_sum
from workbench.core.contract.protocol import (
    CODED,
    MODEL,
    PEER_LOST,
    REL_TOL,
    Compute,
    Message,
    Node,
    Program,
    Recv,
    Send,
)
from workbench.core.contract.round_times import RoundTimes, SampledTimes, arrival_order, port_departures
from workbench.core.contract.scheme import Scheme, log_spaced_ints
from workbench.core.schemes.uncoded import check_pieces


class DSAG(Scheme):
    """Stochastic average gradient with stale answers: a worker computes one of its pieces for each model that it takes.

    Workers finish the piece that they have begun, even after the master has committed, and then take the newest
    model. A worker repeats a piece only after it has computed all its other pieces.

    >>> DSAG(pieces=5).loads(workers=6, samples=60).tolist()
    [2, 2, 2, 2, 2, 2]
    """

    name = "DSAG"
    title: ClassVar[str] = "Mixed synchronous-asynchronous average gradient"
    paper: ClassVar[str] = "Severinson et al. 2021"
    exact: ClassVar[bool] = False
    non_preemptive: ClassVar[bool] = True
    wait_for: int | None = setting(
        None, "fresh answers that the master waits for (w); empty = all but one", ge=1
    )
    tolerance: float = setting(
        0.02,
        "extra waiting time for other answers, as a share of the time that the w fresh ones took; 0 = none",
        ge=0,
    )
    pieces: int = setting(1, "pieces of a worker's data; at each model, the worker computes one", ge=1)

    @classmethod
    def candidates(cls, workers: int) -> list[dict[str, Any]]:
        """Return numbers of fresh answers from 1 to n - 1, with whole shards and with shards in pieces."""
        return [{"wait_for": w, "pieces": p} for w in log_spaced_ints(1, workers - 1, 5) for p in (1, 4)]

    def check(self, workers: int) -> None:
        between("scheme_args.wait_for", self.waits_for(workers), 1, workers, f"there are {workers} workers")

    def check_samples(self, workers: int, samples: int) -> None:
        """Raise `SettingError` if a piece would be empty."""
        check_pieces("pieces", self.pieces, workers, samples)

    def check_batch(self, plan: Plan, sampler: BatchSampler) -> None:
        """Refuse mini-batches, because a worker already computes only one of its pieces at a time."""
        pieces = sampler.batches_per_epoch
        why = f"a worker computes one piece a round; leave it empty, and take scheme_args.pieces = {pieces}"
        raise SettingError(f"batch = {sampler.batch}: {why}")

    def waits_for(self, workers: int) -> int:
        """Return the number of fresh answers that the master waits for."""
        return max(1, workers - 1) if self.wait_for is None else self.wait_for

    def plan(self, workers: int, samples: int) -> Plan:
        """Return a plan in which each piece has one worker.

        Its `versions` counts the models in use: the newest, one for each stored gradient, and one for each busy worker.
        """
        plan = star_plan(np.repeat(np.eye(workers), self.pieces, axis=1), samples)
        sizes = shard_sizes(samples, workers, self.pieces).ravel()
        batch = int(sizes.max())  # a worker computes one piece at a time
        return replace(plan, sizes=sizes, batch=batch, versions=workers * (self.pieces + 1) + 1)

    def program(self, node: Node) -> Program:
        newest: dict[int, Message] = {}  # newest answer of each part
        if node.rank == MASTER:
            return master_program(node, lambda r, model, lost: self._answers(node, r, lost, newest))
        return self._worker(node)

    def _worker(self, node: Node) -> Program:
        for number, piece in cycle(enumerate(node.work.split(node.plan.sizes))):
            job: Message = yield Recv({MODEL: 0}, latest=True)
            if job.round == node.rounds:
                return
            batch = max(1, piece.samples)
            value = yield Compute(piece, job.value, job.round, {MODEL: node.rounds}, batch=batch)
            if value is None:
                return
            yield Send(node.parent, CODED, job.round, value, number=number)

    def _answers(
        self, node: Node, round: int, lost: LostChildren, newest: dict[int, Message]
    ) -> AnswerProgram:
        taken = yield from self._gather(node, round, lost, newest)
        covered = sorted(newest)
        scale = node.plan.samples / max(1, int(node.plan.sizes[covered].sum()))
        residual = len(covered) * (scale - 1) ** 2 + node.plan.parts - len(covered)
        return scale * plain_sum([newest[index].value for index in covered]), residual, taken

    def _gather(
        self, node: Node, round: int, lost: LostChildren, newest: dict[int, Message]
    ) -> Generator[Any, Any, int]:
        """Receive answers until w of them are fresh, and for a share `tolerance` of that time longer.

        Return the number of answers received.
        """
        start, taken, waiting = node.clock(), 0, set(node.children) - lost.gone
        needed, ask = self.waits_for(node.plan.workers), Recv({CODED: 0, PEER_LOST: 0})
        missing = len(node.children) - needed  # number of answers that may be missing
        while waiting:
            if len(lost.of(round)) > missing:
                raise lost.quorum_lost(node.rank, round, lost.of(round))
            message = yield ask
            if message is None:
                break
            if message.kind == PEER_LOST:
                lost.add(message)
                waiting -= lost.of(round)
                continue
            index, taken = (message.src - 1) * self.pieces + message.number, taken + 1
            if index not in newest or newest[index].round < message.round:
                newest[index] = message
            if message.round == round:
                waiting.discard(message.src)
            if ask.until is None and len(waiting) + len(lost.of(round)) <= missing:
                ask = Recv(ask.match, (now := node.clock()) + self.tolerance * (now - start))
        return taken

    def round_times(self, draws: SampledTimes, workers: int) -> RoundTimes:
        """Return the round times, computed one by one.

        Busy workers and messages in transit carry over to the next round.
        """
        sizes = shard_sizes(draws.samples, workers, self.pieces)
        at = draws.state or _Underway(
            0.0, np.zeros(workers), np.zeros(workers, int), np.zeros((0, 3)), 0.0, 0, np.full(workers, -1)
        )
        ends, received = [at.now], []
        for k in range(len(draws.seconds)):
            at, count = self._round(draws, k, at, sizes)
            ends.append(at.now)
            received.append(count)
        messages = np.array(received, dtype=float)
        return RoundTimes(np.diff(ends), messages, messages * (draws.link.width * draws.floats), at)

    def _round(
        self, draws: SampledTimes, k: int, at: _Underway, sizes: NDArray[np.int64]
    ) -> tuple[_Underway, int]:
        """Compute one round. Return the state at its end, and the number of answers received."""
        n, link = len(at.free), draws.link
        model = self._model(draws, k, at, sizes)
        drawn = draws.model_of(model.round) is not None
        jobs = _in_turn(at, [*at.models, model]) if drawn else _one_each(at, model)
        queue = np.vstack([at.late, jobs.answers])
        first = arrival_order(queue[None, :, 0], lambda which: queue[None, :, 1])[0]
        transfer = queue[first, 2] if link.groups else link.transfer(draws.floats)
        through = port_departures(np.maximum(queue[first, 0], at.port)[None], transfer)[0]
        is_fresh = np.concatenate([np.zeros(len(at.late), dtype=bool), jobs.rounds == model.round])
        fresh = np.flatnonzero(is_fresh[first])
        enough = through[fresh[self.waits_for(n) - 1]]
        end = max(at.now, enough + self.tolerance * (enough - at.now))
        count = int(np.count_nonzero(through <= end * REL_TOL))
        if fresh[-1] < count or fresh[-1] == fresh[self.waits_for(n) - 1]:  # all answers have arrived
            end, count = max(at.now, through[fresh[-1]]), int(fresh[-1]) + 1
        now = float(end + draws.decode_seconds(count))
        # A job that begins before the next model can arrive is certain.
        begun = jobs.begins <= (now + (0.0 if drawn else model.arrives - at.now)) * REL_TOL
        # Messages that pass the port while the master decodes count as received in this round, and are used in the
        # next.
        received = count if draws.decode_rate is None else int(np.count_nonzero(through <= now * REL_TOL))
        left = first[count:]
        late = queue[left[np.concatenate([np.ones(len(at.late), dtype=bool), begun])[left]]]
        free, turn, newest = jobs.done(at, begun)
        kept = _still_open((*at.models, model), newest, now) if drawn else ()
        at_hand = received - count
        state = _Underway(now, free, turn, late, float(through[count - 1]), at_hand, newest, kept)
        return state, received - at.at_hand

    def _model(self, draws: SampledTimes, k: int, at: _Underway, sizes: NDArray[np.int64]) -> _Model:
        """Return the model that is sent at the beginning of a round."""
        shape = draws.seconds.shape
        transit = np.broadcast_to(draws.send(draws.floats), shape)[k] + draws.link.latency
        transfer = np.broadcast_to(draws.transfer(draws.floats), shape[1])
        arrives = at.now + np.broadcast_to(draws.downlink_seconds, shape)[k]

        def seconds(turn: NDArray[np.int64]) -> Array:
            place = np.arange(self.pieces) == (turn % self.pieces)[:, None]
            return draws.progress(sizes * place, slice(k, k + 1))[0, :, -1]

        return _Model(
            draws.first_round + k, arrives, seconds, transit, draws.tie_order(np.array([k]))[0], transfer
        )


class _Model(NamedTuple):
    """Model that was sent to all workers. All arrays are (workers,)."""

    round: int
    arrives: Array  # time when it reaches each worker, s
    seconds: Callable[[NDArray[np.int64]], Array]  # answers begun by each worker -> seconds of its next piece
    transit: Array  # seconds from the end of the work to the arrival at the port
    ties: Array
    transfer: Array  # seconds on the port

    def answers(self, ready: Array) -> Array:
        """Return arrival at the port, tie-break and transfer time of answers, (workers, 3), from the times `ready`."""
        return np.stack([ready + self.transit, self.ties, self.transfer], axis=1)


class _Jobs(NamedTuple):
    """Pieces that workers begin with, if no newer model comes before; each array (jobs,) unless noted."""

    workers: NDArray[np.int64]
    rounds: NDArray[np.int64]  # round of the model
    begins: Array
    ready: Array
    answers: Array  # arrival at the port, tie-break, and transfer time, (jobs, 3)

    def done(
        self, at: _Underway, begun: NDArray[np.bool_]
    ) -> tuple[Array, NDArray[np.int64], NDArray[np.int64]]:
        """Return when each worker is free, its count of begun answers, and its newest model, after the jobs `begun`."""
        who, free, newest = self.workers[begun], at.free.copy(), at.newest.copy()
        np.maximum.at(free, who, self.ready[begun])
        np.maximum.at(newest, who, self.rounds[begun])
        return free, at.turn + np.bincount(who, minlength=len(free)), newest


def _one_each(at: _Underway, model: _Model) -> _Jobs:
    """Return one job for each worker, with the newest model.

    No older model arrives later, because all models take equally long.
    """
    workers = np.arange(len(at.free))
    begins = np.maximum(at.free, model.arrives)
    ready = begins + model.seconds(at.turn)
    return _Jobs(workers, np.full(len(workers), model.round), begins, ready, model.answers(ready))


def _still_open(models: Sequence[_Model], newest: NDArray[np.int64], now: float) -> tuple[_Model, ...]:
    """Return the models that a worker may still begin with. `newest`: the last model that each has begun with."""
    there = newest.copy()  # newest model that each worker has begun with, or that has arrived
    for model in models:
        there[model.arrives <= now] = model.round
    return tuple(m for m in models if ((newest < m.round) & ((m.arrives > now) | (there == m.round))).any())


def _in_turn(at: _Underway, models: Sequence[_Model]) -> _Jobs:
    """Return the jobs of all workers with the models that are under way, or that wait for a busy worker.

    A free worker takes the newest model that has arrived. If no arrived model is newer than the worker's last model,
    the worker waits for the first newer model.
    """
    rows: list[tuple[int, int, float, float]] = []
    answers = []
    for worker in range(len(at.free)):
        free, turn, newest = float(at.free[worker]), at.turn.copy(), int(at.newest[worker])
        while newer := [m for m in models if m.round > newest]:
            there = [m for m in newer if m.arrives[worker] * REL_TOL < free]
            model = there[-1] if there else min(newer, key=lambda m: (m.arrives[worker], -m.round))
            begins = max(free, float(model.arrives[worker]))
            free = begins + float(model.seconds(turn)[worker])
            rows.append((worker, model.round, begins, free))
            answers.append(model.answers(np.full(len(turn), free))[worker])
            newest, turn[worker] = model.round, turn[worker] + 1
    who, rounds, begun, ready = (np.array(column) for column in zip(*rows, strict=True))
    return _Jobs(who, rounds, begun, ready, np.array(answers))


class _Underway(NamedTuple):
    """State at the end of a round, from which the next one starts."""

    now: float  # end of the round, s
    free: Array  # time when each worker finishes its piece, (workers,), s
    turn: NDArray[np.int64]  # answers that each worker has begun, (workers,)
    late: Array  # messages in transit: arrival at the port, tie-break, and transfer time, (messages, 3)
    port: float  # time when the last message taken has passed the port, s
    at_hand: int  # number of messages that have passed the port already, and that the next round uses
    newest: NDArray[np.int64]  # round of the model that each worker began with last, (workers,)
    models: tuple[_Model, ...] = ()  # earlier models that a worker may still begin with
