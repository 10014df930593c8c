"""Fits of delay models with distributions of `scipy.stats`, of mixtures, of spells, and of groups of workers.

Times are an array (rounds, workers), in units of one task, as in `delay_fits`. Parameters are estimated by maximum
likelihood, except for the factors of groups, which are estimated by moments.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from workbench.core.base.settings import SettingError
from workbench.core.base.types import Array
from workbench.core.contract.delays import Distribution, Gamma, Groups, Lognormal, Mixture, Weibull

# minimum times (shifts) to try, as shares of the smallest measured time; at the share 1 the likelihood is infinite
SHIFT_SHARES = (0.0, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95, 0.98)
MIN_SPREAD = 1e-6  # min relative spread of times that is fitted
MIN_SLOW_FACTOR = 1.3  # min ratio of the times in the slow and the fast state
MIN_SHARE = 0.01  # min share of a mixture's component
EM_STEPS = 100  # number of steps of expectation and maximisation (EM)
MIN_GROUP_CORRELATION = 0.4  # min correlation of the logarithms of the times of workers in one group
MIN_GROUP_ROUNDS = 20  # min number of rounds for an estimate of correlations of pairs of workers
MAX_SLOW_STATES = 4  # max number of slow states of Fritchman's channel that are tried


def fit_lognormal(times: Array) -> Lognormal | None:
    """Fit by maximum likelihood; None if the times hardly differ."""

    def at(shift: float, over: Array) -> tuple[float, Any]:
        logs = np.log(over)
        mu, sigma = float(logs.mean()), max(float(logs.std()), MIN_SPREAD)
        likelihood = -np.log(sigma) - mu
        return likelihood, Lognormal(mu=mu, sigma=sigma, shift=shift)

    return _best_shift(times, at)


def fit_weibull(times: Array) -> Weibull | None:
    """Fit by maximum likelihood; None if the times hardly differ."""

    def at(shift: float, over: Array) -> tuple[float, Any]:
        logs = np.log(over)
        middle, relative = float(logs.mean()), logs - logs.mean()

        def slope(shape: float) -> float:
            weights = np.exp(shape * (relative - relative.max()))
            return float(weights @ relative / weights.sum()) - 1 / shape

        shape = _root(slope, 1e-2, 1e6)
        scale = float(np.exp(middle + np.log(np.mean(np.exp(shape * (relative - relative.max())))) / shape))
        scale *= float(np.exp(relative.max()))
        likelihood = np.log(shape) - shape * np.log(scale) + (shape - 1) * middle
        return likelihood, Weibull(shape=shape, scale=scale, shift=shift)

    return _best_shift(times, at)


def fit_gamma(times: Array) -> Gamma | None:
    """Fit by maximum likelihood; None if the times hardly differ."""
    from scipy.special import digamma, gammaln

    def at(shift: float, over: Array) -> tuple[float, Any]:
        mean, middle = float(over.mean()), float(np.log(over).mean())
        left = np.log(mean) - middle
        shape = _root(lambda k: left - np.log(k) + digamma(k), 1e-4, 1e8)
        scale = mean / shape
        likelihood = (shape - 1) * middle - shape - shape * np.log(scale) - float(gammaln(shape))
        return likelihood, Gamma(shape=shape, scale=scale, shift=shift)

    return _best_shift(times, at)


def _root(rising: Callable[[float], float], low: float, high: float) -> float:
    """Return the root of a rising function, or the nearer bound if it has none between them."""
    from scipy.optimize import brentq

    if rising(low) >= 0:
        return low
    return high if rising(high) <= 0 else float(brentq(rising, low, high, xtol=1e-6))


def fit_distribution(times: Array, name: str) -> Distribution:
    """Fit a distribution of `scipy.stats` by its name, without a shift, by scipy's maximum likelihood.

    Raises `SettingError` for a name that `Distribution` refuses, and if scipy cannot fit it.

    >>> times = np.random.default_rng(0).gamma(2.0, 0.5, (200, 5))
    >>> round(fit_distribution(times, "gamma").args["a"])
    2
    """
    import scipy.stats

    names = Distribution.shapes(name)
    try:
        *shapes, _, scale = getattr(scipy.stats, name).fit(times.ravel(), floc=0.0)
    except (scipy.stats.FitError, ValueError) as error:
        raise SettingError(f"distribution = {name!r}: scipy cannot fit it ({error})") from error
    args = {key: float(value) for key, value in zip(names, shapes, strict=True)}
    return Distribution(distribution=name, args=args, scale=float(scale))


def _best_shift(times: Array, fit: Callable[[float, Array], tuple[float, Any]]) -> Any:
    """Return the fit with the shift of the largest mean log-likelihood, or None if the times hardly differ."""
    values = times.ravel()
    least = float(values.min())
    if np.ptp(values) < MIN_SPREAD * least:
        return None
    tried = [fit(share * least, values - share * least) for share in SHIFT_SHARES]
    return max(tried, key=lambda each: each[0])[1]


def fit_mixture(times: Array) -> Mixture | None:
    """Fit a mixture of two lognormal distributions by expectation and maximisation (EM).

    None if one of the two has a share below `MIN_SHARE`, or the times hardly differ.
    """
    logs = np.sort(np.log(times), axis=None)
    if np.ptp(logs) < MIN_SPREAD:
        return None
    cut = float(logs[int(np.argmax(variance_between(logs)))])
    belongs = np.where(logs > cut, 1.0, 0.0)
    mu = sigma = share = np.zeros(2)
    for _ in range(EM_STEPS):
        weights = np.stack([1 - belongs, belongs])
        total = np.maximum(weights.sum(axis=1), 1e-9)
        share, mu = total / len(logs), weights @ logs / total
        spread = np.sqrt((weights * (logs - mu[:, None]) ** 2).sum(axis=1) / total)
        sigma = np.maximum(spread, max(MIN_SPREAD, 1e-3 * float(logs.std())))
        log_density = np.log(share / sigma)[:, None] - ((logs - mu[:, None]) / sigma[:, None]) ** 2 / 2
        belongs = 1 / (1 + np.exp(np.clip(log_density[0] - log_density[1], -700, 700)))
    if share.min() < MIN_SHARE:
        return None
    parts = tuple(Lognormal(mu=float(m), sigma=float(s)) for m, s in zip(mu, sigma, strict=True))
    return Mixture(components=parts, shares=(float(share[0]), 1 - float(share[0])))


def l_moments(values: Array) -> tuple[float, float]:
    """Return the mean, and half the mean difference of two values.

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
    """Return which times belong to the slower of two levels, (rounds, workers), by 2-means of the logarithms.

    Returns None if there are not two separate levels.
    """
    ordered = np.sort(np.log(times), axis=None)
    if len(ordered) < 2 or ordered[0] == ordered[-1]:
        return None
    cut = int(np.argmax(variance_between(ordered)))
    late = np.asarray(np.log(times) > (ordered[cut] + ordered[cut + 1]) / 2)
    return late if levels(times, late)[1] >= MIN_SLOW_FACTOR else None


def levels(times: Array, late: NDArray[np.bool_]) -> tuple[float, float]:
    """Return the mean time in the fast state, and the ratio of the mean time in the slow state to it."""
    fast = float(times[~late].mean())
    return fast, float(times[late].mean()) / fast


def variance_between(ordered: Array) -> Array:
    """Return the variance between two classes for each cut of sorted values, (n - 1,)."""
    n = len(ordered)
    left, sums = np.arange(1, n), np.cumsum(ordered)
    return np.asarray((sums[:-1] / left - (sums[-1] - sums[:-1]) / (n - left)) ** 2 * left * (n - left))


def fit_groups(times: Array) -> Groups | None:
    """Fit workers that are delayed together: a lognormal factor for each group and round.

    Groups are workers whose times correlate, directly or through others. The factor of a group is the geometric mean of
    its workers' times, each divided by the worker's usual time. Returns None if no workers correlate, or if a worker
    has too few rounds.
    """
    found = correlated(times)
    if found is None:
        return None
    logs = np.log(times)
    usual = logs.mean(axis=0)
    off, factors = logs - usual, []
    for group in found:
        if len(group) > 1:
            own = off[:, group]
            factor = own.mean(axis=1)
            # variance of a worker around its group
            own_part = (own - factor[:, None]).var() / (1 - 1 / len(group))
            factors.append((factor.var() - own_part / len(group), len(group)))
            shrunk = max(factors[-1][0], 0.0) / max(float(factor.var()), 1e-12)
            off[:, group] = own - np.sqrt(shrunk) * factor[:, None]
    variance, sizes = np.array(factors).T
    sigma = float(np.sqrt(max(np.average(variance, weights=sizes), MIN_SPREAD**2)))
    base = fit_lognormal(np.exp(usual.mean() + off)) or Lognormal(mu=float(usual.mean()), sigma=MIN_SPREAD)
    common = Lognormal(mu=0.0, sigma=sigma)
    speeds = np.exp(usual.mean() - usual)
    apart = speeds.max() > 1 + 4 * float(off.std()) / len(times) ** 0.5
    own = {"speeds": tuple(speeds.tolist())} if apart else {}
    return Groups(base=base, common=common, effect="multiply", **_place(found), **own)


def correlated(times: Array) -> list[NDArray[np.int64]] | None:
    """Return groups of workers, from 0, whose times correlate, or None if all workers are independent.

    >>> host = np.random.default_rng(0).lognormal(size=(50, 2))
    >>> [group.tolist() for group in correlated(host[:, [0, 0, 1, 1]])]
    [[0, 1], [2, 3]]
    """
    from scipy.sparse.csgraph import connected_components

    if len(times) < MIN_GROUP_ROUNDS:
        return None
    off = np.log(times) - np.log(times).mean(axis=0)
    spread = off.std(axis=0)
    off = off / np.where(spread > 1e-12, spread, np.inf)
    count, group = connected_components(off.T @ off / len(off) > MIN_GROUP_CORRELATION, directed=False)
    found = sorted((np.flatnonzero(group == k) for k in range(count)), key=lambda each: int(each[0]))
    return found if count < len(group) else None


def evidence_of_groups(times: Array) -> float:
    """Return the mean correlation inside the groups of `correlated`, in standard errors, or 0 without groups.

    >>> host = np.random.default_rng(0).lognormal(size=(50, 2))
    >>> evidence_of_groups(host[:, [0, 0, 1, 1]]) > 7, evidence_of_groups(np.ones((50, 4)))
    (True, 0.0)
    """
    logs, found = np.log(times), correlated(times)
    if found is None:
        return 0.0
    inside = [np.corrcoef(logs[:, each].T)[np.triu_indices(len(each), 1)] for each in found if len(each) > 1]
    return float(np.nanmean(np.concatenate(inside)) * len(times) ** 0.5)


def _place(found: Sequence[NDArray[np.int64]]) -> dict[str, Any]:
    """Return the fields of `Groups` for these groups: a size if all are consecutive and equally large, else lists."""
    size = len(found[0])
    order = np.concatenate(found)
    if all(len(group) == size for group in found) and (order == np.arange(len(order))).all():
        return {"size": size}
    return {"members": tuple(tuple((group + 1).tolist()) for group in found if len(group) > 1)}


def slow_states(spells: Sequence[int]) -> tuple[int, float, float]:
    """Return the number of slow states of `Fritchman` and `p_next`, by maximum likelihood from lengths of spells.

    A spell with k states lasts k rounds or more: its length has a negative binomial distribution. The third value is
    the logarithm of the likelihood ratio to one slow state.

    >>> slow_states([3, 3, 3, 4])[:2], slow_states([3, 3, 3, 4])[2] > 3, slow_states([1, 4, 9])[2]
    ((3, 0.923), True, 0.0)
    """
    length = np.array(spells, dtype=float)
    found = [_likelihood(length, k + 1) for k in range(min(MAX_SLOW_STATES, int(length.min())))]
    states = 1 + int(np.argmax(found))
    return states, round(float(states / length.mean()), 3), max(found) - found[0]


def _likelihood(length: Array, states: int) -> float:
    """Return the largest log-likelihood of spells of these lengths (rounds) with a number of slow states."""
    from scipy.special import gammaln

    p = min(states / length.mean(), 1 - 1e-9)
    ways = gammaln(length) - gammaln(states) - gammaln(length - states + 1)
    return float(np.sum(ways + states * np.log(p) + (length - states) * np.log1p(-p)))
