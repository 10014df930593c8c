"""Delay models with a continuous distribution of `scipy.stats`, drawn by inversion.

One uniform number per worker and round, or per part, is mapped by the quantile function. Draws therefore depend on
(seed, round, slot, worker) only, and `quantile` is exactly the function used for drawing.
"""

from __future__ import annotations

from abc import abstractmethod
from functools import lru_cache
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import model_validator

from workbench.core.base.settings import SettingError, setting, short, unknown_name
from workbench.core.base.types import Array
from workbench.core.contract.delays.base import CounterRNG, PerSample

TRIED_QUANTILES = (0.001, 0.5, 0.999)  # quantiles of a distribution that must be finite


class _Inverted(PerSample):
    """Base of delay models whose seconds per sample have a distribution of `scipy.stats`."""

    shift: float = setting(0.0, "least time of one sample, added to the distribution (loc)", "s/sample")
    per: Literal["worker", "part"] = setting(
        "worker",
        "worker: one draw per worker and round; part: an independent draw for each part of a worker",
    )

    @property
    @abstractmethod
    def seconds_per_sample(self) -> Any:
        """Frozen distribution of `scipy.stats` of the seconds per sample."""

    def draw(self, keyed: CounterRNG, round: int, workers: int, slot: int, before: Array | None) -> Array:
        """Return the seconds per sample of each worker, (1, workers)."""
        return np.asarray(self.seconds_per_sample.ppf(keyed.rng(round, slot).random((1, workers))))

    def compute(self, draw: Array, samples: NDArray[Any]) -> Array:
        return np.asarray(self.work(samples) * draw[0])

    def expected(self, samples: int) -> float | None:
        """Return the mean seconds, or None if mean or variance are infinite (see `Pareto.expected`)."""
        mean, variance = _moments(self.seconds_per_sample)
        return (samples + self.fixed) * mean if np.isfinite(mean) and np.isfinite(variance) else None

    def quantile(self, q: float, samples: int) -> float:
        return float((samples + self.fixed) * self.seconds_per_sample.ppf(q))

    def survival(self, seconds: Array, samples: int = 1) -> Array:
        """Return the probability that a worker takes longer than each of `seconds` (see `order_statistic_mean`).

        >>> from workbench.core.theory.order_statistics import order_statistic_mean
        >>> round(order_statistic_mean(Weibull(shape=1.0, scale=2.0).survival, k=1, n=4), 6)
        0.5
        """
        return np.asarray(self.seconds_per_sample.sf(np.asarray(seconds) / (samples + self.fixed)))


class Distribution(_Inverted):
    """Times with a continuous distribution of `scipy.stats`, by its name: samples * (loc + scale * X).

    >>> model = Distribution(distribution="invgauss", args={"mu": 2.0}, scale=1e-3)
    >>> model.expected(1)
    0.002
    """

    kind = "distribution"
    distribution: str = setting("lognorm", "name of a continuous distribution in scipy.stats")
    args: dict[str, float] = setting({"s": 1.0}, "shape parameters of the distribution, as named by scipy")
    scale: float = setting(5e-5, "factor on the distribution (scale)", "s/sample", gt=0)

    @model_validator(mode="after")
    def _usable(self) -> Self:
        names = self.shapes(self.distribution)
        if set(names) != set(self.args):
            why = f"give {' and '.join(names)}" if names else "it has no shape parameters; take {}"
            raise SettingError(f"args = {short(self.args)}: {self.distribution} needs other ones; {why}")
        low = float(self.seconds_per_sample.support()[0])
        if np.isnan(low) or not np.isfinite(self.seconds_per_sample.ppf(TRIED_QUANTILES)).all():
            why = f"are outside the range of {self.distribution}; scipy.stats.{self.distribution} has it"
            raise SettingError(f"args = {short(self.args)}: {why}")
        if low < 0:
            why = f"{self.distribution} has negative times with it; take a larger shift or another one"
            raise SettingError(f"shift = {self.shift}: {why}")
        return self

    @staticmethod
    def shapes(name: str) -> list[str]:
        """Return the names of a distribution's shape parameters. Raises `SettingError` for an unknown distribution.

        >>> Distribution.shapes("burr12")
        ['c', 'd']
        """
        import scipy.stats

        of_kind = scipy.stats.rv_continuous
        known = {key: each for key, each in vars(scipy.stats).items() if isinstance(each, of_kind)}
        if name not in known:
            raise unknown_name("distribution", name, sorted(known))
        return [each.strip() for each in (known[name].shapes or "").split(",") if each.strip()]

    @property
    def seconds_per_sample(self) -> Any:
        """Frozen distribution of `scipy.stats` of the seconds per sample."""
        return _frozen(self.distribution, tuple(sorted(self.args.items())), self.shift, self.scale)


class _Positive(_Inverted):
    """Base of presets of `Distribution`, whose support begins at `shift`."""

    shift: float = setting(0.0, "least time of one sample, added to the distribution (loc)", "s/sample", ge=0)


class Weibull(_Positive):
    """Weibull times: samples * (shift + scale * W), P(W > t) = exp(-t^shape).

    >>> round(Weibull(shape=1.0, scale=1e-3).expected(10), 6)
    0.01
    """

    kind = "weibull"
    shape: float = setting(1.5, "exponent; below 1, the tail is heavier than that of exponential times", gt=0)
    scale: float = setting(5e-5, "time beyond the shift that 1/e of the draws exceed", "s/sample", gt=0)

    @property
    def seconds_per_sample(self) -> Any:
        """Frozen distribution of `scipy.stats` of the seconds per sample."""
        return _frozen("weibull_min", (("c", self.shape),), self.shift, self.scale)


class Lognormal(_Positive):
    """Lognormal times: samples * (shift + exp(Normal(mu, sigma))), as in DropCompute's simulations.

    >>> round(Lognormal(mu=0.0, sigma=0.5).quantile(0.5, 3), 6)
    3.0
    """

    kind = "lognormal"
    mu: float = setting(-10.0, "mean of the logarithm of the seconds per sample", "log s/sample")
    sigma: float = setting(0.5, "standard deviation of that logarithm", gt=0)

    @property
    def seconds_per_sample(self) -> Any:
        """Frozen distribution of `scipy.stats` of the seconds per sample."""
        return _frozen("lognorm", (("s", self.sigma),), self.shift, float(np.exp(self.mu)))


class Gamma(_Positive):
    """Gamma times: samples * (shift + scale * G), where G has the density t^(shape - 1) e^-t / Gamma(shape).

    >>> round(Gamma(shape=2.0, scale=1e-3).expected(10), 6)
    0.02
    """

    kind = "gamma"
    shape: float = setting(2.0, "number of exponential stages, which need not be whole", gt=0)
    scale: float = setting(2.5e-5, "mean time of a stage", "s/sample", gt=0)

    @property
    def seconds_per_sample(self) -> Any:
        """Frozen distribution of `scipy.stats` of the seconds per sample."""
        return _frozen("gamma", (("a", self.shape),), self.shift, self.scale)


@lru_cache(maxsize=64)
def _frozen(name: str, args: tuple[tuple[str, float], ...], loc: float, scale: float) -> Any:
    import scipy.stats

    return getattr(scipy.stats, name)(**dict(args), loc=loc, scale=scale)


@lru_cache(maxsize=64)
def _moments(frozen: Any) -> tuple[float, float]:
    """Return mean and variance of a frozen distribution, which scipy may have to integrate."""
    mean, variance = frozen.stats("mv")
    return float(mean), float(variance)
