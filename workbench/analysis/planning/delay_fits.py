"""Fit delay models to measured times.

Times of one task are an array (rounds, workers). A delay model is fitted in units of that task: with one sample
standing for it, `delay_model.compute(draw, 1)` gives such times again. How well a delay model fits is judged by
drawing from it what the engines draw, so nothing here repeats a delay model's formulas: by the Kolmogorov distance
(where times may be off by MAX_FIT_ERROR, or no delay model with atoms could ever fit a measurement), by its tail, and
by whether who was slow stays slow, alone or with all the others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from workbench.core.base.settings import SettingError, Settings, setting
from workbench.core.base.types import Array
from workbench.core.contract.delays import (
    Constant,
    Delays,
    DelayStream,
    Heterogeneous,
    Markov,
    Pareto,
    ShiftedExponential,
    resampled,
)

MAX_FIT_ERROR = 0.05  # share of a time by which a delay model may be off, in the Kolmogorov distance
MAX_DISTANCE, MAX_CORRELATION_GAP, MAX_TAIL_RATIO = 0.1, 0.3, 1.5  # beyond these a delay model does not fit
TAIL_QUANTILE = 0.99
# times that rounds are drawn again for a median's error; the least it is taken for
REDRAWS, MIN_RELATIVE_ERROR = 40, 1e-3
MIN_SLOW_FACTOR = 1.3  # a slow state is at least so many times slower
COMPARED_ROUNDS, COMPARED_WORKERS = 60, 400  # to compare a delay model with
_MISFIT_TEXTS = {
    "lag": "slow workers stay slow for more or fewer rounds than it has it",
    "far": "slow workers stay slow for more or fewer rounds than it has it",
    "together": "workers are slow together",
}
Fit = Callable[[Array], Delays | None]
# Of each load's delay model (None: recorded times are replayed), or of one for all.
Kinds = Sequence[str | None] | str


class Correlations(NamedTuple):
    """Correlations of the times' logarithms."""

    lag: float  # of a worker's times in successive rounds
    far: float  # a third of the rounds apart: stays up where a worker is slow for good
    together: float  # of two workers' times in one round: what holds one up holds up the others


class FittedModel(Settings):
    """A delay model fitted to times of one task, and how well it fits; its one sample stands for the task."""

    delays: Delays = setting(..., "the fitted model, in units of the measured task")
    distance: float = setting(..., "Kolmogorov distance from the measured times, which may be off by 5 %")
    tail: float = setting(..., "the delay model's 99 % quantile over the measured one")
    correlation_gap: float = setting(
        ..., "by how much the delay model's correlations differ from the measured ones, at most"
    )
    worst_correlation: str = setting(..., "which of them does: lag, far or together, see `Correlations`")

    @property
    def fits(self) -> bool:
        """Is it good enough to forecast with?"""
        return (
            self.distance <= MAX_DISTANCE
            and self.correlation_gap <= MAX_CORRELATION_GAP
            and 1 / MAX_TAIL_RATIO <= self.tail <= MAX_TAIL_RATIO
        )

    @property
    def complaint(self) -> str:
        """Why it does not fit; empty where it does."""
        reasons = []
        if self.distance > MAX_DISTANCE:
            reasons.append(f"its Kolmogorov distance is {self.distance:.2f}")
        if self.correlation_gap > MAX_CORRELATION_GAP:
            reasons.append(_MISFIT_TEXTS[self.worst_correlation])
        if not 1 / MAX_TAIL_RATIO <= self.tail <= MAX_TAIL_RATIO:
            reasons.append(f"its 99 % quantile is {self.tail:.2g} times the measured one")
        return " and ".join(reasons)


# ---------------------------------------------------------------- delay models


def fit_constant(times: Array) -> Constant:
    """No spread: the mean."""
    return Constant(shift=float(times.mean()))


def fit_shifted_exponential(times: Array) -> ShiftedExponential:
    """By L-moments, which one odd time does not upset: mean = shift + 1/rate, mean difference = 1/rate.

    >>> fit_shifted_exponential(1.0 + np.random.default_rng(0).exponential(0.5, (500, 4))).shift.__round__(1)
    1.0
    """
    mean, half = l_moments(times)
    spread = min(2 * half, mean)
    return ShiftedExponential(shift=mean - spread, rate=1 / max(spread, 1e-9 * mean))


def fit_pareto(times: Array) -> Pareto:
    """A Pareto variate's logarithm is a shifted exponential one."""
    mean, half = l_moments(np.log(times))
    spread = min(max(2 * half, 1e-9), 0.999)
    return Pareto(shift=float(np.exp(mean - spread)), shape=1 / spread)


def fit_heterogeneous(times: Array) -> Heterogeneous | None:
    """Paper 4: slow workers straggle often, the others seldom; a mixture of two binomials over the workers."""
    late = straggling(times)
    if late is None:
        return None
    slow, often, seldom = _two_kinds(late.sum(axis=0), len(late))
    shift, factor = _levels(times, late)
    return Heterogeneous(shift=shift, slow=slow, slow_straggles=often, active_straggles=seldom, factor=factor)


def fit_markov(times: Array, ends: Sequence[int] = ()) -> Markov | None:
    """Transitions between a fast and a slow state, counted."""
    late = straggling(times)
    if late is None or (late[1:] == late[:-1]).all():  # nobody ever turned: who is slow is so for good
        return None
    enter, leave = ((turned + 0.5) / (turned + stayed + 1) for turned, stayed in _transitions(late, ends))
    shift, factor = _levels(times, late)
    return Markov(shift=shift, p_slow=enter, p_recover=leave, factor=factor)


def _transitions(late: NDArray[np.bool_], ends: Sequence[int]) -> tuple[tuple[int, int], tuple[int, int]]:
    """How often a fast worker turns slow or does not, and a slow one fast; not from one measurement to the next."""
    within = np.setdiff1d(np.arange(1, len(late)), ends)
    changed, before = late[within] != late[within - 1], late[within - 1]
    turned, stayed = (
        [int(np.sum(which & state)) for state in (~before, before)] for which in (changed, ~changed)
    )
    return (turned[0], stayed[0]), (turned[1], stayed[1])


FITS: dict[str, tuple[Fit, int]] = {  # kind -> how it is fitted, its number of parameters
    "constant": (fit_constant, 1),
    "shifted_exponential": (fit_shifted_exponential, 2),
    "pareto": (fit_pareto, 2),
    "heterogeneous": (fit_heterogeneous, 5),
    "markov": (fit_markov, 4),
}


def l_moments(values: Array) -> tuple[float, float]:
    """Mean, and half the mean difference of two values.

    >>> l_moments(np.array([1.0, 3.0]))
    (2.0, 1.0)
    """
    ordered = np.sort(values, axis=None)
    n = len(ordered)
    if n < 2:
        return float(ordered.mean()), 0.0
    weights = 2.0 * np.arange(n) - n + 1
    return float(ordered.mean()), float(weights @ ordered / (n * (n - 1)))


def straggling(times: Array) -> NDArray[np.bool_] | None:
    """Which times belong to the slower of two levels, (rounds, workers): two means on a logarithmic scale.

    None where there are no two levels that are apart.
    """
    ordered = np.sort(np.log(times), axis=None)
    n = len(ordered)
    if n < 2 or ordered[0] == ordered[-1]:
        return None
    left = np.arange(1, n)
    sums = np.cumsum(ordered)
    between = (sums[:-1] / left - (sums[-1] - sums[:-1]) / (n - left)) ** 2 * left * (n - left)
    cut = int(np.argmax(between))
    late = np.asarray(np.log(times) > (ordered[cut] + ordered[cut + 1]) / 2)
    return late if _levels(times, late)[1] >= MIN_SLOW_FACTOR else None


def slow_for_good(times: Array) -> Array | None:
    """Probability that each worker is a slow one, in the words of `Heterogeneous`, (workers,); None: all may be alike.

    That some are slow takes evidence: two kinds are likelier than one by more than two numbers more make them (Bayes'
    information criterion, over the workers).

    >>> slow_for_good(np.where(np.arange(4) == 2, 5.0, 1.0) + np.zeros((9, 1))).round(3).tolist()
    [0.0, 0.0, 1.0, 0.0]
    """
    late = straggling(times)
    if late is None:
        return None
    seen, rounds = late.sum(axis=0), len(late)
    slow, often, seldom = _two_kinds(seen, rounds)
    alike = _logs(seen, rounds, 1.0, float(late.mean())).sum()
    apart = np.logaddexp(_logs(seen, rounds, slow, often), _logs(seen, rounds, 1 - slow, seldom)).sum()
    return _posterior(seen, rounds, slow, often, seldom) if apart - alike > np.log(len(seen)) else None


def _levels(times: Array, late: NDArray[np.bool_]) -> tuple[float, float]:
    """Mean time of the fast state, and how many times longer the slow one takes."""
    fast = float(times[~late].mean())
    return fast, float(times[late].mean()) / fast


def _two_kinds(late: NDArray[np.int64], rounds: int, steps: int = 200) -> tuple[float, float, float]:
    """Share of slow workers, how often they and the others straggle: maximum likelihood, by expectation steps."""
    share = late / rounds
    often, seldom = float(share.max()), float(share.min())
    slow = float(np.mean(share > (often + seldom) / 2))
    slow = slow if 0 < slow < 1 else 0.5
    for _ in range(steps):
        belongs = _posterior(late, rounds, slow, often, seldom)
        slow = float(belongs.mean())
        often = float(belongs @ share / max(belongs.sum(), 1e-12))
        seldom = float((1 - belongs) @ share / max((1 - belongs).sum(), 1e-12))
    ends = np.clip([slow, often, seldom], 0.0, 1.0).tolist()
    return ends[0], ends[1], ends[2]


def _posterior(late: NDArray[np.int64], rounds: int, slow: float, often: float, seldom: float) -> Array:
    """Probability that each worker is a slow one."""
    off = _logs(late, rounds, 1 - slow, seldom) - _logs(late, rounds, slow, often)
    return np.asarray(1 / (1 + np.exp(np.clip(off, -700, 700))))


def _logs(late: NDArray[np.int64], rounds: int, weight: float, chance: float) -> Array:
    """Logarithm of how likely each worker is of a kind of that share, and late in so many rounds, (workers,)."""
    p = np.clip(chance, 1e-9, 1 - 1e-9)
    return np.asarray(np.log(max(weight, 1e-12)) + late * np.log(p) + (rounds - late) * np.log1p(-p))


# ---------------------------------------------------------------- how well a delay model fits


def persistence(times: Array) -> Correlations:
    """Correlations of the logarithms of times. All are 0 for independent rounds of equal workers."""
    off = np.log(times)
    off = off - off.mean()
    power = float(np.mean(off**2))
    rounds, workers = off.shape
    far = max(2, rounds // 3)
    if power < 1e-12 or rounds <= far:
        return Correlations(0.0, 0.0, 0.0)
    pairs = (off.sum(axis=1) ** 2 - (off**2).sum(axis=1)) / max(workers * (workers - 1), 1)
    lag, later = float(np.mean(off[1:] * off[:-1])), float(np.mean(off[far:] * off[:-far]))
    return Correlations(lag / power, later / power, float(pairs.mean()) / power)


def drawn(delay_model: Delays, rounds: int, workers: int, seed: int = 0) -> Array:
    """Times of one sample as the engines draw them: (rounds, workers)."""
    stream = DelayStream(delay_model, seed, workers)
    ones = np.ones(workers)
    return np.stack([delay_model.compute(stream.draw(r), ones) for r in range(rounds)])


def distance(times: Array, others: Array, slack: float = MAX_FIT_ERROR) -> float:
    """Kolmogorov distance of two samples: how far their distributions are apart, where times may be off by `slack`.

    >>> distance(np.array([1.0, 1.0, 1.0, 2.0]), np.array([1.02]))
    0.25
    """
    a, b = np.sort(times, axis=None), np.sort(others, axis=None)
    points = np.concatenate([a, b])

    def above(one: Array, other: Array) -> float:
        """How far the distribution of `one` is above that of `other`, whose times are made `slack` shorter."""
        here = np.searchsorted(one, points, side="right") / len(one)
        there = np.searchsorted(other, points * (1 + slack), side="right") / len(other)
        return float(np.max(here - there, initial=0.0))

    return max(above(a, b), above(b, a))


def assess(times: Array, delay_model: Delays) -> FittedModel:
    """Say how well a delay model, in units of the task, fits measured times."""
    ours = drawn(delay_model, max(COMPARED_ROUNDS, len(times)), COMPARED_WORKERS)
    measured, fitted = persistence(times), persistence(ours[: len(times)])
    gaps = {name: abs(getattr(measured, name) - getattr(fitted, name)) for name in Correlations._fields}
    return FittedModel(
        delays=delay_model,
        distance=distance(times, ours),
        tail=float(np.quantile(ours, TAIL_QUANTILE) / np.quantile(times, TAIL_QUANTILE)),
        correlation_gap=max(gaps.values()),
        worst_correlation=max(gaps, key=lambda name: gaps[name]),
    )


def fitted_models(times: Array) -> list[FittedModel]:
    """Every delay model fitted to times of one task, the best first; those that fit before those that do not.

    Raises `SettingError` for times that are no times.
    """
    check_times(times)
    found = []
    for fit, parameters in FITS.values():
        delay_model = fit(times)
        if delay_model is not None:
            known = assess(times, delay_model)
            found.append(
                (not known.fits, known.distance + known.correlation_gap / 4 + 0.01 * parameters, known)
            )
    return [delay_model for *_, delay_model in sorted(found, key=lambda each: each[:2])]


def refit(times: Array, kind: str, ends: Sequence[int] = ()) -> Delays:
    """The delay model of one kind, fitted anew; a constant where a two-state delay model finds no second state.

    `ends`: rounds with which another measurement begins: who was slow before them says nothing.
    Raises `SettingError` for a kind that cannot be fitted.
    """
    if kind not in FITS:
        raise SettingError(f"kind = {kind!r}: cannot be fitted; take {', '.join(FITS)}")
    delay_model = fit_markov(times, ends) if kind == "markov" else FITS[kind][0](times)
    return fit_constant(times) if delay_model is None else delay_model


def redrawn(
    times: Array,
    kind: str,
    rng: np.random.Generator | int,
    ends: Sequence[int] = (),
    at: Sequence[float] | Array | None = None,
) -> Delays:
    """The delay model of one kind that new workers may obey, as far as a few that were measured tell.

    It is fitted to workers drawn again. Where some are slow for good, of whom drawing again would find none that was
    not measured, their share is drawn from what is left open of it (Jeffreys' posterior of a binomial share); where
    they are so for a while, the chances to turn slow and fast are, from how often that was seen, and the times of both
    states are those of rounds drawn again. `at`: quantiles of
    these posteriors to take, two of them; default: drawn.

    >>> rng = np.random.default_rng(0)
    >>> redrawn(np.ones((9, 4)), "constant", rng).shift
    1.0
    """
    from scipy.special import betaincinv

    rng, workers = np.random.default_rng(rng), times.shape[1]
    if kind not in ("heterogeneous", "markov"):
        return refit(times[:, rng.integers(0, workers, (workers,))], kind)
    delay_model, late = refit(times, kind, ends), straggling(times)
    if late is None or not isinstance(delay_model, Heterogeneous | Markov):
        return delay_model
    seen: dict[str, tuple[float, float]] = dict(
        zip(("p_slow", "p_recover"), _transitions(late, ends), strict=True)
    )
    if isinstance(delay_model, Heterogeneous):
        seen = {"slow": (workers * delay_model.slow, workers * (1 - delay_model.slow))}
        update: dict[str, float] = {}
    else:  # the order of the rounds, which counts there, says nothing of how long either state takes
        rows = resampled(len(times), rng)
        both = 0 < late[rows].sum() < late.size
        update = dict(zip(("shift", "factor"), _levels(times[rows], late[rows]), strict=True)) if both else {}
    which = zip(seen.items(), rng.random(2) if at is None else at, strict=False)
    update |= {name: float(betaincinv(yes + 0.5, no + 0.5, q)) for (name, (yes, no)), q in which}
    return delay_model.model_copy(update=update)


def every_model(
    times: Sequence[Array], kinds: Kinds, fit: Callable[..., Delays] = refit
) -> tuple[Delays | None, ...]:
    """Of each load's times over their median."""
    relative = [t / np.median(t) for t in times]
    if isinstance(kinds, str):
        ends = np.cumsum([len(t) for t in times[:-1]]).tolist()
        return (fit(np.concatenate(relative), kinds, ends=ends),) * len(relative)
    return tuple(None if kind is None else fit(t, kind) for t, kind in zip(relative, kinds, strict=True))


def ordered(kinds: Kinds, times: Sequence[Array], again: Sequence[Array]) -> list[Array]:
    """Times of rounds drawn again, but as they were where their order counts: cut, spells would be short."""
    each = [kinds] * len(times) if isinstance(kinds, str) else kinds
    return [t if kind == "markov" else a for kind, t, a in zip(each, times, again, strict=True)]


def evenly(count: int, rng: np.random.Generator) -> Array:
    """Pairs of quantiles, (count, 2), each evenly in any order: so few drawn freely would miss some part of a law."""
    places = rng.permuted(np.tile(np.arange(count), (2, 1)), axis=1).T
    return np.asarray((places + 0.5) / max(count, 1))


def check_times(times: Array) -> None:
    """Refuse what is no table of times."""
    if times.ndim != 2 or times.size < 2 or not np.all(np.isfinite(times)) or np.any(times <= 0):
        raise SettingError("times: give a table (rounds, workers) of finite seconds above 0")


def judged(times: Sequence[Array]) -> tuple[tuple[tuple[FittedModel, ...], ...], Kinds]:
    """Laws of every load's times, the best first, and the kinds to take: one for all where it fits them all."""
    relative = [t / np.median(t) for t in times]
    for delay_model in fitted_models(np.concatenate(relative)):
        each = [assess(t, delay_model.delays) for t in relative]
        if delay_model.fits and all(one.fits for one in each):
            return tuple((one,) for one in each), delay_model.delays.kind
    alone = tuple(tuple(fitted_models(t)) for t in relative)
    return alone, [best.delays.kind if best.fits else None for best, *_ in alone]


def errors_of(times: Sequence[Array]) -> Array:
    """Relative standard errors of the loads' medians, over rounds that are drawn again, neighbours together.

    So few rounds hardly tell one load's error: half of its square is that of all loads.
    """
    rng = np.random.default_rng(0)
    again = [[np.median(t[resampled(len(t), rng)]) for _ in range(REDRAWS)] for t in times]
    variance = np.var(np.log(again), axis=1)
    return np.asarray(np.maximum(np.sqrt((variance + variance.mean()) / 2), MIN_RELATIVE_ERROR))
