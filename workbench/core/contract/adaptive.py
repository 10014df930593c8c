"""Adaptive selection: choose the scheme of the next round from the measured times of the rounds so far.

The measured times give a forecast of each round for each candidate, because a worker's seconds per sample do not depend
on the scheme. All candidates are therefore compared on the same rounds ("full information"). An expert follows the
candidate that was the fastest over the last H rounds. It changes only to a candidate that is faster by more than the
noise of these rounds and the cost of the move. There are several experts, each with its own H. The expert with the
longest history uses all stored rounds, and so follows the best fixed choice.

An expert's time is the time of a run that follows this expert from the start, including the cost of changes. The run
follows the expert that would have been the fastest so far. Each change of expert therefore costs at most a margin,
compared with the best expert. This bound holds for the forecast times of the rounds, which have errors.

Only measured times are used: no delay model, no seed, and no later round.

M. Herbster, M. K. Warmuth, "Tracking the best expert", Machine Learning 32, 1998.
E. Hazan, C. Seshadhri, "Efficient learning algorithms for changing environments", ICML 2009: experts with histories of
different lengths.
S. Geulen, B. Voecking, M. Winkler, COLT 2010: costs of changes.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from workbench.core.base.text import in_seconds
from workbench.core.base.types import Array
from workbench.core.contract.configurations import Configuration, StoredParts
from workbench.core.contract.links import Link
from workbench.core.contract.round_times import RoundTimes, SampledTimes

HISTORY_ROUNDS = (12, 36, 10**9)  # number of past rounds that each expert uses
NOISE_SIGMAS = 1.0  # differences below this number of standard errors count as noise
MIN_SAVED_SHARE = 0.02  # share of a round that a change must save
# Margin as a number of mean round times. A change of scheme must save this much more than it costs. The run follows
# another expert only if that expert is ahead by this much.
MARGIN_ROUNDS = 1.0
MIN_SEEN_ROUNDS = 3  # rounds that must have been measured before a change
EXPLORATION_SHARE = 0.03  # exploration budget, as a share of the run's time
NEVER_FACTOR = 1e12  # factor on the lower bound of a late worker's time, as if the worker never finished
# Forecasts of this many last rounds are computed again, at these numbers of rounds after the start or a change.
ROUNDS_PER_RECHECK, MAX_CHECKS = 200, (3, 12)
MAX_CACHED_ROUNDS = 2000  # max number of last rounds whose forecasts are compared
# s per moved sample: of two equally fast candidates, the one that moves less is chosen
MOVE_COST_S_PER_SAMPLE = 1e-12
MAX_CACHED_TIMES = 64  # max number of stored times of each worker; lower bounds of times are not stored
# number of newest stored times, from which the time of a late worker and a worker's typical time are estimated
RECENT_TIMES = 4
WINDOW_ROUNDS = 8  # number of rounds before and after a change of load that are compared
BOUND_TOLERANCE = 1 + 1e-6  # factor on a lower bound, so that rounding does not count as a longer time
RATE_TOLERANCE = 1e-9  # relative tolerance for two times that differ only by rounding


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

    most: int  # largest number of samples that one worker receives
    samples: int  # number of samples that all workers receive
    seconds: float


class Times:
    """Measured times of the workers, in seconds per sample of their load.

    Times are proportional to samples + `fixed`, where `fixed` is the start-up cost of a task as a number of samples. It
    is 0 until a change of load allows an estimate.
    """

    def __init__(self, workers: int) -> None:
        self.full: list[deque[float]] = [deque(maxlen=MAX_CACHED_TIMES) for _ in range(workers)]
        self.shown: list[float] = [0.0]  # 0, and an estimate of `fixed` for each change of load
        self.before: tuple[Array, Array] | None = None  # loads and median seconds before the last change
        self.lately: deque[Array] = deque(maxlen=WINDOW_ROUNDS)  # seconds, NaN if only a lower bound is known
        self.rows: list[Array] = []  # for each round: seconds, lower bounds of the seconds, loads

    @property
    def fixed(self) -> float:
        """Start-up cost of a task, as a number of additional samples."""
        return median(self.shown)

    def add(self, seconds: Array, least: Array, loads: NDArray[np.int64]) -> None:
        """Add a round. `seconds`: measured times, NaN if only the lower bound `least` is known; all (workers,)."""
        self.lately.append(seconds)
        if self.before is not None and len(self.lately) == WINDOW_ROUNDS:
            self._compare(loads)
        self.rows.append(np.stack([seconds, least, loads]))
        rate = seconds / (loads + self.fixed)
        for w in np.flatnonzero(~np.isnan(seconds)):
            self.full[w].append(float(rate[w]))

    def rates(self, first: int) -> Array:
        """Return the seconds per sample of the rounds from `first` on, (rounds, workers), with estimates for NaN."""
        seconds, least, loads = np.stack(self.rows[first:], axis=1)
        size = loads + self.fixed
        rate = seconds / size
        for r, w in zip(*np.nonzero(np.isnan(seconds)), strict=True):
            rate[r, w] = self._at_least(w, least[r, w] / size[r, w])
        return rate

    def _at_least(self, worker: int, bound: float) -> float:
        """Estimate the time of a worker that did not finish, given a lower bound.

        Return the mean of its newest times above the bound. Without any, return the mean of all workers' times above
        the bound, or the bound itself.
        """
        times = [x for x in self.full[worker] if x > bound * BOUND_TOLERANCE]
        if times:
            return float(np.mean(times[-RECENT_TIMES:]))
        others = [x for each in self.full for x in each if x > bound * BOUND_TOLERANCE]
        return float(np.mean(others)) if others else bound

    def typical(self) -> Array:
        """Return the median seconds per sample of each worker over its newest times, (workers,), or NaN without any."""
        return np.array([np.median(list(times)[-RECENT_TIMES:]) if times else np.nan for times in self.full])

    def turn(self, loads: NDArray[np.int64]) -> None:
        """Store the medians of the newest times before a change of loads, to compare them afterwards."""
        rows = np.array(self.lately)
        known = ~np.isnan(rows).all(axis=0) if len(rows) else np.zeros(len(self.full), dtype=bool)
        medians = np.full(len(self.full), np.nan)
        if known.any():
            medians[known] = np.nanmedian(rows[:, known], axis=0)
        self.before = loads.astype(float), medians
        self.lately.clear()

    def _compare(self, loads: NDArray[np.int64]) -> None:
        """Estimate `fixed` from the times before and after a change of load, as the median over the workers."""
        assert self.before is not None
        was, before = self.before
        self.before = None
        rows = np.array(self.lately)
        known = ~np.isnan(before) & ~np.isnan(rows).all(axis=0) & (was != loads)
        if not known.any():
            return
        now, then, load, other = np.nanmedian(rows[:, known], axis=0), before[known], loads[known], was[known]
        longer, shorter = np.maximum(load, other), np.minimum(load, other)
        much, little = np.where(load > other, now, then), np.where(load > other, then, now)
        most = 4.0 * longer
        with np.errstate(divide="ignore", invalid="ignore"):
            shown = np.where(much > little, (little * longer - much * shorter) / (much - little), most)
        self.shown.append(float(np.median(np.clip(shown, 0.0, most))))


class Expert:
    """Expert that follows the candidate that was the fastest over the last `history` rounds.

    `spent`: time of its rounds so far and of its moves, s. The cost of a change is distributed over the remaining
    rounds. If it were added at once, an expert would fall behind before the change can pay off.
    """

    def __init__(self, history: int, at: int) -> None:
        self.history, self.at = history, at
        self.spent = self.share = 0.0

    def follow(self, costs: Array, moves: Array, left: int) -> None:
        """Add the time of one more round, the last row of `costs`, and change to a better candidate, if any."""
        self.spent += float(costs[-1, self.at]) + self.share
        to = self.better(costs, moves, left)
        self.share += float(moves[to]) / left if to != self.at else 0.0
        self.at = to

    def better(self, costs: Array, moves: Array, left: int) -> int:
        """Return the candidate for the next round.

        `costs`: forecast times of the rounds, (rounds, candidates), s. `moves`: cost of moving to each candidate, s.
        `left`: number of rounds left.
        """
        seen = costs[-self.history :]
        ahead = seen[:, [self.at]] - seen
        gain, error = ahead.mean(axis=0), ahead.std(axis=0) / len(seen) ** 0.5
        typical = float(seen[:, self.at].mean())
        saving = gain * min(left, self.history) - moves
        able = (
            (gain > NOISE_SIGMAS * error)
            & (gain > MIN_SAVED_SHARE * typical)
            & (saving > MARGIN_ROUNDS * typical)
        )
        return int(np.argmax(np.where(able, saving, -np.inf))) if able.any() else self.at


class AdaptiveController:
    """Controller of adaptive selection: receives the times of each round, and decides when to change the scheme.

    `configurations`: the candidates. Without `memory`, the run begins with the first, whose samples the workers store.
    `link`, `floats` (p), `decode_rate`: those of the run. `row`: bytes of one sample. `restart`: cost of a change apart
    from the moved samples, s. `memory`: state at the end of the previous segment, as `as_dict` returns it.
    """

    def __init__(
        self,
        configurations: Sequence[Configuration],
        rounds: int,
        link: Link,
        floats: int,
        decode_rate: float | None = None,
        row: int = 0,
        restart: float = 0.0,
        memory: Mapping[str, Any] | None = None,
    ) -> None:
        self.configurations, self.at, self.rounds = list(configurations), 0, rounds
        self.link, self.floats, self.decode_rate, self.row_bytes = link, floats, decode_rate, row
        self.restart, self.changes = restart, 0
        self.taken = [self.configurations[0]]  # configurations that the run has used
        self.stored = StoredParts(self.configurations[0].plan)
        self.times = Times(self.workers)
        self.sends: Array = np.zeros(self.workers)  # last s of sending a model beyond the latency, per worker
        self.seen: dict[int, tuple[Array, NDArray[np.int64]]] = {}  # round -> seconds and samples of workers
        self.began: dict[int, tuple[float, float]] = {}  # round -> its start and end, s
        self.free = 0.0  # when the last message had passed the port, s
        self.costs: list[Array] = []  # for each round: forecast times of all candidates, s
        # sums over the rounds of the run: forecast times, s, and committed gradients, as a number of full gradients
        self.spent = self.got = 0.0
        self.left: int | None = None  # index of the candidate that was used before the last change
        # least time, s, that the last change has lost so far, and time that earlier changes lost, with their cost
        self.loss = self.lost = 0.0
        self.moved = 0.0  # cost of the last change itself, s
        self.elapsed = 0.0  # time of the rounds so far, s
        self.experts = [Expert(history, 0) for history in HISTORY_ROUNDS]
        self.heard = self.experts[-1]
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
            extra = begun - sent - self.link.latency
            self.sends[rank - 1] = max(self.link.least_extra, extra) / share
        self.free = end

    # ------------------------------------------------------------ decisions

    def committed(self, round: int, time: float) -> Change | None:
        """Record the end of a round, evaluate the round before, and return a change of scheme or None."""
        begin = self.began.get(round - 1, (0.0, self.start))[1]
        self.began[round] = (begin, time)
        last = round - 1
        if last in self.began:
            self._see(last)
            del self.began[last]
            self.seen = {r: row for r, row in self.seen.items() if r >= round}
        found = self._better(round)
        return None if found is None else self._change(found, round, time)

    def _see(self, round: int) -> None:
        """Forecast a finished round for each candidate from its measured times."""
        begin, end = self.began[round]
        down = self.link.downlink(self.floats, self.workers)
        least = np.maximum(0.0, np.full(self.workers, end - begin) - down)
        loads = self.now.plan.loads[1:]
        took, done = self.seen.get(round, (least, np.zeros(self.workers, dtype=int)))
        self.times.add(np.where(done >= loads, took, np.nan), least, loads)
        self.stretch += 1
        again = ROUNDS_PER_RECHECK if self.stretch in MAX_CHECKS else 1
        first = max(0, len(self.times.rows) - again)  # new estimates change the forecasts of earlier rounds
        self._forecast(first, self.times.rates(first))
        self.elapsed += end - begin
        if self.left is not None:
            # upper bound of the time with the earlier candidate: workers that are late here count as never finishing
            rates = np.where(done >= loads, took, NEVER_FACTOR * least) / (loads + self.times.fixed)
            left = self.configurations[self.left]
            most = self._priced(left, self.round_times_of(left, rates[None]))
            self.loss += float(self.costs[-1][self.at] - most[0])

    def _forecast(self, first: int, rates: Array) -> None:
        """Add the forecast times of all candidates for the rounds from `first` on, as `_priced` returns them."""
        del self.costs[first:]
        found = [self.round_times_of(configuration, rates) for configuration in self.configurations]
        self.spent += found[self.at].seconds[-1]
        self.got += self._worth(self.now, found[self.at])[-1]
        self.costs.extend(
            np.stack([self._priced(*each) for each in zip(self.configurations, found, strict=True)], axis=1)
        )

    def _worth(self, configuration: Configuration, round_times: RoundTimes) -> Array:
        """Return the share of the full gradient that a candidate commits in each round, (rounds,)."""
        if configuration.scheme.is_exact:
            return np.ones_like(round_times.seconds)
        return round_times.messages / self.workers

    def _priced(self, configuration: Configuration, round_times: RoundTimes) -> Array:
        """Return the times of a candidate's rounds, s, plus the time that the missing share of the gradient costs.

        A full gradient costs its mean time in the run so far.
        """
        price = self.spent / self.got if self.got else 0.0
        return np.asarray(round_times.seconds + price * (1 - self._worth(configuration, round_times)))

    def round_times_of(self, configuration: Configuration, rates: Array) -> RoundTimes:
        """Return the round times of a candidate, given `rates` in seconds per sample, (rounds, workers)."""
        seconds = rates * (configuration.plan.loads[1:] + self.times.fixed)

        def send(length: float) -> Array | float:
            on_way = self.sends * (length / self.floats)
            return np.broadcast_to(on_way, seconds.shape) if on_way.any() else 0.0

        samples = configuration.samples
        draws = SampledTimes.measured(seconds, send, self.link, self.floats, samples, self.decode_rate)
        return configuration.scheme.round_times(draws, self.workers)

    def _better(self, round: int) -> int | None:
        """Return the candidate to change to, or None."""
        left = self.rounds - round - 1
        costs = np.array(self.costs[-MAX_CACHED_ROUNDS:])
        if len(costs) < MIN_SEEN_ROUNDS or not left:
            return None
        for judge in self.experts:
            judge.follow(costs, self.moves, left)
        typical = float(costs[-self.experts[0].history :, self.at].mean())
        first = min(self.experts, key=lambda judge: judge.spent)
        if first.spent + MARGIN_ROUNDS * typical < self.heard.spent:
            self.heard = first
        if self.lost + max(self.loss, 0.0) > EXPLORATION_SHARE * self.elapsed:
            # only the expert with the longest history, as the exploration budget is used up
            self.heard = self.experts[-1]
        to = self.heard.at
        if to == self.at:
            return None
        pair = [self.at, to]  # the run's candidate may differ from that of the expert that it follows
        return to if Expert(self.heard.history, 0).better(costs[:, pair], self.moves[pair], left) else None

    def move(self, configuration: Configuration) -> DataMove:
        """Return the samples that workers receive, in parallel, when the run changes to a candidate."""
        missing = self.stored.missing(configuration.plan)
        most = int(missing.max())
        link, floats = self.link, missing[missing > 0] * self.row_bytes / self.link.width
        to = zip((np.flatnonzero(missing) + 1).tolist(), floats.tolist(), strict=True)
        latency = link.by_worker("latency", self.workers)
        seconds = max(
            (float(latency[rank - 1]) + link.transfer(size, rank) for rank, size in to), default=0.0
        )
        return DataMove(most, int(missing.sum()), seconds)

    def begin(self) -> None:
        """Begin a segment of the run with the current candidate."""
        self.start, self.seen, self.began, self.stretch = 0.0, {}, {}, 0
        moves = [self.move(configuration) for configuration in self.configurations]
        self.moves = np.array(
            [move.seconds + self.restart + MOVE_COST_S_PER_SAMPLE * move.samples for move in moves]
        )
        self.moves[self.at] = 0.0

    def _change(self, to: int, round: int, time: float) -> Change:
        configuration, move = self.configurations[to], self.move(self.configurations[to])
        reason = self._reason(to, self.rounds - round - 1, move)
        names, size = (str(self.now), str(configuration)), move.samples * self.row_bytes
        chosen = configuration.name, dict(configuration.parameters)
        change = Change(round + 1, time, *names, *chosen, move.seconds, size, reason)
        self.times.turn(self.now.plan.loads[1:])
        self._take(configuration)
        self.lost += max(self.loss + self.moved, 0.0)
        self.left, self.loss, self.moved = self.at, 0.0, float(self.moves[to])
        self.at, self.changes = to, self.changes + 1
        self.begin()
        self.start = time + move.seconds
        return change

    def _reason(self, to: int, left: int, move: DataMove) -> str:
        seen = np.array(self.costs[-min(self.heard.history, MAX_CACHED_ROUNDS) :])
        now, saving = float(seen[:, self.at].mean()), float((seen[:, self.at] - seen[:, to]).mean())
        texts = (
            f"over the last {len(seen)} rounds {self.configurations[to]} would have saved"
            f" {in_seconds(saving, 3)} a round of {in_seconds(now, 3)}; {left} rounds are left"
        )
        typical = self.times.typical()
        if not np.isnan(typical).all():
            worst, middle = int(np.nanargmax(typical)), float(np.nanmedian(typical))
            if middle and typical[worst] > 1.2 * middle:
                texts += f"; worker {worst + 1} takes {typical[worst] / middle:.1f} times the median"
        cost = move.seconds + self.restart
        if move.samples:
            texts += f"; {move.samples} samples move"
        return texts + (f", the change takes {in_seconds(cost, 3)}" if cost else "")

    # ------------------------------------------------------------ state between segments

    def as_dict(self) -> dict[str, Any]:
        """Return the state that the next segment of the run needs, for JSON."""
        before = [[None if np.isnan(x) else float(x) for x in each] for each in self.times.before or ()]
        return {
            "way": [self.now.name, self.now.parameters],
            "held": [[configuration.name, configuration.parameters] for configuration in self.taken],
            "restart": self.restart,
            "changes": self.changes,
            "tried": [self.left, self.loss, self.lost, self.moved, self.elapsed],
            "full": [list(times) for times in self.times.full],
            "shown": self.times.shown,
            "before": before or None,
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
        self.restart = memory["restart"]
        self.changes, self.times.shown = memory["changes"], list(memory["shown"])
        self.times.full = [deque(times, maxlen=MAX_CACHED_TIMES) for times in memory["full"]]
        self.sends = np.array(memory["sends"])
        tried = memory.get("tried", (None, 0.0, 0.0, 0.0, 0.0))
        self.left, self.loss, self.lost, self.moved, self.elapsed = tried
        if memory["before"] is not None:
            loads, seconds = (np.array([np.nan if x is None else x for x in c]) for c in memory["before"])
            self.times.before = (loads, seconds)
