"""Round times without an event loop: vectorised order statistics over drawn compute times.

With the same seed these are the event engine's very own rounds (same draws, same rules, the same ties between what
arrives at one moment), as long as rounds do not reach into one another; the ring's do, and carry their state from round
to round.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from workbench.base.settings import SettingError
from workbench.core.delays import DelayStream
from workbench.core.links import BYTES_PER_FLOAT, Link
from workbench.core.protocol import NEAR, Array, Plan, Scheme

if TYPE_CHECKING:
    from workbench.experiment import Experiment

Ready = Callable[[NDArray[np.int64]], NDArray[np.int64]]  # order of arrival (m, n) -> answers needed (m,)
Ties = Callable[[NDArray[np.int64]], Array]
BATCH = 2_000_000  # drawn times held at once
MOST = 1_000_000  # rounds: some minutes


@dataclass(frozen=True)
class Setting:
    """Some rounds of drawn times: what a scheme's `odds` works on."""

    seconds: Array  # (rounds, workers) to compute the whole load
    send: Callable[[float], Array | float]  # floats -> extra seconds of sending, (rounds, workers) or 0
    link: Link
    floats: int  # model size p
    ties: Ties  # which of these rounds -> who comes first at one moment, (those rounds, workers)
    decode_rate: float | None = None
    carry: Any = None  # what the rounds before left behind
    samples: int = 0  # of the data set
    progress: Callable[[NDArray[np.int64], slice], Array] | None = (
        None  # portions (workers, m), which rounds -> seconds until each portion is done, (those rounds, workers, m)
    )

    def decode(self, answers: int) -> float:
        """Seconds to combine so many messages."""
        return 0.0 if self.decode_rate is None else answers * self.floats / self.decode_rate

    @property
    def down(self) -> float:
        """Seconds for a model to go one hop down."""
        return self.link.latency + self.link.transfer(self.floats) if self.link.downloads else 0.0


@dataclass(frozen=True)
class Odds:
    """Outcome of every round: seconds, gradient messages received, bytes received; each (rounds,)."""

    seconds: Array
    messages: Array
    bytes: Array
    carry: Any = None


@dataclass(frozen=True)
class Forecast:
    """Expected round time of an experiment, its spread, and what it costs."""

    seconds: Array  # (rounds,) sampled round times
    load: float  # largest share of the data set that one worker goes through per round
    messages: float  # gradient messages received per round
    bytes: float  # their bytes

    @property
    def mean(self) -> float:
        """Mean seconds per round."""
        return float(self.seconds.mean())

    @property
    def std(self) -> float:
        """Standard deviation of a round's seconds."""
        return float(self.seconds.std())

    @property
    def error(self) -> float:
        """Standard error of `mean`, rounds taken as independent.

        Where delays keep something from round to round, other seeds differ by more: by their workers'
        speeds (heterogeneous, replay), or because a spell lasts several rounds (markov).
        """
        return self.std / float(np.sqrt(len(self.seconds)))


def forecast(experiment: Experiment, rounds: int | None = None, seed: int | None = None) -> Forecast:
    """Sample round times of an experiment; no data is touched. Default: as many rounds as it has."""
    e = _forecastable(experiment, rounds, seed)
    samples, floats = e.shape()
    workers, scheme = e.workers, e.build_scheme()
    loads = scheme.loads(workers, samples)
    total = e.rounds if rounds is None else rounds
    stream = DelayStream(e.delays, e.seed if seed is None else seed, workers)
    plan = scheme.plan(workers, samples) if stream.parts_apart else None
    plan = None if plan and plan.batch else plan  # a mini-batch has one draw, whatever the parts
    at_once = max(1, BATCH // workers)
    batches, carry = [], None
    for start in range(0, total, at_once):
        chosen = range(start, min(start + at_once, total))
        seconds = np.stack([_whole(stream, scheme, r, loads, plan) for r in chosen])
        setting = Setting(
            seconds,
            _sender(stream, chosen, floats),
            e.link,
            floats,
            _ties(stream, chosen),
            e.decode_rate,
            carry,
            samples,
            _progress(stream, chosen),
        )
        odds = scheme.odds(setting, workers)
        batches.append(odds)
        carry = odds.carry
    seconds, messages, size = (
        np.concatenate([getattr(b, k) for b in batches]) for k in ("seconds", "messages", "bytes")
    )
    return Forecast(seconds, float(loads.max()) / samples, float(messages.mean()), float(size.mean()))


def _whole(
    stream: DelayStream, scheme: Scheme, round: int, loads: NDArray[np.int64], plan: Plan | None
) -> Array:
    """Seconds of every worker's whole load, (workers,), by what it holds in that round."""
    rows = scheme.rows(stream.workers, round)
    if rows is None:
        return stream.whole(round, loads, plan)
    return stream.whole(round, loads[rows], plan and plan.shuffled(rows))


def _progress(stream: DelayStream, rounds: range) -> Callable[[NDArray[np.int64], slice], Array]:
    return lambda portions, which: np.stack([stream.progress(r, portions) for r in rounds[which]])


def _ties(stream: DelayStream, rounds: range) -> Ties:
    return lambda which: np.stack([stream.ties(rounds[k]) for k in which])


def _forecastable(experiment: Experiment, rounds: int | None, seed: int | None) -> Experiment:
    from workbench.experiment import Experiment

    if not isinstance(experiment, Experiment):
        raise SettingError(
            f"experiment = {experiment!r:.60}: give a wb.Experiment (of a preset, preset['CR'])"
        )
    if rounds is not None and not (isinstance(rounds, int | np.integer) and rounds >= 1):
        raise SettingError(f"rounds = {rounds!r}: take a whole number, 1 or more")
    if (drawn := experiment.rounds if rounds is None else rounds) > MOST:
        raise SettingError(f"rounds = {drawn}: a forecast draws each of them; take {MOST} or less")
    if seed is not None and not (isinstance(seed, int | np.integer) and seed >= 0):
        raise SettingError(f"seed = {seed!r}: take a whole number, 0 or more")
    if experiment.faults:
        raise SettingError("faults: a forecast knows no deaths; take faults = (), or run the experiment")
    return experiment


def _sender(stream: DelayStream, rounds: range, floats: int) -> Callable[[float], Array | float]:
    def send(length: float) -> Array | float:
        rows = [stream.sending(r, length / floats) for r in rounds]
        return 0.0 if any(row is None for row in rows) else np.stack(rows)  # type: ignore[arg-type]

    return send


def port(arrivals: Array, transfer: float) -> Array:
    """When each message has come through the port, in order of arrival; shape like `arrivals`, sorted.

    The j-th arrival is through at max over i <= j of t_(i) + (j-i+1) transfer (paper 1, section III-C).
    """
    ordered = np.sort(arrivals, axis=-1)
    if transfer == 0.0:
        return ordered
    steps = transfer * np.arange(ordered.shape[-1])
    return np.asarray(np.maximum.accumulate(ordered - steps, axis=-1) + steps + transfer)


def star_odds(
    setting: Setting, needed: int | Ready, floats: int | None = None, share: float | None = None
) -> Odds:
    """A master and its workers: the round ends when `needed` answers of `floats` numbers are through the port.

    `share`: as in `Send`.
    """
    link, length = setting.link, setting.floats if floats is None else floats
    arrivals = (
        setting.seconds
        + setting.send(length if share is None else share * setting.floats)
        + link.latency
        + setting.down
    )
    through = port(arrivals, link.transfer(length))
    count = needed(order(arrivals, setting.ties)) if callable(needed) else np.full(len(arrivals), needed)
    end = np.take_along_axis(through, count[:, None] - 1, axis=1)[:, 0]
    end = end + (0.0 if setting.decode_rate is None else count * setting.floats / setting.decode_rate)
    sent = count.astype(np.float64)
    return Odds(end, sent, sent * (BYTES_PER_FLOAT * length))


def order(arrivals: Array, ties: Ties) -> NDArray[np.int64]:
    """Messages in order of arrival, (rounds, messages); those that come at one moment in the order of `ties`.

    `arrivals` (rounds, workers * k): a worker's k messages stand side by side, in the order in which it sends them.
    """
    found = np.argsort(arrivals, axis=1, kind="stable")
    ordered = np.take_along_axis(arrivals, found, axis=1)
    apart = ordered[:, 1:] > ordered[:, :-1] * NEAR
    which = np.flatnonzero(~apart.all(axis=1))
    if len(which):
        first = ties(which)
        moment = np.zeros((len(which), arrivals.shape[1]))
        np.put_along_axis(moment, found[which, 1:], np.cumsum(apart[which], axis=1), axis=1)
        found[which] = np.lexsort([first.repeat(arrivals.shape[1] // first.shape[1], axis=1), moment], axis=1)
    return found


def deadline_odds(setting: Setting, deadline: float) -> Odds:
    """A master that takes what is through the port `deadline` seconds after the round's start, be it nothing."""
    link, floats = setting.link, setting.floats
    arrivals = setting.seconds + setting.send(floats) + link.latency + setting.down
    through = port(arrivals, link.transfer(floats))
    count = np.count_nonzero(through <= deadline * NEAR, axis=1).astype(np.float64)
    decode = 0.0 if setting.decode_rate is None else count * floats / setting.decode_rate
    return Odds(np.full(len(count), deadline) + decode, count, count * (BYTES_PER_FLOAT * floats))


def earlier(one: Odds, other: Odds) -> Odds:
    """Two rules joined with |: of every round the outcome that comes first, which is the one with fewer messages."""
    first = (one.messages < other.messages) | (
        (one.messages == other.messages) & (one.seconds <= other.seconds)
    )
    return Odds(
        np.where(first, one.seconds, other.seconds),
        np.where(first, one.messages, other.messages),
        np.where(first, one.bytes, other.bytes),
    )


def tree_odds(setting: Setting, children: int, layers: int, needed: int) -> Odds:
    """A regular tree, ranks layer by layer: every parent goes on with `needed` of its children's sums."""
    link, rounds = setting.link, len(setting.seconds)
    transfer, hop = link.transfer(setting.floats), link.latency
    send = setting.send(setting.floats)
    bounds = np.cumsum([0] + [children**layer for layer in range(1, layers + 1)])
    below: Array | None = None  # when the sums of the layer below are decoded, per parent
    kept: list[tuple[Array, Array]] = []  # through the port at, and how many are taken in if the round lasts
    for layer in range(layers, 0, -1):
        here = slice(bounds[layer - 1], bounds[layer])
        own = setting.seconds[:, here] + layer * setting.down
        if below is not None:
            through = kept[-1][0]
            early = np.count_nonzero(
                through <= own[:, :, None] * NEAR, axis=2
            )  # it is not through with its own
            kept[-1] = (through, np.maximum(early, needed))
            own = np.maximum(own, below) + setting.decode(needed)
        leaves = own + hop + (send[:, here] if isinstance(send, np.ndarray) else send)
        through = port(leaves.reshape(rounds, -1, children), transfer)
        below = through[:, :, needed - 1]
        kept.append((through, np.full(below.shape, needed)))
    assert below is not None
    end = below[:, 0]
    messages = sum(
        np.minimum(np.count_nonzero(through <= end[:, None, None] * NEAR, axis=2), taken).sum(axis=1)
        for through, taken in kept
    )
    count = np.asarray(messages, dtype=float)
    return Odds(end + setting.decode(needed), count, count * BYTES_PER_FLOAT * setting.floats)


def ring_odds(setting: Setting) -> Odds:
    """The ring: a worker starts its next round as soon as it has the sum, so rounds overlap a little."""
    from workbench.core.ring import ring_finish

    rounds, n = setting.seconds.shape
    free, ports = setting.carry or (np.zeros(n), np.zeros(n))
    ends = np.empty(rounds + 1)
    ends[0] = free.max()
    for r in range(rounds):
        free, ports = ring_finish(free + setting.seconds[r], ports, setting.floats, setting.link)
        ends[r + 1] = free.max()
    steps = 2 * (n - 1)
    messages = np.full(rounds, float(n * steps))
    size = np.full(rounds, float(steps * setting.floats * BYTES_PER_FLOAT))
    return Odds(np.diff(ends), messages, size, (free, ports))


__all__ = [
    "Forecast",
    "Odds",
    "Setting",
    "deadline_odds",
    "earlier",
    "forecast",
    "order",
    "port",
    "ring_odds",
    "star_odds",
    "tree_odds",
]
