"""Adaptive selection: which scheme the next round is run with, from the times of the rounds so far.

Every candidate goes through the rounds as they were measured: a worker's seconds are known whichever scheme it worked
for, so all candidates can be judged on the same rounds ("full information"). A judge follows the candidate that was the
quickest over the last H rounds, and leaves it only for one that is quicker by more than the noise of these rounds and
than the move; there is one judge for each of some H, the last of them looks at all rounds and so follows the best fixed
choice. Every judge's rounds are counted as if it had been listened to, its moves included, and the run listens to the
one that would have been the quickest so far (M. Herbster, M. K. Warmuth, "Tracking the best expert", Machine Learning
32, 1998; E. Hazan, C. Seshadhri, "Efficient learning algorithms for changing environments", ICML 2009: experts with
histories of different lengths; S. Geulen, B. Voecking, M. Winkler, COLT 2010: what changes cost counts). So it is
behind the best judge by a margin for each change of judge at most, on the rounds as they are forecast from the measured
times; what forecasts miss is not in it.

Nothing is read but times: no delay model, no seed, no later round.
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

HISTORY_ROUNDS = (12, 36, 10**9)  # rounds that judges look back on
NOISE_SIGMAS = 1.0  # standard errors of a difference that noise may explain
MIN_SAVED_SHARE = 0.02  # share of a round that is not worth a change
# rounds that a change must save besides what it costs, and that another judge must be ahead
MARGIN_ROUNDS = 1.0
MIN_SEEN_ROUNDS = 3  # rounds that must have been seen
EXPLORATION_SHARE = 0.03  # share of the time that trying may cost
NEVER_FACTOR = 1e12  # times as slow: whoever is waited for, it is not this one
# rounds that are judged again once a stretch has lasted so many rounds
ROUNDS_PER_RECHECK, MAX_CHECKS = 200, (3, 12)
MAX_CACHED_ROUNDS = 2000  # rounds that are remembered
MOVE_COST_S_PER_SAMPLE = 1e-12  # s a sample: of two that are as quick, the one that moves less
MAX_CACHED_TIMES = 64  # full times of a worker that are remembered
RECENT_TIMES = 4  # of them, the newest, that say how slow a worker is that was not waited for
WINDOW_ROUNDS = 8  # rounds before and after a change of load, to see how times follow the load
BOUND_TOLERANCE = 1 + 1e-6  # times a bound: a time that is really beyond it
RATE_TOLERANCE = 1e-9


class Change(NamedTuple):
    """One change of scheme. `round`: the first that is run with the new one; `time`: when it was decided, s.

    `seconds`, `bytes`: what moving samples to workers takes. `reason`: a sentence.
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
    """What a change moves: samples that the worker with the most gets, all samples, and how long that takes, s."""

    most: int
    samples: int
    seconds: float


class Times:
    """What is known of the workers' times, in seconds per sample of their load.

    Seconds grow with samples plus `fixed`, what a task costs as so many samples more: none, until a change of load
    has shown otherwise.
    """

    def __init__(self, workers: int) -> None:
        self.full: list[deque[float]] = [deque(maxlen=MAX_CACHED_TIMES) for _ in range(workers)]
        self.shown: list[float] = [0.0]  # what each change of load showed `fixed` to be
        self.before: tuple[Array, Array] | None = None  # loads and median seconds before the last change
        self.lately: deque[Array] = deque(maxlen=WINDOW_ROUNDS)  # seconds, NaN where not seen in full
        self.rows: list[Array] = []  # of every round: seconds, what they were at least, loads

    @property
    def fixed(self) -> float:
        """Samples that a task costs besides its own."""
        return median(self.shown)

    def add(self, seconds: Array, least: Array, loads: NDArray[np.int64]) -> None:
        """Take in a round: seconds, NaN where it is only known that they were `least` at least."""
        self.lately.append(seconds)
        if self.before is not None and len(self.lately) == WINDOW_ROUNDS:
            self._compare(loads)
        self.rows.append(np.stack([seconds, least, loads]))
        rate = seconds / (loads + self.fixed)
        for w in np.flatnonzero(~np.isnan(seconds)):
            self.full[w].append(float(rate[w]))

    def rates(self, first: int) -> Array:
        """Seconds per sample of the rounds from number `first` on, as what is known by now has them."""
        seconds, least, loads = np.stack(self.rows[first:], axis=1)
        size = loads + self.fixed
        rate = seconds / size
        for r, w in zip(*np.nonzero(np.isnan(seconds)), strict=True):
            rate[r, w] = self._at_least(w, least[r, w] / size[r, w])
        return rate

    def _at_least(self, worker: int, bound: float) -> float:
        """Of a worker that was not through: its newest times beyond that; else the mean of all workers' beyond it."""
        times = [x for x in self.full[worker] if x > bound * BOUND_TOLERANCE]
        if times:
            return float(np.mean(times[-RECENT_TIMES:]))
        others = [x for each in self.full for x in each if x > bound * BOUND_TOLERANCE]
        return float(np.mean(others)) if others else bound

    def typical(self) -> Array:
        """Median seconds per sample of each worker over its newest full times, (workers,); NaN: never seen."""
        return np.array([np.median(list(times)[-RECENT_TIMES:]) if times else np.nan for times in self.full])

    def turn(self, loads: NDArray[np.int64]) -> None:
        """The loads are about to change."""
        rows = np.array(self.lately)
        known = ~np.isnan(rows).all(axis=0) if len(rows) else np.zeros(len(self.full), dtype=bool)
        medians = np.full(len(self.full), np.nan)
        if known.any():
            medians[known] = np.nanmedian(rows[:, known], axis=0)
        self.before = loads.astype(float), medians
        self.lately.clear()

    def _compare(self, loads: NDArray[np.int64]) -> None:
        """How did times follow the load? As much as the median worker's."""
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
    """Follows the candidate that was the quickest over the last `history` rounds.

    `spent`: s of its rounds so far, and of its moves, each spread over the rounds that were left then: nobody is behind
    the others just because a move has not paid yet.
    """

    def __init__(self, history: int, at: int) -> None:
        self.history, self.at = history, at
        self.spent = self.share = 0.0

    def follow(self, costs: Array, moves: Array, left: int) -> None:
        """One more round, the last of `costs`, then perhaps a move; as in `better`."""
        self.spent += float(costs[-1, self.at]) + self.share
        to = self.better(costs, moves, left)
        self.share += float(moves[to]) / left if to != self.at else 0.0
        self.at = to

    def better(self, costs: Array, moves: Array, left: int) -> int:
        """What it would take for the next round; `costs` (rounds, candidates), what each move takes, rounds left."""
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
    """Sees every round's times and says when to change.

    `ways`: the candidates, of which the run begins with the first, whose samples the workers hold; `link`, `floats`
    (p), `decode_rate`: as the run has them; `row`: bytes of a sample; `restart`: s that any change takes;
    `memory`: what an earlier stretch of the run left (see `words`).
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
        self.taken = [self.configurations[0]]  # what the run was with so far
        self.stored = StoredParts(self.configurations[0].plan)
        self.times = Times(self.workers)
        self.sends: Array = np.zeros(self.workers)  # s that sending a model takes each worker, as last seen
        self.seen: dict[int, tuple[Array, NDArray[np.int64]]] = {}  # round -> seconds, samples done in them
        self.began: dict[int, tuple[float, float]] = {}  # round -> when it began and ended
        self.free = 0.0  # when the port was through with what it had last
        self.costs: list[Array] = []  # s that each candidate would have taken for a round
        self.spent = self.got = 0.0  # s, and full gradients, of the run's own rounds as they are forecast
        self.left: int | None = None  # the candidate that the last change left
        self.loss = self.lost = 0.0  # s that its rounds, and all changes before it, have cost for certain
        self.moved = 0.0  # s that it took itself
        self.elapsed = 0.0  # s of the rounds so far
        self.experts = [Expert(history, 0) for history in HISTORY_ROUNDS]
        self.heard = self.experts[-1]
        if memory:
            self._recall(memory)
        self.begin()

    @property
    def workers(self) -> int:
        """How many workers there are."""
        return self.configurations[0].workers

    @property
    def now(self) -> Configuration:
        """What the run is with."""
        return self.configurations[self.at]

    # ------------------------------------------------------------ what is seen

    def took(self, round: int, rank: int, seconds: float, samples: int) -> None:
        """A worker was through with so many samples of its load of a round."""
        took, done = self.seen.setdefault(round, (np.zeros(self.workers), np.zeros(self.workers, dtype=int)))
        took[rank - 1] += seconds
        done[rank - 1] += samples

    def received(self, rank: int, share: float, sent: float, begun: float, end: float) -> None:
        """An answer of `share` of a model came; where it had to wait for the port, its way is not told."""
        if begun > self.free * (1 + RATE_TOLERANCE) and share > 0:
            self.sends[rank - 1] = max(0.0, begun - sent - self.link.latency) / share
        self.free = end

    # ------------------------------------------------------------ what is made of it

    def committed(self, round: int, time: float) -> Change | None:
        """A round is over: judge the one before, whose last words are in by now; change or stay."""
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
        """Forecast every candidate's round from the times of one that is over."""
        begin, end = self.began[round]
        down = self.link.latency + self.link.transfer(self.floats) if self.link.downloads else 0.0
        least = np.full(self.workers, max(0.0, end - begin - down))
        loads = self.now.plan.loads[1:]
        took, done = self.seen.get(round, (least, np.zeros(self.workers, dtype=int)))
        self.times.add(np.where(done >= loads, took, np.nan), least, loads)
        self.stretch += 1
        again = (
            ROUNDS_PER_RECHECK if self.stretch in MAX_CHECKS else 1
        )  # what a change has shown tells of earlier rounds, too
        first = max(0, len(self.times.rows) - again)
        self._forecast(first, self.times.rates(first))
        self.elapsed += end - begin
        if self.left is not None:
            # What that would have cost at most: who was not through may be slow without end.
            rates = np.where(done >= loads, took, NEVER_FACTOR * least) / (loads + self.times.fixed)
            left = self.configurations[self.left]
            most = self._priced(left, self.round_times_of(left, rates[None]))
            self.loss += float(self.costs[-1][self.at] - most[0])

    def _forecast(self, first: int, rates: Array) -> None:
        """Seconds that rounds with these times would take every candidate, at the price of a full gradient so far."""
        del self.costs[first:]
        found = [self.round_times_of(configuration, rates) for configuration in self.configurations]
        self.spent += found[self.at].seconds[-1]
        self.got += self._worth(self.now, found[self.at])[-1]
        self.costs.extend(
            np.stack([self._priced(*each) for each in zip(self.configurations, found, strict=True)], axis=1)
        )

    def _worth(self, configuration: Configuration, round_times: RoundTimes) -> Array:
        """What a candidate's rounds commit, in full gradients."""
        return (
            np.ones_like(round_times.seconds)
            if configuration.scheme.is_exact
            else round_times.messages / self.workers
        )

    def _priced(self, configuration: Configuration, round_times: RoundTimes) -> Array:
        """Seconds of a candidate's rounds, and for what they lack of a full gradient what one has cost so far."""
        price = self.spent / self.got if self.got else 0.0
        return np.asarray(round_times.seconds + price * (1 - self._worth(configuration, round_times)))

    def round_times_of(self, configuration: Configuration, rates: Array) -> RoundTimes:
        """Rounds of a candidate with workers as quick as this, in seconds per sample (rounds, workers)."""
        seconds = rates * (configuration.plan.loads[1:] + self.times.fixed)

        def send(length: float) -> Array | float:
            on_way = self.sends * (length / self.floats)
            return np.broadcast_to(on_way, seconds.shape) if on_way.any() else 0.0

        draws = SampledTimes.measured(
            seconds, send, self.link, self.floats, configuration.samples, self.decode_rate
        )
        return configuration.scheme.round_times(draws, self.workers)

    def _better(self, round: int) -> int | None:
        """The candidate that is worth the change, if there is one."""
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
            self.heard = self.experts[-1]  # trying has been dear: the one with patience
        to = self.heard.at
        if to == self.at:
            return None
        pair = [self.at, to]  # the run may be elsewhere than that judge was
        return to if Expert(self.heard.history, 0).better(costs[:, pair], self.moves[pair], left) else None

    def move(self, configuration: Configuration) -> DataMove:
        """What changing to a candidate moves: every worker takes what it lacks through its own port."""
        missing = self.stored.missing(configuration.plan)
        most = int(missing.max())
        floats = most * self.row_bytes / self.link.width
        seconds = self.link.latency + self.link.transfer(floats) if most else 0.0
        return DataMove(most, int(missing.sum()), seconds)

    def begin(self) -> None:
        """Begin a stretch with the candidate that the run is with."""
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
            f" {in_seconds(saving, 3)} a round of"
            f" {in_seconds(now, 3)}; {left} rounds are left"
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

    # ------------------------------------------------------------ what outlives a stretch

    def as_dict(self) -> dict[str, Any]:
        """What the next stretch of a run has to know, for JSON."""
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
        self.at = next(
            i
            for i, configuration in enumerate(self.configurations)
            if [configuration.name, configuration.parameters] == memory["way"]
        )
        self.restart = memory["restart"]
        self.changes, self.times.shown = memory["changes"], list(memory["shown"])
        self.times.full = [deque(times, maxlen=MAX_CACHED_TIMES) for times in memory["full"]]
        self.sends = np.array(memory["sends"])
        tried = memory.get("tried", (None, 0.0, 0.0, 0.0, 0.0))
        self.left, self.loss, self.lost, self.moved, self.elapsed = tried
        if memory["before"] is not None:
            loads, seconds = (np.array([np.nan if x is None else x for x in c]) for c in memory["before"])
            self.times.before = (loads, seconds)
