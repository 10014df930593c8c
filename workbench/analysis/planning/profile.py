"""What was measured of a cluster, put under an experiment.

`ClusterProfile.experiment` puts a cluster under an experiment: delays, link and decoding speed as they were measured,
for the load and the messages of that very scheme. That is all that forecasts, the virtual clock and the planner need.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic.fields import FieldInfo

from workbench.analysis.planning.linkfit import PortFit
from workbench.analysis.planning.measurements import Fitted, Measurements
from workbench.core.contract.delays import Delays, Heterogeneous, Replay
from workbench.core.contract.links import BYTES_PER_FLOAT, Link
from workbench.core.contract.sharing import Sharing
from workbench.core.experiment import Experiment
from workbench.core.forecasting import Forecast, forecast
from workbench.mpi.engine.learner import NUMBERS_PER_PIECE


class Task(NamedTuple):
    """What a worker has to do in a round."""

    load: float  # samples, on average over the workers
    floats: int  # parameters of the model
    message: float  # numbers in a message
    piece: float = 1.0  # largest share of it that is gone through without a look whether it is still wanted
    messages: int = (
        2  # of a worker: the model that it takes, and what it sends; a ring passes on two models' length
    )
    relays: int = 0  # nodes between the last worker and the master, one after another


class ClusterProfile(Measurements):
    """A cluster as it was measured; see `workbench.profile`.

    >>> import workbench as wb
    >>> from workbench.analysis.planning.measuring import simulated
    >>> simulated(wb.Experiment(scheme="UMW", workers=3), rounds=8).workers
    3
    """

    def __repr__(self) -> str:
        """A line; the measured times would fill the screen."""
        tasks = ", ".join(f"{each.samples:g} samples x {each.floats}" for each in self.recorded)
        return f"<ClusterProfile: {self.cluster}, {self.workers} workers, {self.date}: {tasks}>"

    __str__ = __repr__

    def seconds(self, samples: float, floats: int, fitted: Fitted | None = None) -> float:
        """Typical seconds of a worker's task.

        Between the measured ones it goes as the fitted work does, and through what was measured.
        """
        numbers = fitted or self.fitted
        fits = [numbers.work.seconds(each.samples, each.floats) for each in self.recorded]
        off = np.log(numbers.typical) - np.log(np.maximum(fits, 1e-12))
        weights = 1 / (self._distances(samples, floats) + 1e-6)
        return float(numbers.work.seconds(samples, floats) * np.exp(weights @ off / weights.sum()))

    def delays(self, samples: float, floats: int, fitted: Fitted | None = None) -> Delays:
        """Delay model for workers that go through that many samples of a model with that many parameters.

        What the fitted work costs whatever its samples comes before the first of them: who answers part by part has
        to wait for it, too. `fitted`: one of `resampled` in place of the numbers as measured.
        """
        numbers = fitted or self.fitted
        place = self.nearest(samples, floats)
        delay_model = numbers.delay_models[place]
        # rounds drawn again have their own typical time
        timed = self.fitted if delay_model is None else numbers
        fixed = timed.work.before(samples, floats) * samples
        per_sample = max(self.seconds(samples, floats, timed), 1e-12) / (samples + fixed)
        found = (
            self.replay(place, per_sample, numbers.drawn)
            if delay_model is None
            else scaled(delay_model, per_sample)
        )
        return found.model_copy(update={"fixed": fixed})

    def link(self, floats: float, fitted: Fitted | None = None) -> Link:
        """Link for messages of that many numbers: what the port needs for each goes into the bandwidth."""
        port = (fitted or self.fitted).port
        transfer = port.transfer(BYTES_PER_FLOAT * floats)
        bandwidth = BYTES_PER_FLOAT * floats / transfer if transfer > 0 and floats > 0 else None
        return Link(latency=port.latency, bandwidth=bandwidth, downloads=port.downloads)

    def experiment(self, e: Experiment, fitted: Fitted | None = None) -> Experiment:
        """The same experiment on this cluster: measured delays, link and decoding speed.

        >>> from workbench.core.experiment import Experiment
        >>> from workbench.analysis.planning.measuring import simulated
        >>> truth = Experiment(scheme="UMW", workers=4, delays={"kind": "constant", "shift": 1e-3})
        >>> measured = simulated(truth, rounds=8)
        >>> round(measured.experiment(truth).delays.shift, 6)
        0.001
        """
        return self.placed(e, self.task(e), fitted)

    def task(self, e: Experiment) -> Task:
        """What a worker of the experiment's scheme goes through in a round, and how long its messages are."""
        samples, floats = e.shape()
        scheme = e.built_scheme
        load = max(float(scheme.loads(e.workers, samples).mean()) * e.share, 1.0)
        few = forecast(self.placed(e, Task(load, floats, floats)).model_copy(update={"faults": ()}), 2)
        message = few.bytes / few.messages / BYTES_PER_FLOAT if few.messages else floats
        if not self.real:
            return Task(load, floats, message)
        plan, pieces = scheme.plan(e.workers, samples), 1
        if plan.answers > 1:  # who answers several times goes from part to part
            pieces = max(len(work.parts) for work in plan.work[1:])
        rooted = plan.parent[1:].max() >= 0
        messages, relays = (1 + plan.answers, int(plan.depth.max()) - 1) if rooted else (2, 0)
        return Task(
            load, floats, message, min(1 / pieces, NUMBERS_PER_PIECE / (load * floats)), messages, relays
        )

    def placed(self, e: Experiment, task: Task, fitted: Fitted | None = None) -> Experiment:
        """As `experiment`, where the task is known."""
        numbers = fitted or self.fitted
        delay_model = self.delays(task.load, task.floats, numbers)
        if (
            isinstance(delay_model, Heterogeneous)
            and isinstance(e.delays, Heterogeneous)
            and delay_model.slow_workers is None
        ):
            delay_model = delay_model.model_copy(
                update={"slow_workers": e.delays.slow_workers}
            )  # whom the experiment names stays slow
        # Nothing that `Experiment` checks depends on these fields, which are valid themselves.
        return e.model_copy(
            update={
                "delays": delay_model,
                "link": self.link(task.message, numbers),
                "decode_rate": numbers.decode_rate,
            }
        )

    def forecast(self, e: Experiment, rounds: int | None = None, seed: int | None = None) -> Forecast:
        """Forecast of an experiment on this cluster; its own delays and link do not matter.

        As `wb.forecast` of `experiment(e)`, with what real workers are held up by: cores that they share, and work that
        they cannot leave at once.
        """
        task = self.task(e)
        return self.forecast_of(self.placed(e, task), task, rounds, seed)

    def forecast_of(
        self, e: Experiment, task: Task, rounds: int | None = None, seed: int | None = None
    ) -> Forecast:
        """Forecast of an experiment that is on this cluster already, deaths left out."""
        return forecast(e.model_copy(update={"faults": ()}), rounds, seed, self.sharing(e.workers, task))

    def sharing(self, workers: int, task: Task) -> Sharing | None:
        """Which of so many workers share cores, as those measured did; None where it was no machine's."""
        if not self.real:
            return None
        measured = self.host_of_each()
        fewer = np.sort(measured)[np.arange(workers) * len(measured) // workers]  # each has its share of them
        hosts = measured[:workers] if self.same_machines and workers <= len(measured) else fewer
        busy = self.recorded[self.nearest(task.load, task.floats)].busy
        cores = (np.inf if host.cores is None or not busy else host.cores / busy for host in self.hosts)
        # Where no link is to be seen, messages take of the cores what is half of a star's task without samples.
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
        """The same with recorded times in place of delay models."""

        def bare(fitted: Fitted) -> Fitted:
            return fitted.replace(delay_models=(None,) * len(self.recorded))

        return self.replace(fitted=bare(self.fitted), resampled=tuple(map(bare, self.resampled)))

    def here(self, workers: int) -> ClusterProfile:
        """Return a profile of the first so many workers that were measured, each in its place.

        Who is slow for good is so again, and a scheme whose groups have some slow ones in one knows it. Of resampled
        fits each has those who may be, as often as their times say.
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
    """Return a delay model for samples that are `factor` times as much work, by the units of its fields.

    >>> from workbench.core.contract.delays import ShiftedExponential
    >>> scaled(ShiftedExponential(shift=1.0, rate=4.0), 2.0)
    ShiftedExponential(fixed=0.0, shift=2.0, rate=2.0, per='worker')
    """
    powers = {"s/sample": factor, "samples/s": 1 / factor, "samples": 1 / factor}
    changes = {
        name: getattr(delay_model, name) * powers[unit]
        for name, field in type(delay_model).model_fields.items()
        if (unit := unit_of(field)) in powers and getattr(delay_model, name) is not None
    }
    if isinstance(delay_model, Replay) and not delay_model.as_recorded:
        changes |= {"scale": delay_model.scale * factor, "samples": delay_model.samples}
    elif isinstance(delay_model, Replay) and delay_model.slope:
        changes["samples"] = delay_model.recorded_samples(np.ones(1)) / factor
    return type(delay_model)(
        **{**{name: getattr(delay_model, name) for name in type(delay_model).model_fields}, **changes}
    )


def unit_of(field: FieldInfo) -> str:
    """Unit of a field that `setting` declared."""
    extra = field.json_schema_extra
    return str(extra.get("unit", "")) if isinstance(extra, dict) else ""
