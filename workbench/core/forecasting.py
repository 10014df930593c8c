"""Round times without an event loop: order statistics over drawn computing times (see `contract.round_times`)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from workbench.core.base.arguments import kinds_checked
from workbench.core.base.settings import SettingError
from workbench.core.base.types import Array, chop
from workbench.core.base.user_code import with_fault
from workbench.core.contract.delays import DelayStream
from workbench.core.contract.plan import Plan
from workbench.core.contract.round_times import MAX_TIMES_PER_BATCH, RoundTimes, SampledTimes
from workbench.core.contract.scheme import Scheme
from workbench.core.contract.sharing import Sharing
from workbench.core.experiment import Experiment

MAX_ROUNDS = 1_000_000  # max number of rounds of a forecast, which then takes some minutes
MEASURED_ROUNDS = 50  # number of rounds from which a scheme chooses parameters, as in DropCompute's program


@dataclass(frozen=True)
class Forecast:
    """Sampled round times of an experiment, with the load and the messages of a round."""

    seconds: Array  # (rounds,) sampled round times, s
    load: float  # largest share of the data set that one worker processes per round
    messages: float  # mean number of gradient messages received per round
    bytes: float  # mean size of these messages per round, bytes
    # mean share of the data set that a worker processes per round; None: `load`
    mean_load: float | None = None

    @property
    def mean(self) -> float:
        """Mean seconds per round."""
        with np.errstate(over="ignore"):  # sums of round times may overflow
            return float(self.seconds.mean())

    @property
    def std(self) -> float:
        """Standard deviation of the round times, s; 0 if it is only a rounding error of the mean, inf if it overflows.

        >>> Forecast(np.full(100, 0.1), 1.0, 1.0, 8.0).std
        0.0
        """
        with np.errstate(over="ignore", invalid="ignore"):  # squares of round times may overflow
            found = float(self.seconds.std())
        return float(chop(found, self.mean)) if np.isfinite(found) else float("inf")

    @property
    def error(self) -> float:
        """Standard error of `mean`, s, as if rounds were independent.

        Other seeds differ by more if the delays of several rounds are correlated. Workers may be slow for the whole run
        (heterogeneous, replay), or for several rounds (markov, fritchman).
        """
        return self.std / float(np.sqrt(len(self.seconds)))


@kinds_checked
def forecast(
    experiment: Experiment,
    rounds: int | None = None,
    seed: int | None = None,
    sharing: Sharing | None = None,
) -> Forecast:
    """Sample round times of an experiment. Of its data, only the sizes are needed.

    Defaults of `rounds` and `seed`: those of the experiment. `sharing`: the workers are processes that share cores,
    and cannot stop computing at once. `sharing` is ignored for schemes that are `self_paced` or `delayed`.
    Raises `SettingError` if an argument cannot be used.

    >>> forecast(Experiment(scheme="UMW", workers=4), rounds=10, seed=1).seconds.shape
    (10,)
    """
    e = _forecastable(experiment, rounds, seed)
    try:
        return _forecast(e, rounds, seed, sharing)
    except Exception as error:
        error = with_fault(error)
        raise error from error.__cause__


def settled(experiment: Experiment, rounds: int = MEASURED_ROUNDS) -> Experiment:
    """Return the experiment with the parameters that its scheme chooses from measured times (`Scheme.measured`).

    Most schemes choose none, and the experiment is returned unchanged. The times of `rounds` rounds are drawn as in
    `forecast`, with the experiment's seed.

    >>> e = Experiment(scheme="DropCompute", workers=4, delays={"kind": "markov", "shift": 1e-3, "factor": 9.0})
    >>> forecast(settled(e)).mean < 0.5 * forecast(e).mean
    True
    """
    e = _forecastable(experiment, rounds, None)
    found = e.built_scheme.measured(lambda: draws_of(e, rounds, e.seed)(range(rounds), None), e.workers)
    return e.replace(scheme_args={**e.scheme_args, **found}) if found else experiment


@np.errstate(over="ignore", invalid="ignore")  # the end of a transfer may overflow on a very slow link
def _forecast(e: Experiment, rounds: int | None, seed: int | None, sharing: Sharing | None) -> Forecast:
    workers, scheme = e.workers, e.built_scheme
    total = e.rounds if rounds is None else rounds
    drawn = draws_of(e, total, e.seed if seed is None else seed)
    at_once = max(1, MAX_TIMES_PER_BATCH // workers)
    sharing = None if scheme.self_paced or scheme.delayed else sharing
    batches, carry = list[RoundTimes](), None
    for start in range(0, total, at_once):
        draws = drawn(range(start, min(start + at_once, total)), carry)
        draws = draws if sharing is None else sharing.shared(draws)
        times = scheme.round_times(draws, workers)
        late = (draws.seconds.max(axis=1) > times.seconds).any()
        # if the scheme has a state, it already includes the workers that are still busy
        if sharing is not None and times.state is None and late:
            batches = [sharing.round_times(drawn, lambda draws: scheme.round_times(draws, workers), total)]
            break
        batches.append(times if sharing is None else sharing.passed_on(times))
        carry = times.state
    names = ("seconds", "messages", "bytes")
    seconds, messages, size = (np.concatenate([getattr(b, name) for b in batches]) for name in names)
    seconds[np.isnan(seconds)] = np.inf  # NaN is the difference of two times that overflowed
    most, mean = e.load, mean_load(e, e.problem_spec.count())
    return Forecast(seconds, most, float(messages.mean()), float(size.mean()), mean)


def mean_load(e: Experiment, samples: int) -> float:
    """Return the mean share of the data set that a worker processes per round. `samples`: size of the data set."""
    scheme = e.built_scheme
    return float(scheme.loads(e.workers, samples).mean()) * scheme.epochs_per_round * e.share / samples


def draws_of(e: Experiment, total: int, seed: int) -> Callable[[range, Any], SampledTimes]:
    """Return a function that draws some of the `total` rounds of a run, given the state of the rounds before."""
    samples, floats = e.shape()
    workers, scheme = e.workers, e.built_scheme
    loads = scheme.loads(workers, samples)
    stream = e.delay_stream(total, seed)
    plan = scheme.plan(workers, samples) if stream.parts_apart else None
    # with mini-batches, all parts of a round have one draw
    plan = None if plan and plan.batch else plan

    def drawn(chosen: range, carry: Any = None) -> SampledTimes:
        seconds = (
            # self-paced schemes draw times by the index of the draw
            np.broadcast_to(np.nan, (len(chosen), workers))
            if scheme.self_paced
            else np.stack([_whole(stream, scheme, r, loads, plan) for r in chosen])
        )
        return SampledTimes(
            seconds,
            lambda length: stream.sent(chosen, length / floats),
            e.line,
            floats,
            lambda which: np.stack([stream.ties(chosen[k]) for k in which]),
            e.decode_rate,
            carry,
            samples,
            lambda portions, which: np.stack([stream.progress(r, portions) for r in chosen[which]]),
            chosen.start,
            partial(_whole, stream, scheme, loads=loads, plan=plan),
            total,
            drawn,
            stream.sent,
            stream.ties,
            lambda length: stream.links(chosen, length / floats),
            lambda: stream.received(chosen),
            stream.receiving,
        )

    return drawn


def _whole(
    stream: DelayStream, scheme: Scheme, round: int, loads: NDArray[np.int64], plan: Plan | None
) -> Array:
    """Return the seconds of each worker's whole load, (workers,), with the allocation of that round."""
    rows = scheme.rows(stream.workers, round)
    if rows is None:
        return stream.whole(round, loads, plan)
    return stream.whole(round, loads[rows], plan and plan.shuffled(rows))


def _forecastable(experiment: Experiment, rounds: int | None, seed: int | None) -> Experiment:
    if not isinstance(experiment, Experiment):
        raise SettingError(
            f"experiment = {experiment!r:.60}: give a wb.Experiment (of a preset, preset['CR'])"
        )
    if rounds is not None and not (isinstance(rounds, int | np.integer) and rounds >= 1):
        raise SettingError(f"rounds = {rounds!r}: take a whole number, 1 or more")
    if (drawn := experiment.rounds if rounds is None else rounds) > MAX_ROUNDS:
        raise SettingError(f"rounds = {drawn}: a forecast draws each of them; take {MAX_ROUNDS} or less")
    if seed is not None and not (isinstance(seed, int | np.integer) and seed >= 0):
        raise SettingError(f"seed = {seed!r}: take a whole number, 0 or more")
    if found := next((fault for fault in experiment.faults if fault.changes_times), None):
        why = "a forecast does not count it; take faults = (), or run the experiment"
        raise SettingError(f"faults.kind = {found.written_kind!r}: {why}")
    return experiment.current()
