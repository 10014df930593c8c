"""Local SGD and DiLoCo: workers take several steps on their own models, and the master averages the results.

S. U. Stich, "Local SGD converges fast and communicates little", ICLR 2019. A. Douillard et al., "DiLoCo: Distributed
low-communication training of language models", 2023, algorithm 1.

A commit is scaled like a gradient: as a sum over the samples. The experiment's optimiser takes the outer step from it.
The committed value is (theta - theta_i) / unit, averaged over the workers with their samples as weights. The
regularisation is left out, because the optimiser adds it.

In local SGD with a `rate`, the unit is this step size, so that with one local step the commit equals the gradient. If
the optimiser is `gd` with the same step size, the new model is the average of the workers' models. In DiLoCo
the unit is 1, and `nesterov` uses the averaged difference as a gradient. By default its step size is 0.7 and its
momentum 0.9, as in the paper.
"""

from abc import abstractmethod
from collections.abc import Callable, Generator, Mapping
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from workbench.core.base.settings import setting
from workbench.core.base.types import Array
from workbench.core.contract.delays import CACHED_ROUNDS, DelayModel, DelayStream
from workbench.core.contract.exchanges import ModelAverage, refuse_unless
from workbench.core.contract.optimisers.gradient import adam_move, moments
from workbench.core.contract.plan import MASTER, Plan, Work
from workbench.core.contract.programs import Answers, at_least, parent_program, worker_program
from workbench.core.contract.protocol import CODED, MODEL, Compute, Message, Node, Program, Send
from workbench.core.contract.round_times import RoundTimes, SampledTimes, star_round_times
from workbench.core.schemes.adaptive import MiniBatches
from workbench.core.schemes.uncoded import check_stragglers, total

# function of the model and the gradient of a worker's own objective, which returns its next model
Inner = Callable[[Array, Array], Array]


class LocalSteps(MiniBatches):
    """Base of schemes whose workers take H steps on their own models. Every step takes its own drawn time."""

    self_paced: ClassVar[bool] = True
    local_steps: int = setting(8, "steps that a worker takes on its own model in a round (H)", ge=1)

    @classmethod
    def candidates(cls, workers: int) -> list[dict[str, Any]]:
        return [{"local_steps": steps} for steps in (2, 4, 8, 16)]

    @property
    def epochs_per_round(self) -> int:
        return self.local_steps

    def stream(self, delays: DelayModel, seed: int, workers: int, rounds: int) -> DelayStream:
        """Return the delays of a run, with a cache that is large enough for the H draws of one round."""
        return DelayStream(delays, seed, workers, CACHED_ROUNDS + self.local_steps)

    def waits_for(self, workers: int) -> int:
        """Return the number of answers that the master waits for."""
        return workers

    @abstractmethod
    def inner(self, node: Node) -> tuple[Inner, float]:
        """Return a worker's optimiser, and the unit of its answers."""

    def program(self, node: Node) -> Program:
        if node.rank == MASTER:
            rule = at_least(self.waits_for(node.plan.workers))
            return parent_program(node, rule, lambda r, got: _average(node.plan, got))
        step, unit = self.inner(node)
        return worker_program(node, lambda node, model: self._answer(node, model, step, unit))

    def _answer(self, node: Node, model_message: Message, step: Inner, unit: float) -> Program:
        start, first = model_message.value, model_message.round * self.local_steps
        steps = range(first, first + self.local_steps)
        model = yield from self._stepped(node, model_message, start, steps, step)
        if model is not None:
            moved = self._moved(node, start, model, unit)
            yield Send(node.parent, CODED, model_message.round, moved, draw=steps[-1])

    def _stepped(
        self, node: Node, model_message: Message, model: Array, steps: range, step: Inner
    ) -> Generator[Any, Any, Array | None]:
        """Take steps, numbered from the start of the run. Return the last model, or None if a newer model arrived."""
        samples, unless = max(node.work.samples, 1), {MODEL: model_message.round + 1}
        for draw in steps:
            value = yield Compute(
                node.work, model, model_message.round, unless, self.worker_batch, draw, job=draw
            )
            if value is None:
                return None
            model = step(model, value / samples + node.l2 * model)
        return model

    def _moved(self, node: Node, start: Array, model: Array, unit: float) -> Array:
        """Return a worker's answer: samples times the change of its model divided by `unit`, without regularisation."""
        return np.asarray(node.work.samples * ((start - model) / unit - node.l2 * start))

    def round_times(self, draws: SampledTimes, workers: int) -> RoundTimes:
        """Return the round times of a star in which a worker's time is the sum of H draws."""
        steps = self.local_steps
        rounds = range(draws.first_round, draws.first_round + len(draws.seconds))
        seconds = [sum(draws.load_seconds(r * steps + h) for h in range(steps)) for r in rounds]

        def send(length: float) -> Array | float:
            return draws.send_seconds(((r + 1) * steps - 1 for r in rounds), length / draws.floats)

        return star_round_times(replace(draws, seconds=np.stack(seconds), send=send), self.waits_for(workers))


class PlainSteps(LocalSteps):
    """Base of schemes whose workers take plain gradient steps; the outer step sets the model to an average."""

    rate: float | None = setting(
        None, "step size of the workers; empty = 1 / smoothness of each worker's data", gt=0
    )

    def own_step(self, smoothness: float) -> float:
        """Return the step size of the optimiser with which the next model is the average of the workers' models."""
        return self.rate or 1 / smoothness

    def refuse_own_steps(self) -> None:
        """Raise `SettingError` for parameters of steps that the optimiser of a training script takes itself."""
        for field in ("rate", "worker_batch"):
            usable = type(self).model_fields[field].default
            refuse_unless(field, getattr(self, field), usable, "a training script sets it; leave it out")

    def with_step(self, step: float) -> dict[str, Any]:
        """Return the field of the workers' step size, unless it is given."""
        return {"rate": step} if self.rate is None else {}

    def inner(self, node: Node) -> tuple[Inner, float]:
        """Return a function for plain gradient steps, and the unit of the answers.

        Without `rate`, the unit is the default step size of the `gd` optimiser. The outer step then sets the model to
        the average of the workers' models.
        """
        parts = np.arange(node.plan.parts)
        unit = self.rate or _step(node, Work(parts, np.ones(len(parts)), node.plan.samples))
        rate = self.rate or _step(node, node.work)
        return lambda model, gradient: model - rate * gradient, unit


class LocalSGD(PlainSteps):
    """Local SGD: H gradient steps on each worker's own part of the data, then models are averaged.

    >>> LocalSGD(local_steps=4, rate=0.1).loads(workers=6, samples=60).tolist()
    [10, 10, 10, 10, 10, 10]
    """

    name = "LocalSGD"
    title: ClassVar[str] = "Local SGD"
    paper: ClassVar[str] = "Stich 2019"
    stragglers: int = setting(
        0, "workers whose models the master does not wait for; it averages the others", ge=0
    )

    def check(self, workers: int) -> None:
        check_stragglers(self.stragglers, workers)

    def waits_for(self, workers: int) -> int:
        return workers - self.stragglers

    def exchange_rule(self, workers: int) -> ModelAverage:
        self.refuse_own_steps()
        return ModelAverage(
            matrix=np.eye(workers),
            period=self.local_steps,
            levels={self.local_steps: 0},
            sizes=(workers,),
            stragglers=self.stragglers,
        )


class DiLoCo(LocalSteps):
    """DiLoCo: H steps of AdamW on each worker's own part, then a Nesterov step on the averaged difference.

    An experiment uses `optimiser="nesterov"` by default. With "gd" the outer step is plain gradient descent.

    Every worker keeps its moments from round to round, so the master must wait for all workers. A resumed run starts
    with moments of zero.

    >>> DiLoCo(local_steps=50).optimiser
    'nesterov'
    """

    name = "DiLoCo"
    title: ClassVar[str] = "DiLoCo: AdamW inside, Nesterov outside"
    paper: ClassVar[str] = "Douillard et al. 2023, algorithm 1"
    optimiser: ClassVar[str] = "nesterov"
    optimiser_args: ClassVar[Mapping[str, float]] = {"step": 0.7, "momentum": 0.9}
    rate: float = setting(0.01, "learning rate of workers' AdamW", gt=0)
    beta1: float = setting(0.9, "decay rate of the mean of gradients", ge=0, lt=1)
    beta2: float = setting(0.999, "decay rate of the mean of squared gradients", ge=0, lt=1)
    eps: float = setting(1e-8, "constant added to the root of the mean square", gt=0)
    weight_decay: float = setting(
        0.0, "weight decay: each step subtracts rate times this share of the model", ge=0
    )

    @classmethod
    def candidates(cls, workers: int) -> list[dict[str, Any]]:
        """Return the candidates of `LocalSteps`, each with a few inner learning rates."""
        rates = (0.003, 0.01, 0.03)
        return [{**args, "rate": rate} for args in super().candidates(workers) for rate in rates]

    def own_step(self, smoothness: float) -> float:
        """Return the outer step size of the paper, along the averaged difference of models."""
        return self.optimiser_args["step"]

    def inner(self, node: Node) -> tuple[Inner, float]:
        return LocalAdamW(self.rate, self.beta1, self.beta2, self.eps, self.weight_decay).step, 1.0


class LocalAdamW:
    """AdamW of one worker (Loshchilov and Hutter 2019), with its moments."""

    def __init__(self, rate: float, beta1: float, beta2: float, eps: float, decay: float) -> None:
        self.numbers, self.kept = (rate, beta1, beta2, eps), 1 - rate * decay
        self.mean: Any = 0.0
        self.square: Any = 0.0
        self.steps = 0

    def step(self, model: Array, gradient: Array) -> Array:
        """Return the next model."""
        self.steps += 1
        self.mean, self.square = moments(self.mean, self.square, gradient, *self.numbers[1:3])
        return model * self.kept - adam_move(self.mean, self.square, self.steps, *self.numbers)


def _step(node: Node, work: Work) -> float:
    """Return 1 / smoothness, or 1 if the smoothness is 0."""
    smoothness = node.smoothness(work) if work.samples else 0.0
    return 1.0 / smoothness if smoothness > 0 else 1.0


def _average(plan: Plan, got: Answers) -> tuple[Any, float]:
    """Return the sum over all samples. Workers that did not answer are replaced by the average of the answers."""
    came = int(plan.stored[[rank for rank, _ in got]].sum())
    return total(got) * (plan.samples / came if came else 1.0), 0.0
