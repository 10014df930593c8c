"""A measured cluster, which replaces the delays and links of an experiment.

`ClusterProfile.experiment` replaces the delays, link and decoding speed of an experiment by measured ones, for the
load and the messages of its scheme. Forecasts, the virtual clock and the planner need nothing else.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic.fields import FieldInfo

from workbench.analysis.planning.linkfit import PortFit, PortLink
from workbench.analysis.planning.measurements import Fitted, Measurements
from workbench.core.base.settings import within
from workbench.core.contract.delays import (
    DelayModel,
    Delays,
    Groups,
    Heterogeneous,
    Lognormal,
    PerSample,
    Replay,
)
from workbench.core.contract.links import BYTES_PER_FLOAT, NO_DELAY, Link, LinkGroup
from workbench.core.contract.sharing import Sharing
from workbench.core.experiment import Experiment
from workbench.core.forecasting import Forecast, forecast
from workbench.mpi.engine.learner import NUMBERS_PER_PIECE


class Task(NamedTuple):
    """Work of a worker in a round."""

    load: float  # samples, averaged over the workers
    floats: int  # parameters of the model
    message: float  # values in a message
    piece: float = 1.0  # largest share of the task that is computed without a check for cancellation
    # number of messages of a worker: the received model and the answer; in a ring, two of a model's length
    messages: int = 2
    relays: int = 0  # number of nodes between the last worker and the master, one after another


class ClusterProfile(Measurements):
    """Measured cluster; see `workbench.profile`.

    >>> import workbench as wb
    >>> from workbench.analysis.planning.measuring import simulated
    >>> simulated(wb.Experiment(scheme="UMW", workers=3), rounds=8).workers
    3
    """

    def __repr__(self) -> str:
        """Return one line, because the measured times would fill the screen."""
        tasks = ", ".join(f"{each.samples:g} samples x {each.floats}" for each in self.recorded)
        return f"<ClusterProfile: {self.cluster}, {self.workers} workers, {self.date}: {tasks}>"

    __str__ = __repr__

    def seconds(self, samples: float, floats: int, fitted: Fitted | None = None) -> float:
        """Return the typical seconds of a worker's task.

        Measured times are interpolated in proportion to the fitted cost of work.
        """
        numbers = fitted or self.fitted
        fits = [numbers.work.seconds(each.samples, each.floats) for each in self.recorded]
        off = np.log(numbers.typical) - np.log(np.maximum(fits, 1e-12))
        weights = 1 / (self._distances(samples, floats) + 1e-6)
        return float(numbers.work.seconds(samples, floats) * np.exp(weights @ off / weights.sum()))

    def delays(self, samples: float, floats: int, fitted: Fitted | None = None) -> Delays:
        """Return the delay model for workers with `samples` samples and a model of `floats` parameters.

        The fixed cost of the work comes before its first sample, so a worker that answers part by part waits for it,
        too. `fitted`: one of `resampled`, instead of the measured fit.
        """
        numbers = fitted or self.fitted
        place = self.nearest(samples, floats)
        delay_model = numbers.delay_models[place]
        # in resampled rounds, the typical time differs
        timed = self.fitted if delay_model is None else numbers
        fixed = timed.work.before(samples, floats) * samples
        per_sample = max(self.seconds(samples, floats, timed), 1e-12) / (samples + fixed)
        found = (
            self.replay(place, per_sample, numbers.drawn)
            if delay_model is None
            else scaled(delay_model, per_sample)
        )
        return with_fixed(found, fixed)

    def link(self, floats: float, fitted: Fitted | None = None, workers: int | None = None) -> Link:
        """Return the link for messages of that length. The port's time per message is part of the bandwidth.

        `workers`: number of workers (default: the measured ones). If measured links form groups, these workers have
        groups in the same proportions.
        """
        port = (fitted or self.fitted).port
        drawn = [name for name in ("delays", "download_delays") if port.delayed(name)]

        def fields(one: PortLink) -> dict[str, Any]:
            transfer = one.transfer(BYTES_PER_FLOAT * floats)
            bandwidth = BYTES_PER_FLOAT * floats / transfer if transfer > 0 and floats > 0 else None
            own = {name: getattr(one, name) or NO_DELAY for name in drawn}
            return {"latency": one.latency, "bandwidth": bandwidth, **own}

        measured = self.places(workers or self.workers) + 1
        groups = [(np.flatnonzero(np.isin(measured, each.workers)) + 1, fields(each)) for each in port.groups]
        apart = tuple(LinkGroup(workers=tuple(who.tolist()), **each) for who, each in groups if len(who))
        return Link(downloads=port.downloads, groups=apart, **fields(port))

    def places(self, workers: int) -> NDArray[np.int64]:
        """Return the index of the measured worker whose times each of `workers` workers takes, (workers,)."""
        if self.same_machines and workers <= self.workers:
            return np.arange(workers)
        return np.arange(workers) * self.workers // workers

    def experiment(self, e: Experiment, fitted: Fitted | None = None) -> Experiment:
        """Return the experiment with this cluster's measured delays, link and decoding speed.

        >>> from workbench.core.experiment import Experiment
        >>> from workbench.analysis.planning.measuring import simulated
        >>> truth = Experiment(scheme="UMW", workers=4, delays={"kind": "constant", "shift": 1e-3})
        >>> measured = simulated(truth, rounds=8)
        >>> round(measured.experiment(truth).delays.shift, 6)
        0.001
        """
        return self.placed(e, self.task(e), fitted)

    def task(self, e: Experiment) -> Task:
        """Return the work of a worker in a round, and the length of its messages, for the experiment's scheme."""
        samples, floats = e.shape()
        scheme = e.built_scheme
        load = max(float(scheme.loads(e.workers, samples).mean()) * e.share, 1.0)
        few = forecast(self.placed(e, Task(load, floats, floats)).model_copy(update={"faults": ()}), 2)
        message = few.bytes / few.messages / BYTES_PER_FLOAT if few.messages else floats
        if not self.real:
            return Task(load, floats, message)
        plan, pieces = scheme.plan(e.workers, samples), 1
        if plan.answers > 1:  # workers with several answers compute one part after another
            pieces = max(len(work.parts) for work in plan.work[1:])
        rooted = plan.parent[1:].max() >= 0
        messages, relays = (1 + plan.answers, int(plan.depth.max()) - 1) if rooted else (2, 0)
        return Task(
            load, floats, message, min(1 / pieces, NUMBERS_PER_PIECE / (load * floats)), messages, relays
        )

    def placed(self, e: Experiment, task: Task, fitted: Fitted | None = None) -> Experiment:
        """Return the experiment on this cluster, as the method `experiment` does, for a task that is already known.

        `fitted`: fit to use instead of this profile's, such as a resampled one.
        """
        numbers = fitted or self.fitted
        delay_model = self.delays(task.load, task.floats, numbers)
        if (
            isinstance(delay_model, Heterogeneous)
            and isinstance(e.delays, Heterogeneous)
            and delay_model.slow_workers is None
        ):
            # workers that the experiment names stay slow
            delay_model = delay_model.model_copy(update={"slow_workers": e.delays.slow_workers})
        link = self.link(task.message, numbers, e.workers)
        with within("link"):
            link.check(e.workers, e.scheme if e.built_scheme.all_models else "")
        # Other checks of `Experiment` do not depend on these fields, which are valid themselves.
        return e.model_copy(
            update={
                "delays": delay_model,
                "link": link,
                "decode_rate": numbers.decode_rate,
            }
        )

    def forecast(self, e: Experiment, rounds: int | None = None, seed: int | None = None) -> Forecast:
        """Forecast an experiment on this cluster. Its own delays and link are ignored.

        It is `wb.forecast` of `experiment(e)`, plus two delays of real workers: they share cores, and cannot cancel
        work at once. Faults are left out.
        """
        task = self.task(e)
        return self.forecast_of(self.placed(e, task), task, rounds, seed)

    def forecast_of(
        self, e: Experiment, task: Task, rounds: int | None = None, seed: int | None = None
    ) -> Forecast:
        """Forecast an experiment that is already on this cluster, without deaths."""
        e = self.crowded(e, task)
        return forecast(e.model_copy(update={"faults": ()}), rounds, seed, self.sharing(e.workers, task))

    def crowded(self, e: Experiment, task: Task) -> Experiment:
        """Return the experiment with delays that include shared cores, for schemes whose workers never pause.

        In schemes whose rounds overlap (ASGD, FedBuff), all workers compute all the time. So each one has an equal
        share of its host's cores. Experiments with other schemes are unchanged.
        """
        sharing, scheme = self.sharing(e.workers, task), e.built_scheme
        if sharing is None or not (scheme.self_paced or scheme.delayed):
            return e
        crowds = [len(who) / cores for who, cores in zip(sharing.places, sharing.cores, strict=True)]
        factor = max(1.0, *crowds)
        slowed = scaled(e.delays, factor).model_copy(update={"fixed": getattr(e.delays, "fixed", 0.0)})
        return e.model_copy(update={"delays": slowed})

    def sharing(self, workers: int, task: Task) -> Sharing | None:
        """Return which of `workers` workers share cores, in measured proportions; None for a simulated profile."""
        if not self.real:
            return None
        measured = self.host_of_each()
        # the workers are divided among hosts in the measured proportions
        fewer = np.sort(measured)[np.arange(workers) * len(measured) // workers]
        hosts = measured[:workers] if self.same_machines and workers <= len(measured) else fewer
        busy = self.recorded[self.nearest(task.load, task.floats)].busy
        cores = (np.inf if host.cores is None or not busy else host.cores / busy for host in self.hosts)
        # If the link could not be measured, each message takes half of an empty task's core time: in a star it has two.
        hidden = self.fitted.port == PortFit(downloads=False)
        each = self.fitted.work.seconds(0, task.floats) / 2 if hidden else 0.0
        return Sharing(
            tuple(np.flatnonzero(hosts == k) for k in range(len(self.hosts))),
            tuple(cores),
            task.piece,
            (task.messages - 2) * each,
            task.relays * each,
        )

    def replayed(self) -> ClusterProfile:
        """Return the profile with recorded times in place of delay models."""

        def bare(fitted: Fitted) -> Fitted:
            return fitted.replace(delay_models=(None,) * len(self.recorded))

        return self.replace(fitted=bare(self.fitted), resampled=tuple(map(bare, self.resampled)))

    def here(self, workers: int) -> ClusterProfile:
        """Return a profile of the first `workers` workers that were measured, each in its place.

        Permanently slow workers stay slow, and forecasts of schemes account for several of them in one group. Each
        resampled fit has its own set of slow workers, drawn with the probabilities that their times imply.
        """
        rng, chances = np.random.default_rng(self.seed), self.slow_for_good()
        if chances is None:
            return self.replace(same_machines=True)

        def known(fitted: Fitted, slow: NDArray[np.bool_]) -> Fitted:
            who = {"slow_workers": tuple((np.flatnonzero(slow[:workers]) + 1).tolist())}
            delay_models = (
                delay_model.model_copy(update=who) if isinstance(delay_model, Heterogeneous) else delay_model
                for delay_model in fitted.delay_models
            )
            return fitted.replace(delay_models=tuple(delay_models))

        again = tuple(known(each, rng.random(self.workers) < chances) for each in self.resampled)
        return self.replace(fitted=known(self.fitted, chances > 0.5), resampled=again, same_machines=True)


def scaled(delay_model: Delays, factor: float) -> Delays:
    """Return a delay model for samples with `factor` times as much work, by the units of its fields.

    >>> from workbench.core.contract.delays import ShiftedExponential
    >>> scaled(ShiftedExponential(shift=1.0, rate=4.0), 2.0)
    ShiftedExponential(fixed=0.0, shift=2.0, rate=2.0, per='worker')
    """
    powers = {"s/sample": factor, "samples/s": 1 / factor, "samples": 1 / factor}
    changes: dict[str, Any] = {
        name: getattr(delay_model, name) * powers[unit]
        for name, field in type(delay_model).model_fields.items()
        if (unit := unit_of(field)) in powers and getattr(delay_model, name) is not None
    }
    changes |= _each_part(delay_model, lambda part: scaled(part, factor))
    if isinstance(delay_model, Lognormal):
        changes["mu"] = delay_model.mu + float(np.log(factor))
    if isinstance(delay_model, Replay) and not delay_model.as_recorded:
        changes |= {"scale": delay_model.scale * factor, "samples": delay_model.samples}
    elif isinstance(delay_model, Replay) and delay_model.slope:
        changes["samples"] = delay_model.recorded_samples(np.ones(1)) / factor
    return type(delay_model)(
        **{**{name: getattr(delay_model, name) for name in type(delay_model).model_fields}, **changes}
    )


def with_fixed(delay_model: Delays, fixed: float) -> Delays:
    """Return a delay model with a start-up cost per task, in samples. In a mixture, all components get it."""
    changes = _each_part(delay_model, lambda part: with_fixed(part, fixed))
    own = {"fixed": fixed} if isinstance(delay_model, PerSample) else {}
    return delay_model.model_copy(update={**own, **changes})


def _each_part(delay_model: Delays, change: Callable[[Delays], Delays]) -> dict[str, Any]:
    """Apply a change to the delay models that a delay model contains. Return its changed fields.

    The factors of `Groups` do not change.
    """
    found: dict[str, Any] = {}
    for name in type(delay_model).model_fields:
        value = getattr(delay_model, name)
        if isinstance(value, DelayModel):
            found[name] = change(value)
        elif isinstance(value, tuple) and value and isinstance(value[0], DelayModel):
            found[name] = tuple(map(change, value))
    if isinstance(delay_model, Groups) and delay_model.effect == "multiply":
        del found["common"]
    return found


def unit_of(field: FieldInfo) -> str:
    """Return the unit of a field that `setting` declared."""
    extra = field.json_schema_extra
    return str(extra.get("unit", "")) if isinstance(extra, dict) else ""
