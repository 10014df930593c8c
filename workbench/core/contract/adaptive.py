"""Adaptive selection: choose the scheme of the next round from the measured times of the rounds so far.

The measured times predict the workers' next times, because a worker's seconds per sample do not depend on the scheme
(`WorkerTimes`). The mean time of the next round is computed for each candidate, from the same drawn times. The run
changes to a candidate whose round is shorter, if this saves more than the change costs.

Only measured times are used: no delay model, and no later round. The seed only shuffles the predicted times.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from workbench.core.base.text import in_seconds
from workbench.core.base.types import Array
from workbench.core.contract.configurations import Configuration, StoredParts
from workbench.core.contract.delays.base import CounterRNG
from workbench.core.contract.links import Link
from workbench.core.contract.round_times import RoundTimes, SampledTimes
from workbench.core.contract.worker_times import WorkerTimes

PREDICTION_STREAM = 14  # random stream of predicted times; `contract.delays.base` lists all streams
DRAWN_ROUNDS = 100  # number of drawn next rounds, from which a mean time is computed
MIN_SAVED_SHARE = 0.02  # share of a round that a change must save
# Number of rounds for which a prediction holds at least. It also holds for as many rounds as the last change.
HORIZON_ROUNDS = 12
# s per moved sample: of two equally fast candidates, the one that moves less is chosen
MOVE_COST_S_PER_SAMPLE = 1e-12
RATE_TOLERANCE = 1e-9  # relative tolerance for two times that differ only by rounding
SLOW_FACTOR = 1.2  # a worker that takes longer than this factor times the median is named in the reason


class Change(NamedTuple):
    """Change of scheme during a run.

    `round`: first round with the new scheme. `time`: time of the decision, s. `before`, `after`: configurations as
    text. `seconds`, `bytes`: cost of moving samples to workers. `reason`: a sentence.
    """

    round: int
    time: float
    before: str
    after: str
    scheme: str
    scheme_args: dict[str, Any]
    seconds: float
    bytes: int
    reason: str


class DataMove(NamedTuple):
    """Samples that a change of scheme moves."""

    samples: int  # number of samples that all workers receive
    seconds: float


class AdaptiveController:
    """Controller of adaptive selection: receives the times of each round, and decides when to change the scheme.

    `configurations`: the candidates. Without `memory`, the run begins with the first, whose samples the workers store.
    `seed`, `link`, `floats` (p), `decode_rate`: those of the run. `row`: bytes of one sample. `restart`: cost of a
    change apart from the moved samples, s. `memory`: state at the end of the previous segment, as `as_dict` returns it.
    """

    def __init__(
        self,
        configurations: Sequence[Configuration],
        seed: int,
        link: Link,
        floats: int,
        decode_rate: float | None = None,
        row: int = 0,
        restart: float = 0.0,
        memory: Mapping[str, Any] | None = None,
    ) -> None:
        self.configurations, self.at = list(configurations), 0
        self.link, self.floats, self.decode_rate, self.row_bytes = link, floats, decode_rate, row
        self.restart = restart
        self.taken = [self.configurations[0]]  # configurations that the run has used
        self.stored = StoredParts(self.configurations[0].plan)
        self.times, self.random = WorkerTimes(self.workers), CounterRNG(seed, PREDICTION_STREAM)
        self.sends: Array = np.zeros(self.workers)  # last s of sending a model beyond the latency, per worker
        self.seen: dict[int, tuple[Array, NDArray[np.int64]]] = {}  # round -> seconds and samples of workers
        # end of the round before, s; rounds since the last change; cost of moving to each candidate, s
        self.start, self.stretch, self.moves = 0.0, 0, np.zeros(len(self.configurations))
        self.free = 0.0  # when the last message had passed the port, s
        # times of the rounds so far, s, and gradients that the candidates would commit, as a number of full gradients
        self.spent = self.got = 0.0
        # whether models take drawn times; a worker's time then begins when a model could have arrived
        self.late_models: bool = link.download(0, self.workers) is not None
        self.sent: list[tuple[int, float]] = []  # ranks, and times when they sent an answer
        if memory:
            self._recall(memory)
        self.begin()

    @property
    def workers(self) -> int:
        """Number of workers."""
        return self.configurations[0].workers

    @property
    def now(self) -> Configuration:
        """Current configuration of the run."""
        return self.configurations[self.at]

    # ------------------------------------------------------------ measurements

    def took(self, round: int, rank: int, seconds: float, samples: int) -> None:
        """Record that a worker took `seconds` for some samples of its load of a round."""
        took, done = self.seen.setdefault(round, (np.zeros(self.workers), np.zeros(self.workers, dtype=int)))
        took[rank - 1] += seconds
        done[rank - 1] += samples

    def received(self, rank: int, share: float, sent: float, begun: float, end: float) -> None:
        """Record the sending time (s) of an answer, unless it had to wait for the port.

        `share`: length of the answer, as a share of a model's length.
        """
        if begun > self.free * (1 + RATE_TOLERANCE) and share > 0:
            self.sends[rank - 1] = max(self.link.least_extra, begun - sent - self.link.latency) / share
        self.free = end
        if self.late_models:
            self.sent.append((rank, sent))

    def _downlink(self) -> Array:
        return np.broadcast_to(self.link.downlink(self.floats, self.workers), self.workers)

    # ------------------------------------------------------------ decisions

    def committed(self, round: int, time: float, left: int, zero: float = 0.0) -> Change | None:
        """Record the end of a round at `time` (s), and return a change of scheme or None.

        `left`: number of rounds after a change. `zero`: time 0 on the messages' clock, s.
        """
        loads = self.now.plan.loads[1:]
        least = np.maximum(0.0, time - self.start - self._downlink())
        took, done = self.seen.get(round, (least.copy(), np.zeros(self.workers, dtype=int)))
        for rank, sent in self.sent:
            if self.start <= sent - zero <= time:
                took[rank - 1] = max(took[rank - 1], sent - zero - self.start - self._downlink()[rank - 1])
        self.times.add(np.where(done >= loads, took, np.nan), least, loads)
        self.spent += time - self.start
        self.discard(round, time, zero)
        found = self._better(left)
        return None if found is None else self._change(found, round, time, left)

    def discard(self, round: int, time: float, zero: float) -> None:
        """Discard the measured times of a round that ended at `time`, s. `zero`: see `committed`."""
        self.sent = [each for each in self.sent if each[1] - zero > time]
        self.seen = {r: row for r, row in self.seen.items() if r > round}
        self.start, self.stretch = time, self.stretch + 1

    def _better(self, left: int) -> int | None:
        """Return the candidate to change to if `left` rounds are left, or None."""
        if not self.times.rounds or not left:
            return None
        self.costs = self._costs()
        gain = self.costs[self.at] - self.costs
        saving = gain * min(left, HORIZON_ROUNDS + self.stretch) - self.moves
        able = (gain > MIN_SAVED_SHARE * self.costs[self.at]) & (saving > 0)
        return int(np.argmax(np.where(able, saving, -np.inf))) if able.any() else None

    def _costs(self) -> Array:
        """Return the predicted mean time of a round with each candidate, (candidates,), s.

        The time includes that of the missing share of the gradient. A full gradient costs its mean time in the run.
        """
        self.drawn = self.times.drawn(DRAWN_ROUNDS, self.random.rng(self.times.rounds))
        found = [self.round_times_of(configuration) for configuration in self.configurations]
        each = zip(self.configurations, found, strict=True)
        worth = np.array([1.0 if c.scheme.is_exact else t.messages.mean() / self.workers for c, t in each])
        self.got += worth[self.at]
        missing = self.spent / self.got * (1 - worth)
        return np.array([times.seconds.mean() for times in found]) + missing

    def round_times_of(self, configuration: Configuration) -> RoundTimes:
        """Return the round times of a candidate for the drawn times of workers."""
        times, startup = self.drawn
        seconds = times * (configuration.plan.loads[1:] + startup) / (self.times.load + startup)

        def send(length: float) -> Array | float:
            on_way = self.sends * (length / self.floats)
            return np.broadcast_to(on_way, seconds.shape) if on_way.any() else 0.0

        samples = configuration.samples
        draws = SampledTimes.measured(seconds, send, self.link, self.floats, samples, self.decode_rate)
        return configuration.scheme.round_times(draws, self.workers)

    def move(self, configuration: Configuration) -> DataMove:
        """Return the samples that workers receive, in parallel, when the run changes to a candidate."""
        missing = self.stored.missing(configuration.plan)
        link, floats = self.link, missing[missing > 0] * self.row_bytes / self.link.width
        to = zip((np.flatnonzero(missing) + 1).tolist(), floats.tolist(), strict=True)
        latency = link.by_worker("latency", self.workers)
        seconds = max(
            (float(latency[rank - 1]) + link.transfer(size, rank) for rank, size in to), default=0.0
        )
        return DataMove(int(missing.sum()), seconds)

    def begin(self) -> None:
        """Begin a segment of the run with the current candidate."""
        self.start, self.seen, self.stretch = 0.0, {}, 0
        moves = [self.move(configuration) for configuration in self.configurations]
        self.moves = np.array(
            [move.seconds + self.restart + MOVE_COST_S_PER_SAMPLE * move.samples for move in moves]
        )
        self.moves[self.at] = 0.0

    def _change(self, to: int, round: int, time: float, left: int) -> Change:
        configuration, move = self.configurations[to], self.move(self.configurations[to])
        reason = self._reason(to, left, move)
        names, size = (str(self.now), str(configuration)), move.samples * self.row_bytes
        chosen = configuration.name, dict(configuration.parameters)
        change = Change(round + 1, time, *names, *chosen, move.seconds, size, reason)
        self._take(configuration)
        self.at = to
        self.begin()
        self.start = time + move.seconds
        return change

    def _reason(self, to: int, left: int, move: DataMove) -> str:
        now, saving = float(self.costs[self.at]), float(self.costs[self.at] - self.costs[to])
        texts = (
            f"{self.configurations[to]} would save {in_seconds(saving, 3)} of a round of {in_seconds(now, 3)},"
            f" as predicted from {self.times.rounds} rounds; {left} rounds are left"
        )
        typical = self.drawn[0].mean(axis=0)
        worst, middle = int(np.argmax(typical)), float(np.median(typical))
        if typical[worst] > SLOW_FACTOR * middle:
            texts += f"; worker {worst + 1} takes {typical[worst] / middle:.1f} times the median, on average"
        cost = move.seconds + self.restart
        if move.samples:
            texts += f"; {move.samples} samples move"
        return texts + (f", the change takes {in_seconds(cost, 3)}" if cost else "")

    # ------------------------------------------------------------ state between segments

    def as_dict(self) -> dict[str, Any]:
        """Return the state that the next segment of the run needs, for JSON."""
        measured = np.array(self.times.rows, dtype=float)
        rows = measured.astype(object)
        rows[np.isnan(measured)] = None
        return {
            "way": [self.now.name, self.now.parameters],
            "held": [[configuration.name, configuration.parameters] for configuration in self.taken],
            "restart": self.restart,
            "rows": rows.tolist(),
            "sends": self.sends.tolist(),
        }

    def _take(self, configuration: Configuration) -> None:
        self.stored.add(configuration.plan)
        if configuration not in self.taken:
            self.taken.append(configuration)

    def _recall(self, memory: Mapping[str, Any]) -> None:
        for name, numbers in memory["held"]:
            self._take(Configuration(name, numbers, self.workers, self.configurations[0].samples))
        self.at = [[each.name, each.parameters] for each in self.configurations].index(memory["way"])
        self.restart, self.sends = memory["restart"], np.array(memory["sends"])
        for seconds, least, loads in np.array(memory.get("rows", ()), dtype=float):
            self.times.add(seconds, least, loads)
