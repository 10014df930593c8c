"""Measurement of a cluster: a short calibration with the engine that runs experiments, evaluated from its events.

The master and its workers run rounds that await all answers, without emulation, for several loads and model sizes.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pandas import DataFrame

from workbench.analysis.planning.delay_fits import errors_of, evenly, every_model, judged, ordered, redrawn
from workbench.analysis.planning.linkfit import (
    Messages,
    PortFit,
    fit_groups,
    fit_line,
    fit_port,
    fit_work,
    transits,
)
from workbench.analysis.planning.measurements import Fitted, Host, Recorded, quantiles_of, short
from workbench.analysis.planning.message_fits import with_delays
from workbench.analysis.planning.profile import ClusterProfile
from workbench.core import problems
from workbench.core.base.arguments import kinds_checked
from workbench.core.base.bar import Bar
from workbench.core.base.settings import SettingError
from workbench.core.base.types import Array
from workbench.core.contract.delays import DelayStream, resampled
from workbench.core.contract.links import BYTES_PER_FLOAT
from workbench.core.contract.sharing import undisturbed
from workbench.core.engine.virtual.arithmetic import Coefficients
from workbench.core.engine.virtual.sim import SimSetup, simulate
from workbench.core.experiment import Experiment
from workbench.core.trace.trace import events_as_columns, versions
from workbench.mpi import clusters
from workbench.mpi.clusters import Status
from workbench.mpi.running.real import start_real

WARM_UP_ROUNDS = 4  # number of first rounds that are not counted
DEFAULT_WORKERS = 12  # default number of workers
MODEL_SIZES = (64, 1024, 4096)  # numbers of parameters in a calibration without `like`
SAMPLES_PER_WORKER = 64  # max samples of a worker; up to four times as many are measured as well
MAX_DATA_BYTES = 64e6  # max bytes of the data of a calibration
MAX_DATA_BYTES_LIKE = 512e6  # max bytes of the data of a calibration with `like`
OPTIMISER_ARGS = {"step": 1e-9}  # a step size with which the model hardly changes
# Cores count as full if they compute for this share of the time. Some are idle while the master begins or ends a round.
FULL_CORE_SHARE = 0.6
# ends of rounds, table of events, host of each rank, processor seconds of a round
Outcome = tuple[Array, Any, list[str], float]
Ran = Callable[[Experiment], Outcome]


@kinds_checked
def profile(
    cluster: str = "local",
    workers: int | None = None,
    like: Experiment | None = None,
    rounds: int = 60,
    resamples: int = 40,
    seed: int = 0,
    progress: bool = False,
) -> ClusterProfile:
    """Measure a cluster, and fit what forecasts need.

    Parameters
    ----------
    cluster
        A name or a .yaml file, as for `wb.run(..., engine="mpi", cluster=...)`.
    workers
        Number of workers, all at once, since they may slow each other down. Default: that of `like`, else 12.
    like
        Experiment whose problem, loads and model size are measured. Default: least squares of several sizes.
    rounds
        Number of rounds that are counted, for each load and model size.
    resamples
        How many times the fits are repeated on resampled rounds, for the uncertainty of every forecast.
    seed
        Seed of the resampling.
    progress
        Show a bar.

    Raises
    ------
    SettingError
        An argument is invalid. `ClusterError`: the cluster's processes are not available.

    Examples
    --------
    >>> profile(rounds=0)
    Traceback (most recent call last):
    ...
    workbench.core.base.settings.SettingError: rounds = 0: too few for an estimate; take 8 or more
    """
    state = clusters.load(cluster).status()
    count = (DEFAULT_WORKERS if like is None else like.workers) if workers is None else workers
    if count < 1:
        raise SettingError(f"workers = {count}: take 1 or more")
    measured = grid(count, like, rounds, seed)
    with Bar(f"profiling {cluster}", "round", len(measured) * (rounds + WARM_UP_ROUNDS), progress) as bar:
        found, hosts = _measured(measured, _real(cluster, bar, rounds + WARM_UP_ROUNDS), state)
    with Bar("resampling", "fit", resamples, progress) as bar:
        return _fitted(cluster, measured[0], found, hosts_of(hosts, state), resamples, seed, bar)


def simulated(truth: Experiment, rounds: int = 60, resamples: int = 0, seed: int = 0) -> ClusterProfile:
    """Calibrate on the virtual clock, with known delays and a known link of an experiment, to test the fits.

    The loads are measured one after the other on the same workers, so permanently slow workers are slow in all loads.

    >>> truth = Experiment(scheme="UMW", workers=3, delays={"kind": "constant", "shift": 2e-3})
    >>> simulated(truth, rounds=8).delay_model(0).delays.kind
    'constant'
    """
    cluster = {name: getattr(truth, name) for name in ("delays", "link", "decode_rate")}
    done = 0

    def ran(e: Experiment) -> Outcome:
        nonlocal done
        e = e.model_copy(update=cluster)
        stream, done = DelayStream(e.delays, e.seed, e.workers, first=done), done + e.rounds
        e.link.attach(stream, e.seed, done - e.rounds)
        world = SimSetup(e.rounds, e.shape()[1], stream, e.line, e.decode_rate)
        timeline = simulate(e.built_scheme, e.plan, world, Coefficients(e.plan))
        events = DataFrame(events_as_columns(timeline.events))
        return np.array(timeline.times), events, ["simulated"] * (e.workers + 1), 0.0

    measured = grid(truth.workers, None, rounds, truth.seed)
    found, hosts = _measured(measured, ran, None)
    return _fitted("simulated", measured[0], found, hosts_of(hosts, None), resamples, seed)


# ---------------------------------------------------------------- experiments


def grid(workers: int, like: Experiment | None, rounds: int, seed: int = 0) -> list[Experiment]:
    """Return the experiments of a calibration: stars that await all answers, for several loads and model sizes.

    Raises `SettingError` for too few rounds, or an experiment whose problem computes nothing.
    """
    if rounds < 8:
        raise SettingError(f"rounds = {rounds}: too few for an estimate; take 8 or more")
    if like is not None and like.problem == "unit":
        raise SettingError("like.problem = 'unit': computes nothing; take another, or leave like empty")
    base: dict[str, Any] = {
        "workers": workers,
        "rounds": rounds + WARM_UP_ROUNDS,
        "seed": seed,
        "optimiser_args": OPTIMISER_ARGS,
    }
    problems = _plain(workers) if like is None else _like(workers, like)
    return [Experiment(**base, **star(workers, copies), **problem) for problem, copies in problems]


def star(workers: int, copies: int) -> dict[str, Any]:
    """Return the scheme of a star that awaits all answers, with each part on `copies` workers, as in coded schemes.

    Workers that store the same part share caches and memory of their host. Workers with separate samples would not.
    """
    if copies == 1:
        return {"scheme": "UMW"}
    return {"scheme": "CRC", "scheme_args": {"replication": copies, "wait_for": workers}}


Problem = tuple[dict[str, Any], int]  # fields of an experiment, copies of every part


def _plain(workers: int) -> Iterator[Problem]:
    for features in MODEL_SIZES:
        samples = workers * max(min(SAMPLES_PER_WORKER, int(MAX_DATA_BYTES / (8 * features * workers))), 2)
        for copies in {1: None, min(4, workers): None}:
            sizes = {"samples": samples, "features": features}
            yield {"problem": "least_squares", "problem_args": sizes}, copies


def _like(workers: int, like: Experiment) -> Iterator[Problem]:
    """Yield the uncoded load, twice and four times that load and, if possible, an eighth of the columns."""
    samples, floats = like.shape()
    if like.problem_spec.model_args():  # the model was designed for its own data
        for copies in {1: None, min(2, workers): None, min(4, workers): None}:
            yield {"problem": like.problem, "problem_args": like.problem_args}, copies
        return
    # The same problem on synthetic data. Fields that do not describe the data stay.
    args = {name: value for name, value in like.problem_args.items() if name not in ("data", "scale")}
    few, *more = _features(like.problem, args, floats)
    most = max(int(MAX_DATA_BYTES_LIKE / (8 * (more or [few])[0])), workers)
    each = max(min(samples, most), workers)
    whole = [(f, copies) for f in more or [few] for copies in (1, 2, 4) if copies <= workers]
    for features, copies in [*([(few, 1)] if more else []), *whole]:
        sizes = {"samples": each, "features": features}
        yield {"problem": like.problem, "problem_args": {**args, **sizes}}, copies


def _features(problem: str, args: dict[str, Any], floats: int) -> list[int]:
    """Return the numbers of columns to measure: an eighth and all, or one number if it is fixed by the problem."""
    cls = problems.get(problem)
    try:
        per_column = cls(**{**args, "samples": 10, "features": 100}).size(None) / 100
    except SettingError:  # the number of columns is fixed
        return [int(cls.model_fields["features"].default)]
    columns = max(round(floats / per_column), 1)
    return [max(columns // 8, 1), columns]


def _real(cluster: str, bar: Bar, rounds: int) -> Ran:
    """Return a function that runs an experiment on real processes, with nothing emulated, and advances the bar."""
    before = 0

    def ran(e: Experiment) -> Outcome:
        nonlocal before
        run = start_real(e, cluster, emulate="nothing")
        try:
            while not run.wait(0.1):
                bar.update(before + run.rounds_done)
                bar.note(run.note)
        except BaseException:
            run.stop()
            raise
        before += rounds
        bar.update(before)
        trace = run.result()
        assert run.pool is not None
        hosts = [host for _, host in run.pool.places][: e.workers + 1]
        ends = np.asarray(trace.columns["time"], dtype=float)
        return ends, trace.events, hosts, float(trace.info["busy"])

    return ran


def _measured(
    experiments: Sequence[Experiment], ran: Ran, state: Status | None
) -> tuple[list[Observed], list[str]]:
    """Run the experiments one after the other, and return their observed times, and the host of each rank."""
    found, hosts = [], [""]
    cores = {} if state is None else {each.host: each.cores for each in state.hosts}
    for e in experiments:
        ends, events, hosts, busy = ran(e)
        seen = observe(e, ends, events, [host != hosts[0] for host in hosts[1:]])
        ranks = np.array(hosts[1:])
        crew = tuple(
            (np.flatnonzero(ranks == host), cores.get(host) or np.inf) for host in dict.fromkeys(hosts[1:])
        )
        found.append(replace(seen, used=busy / e.workers, crew=crew))
    return filled(found), hosts


def filled(found: Sequence[Observed]) -> list[Observed]:
    """Return the observations with the field `full`, which is decided for all of them together."""
    used = sum(each.used * each.end.size for each in found)
    there = sum(sum(cores for _, cores in each.crew) * (each.commit - each.start).sum() for each in found)
    crowded = all(each.end.shape[1] > sum(cores for _, cores in each.crew) for each in found)
    return [replace(each, full=bool(crowded and used > FULL_CORE_SHARE * there)) for each in found]


# ---------------------------------------------------------------- from events to times


@dataclass(frozen=True)
class Observed:
    """Times of a calibration's rounds, s: (rounds, workers), or (rounds,) for those of the master.

    A worker's time is from the end of the round before to its answer, less the fitted time of the link to send the
    model. It therefore contains all other costs of a round (waking up, waiting for a core, the master's own work). No
    time between two rounds is left out.
    """

    samples: float
    floats: int
    start: Array  # end of the round before, (rounds,)
    left: Array  # the model left the master
    came: Array  # the model reached the worker
    begun: Array
    done: Array  # the gradient was computed
    sent: Array
    end: Array  # the answer had passed the master's port
    commit: Array  # (rounds,)
    apart: bool = False  # whether clocks differ
    width: int = BYTES_PER_FLOAT  # bytes of a value in a message
    used: float = 0.0  # core seconds of a worker's task, including the master's work for it
    crew: Sequence[tuple[NDArray[np.int64], float]] = ()  # workers of each host, and its number of cores
    full: bool = False  # whether the cores are full; then workers wait only for cores

    def drawn_again(self, rng: np.random.Generator) -> Observed:
        """Return rounds resampled with replacement, in blocks of neighbours."""
        return self.at(resampled(len(self.commit), rng))

    def at(self, rounds: NDArray[np.int64]) -> Observed:
        """Return the observations of the given rounds."""
        moments = ("start", "left", "came", "begun", "done", "sent", "end", "commit")
        return replace(self, **{name: getattr(self, name)[rounds] for name in moments})

    @property
    def answers(self) -> Messages:
        """Lengths and times of the answers, for the fit of the link."""
        return Messages(float(self.width * self.floats), self.sent, self.end)

    @property
    def after(self) -> Array:
        """Time from the last answer to the end of the round, (rounds,), s: the master decodes and updates the model."""
        return np.asarray(np.maximum(self.commit - self.end.max(axis=1), 0.0))

    def transits_up(self, port: PortFit) -> Array:
        """Return every answer's time on its way, (rounds, workers), without waiting for the port."""
        return transits(self.answers, port.by_worker(0.0, self.sent.shape[1])[0])

    @property
    def crammed(self) -> bool:
        """Whether all ranks are on the master's host and fill its cores. Messages then delay the workers."""
        return self.full and not self.apart

    def seconds(self, port: PortFit, master: float) -> Array:
        """Return the times of the tasks, (rounds, workers), s. `master`: s of a round that the master computes."""
        latency, transfer = port.by_worker(self.width * self.floats, self.sent.shape[1])
        charged = latency + transfer if port.downloads else 0.0
        if port.delayed("download_delays"):  # the time of each model itself, because these times vary
            charged = self.came - self.left
        whole = (self.end if self.crammed else self.done) - self.start[:, None] - charged + master
        return np.asarray(np.maximum(whole, np.maximum(self.done - self.begun, 1e-9)))

    def share(self, seconds: Array) -> float:
        """Return the share of a core that a worker uses in its task, not counting the time that it waits for a core.

        The share follows from processor times, and is 0 without them. With full cores, it is unknown, and taken as 1.
        """
        if not self.used or self.full:
            return float(self.full)
        low, high = 0.0, 1.0
        for _ in range(20):
            share = (low + high) / 2
            found = share * self.alone(seconds, share).mean()
            low, high = (share, high) if found < self.used else (low, share)
        return high

    def alone(self, seconds: Array, share: float) -> Array:
        """Return the times that the tasks would take on dedicated cores."""
        found = seconds.copy()
        for workers, cores in self.crew:
            found[:, workers] = undisturbed(found[:, workers], cores / share if share else np.inf)
        return found


def observe(e: Experiment, ends: Array, events: Any, elsewhere: Sequence[bool] = ()) -> Observed:
    """Read the events of a star (a table as `Trace.events`). `ends`: times of the ends of its rounds.

    `elsewhere`: whether each worker has another clock than the master. Raises `SettingError` if no round is complete.
    """
    shape = (len(ends), e.workers)
    events_left = events[events["round"] < shape[0]]
    sends = events_left[(events_left["kind"] == "send") & (events_left["bytes"] > 0)]
    down, up, work = (
        sends[sends["rank"] == 0],
        sends[sends["to"] == 0],
        events_left[events_left["kind"] == "compute"],
    )

    def table(rows: Any, rank: str, moment: str) -> Array:
        found = np.full(shape, np.nan)
        found[rows["round"].to_numpy(int), rows[rank].to_numpy(int) - 1] = rows[moment].to_numpy(float)
        return found

    samples, floats = e.shape()
    seen = Observed(
        samples=float(e.built_scheme.loads(e.workers, samples).mean()),
        floats=floats,
        width=e.problem_spec.width,
        start=np.concatenate([[0.0], ends[:-1]]),
        left=table(down, "to", "start"),
        came=table(down, "to", "end"),
        begun=table(work, "rank", "start"),
        done=table(work, "rank", "end"),
        sent=table(up, "rank", "start"),
        end=table(up, "rank", "end"),
        commit=ends,
        apart=any(elsewhere),
    )
    moments = seen.left + seen.came + seen.begun + seen.done + seen.end
    whole = np.flatnonzero(np.isfinite(moments).all(axis=1))
    whole = whole[whole >= min(WARM_UP_ROUNDS, shape[0] - 1)]
    if not len(whole):
        raise SettingError("rounds: none was complete, workers were lost; look at the cluster first")
    return on_one_clock(seen.at(whole), np.array(elsewhere, dtype=bool))


def on_one_clock(seen: Observed, elsewhere: NDArray[np.bool_]) -> Observed:
    """Correct the clocks of other hosts, so that the fastest messages to and from the master take equally long."""
    if not elsewhere.any():
        return seen
    ahead = (np.min(seen.came - seen.left, axis=0) - np.min(seen.end - seen.sent, axis=0)) / 2
    ahead = np.where(elsewhere, ahead, 0.0)
    return replace(seen, **{name: getattr(seen, name) - ahead for name in ("came", "begun", "done", "sent")})


# ---------------------------------------------------------------- from times to a profile


def fit_all(
    found: Sequence[Observed], near: PortFit | None = None, errors: Array | None = None
) -> tuple[Fitted, list[Array]]:
    """Fit all parameters except the delay models of tasks. Return also the times of each load.

    `near`: earlier fit as a start. `errors`: relative standard errors of the typical times, estimated by default.
    """
    port = _port(found, near)
    master = np.array([float(np.median(each.after)) for each in found])
    added = np.array([float(each.floats * each.end.shape[1]) for each in found])
    rate = fit_line(added, master).rate
    handling = np.maximum(master - (added / rate if rate else 0.0), 0.0)
    shared = [each.seconds(port, m) for each, m in zip(found, handling.tolist(), strict=True)]
    times = [each.alone(t, each.share(t)) for each, t in zip(found, shared, strict=True)]
    typical = [float(np.median(t)) for t in times]
    loads = [each.samples for each in found], [each.floats for each in found]
    work, settled = fit_work(*loads, typical, errors_of(times) if errors is None else errors)
    return Fitted(port=port, work=work, typical=short(settled), decode_rate=rate, delay_models=()), times


def _port(found: Sequence[Observed], near: PortFit | None) -> PortFit:
    """Fit the master's port. If messages wait only for cores, the link cannot be measured.

    Sending models counts as taking time unless they arrive much faster than an answer would. Resampled rounds are
    searched for groups of workers only if the earlier fit `near` has any.
    """
    if all(each.crammed for each in found):
        return PortFit(downloads=False)
    messages = [each.answers for each in found]
    one = fit_port(messages, near)
    port = fit_groups(messages, one) if near is None or near.groups else one
    models = [each.came - each.left for each in found]
    up = [port.latency + port.transfer(each.answers.bytes) for each in found]
    port = port.replace(downloads=bool(np.sum([np.median(m) for m in models]) > np.sum(up) / 4))
    typical = min(float(np.median(each.seconds(port, 0.0))) for each in found)
    return with_delays(one.replace(downloads=port.downloads), messages, models, typical, near) or port


def _fitted(
    cluster: str,
    first: Experiment,
    found: Sequence[Observed],
    hosts: tuple[Host, ...],
    resamples: int,
    seed: int,
    bar: Bar | None = None,
) -> ClusterProfile:
    """Make a profile from observed times. Fits are repeated on resampled rounds and workers."""
    fitted, times = fit_all(found)
    delay_models, kinds = judged(times)
    errors = errors_of(times)
    rng, again = np.random.default_rng(seed), list[Fitted]()
    for k, quantiles in enumerate(evenly(resamples, rng)):
        drawn, theirs = fit_all([each.drawn_again(rng) for each in found], fitted.port, errors)
        # the same workers for every load, so that all choices get the same cluster
        once = int(rng.integers(2**32))

        anew = partial(redrawn, rng=once, at=quantiles)
        fits = every_model(ordered(kinds, times, theirs), kinds, anew)
        again.append(drawn.replace(delay_models=fits, drawn=once))
        if bar is not None:
            bar.update(k + 1)
    return ClusterProfile(
        cluster=cluster,
        workers=first.workers,
        hosts=hosts,
        one_clock=not any(each.apart for each in found),
        date=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        seed=seed,
        versions=versions(),
        problem=first.problem,
        recorded=tuple(_recorded(each, fitted.port, t) for each, t in zip(found, times, strict=True)),
        delay_models=delay_models,
        fitted=fitted.replace(delay_models=every_model(times, kinds)),
        resampled=tuple(again),
    )


def _recorded(seen: Observed, port: PortFit, times: Array) -> Recorded:
    computing = seen.done - seen.begun
    return Recorded(
        samples=seen.samples,
        floats=seen.floats,
        seconds=tuple(map(short, times)),
        busy=1.0 if seen.full else min(seen.used / float(times.mean()), 1.0),
        computing=tuple(quantiles_of(column) for column in computing.T),
        up=quantiles_of(seen.transits_up(port)),
        down=quantiles_of(seen.came - seen.left),
        rounds=short(seen.commit - seen.start),
    )


def hosts_of(places: Sequence[str], state: Status | None) -> tuple[Host, ...]:
    """Return the hosts of all ranks, in the order of ranks, each with its workers. Rank 0 is the master, no worker."""
    hosts = () if state is None else state.hosts
    known = {each.host: {"cores": each.cores, "free": each.free} for each in hosts}
    on = {name: tuple(r for r, host in enumerate(places) if r and host == name) for name in places}
    return tuple(Host(name=name, ranks=len(who), who=who, **known.get(name, {})) for name, who in on.items())
