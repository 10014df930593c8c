"""Work of one rank in one run: set up, wait for the start, run the program, exchange goodbyes, send the ledger."""

import contextlib
import ctypes
import os
import signal
import socket
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from mpi4py import MPI

from workbench.core.base.errors import ClusterError, Deadlock, Diverged, RunError
from workbench.core.contract.plan import MASTER, Plan
from workbench.core.contract.protocol import Recv
from workbench.core.trace.records import ArrivalLog, LiveEventWriter, RunRecorder
from workbench.mpi.engine.control import Control, dup_comm
from workbench.mpi.engine.learner import Learner
from workbench.mpi.engine.ledger import COMMITTED, Ledger
from workbench.mpi.engine.polling import IDLE_EMULATED, SPIN_BEFORE_SLEEP_S
from workbench.mpi.engine.rank import RankEngine
from workbench.mpi.engine.reduce import Reduce
from workbench.mpi.engine.setup import Setup
from workbench.mpi.engine.transport import Transport
from workbench.mpi.engine.wire import Envelope
from workbench.mpi.launch.poolfolder import PoolFolder
from workbench.mpi.launch.processes import ProcessId, exists, is_alive
from workbench.mpi.launch.rank.adaptation import Adaptation, report_compute_times
from workbench.mpi.launch.rank.clocks import on_masters_clock, with_clock_offset
from workbench.mpi.launch.task import Task, controller_of, rebuilt, substitute, unpacked

Arrived = Callable[[list[tuple[int, int, int]]], None]
CONTROL_POLL_INTERVAL_S, STOP_POLL_INTERVAL_S = 2e-3, 0.03  # s between polls
WAKEABLE_POLL_INTERVAL_S = 2.5e-1  # s between polls of a rank that is woken for control messages
MASTER_WAKEABLE_POLL_INTERVAL_S = 2e-2  # s between polls of the master, which also writes its record
POLL_INTERVAL_S = 0.25  # s between checks for dead ranks
# Every fourth check for dead ranks also finds zombies, which takes 50 times as long
CHECKS_PER_ZOMBIE_CHECK = 4
GOODBYE_PAUSE_S = 2e-2  # s between polls of a rank that is woken for goodbyes
# s for goodbyes and for ledgers, and s added to both for each rank
GOODBYE_TIMEOUT_S, LEDGER_TIMEOUT_S, TIMEOUT_PER_RANK_S = 1.0, 1.5, 0.02


class RunFinished(Exception):
    """Rank 0 has ended the run."""


class RunStopped(Exception):
    """The user has stopped the run."""


class Watch:
    """Detector of dead ranks.

    Local ranks are checked by their process. Dead remote ranks are read from the pool's folder, if there is one.
    """

    def __init__(self, places: Sequence[ProcessId], ranks: Iterable[int], pool: PoolFolder | None) -> None:
        host, ranks = socket.gethostname(), list(ranks)
        self.pids = {rank: places[rank].pid for rank in ranks if places[rank].host == host}
        self.far = {rank for rank in ranks if places[rank].host != host}
        self.pool = pool if self.far else None
        self.checked_at = time.monotonic()
        self.checks = 0

    def gone(self) -> list[int]:
        """Return the ranks that have died since the last check. Each is returned once."""
        now = time.monotonic()
        if now - self.checked_at < POLL_INTERVAL_S:
            return []
        self.checked_at = now
        self.checks += 1
        lives = is_alive if self.checks % CHECKS_PER_ZOMBIE_CHECK == 0 else exists
        found = [rank for rank, pid in self.pids.items() if not lives(pid)]
        for rank in found:
            del self.pids[rank]
        lost = sorted(self.far.intersection(self.pool.lost())) if self.pool is not None else []
        self.far -= set(lost)
        return found + lost


@dataclass
class RankRun:
    """State of one rank in one run: its engine, and the engine's `RankContext`."""

    task: Task
    control: Control
    places: Sequence[ProcessId]
    comm: MPI.Intracomm
    workers: MPI.Intracomm | None
    setup: Setup
    learner: Learner
    watch: Watch
    clock_offsets: float = 0.0  # seconds by which this host's clock is ahead of the master's
    record: RunRecorder | None = None
    asked: float = 0.0
    progress: float = field(default_factory=time.monotonic)  # time at which the newest round was completed
    zero: float | None = None
    ready: set[int] = field(default_factory=set)
    finished: set[int] = field(default_factory=set)
    ledgers: dict[int, bytes] = field(default_factory=dict)
    halfway: bool = False  # whether an all-reduce was interrupted, after which no other is possible

    def __post_init__(self) -> None:
        task, setup = self.task, self.setup
        self.rank = rank = self.control.rank
        width = setup.link.width
        self.ledger = Ledger(rank, setup.rounds, setup.record, width)
        near, wakeup = peers(setup.plan, rank), self.control.wakeup
        kind = substitute(task, Transport, rank)
        kind = with_clock_offset(kind, self.clock_offsets) if self.clock_offsets else kind
        self.transport = kind(self.comm, task.run, near, setup.floats, self.refused, wakeup, width)
        link = setup.link if task.emulate == "all" else None
        self.reduce = None if self.workers is None else Reduce(self.workers, setup.floats, link, width)
        # A rank that gathers answers logs their arrivals in the run folder, or in memory if it cannot write there.
        shares = self.places[rank].host == self.places[MASTER].host
        gathers = bool(setup.plan.children[rank])
        self.arrivals = ArrivalLog(Path(task.folder) if shares else None, rank) if gathers else None
        self.arrived: Arrived = self.arrivals or (lambda answers: None)
        self.live_events = LiveEventWriter(Path(task.folder), rank, self.ledger.events) if shares else None
        self.engine = RankEngine(setup, self)
        if not self.engine.emulated and _core_per_rank(task, self.places, rank):
            self.engine.mailbox.eager = SPIN_BEFORE_SLEEP_S
        self.adaptation = self._adaptation()

    def _adaptation(self) -> Adaptation | None:
        """Return rank 0's controller. In an adaptive run, let other ranks report their computing times."""
        if self.rank != MASTER:
            if self.task.controller is not None:
                report_compute_times(self.task, self.control, self.ledger)
            return None
        controller = controller_of(self.task, self.setup)
        return None if controller is None else Adaptation(controller, self.setup, self.engine.mailbox)

    def _complete(self) -> bool:
        """Return whether this rank knows of no dead rank."""
        return not self.transport.dead and not self.control.dead

    def refused(self, sender: int, round: int, reason: str) -> None:
        """Handle a rejected message, see `Mailbox.refused`."""
        self.engine.mailbox.refused(sender, round, reason)

    def crash(self, how: str) -> None:
        """Die as a faulty process does."""
        if how == "segfault":
            ctypes.string_at(0)
        elif how == "exit":
            os._exit(3)
        os.kill(os.getpid(), signal.SIGKILL)

    def idle(self) -> float:
        """Handle control messages, the user's stop and dead ranks. Return the time of the next call."""
        now = time.monotonic()
        interval = MASTER_WAKEABLE_POLL_INTERVAL_S if self.rank == MASTER else WAKEABLE_POLL_INTERVAL_S
        every = interval if self.control.wakeup.enabled else CONTROL_POLL_INTERVAL_S
        self.poll_control()
        if self.rank != MASTER and MASTER in self.control.dead:
            os.kill(os.getpid(), signal.SIGKILL)  # without rank 0 there is nothing left to do
        if self.live_events is not None:
            self.live_events.keep_up(now, self.zero)
        if self.record is not None:
            self.record.keep_up(now)
            self._check_stop(self.record, now)
        return now + every

    def _check_stop(self, record: RunRecorder, now: float) -> None:
        """Raise if the user has stopped the run, or if no round has ended for too long."""
        if now - self.asked > STOP_POLL_INTERVAL_S:
            self.asked = now
            if record.stop_wanted():
                raise RunStopped
            if self.zero is not None and now - self.progress > self.task.patience:
                waiting = f"no round has ended for {self.task.patience:g} s: are ranks stopped, or links cut?"
                raise Deadlock(record.round, waiting)

    def _mark_dead(self, rank: int) -> None:
        self.control.dead.add(rank)
        self.transport.mark_dead(rank)
        if self.live_events is not None and self.rank == MASTER:
            now = time.monotonic()
            self.live_events.deaths.append((self.engine.clock.round, rank, "dead", now, now, now, -1, 0, 0))

    def _on_control(self, sender: int, message: dict[str, Any], data: bytes) -> None:
        if message.get("run") != self.task.run:
            return
        what = message["what"]
        if what == "go":
            self.zero = message["zero"] + self.clock_offsets
        elif what == "over":
            raise RunFinished
        elif what == "ready":
            self.ready.add(sender)
        elif what == "finished":
            self.finished.add(sender)
        elif what == "took" and self.adaptation is not None:
            self.adaptation.controller.took(message["round"], sender, message["seconds"], message["samples"])
        elif what == "gone":
            self._mark_dead(message["rank"])
        elif what == "arrivals":
            ArrivalLog(Path(self.task.folder), sender).add(data)
        elif what == "books":
            self.ledgers[sender] = data
            self.halfway = self.halfway or message["halfway"]
        elif what == "failed":
            raise rebuilt(message["error"])

    def committed(self, round: int, residual: float, when: float) -> None:
        """Record a committed round after the next model was sent. In a ring, the first committer sends it to rank 0."""
        if self.record is not None:
            self.progress = when
            gradient = np.array(self.learner.gradient) if self.task.gradients else None
            steps = self.engine.steps.copy()
            self.engine.mailbox.defer(self._write, round, residual, when, gradient, steps)
            if self.adaptation is not None and self.zero is not None:
                elapsed, offset = when - self.zero, self.record.offset
                self.adaptation.committed(round, elapsed, self.zero, offset, self._complete)
        elif self.rank == self.setup.plan.committers[0]:
            envelope = Envelope(0, round, self.rank, 0, 0, self.setup.floats, when, when, COMMITTED)
            self.transport.send([MASTER], envelope, self.learner.gradient)

    def note_with(self, record: RunRecorder) -> None:
        """Let rank 0 write its rounds and the arrivals of answers into a record, from now on."""
        self.record, record.arrivals = record, self.arrivals
        if self.arrivals is not None:
            self.arrived = record.answers.extend

    def _write(self, round: int, residual: float, when: float, gradient: Any, steps: Any = None) -> None:
        assert self.record is not None
        assert self.zero is not None
        counts, learner = self.ledger.counts, self.learner
        row = {"round": round, "time": when - self.zero, "residual": residual}
        row["dead"] = len(self.transport.dead)
        row |= {name: counts[name][round] for name in ("messages", "bytes", "stale", "rejected")}
        self.record.steps = steps
        self.record.add(row, learner.model, gradient, learner.state)
        if not learner.finite:  # no rank could use the model, so the run would wait for answers forever
            raise Diverged(round)

    def go(self) -> None:
        """Wait until all ranks are ready, then run the program. Rank 0 sets the start of the run's clock."""
        setup = self.setup
        if self.rank == MASTER:
            if not self.learner.finite:  # the model of a resumed run
                raise Diverged(setup.first)
            others = range(1, setup.plan.ranks)
            self._await(lambda: self._all_ready(others))
            if self.adaptation is not None and self.record is not None:
                self.record.offset += self.adaptation.resume(self.task)
            self.zero = time.monotonic()
            self.control.send(others, {"what": "go", "run": self.task.run, "zero": self.zero})
        else:
            self.control.send(MASTER, {"what": "ready", "run": self.task.run})
            self._await(lambda: self.zero is not None)
        assert self.zero is not None
        self.engine.run(self.zero)
        if self.rank == MASTER and setup.plan.committers != (MASTER,):
            self._copy_model()
        elif self.rank != MASTER:
            self.control.send(MASTER, {"what": "finished", "run": self.task.run})
            self._await(lambda: False)  # waits until rank 0 ends the run

    def _all_ready(self, others: range) -> bool:
        if self.control.dead:
            who = ", ".join(f"rank {r} ({self.places[r]})" for r in sorted(self.control.dead))
            raise ClusterError(f"before the start: {who} died; is there enough memory?")
        return len(self.ready) == len(others)

    def _await(self, done: Callable[[], bool]) -> None:
        self.engine.mailbox.wait(lambda: True if done() else None, IDLE_EMULATED)

    def _copy_model(self) -> None:
        """Keep a copy of the model on rank 0 beside an all-reduce, updated with the first committer's gradients."""
        engine, setup = self.engine, self.setup
        for round in range(setup.first, setup.rounds):
            message = engine.handlers[Recv](Recv({COMMITTED: round}))
            self.learner.commit(message.round, message.value, 0.0)
            self.progress = time.monotonic()
            self._write(message.round, 0.0, self.progress, self.learner.gradient)
        self._await(lambda: self.finished.issuperset(setup.plan.committers))

    def leave(self) -> bool:
        """Exchange goodbyes. Return whether all peers answered and no message is left over."""
        self.halfway = self.reduce is not None and self.reduce.under_way
        self.transport.send_goodbye()
        wait_s = GOODBYE_TIMEOUT_S + TIMEOUT_PER_RANK_S * self.setup.plan.ranks
        until, wakeup = time.monotonic() + wait_s, self.transport.wakeup
        pause_s = GOODBYE_PAUSE_S if wakeup.enabled and not self.transport.needs_polling else 5e-4
        while not (self.transport.drained and self.control.drained) and time.monotonic() < until:
            self.transport.poll()
            with contextlib.suppress(RunFinished, RunError):
                self.poll_control()
            wakeup.sleep(pause_s)  # a goodbye wakes this rank
        clean = self.transport.drained and not self.transport.dead and not self.halfway
        if clean:
            self.transport.free()
            self.comm.Free()
            if self.workers is not None:
                self.workers.Free()
        return clean

    def poll_control(self) -> None:
        """Handle control messages and dead ranks. Rank 0 reports the dead to their peers."""
        for sender, message, data in self.control.poll():
            self._on_control(sender, message, data)
        for rank in self.watch.gone():
            self._mark_dead(rank)
            if self.rank == MASTER and rank <= self.task.workers:
                near = set(peers(self.setup.plan, rank)) - self.control.dead - {MASTER}
                self.control.send(sorted(near), {"what": "gone", "run": self.task.run, "rank": rank})

    def collect(self) -> list[bytes]:
        """Return the ledgers of all living ranks. For rank 0."""
        until = time.monotonic() + LEDGER_TIMEOUT_S + TIMEOUT_PER_RANK_S * self.setup.plan.ranks
        alive = set(range(1, self.setup.plan.ranks)) - self.control.dead - self.transport.dead
        while not alive <= set(self.ledgers) | self.control.dead and time.monotonic() < until:
            with contextlib.suppress(RunError):
                self.poll_control()
            time.sleep(1e-3)
        return [self.ledger.pack(), *(self.ledgers[rank] for rank in sorted(self.ledgers))]

    def hand_in(self) -> None:
        """Send this rank's ledger to rank 0. For other ranks."""
        if self.arrivals is not None and self.arrivals.kept:
            self.control.send(MASTER, {"what": "arrivals", "run": self.task.run}, bytes(self.arrivals.kept))
        ledger = on_masters_clock(self.ledger.pack(), self.clock_offsets)
        self.control.send(MASTER, {"what": "books", "run": self.task.run, "halfway": self.halfway}, ledger)


def make_rank_run(
    task: Task,
    control: Control,
    places: Sequence[ProcessId],
    ahead: float = 0.0,
    pool: PoolFolder | None = None,
) -> RankRun | None:
    """Set up one rank's work. All ranks of the world call it. Return None for a rank that the run does not need.

    `ahead`: s by which the clock is ahead of the master's. `pool`: folder that lists dead ranks of other hosts.
    """
    comm = dup_comm(control.world)
    if control.rank > task.workers:
        comm.Free()
        return None
    if task.data is None:  # without prepared data, the host has the run folder; otherwise it may not have it
        os.chdir(task.cwd)
    (setup, learner), rank = unpacked(task), control.rank
    is_ring = setup.plan.committers != (MASTER,)
    watched = range(task.workers + 1) if rank == MASTER or is_ring else [*peers(setup.plan, rank), MASTER]
    watch = Watch(places, [r for r in watched if r != rank], pool)
    among = comm.Get_group().Incl(range(1, task.workers + 1)) if is_ring and rank else None
    workers = None if among is None else comm.Create_group(among)
    rank_run = RankRun(task, control, places, comm, workers, setup, learner, watch, ahead)
    if setup.plan.children[rank]:
        # done now, so that preparations do not slow down the first round
        for code in setup.scheme.codes(task.workers):
            code.decode(tuple(range(len(code.matrix))))
    if rank == MASTER:
        rank_run.note_with(_record(task))
    return rank_run


def _core_per_rank(task: Task, places: Sequence[ProcessId], rank: int) -> bool:
    """Return whether this host has a core for each of its ranks, so that a polling rank slows down no other."""
    here = sum(places[r].host == places[rank].host for r in range(task.workers + 1))
    return here <= len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else False


def peers(plan: Plan, rank: int) -> list[int]:
    """Return the ranks that a rank exchanges messages with.

    These are parent and children. In a ring, these are the neighbours, and the master and the first committer.
    """
    near = set(plan.children[rank])
    if plan.parent[rank] >= 0:
        near.add(int(plan.parent[rank]))
    if plan.committers != (0,):
        n = plan.workers
        first = plan.committers[0]
        if rank == 0:
            near.add(first)
        else:
            near |= {1 + rank % n, 1 + (rank - 2) % n}
            near |= {0} if rank == first else set()
    return sorted(near - {rank})


def _record(task: Task) -> RunRecorder:
    kind = substitute(task, RunRecorder, MASTER)
    every, offset = task.checkpoint_every, task.offset
    return kind(Path(task.folder), task.first, every, task.gradients, offset, task.begun)
