"""Phases of recorded steps: work of the workers, waiting times of their answers, and decoding."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import pandas as pd

from workbench.analysis.recorder.steps import EXCHANGE, FORWARD_EXCHANGE
from workbench.analysis.recordings.attribution import excess_over_median, shapley_shares
from workbench.analysis.recordings.card import whole
from workbench.analysis.recordings.recording import Recording
from workbench.analysis.recordings.run_model import (
    COMPUTE,
    LINK,
    SLOWER,
    WAITING,
    Cause,
    split,
    without_causes,
)
from workbench.analysis.recordings.uneven_work import Work, amounts
from workbench.core.base.settings import SettingError
from workbench.core.base.types import Array
from workbench.core.contract.recorded import BOTH_WAYS_PHASE, LAYER_PREFIX, PROBE_PHASE

PORT_PHASES = ("wait", "receive")
# phases after an exchange in the forward pass
AFTER_EXCHANGE = (f"{LAYER_PREFIX}forward", f"{LAYER_PREFIX}backward")
# a link is slow if there are at least this many probes, and of these this share take this many times as long as usual
MIN_PROBES, MIN_SLOW_PROBES_SHARE, MIN_LINK_RATIO = 3, 0.75, 3.0
# number of draws of an average worker's times, and max distance in steps from which they are taken
LIKE_DRAWS, MAX_SHIFT_STEPS = 24, 5
# where the time of ranks that share cores lies between Graham's bounds, see `Phases.repaired`; measured with 2 cores
GRAHAM_SHARE = 0.4
# phase of a training step -> its name in sentences
STEP_PHASE_NAMES = {
    "data": "loading its data",
    "forward": "the forward pass",
    "backward": "the backward pass",
    "optimiser": "the optimiser",
    "other": "what is between its steps",
}
# phases that belong to each cause
PHASES_OF_CAUSE = {"links": ("send",), "ports": PORT_PHASES, "decoding": ("decode",)}


@dataclass(frozen=True)
class Phases:
    """Seconds of the steps in which every worker was recorded.

    `phases`: (steps, workers) for each cause. `port`: time that an answer waits at its receiver and is received,
    (steps, workers). `decoding`: time of decoding, (steps,). `hosts`: columns of each host, if hosts were recorded.
    `computing`: computing time by possible cause (see `split`). If it has causes, `phases` lists the excess of waiting
    over its usual value separately. If work differs between workers, times are those with the mean work of a step.

    `probes`, `both_ways` (probes, workers): seconds of a message to the next worker, if links were probed, and while
    that worker sends as much. `messages`: how many such messages an exchange sends on each link, 0 if unknown.
    `overlap`: seconds of the backward pass during which gradients are sent, 0 if unknown. `last`: share of the messages
    that is sent after the backward pass in any case, 1 if unknown.

    `exchange` (steps,): time of a step beyond its slowest worker, if the exchange was recorded. `uneven` (steps,):
    additional time because work differs. `least` (steps,): min time that its processors need. `idle`: idle time of a
    core, divided by the duration that a step would have without shared cores; 0 if no host has more ranks than cores.
    `inner` (steps, workers): own seconds between an exchange in the forward pass and the last exchange of the step.
    """

    names: list[str]
    steps: list[int]
    phases: dict[str, Array]
    port: Array
    decoding: Array
    hosts: dict[str, list[int]]
    left_out: str
    computing: dict[str, Array]
    exchange: Array
    uneven: Array
    least: Array
    idle: float
    probes: Array
    both_ways: Array
    messages: float
    overlap: float
    last: float
    inner: Array

    @classmethod
    def of(cls, job: Recording) -> Self:
        """Return the phases of one job. Raise `SettingError` for one worker, no complete step, or times of 0."""
        name, table = job.names[0], job.table()
        if table.shape[1] < 2:
            raise SettingError(f"recording = {name!r}: has one worker, which cannot be compared with others")
        first, full = whole(name, table), table.dropna()
        there = set(job.frame["phase"])

        def seconds(phase: str, workers: Any = full.columns) -> Array:
            found = job.table(phase) if phase in there else pd.DataFrame()
            return found.reindex(index=full.index, columns=workers).fillna(0.0).to_numpy(float)

        phases = {layer_name(p): p for p in sorted(there) if p.startswith(LAYER_PREFIX)}
        phases |= {LINK: "send"} if "send" in there else {}
        waited = seconds(EXCHANGE) + seconds(FORWARD_EXCHANGE)
        lasted = first + waited if {EXCHANGE, FORWARD_EXCHANGE} & there else None
        inner = sum(map(seconds, AFTER_EXCHANGE)) * (FORWARD_EXCHANGE in there)
        known = {what: seconds(phase) for what, phase in phases.items()}
        if lasted is None and not np.all(first > 0):
            raise SettingError(f"recording = {name!r}: has times of 0 {job.units}; leave such steps out")
        work = Work.of(first, known, lasted, amounts(job, full))
        first, parts = work.seconds, work.parts
        least, idle = _shared_cores(job, full)
        decoders = list(job.table("decode")) if "decode" in there else []
        own_seconds = {COMPUTE: first - sum(each for what, each in parts.items() if what != LINK), **parts}
        computing = split(first, None if phases.keys() - {LINK} else _processor(job, full))
        if SLOWER in computing:
            own_seconds |= {COMPUTE: computing[SLOWER], WAITING: first - computing[SLOWER]}
        return cls(
            names=[f"worker {worker}" for worker in full.columns],
            steps=full.index.tolist(),
            phases=own_seconds,
            port=np.asarray(sum(map(seconds, PORT_PHASES))),
            decoding=seconds("decode", decoders).sum(axis=1),
            hosts=_hosts(job, list(full.columns)),
            left_out=_left_out(job, there),
            computing=computing,
            exchange=work.exchange,
            uneven=work.uneven,
            least=least,
            idle=idle,
            probes=_probes(job, full, PROBE_PHASE),
            both_ways=_probes(job, full, BOTH_WAYS_PHASE, PROBE_PHASE),
            messages=float(job.source.get("messages", 0.0)),
            overlap=float(job.source.get("overlap", 0.0)),
            last=float(job.source.get("last", 1.0)),
            inner=np.asarray(inner * work.factor),
        )

    @property
    def own_seconds(self) -> Array:
        """Seconds that every worker takes by itself, (steps, workers)."""
        return np.asarray(sum(self.phases.values()))

    def without(self, cause: Cause) -> Array:
        """Return the seconds of the workers if those in `cause` had the median waiting or processor time."""
        times = self.computing[cause.what]
        usual = without_causes(times, cause.what, {cause})
        return np.asarray(
            self.own_seconds - (self.own_seconds - self.phases.get(LINK, 0.0)) * (1 - usual / times)
        )

    def even_without(self, causes: Iterable[Cause]) -> Array:
        """Return the seconds of a step, (steps,), if all workers were like the median worker without these causes.

        If half of the workers wait and the others have slow processors, this median worker does neither.
        """
        seconds = self.own_seconds
        for cause in causes:
            if cause.what in (WAITING, SLOWER):
                who = list(cause.workers)
                seconds[:, who] = self.without(cause)[:, who]
        return np.asarray(np.median(seconds, axis=1))

    def lasting(self) -> Array:
        """Return the seconds of every step, (steps,)."""
        return np.asarray((self.own_seconds + self.port).max(axis=1) + self.decoding + self.besides)

    @property
    def besides(self) -> Array:
        """Seconds of every step that slow workers do not explain, (steps,)."""
        return self.exchange + self.uneven

    def like_others(self, who: list[int], rng: np.random.Generator) -> Array:
        """Return the seconds of the slowest worker, (steps,), if the workers `who` were like the others.

        Each gets the times of another worker, a few steps before or after. The result is the mean of several draws.
        With an exchange in the forward pass, the slowest worker before it need not be the slowest after it.
        """
        seconds, inner = self.own_seconds, self.inner.copy()
        now, slowest = _in_parts(seconds, inner), seconds.max(axis=1)
        others = np.delete(np.arange(seconds.shape[1]), who)
        if not len(others):
            return np.asarray(np.median(seconds, axis=1))
        found = np.zeros((LIKE_DRAWS, len(seconds)))
        for draw in range(LIKE_DRAWS):
            for i in who:
                shift = int(rng.integers(-MAX_SHIFT_STEPS, MAX_SHIFT_STEPS + 1))
                like = rng.choice(others)
                seconds[:, i] = np.roll(self.own_seconds[:, like], shift)
                inner[:, i] = np.roll(self.inner[:, like], shift)
            found[draw] = _in_parts(seconds, inner)
        return np.asarray(found.mean(axis=0) - now + slowest)

    def slow_links(self) -> dict[int, Array]:
        """Return the workers whose message to the next worker takes much longer than usual, and what each link costs.

        The cost (steps,) is the exchange without the usual time of its messages both ways, and without the other
        time of the exchange, which remains. If the number of messages is unknown, the exchange is taken to be messages,
        and the other time to be as long as usual messages. Links of workers with a slow link are not usual.
        """
        late = [i for i in range(self.probes.shape[1]) if len(self.probes) >= MIN_PROBES and self._is_late(i)]
        both = np.delete(self.both_ways, [*late, *(i - 1 for i in late)], axis=1)
        usual = np.median(both if both.size else np.delete(self.probes, late, axis=1)) if late else 0.0
        found = {}
        for i in late:
            slow = np.median((self.both_ways if self.messages else self.probes)[:, i])
            messages = self.messages or self.exchange / slow
            other = self.exchange - self._seen(messages * slow) if self.messages else messages * usual
            found[i] = np.maximum(self.exchange - self._seen(messages * usual) - np.maximum(other, 0.0), 0.0)
        return found

    def _seen(self, seconds: Any) -> Any:
        """Return the seconds of messages after the backward pass: those that it does not hide, or the last ones.

        This is the end of a queue whose all-reduces are equally long, and arrive in equal intervals.
        """
        return np.maximum(seconds - self.overlap, seconds * self.last)

    def _is_late(self, link: int) -> bool:
        """Return whether most messages on a link take much longer than those on other links."""
        others = np.median(np.delete(self.probes, link, axis=1), axis=1)
        return bool(np.mean(self.probes[:, link] > MIN_LINK_RATIO * others) >= MIN_SLOW_PROBES_SHARE)

    def repaired(self, even: Array) -> Array:
        """Return the seconds of every step if its workers took `even` seconds.

        Workers take at least the time that their processors need. On c cores, work with a longest chain of D seconds,
        whose processor time is W, takes from W/c to W/c + (1 - 1/c) D (Graham, Bell Syst. Tech. J. 45, 1966). This
        holds if no core is idle while a worker could compute, and if the chain has no waits. Here, D has some.
        """
        alone = even + self.exchange
        return np.minimum(np.maximum(alone, self.least + self.idle * alone), self.lasting())

    def shares(self, over: Array, even: Array) -> tuple[Array, Array, Array]:
        """Return Shapley values: of workers that exceed an even step by `over`, of the port, and of decoding.

        For the port's share, the workers are fixed together. They divide their common share as in the airport game.
        """
        seconds = self.own_seconds
        repaired = np.minimum(seconds, even[:, None])
        alone = np.maximum(seconds.max(axis=1) - even, 0.0)
        lasted, without = ((each + self.port).max(axis=1) for each in (seconds, repaired))
        port = (lasted - seconds.max(axis=1) + without - even) / 2
        scale = np.divide(alone + lasted - without, 2 * alone, out=np.zeros_like(alone), where=alone > 0)
        return shapley_shares(over) * scale[:, None], port, self.decoding

    def why(self, who: list[int]) -> str:
        """Return the cause of some workers' lateness: the phase in which they exceed the median most.

        The cause is a layer if it explains most of the additional computing. If all layers were slower by the same
        factor, the other layers would have their share of the additional time. The layer must explain more than half
        of the time beyond that.
        """
        over = {what: float(excess_over_median(times)[:, who].mean()) for what, times in self.phases.items()}
        layers = {what: over.pop(what) for what in self.phases if what not in (COMPUTE, WAITING, LINK)}
        over[COMPUTE] += sum(layers.values())
        why = max(over, key=over.__getitem__)
        if why == COMPUTE and layers:
            most = max(layers, key=layers.__getitem__)
            usual = {what: float(np.median(times, axis=1).mean()) for what, times in self.phases.items()}
            share = usual[most] / (usual[COMPUTE] + sum(usual[what] for what in layers))
            why = most if layers[most] > (1 + share) / 2 * over[COMPUTE] else COMPUTE
        return SLOWER if why == COMPUTE and SLOWER in self.computing else why


def _in_parts(seconds: Array, inner: Array) -> Array:
    """Return the seconds of a step that has an exchange in its forward pass, (steps,).

    They are the sum of the slowest worker's seconds before the exchange and of the slowest worker's seconds after
    it.
    """
    return np.asarray(inner.max(axis=1) + (seconds - inner).max(axis=1))


def layer_name(phase: str) -> str:
    """Return the name of a phase of computing: "layer NAME", or that of a phase of a training step.

    >>> layer_name("compute: encoder"), layer_name("compute: backward")
    ('layer encoder', 'the backward pass')
    """
    name = phase.removeprefix(LAYER_PREFIX)
    return STEP_PHASE_NAMES.get(name, f"layer {name}")


def _shared_cores(job: Recording, full: pd.DataFrame) -> tuple[Array, float]:
    """Return `Phases.least`, of the host whose processors need longest, and `Phases.idle`; 0 if unknown."""
    cores, frame = float(job.source.get("cores", "inf")), job.job().frame
    spent = frame.groupby(["host", "step"], observed=True)["processor_seconds"].sum().unstack("host")
    least = spent.reindex(full.index).fillna(0.0).max(axis=1).to_numpy(float) / cores
    workers = frame.groupby("host", observed=True)["worker"].nunique().max()
    return least, GRAHAM_SHARE * (1 - 1 / cores) if workers > cores else 0.0


def _probes(job: Recording, full: pd.DataFrame, *phases: str) -> Array:
    """Return the seconds of messages to the next worker, (probes, workers), in the first phase that was recorded."""
    there = [phase for phase in phases if (job.job().frame["phase"] == phase).any()]
    return job.table(there[0])[full.columns].dropna().to_numpy(float) if there else np.zeros((0, 0))


def _processor(job: Recording, full: pd.DataFrame) -> Array | None:
    """Return the processor seconds of computing for the same steps and workers, or None if some are unknown."""
    if job.job().frame["processor_seconds"].isna().all():
        return None
    found = job.table(values="processor_seconds").reindex_like(full).to_numpy(float)
    return found if (found > 0).all() else None


def _left_out(job: Recording, there: set[str]) -> str:
    """Return the effects that the model of a step leaves out, and those that it assumes to stay."""
    skipped = f"{job.source['left_out']}; " if "left_out" in job.source else ""
    if EXCHANGE in there:
        return f"{skipped}an exchange is taken to last as long after any other last worker"
    missing = [what for what, some in PHASES_OF_CAUSE.items() if there.isdisjoint(some)]
    ends = "a step is taken to end with its slowest worker"
    taken = f"{ends}, and to take twice as long with twice the samples"
    return skipped + (
        f"{' and '.join(missing)}, of which nothing was recorded; {taken}" if missing else taken
    )


def _hosts(job: Recording, workers: list[Any]) -> dict[str, list[int]]:
    """Return the columns of every host, if all workers have one."""
    known = job.frame.groupby("worker")["host"].first().reindex(workers).astype(str)
    if (known == "").any():
        return {}
    return {str(host): np.flatnonzero(known == host).tolist() for host in known.unique()}
