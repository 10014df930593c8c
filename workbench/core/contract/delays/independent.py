"""Delay models whose times are independent from round to round."""

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from workbench.core.base.settings import setting
from workbench.core.base.types import Array
from workbench.core.contract.delays.base import CounterRNG, DelayModel, PerSample


class ShiftedExponential(PerSample):
    """Shifted exponential times: samples * shift + Exp(mean samples / rate) (paper 1, section III-C).

    Paper 5 also uses one draw per worker.

    >>> model = ShiftedExponential(shift=1e-3, rate=1e3)
    >>> model.compute(model.draw(CounterRNG(0), 0, 3, 0, None), np.array([10, 10, 20])).shape
    (3,)
    """

    kind = "shifted_exponential"
    shift: float = setting(5e-5, "minimum time of one sample", "s/sample", ge=0)
    rate: float = setting(2e4, "rate of the exponential part", "samples/s", gt=0)
    per: Literal["worker", "part"] = setting(
        "worker",
        "worker: one draw per worker and round; part: an independent draw for each part of a worker",
    )

    def draw(self, keyed: CounterRNG, round: int, workers: int, slot: int, before: Array | None) -> Array:
        return keyed.rng(round, slot).standard_exponential((1, workers))

    def compute(self, draw: Array, samples: NDArray[Any]) -> Array:
        return np.asarray(self.work(samples) * (self.shift + draw[0] / self.rate))

    def expected(self, samples: int) -> float:
        return (samples + self.fixed) * (self.shift + 1 / self.rate)

    def quantile(self, q: float, samples: int) -> float:
        return float((samples + self.fixed) * (self.shift - np.log1p(-q) / self.rate))


class Exponential(DelayModel):
    """Exponential times, independent of the load: a worker's answer takes Exp(mean) seconds (paper 3).

    >>> model = Exponential(mean=1e-3)
    >>> model.compute(model.draw(CounterRNG(0), 0, 3, 0, None), np.array([10, 10, 20])).shape
    (3,)
    """

    kind = "exponential"
    mean: float = setting(1e-4, "mean time of an answer", "s", gt=0)

    def draw(self, keyed: CounterRNG, round: int, workers: int, slot: int, before: Array | None) -> Array:
        return keyed.rng(round, slot).standard_exponential((1, workers))

    def compute(self, draw: Array, samples: NDArray[Any]) -> Array:
        """Return mean * E for each worker that has samples, and 0 for the others, s."""
        return np.asarray(np.where(np.asarray(samples) > 0, self.mean * draw[0], 0.0))

    def expected(self, samples: int) -> float:
        return self.mean if samples else 0.0

    def quantile(self, q: float, samples: int) -> float:
        return float(-np.log1p(-q) * self.expected(samples))


class TwoPart(DelayModel):
    """Computing and sending times: samples * (t1 + Exp(rate lambda1)) + share * (t2 + Exp(rate lambda2)).

    Source: paper 2, section V. The second term is the time to send a message. `share` is the length of the message
    divided by the length of the model (1/m in the paper).

    >>> model = TwoPart()
    >>> model.compute(model.draw(CounterRNG(0), 0, 3, 0, None), np.array([10, 10, 20])).shape
    (3,)
    """

    kind = "two_part"
    t1: float = setting(1.6, "minimum computing time of one sample", "s/sample", ge=0)
    lambda1: float = setting(0.8, "rate of the computing time's exponential part", "samples/s", gt=0)
    t2: float = setting(6.0, "minimum sending time of a whole gradient", "s", ge=0)
    lambda2: float = setting(0.1, "rate of the sending time's exponential part", "1/s", gt=0)

    def draw(self, keyed: CounterRNG, round: int, workers: int, slot: int, before: Array | None) -> Array:
        """Return two standard exponential numbers per worker, for computing and for sending: (2, workers)."""
        rng = keyed.rng(round, slot)
        return rng.standard_exponential((workers, 2)).T

    def compute(self, draw: Array, samples: NDArray[Any]) -> Array:
        return np.asarray(samples * (self.t1 + draw[0] / self.lambda1))

    def expected(self, samples: int) -> float:
        """Return the mean computing time, samples * (t1 + 1 / lambda1), s."""
        return samples * (self.t1 + 1 / self.lambda1)

    def quantile(self, q: float, samples: int) -> float:
        """Return the quantile of the computing time, samples * (t1 - log(1 - q) / lambda1), s."""
        return float(samples * (self.t1 - np.log1p(-q) / self.lambda1))

    def sending(self, draw: Array, share: float) -> Array | None:
        return np.asarray(share * (self.t2 + draw[1] / self.lambda2))


class Constant(PerSample):
    """Constant times, without randomness: samples * shift.

    >>> model = Constant(shift=0.5)
    >>> model.compute(model.draw(CounterRNG(0), 0, 2, 0, None), np.array([10, 20])).tolist()
    [5.0, 10.0]
    """

    kind = "constant"
    shift: float = setting(5e-5, "time of one sample", "s/sample", ge=0)

    def draw(self, keyed: CounterRNG, round: int, workers: int, slot: int, before: Array | None) -> Array:
        return np.zeros((1, workers))

    def compute(self, draw: Array, samples: NDArray[Any]) -> Array:
        return np.asarray(self.work(samples) * self.shift + 0.0 * draw[0])

    def expected(self, samples: int) -> float:
        return (samples + self.fixed) * self.shift

    def quantile(self, q: float, samples: int) -> float:
        return self.expected(samples)


class Pareto(PerSample):
    """Heavy-tailed times: samples * shift * U^(-1/shape). The variance is infinite for shape <= 2.

    >>> model = Pareto()
    >>> model.compute(model.draw(CounterRNG(0), 0, 3, 0, None), np.array([10, 10, 20])).shape
    (3,)
    """

    kind = "pareto"
    shift: float = setting(5e-5, "minimum time of one sample", "s/sample", ge=0)
    shape: float = setting(
        2.5, "tail exponent: the smaller, the heavier the tail; the mean is finite above 1", gt=1
    )

    def draw(self, keyed: CounterRNG, round: int, workers: int, slot: int, before: Array | None) -> Array:
        """Return a Pareto number >= 1 for each worker, drawn as exp(E / shape), which avoids U = 0."""
        return np.exp(keyed.rng(round, slot).standard_exponential((1, workers)) / self.shape)

    def compute(self, draw: Array, samples: NDArray[Any]) -> Array:
        return np.asarray(self.work(samples) * self.shift * draw[0])

    def expected(self, samples: int) -> float | None:
        """Return samples * shift * shape / (shape - 1), s, or None if the variance is infinite.

        With infinite variance, sample means do not converge fast enough to be compared with the mean.
        """
        return (samples + self.fixed) * self.shift * self.shape / (self.shape - 1) if self.shape > 2 else None

    def quantile(self, q: float, samples: int) -> float:
        return float((samples + self.fixed) * self.shift * (1 - q) ** (-1 / self.shape))
