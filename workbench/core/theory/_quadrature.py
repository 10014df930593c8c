"""Means of non-negative random times from their survival functions, by adaptive quadrature."""

from collections.abc import Callable

import numpy as np

from workbench.core.base.settings import SettingError
from workbench.core.base.types import Array

Survival = Callable[[Array], Array]  # times (m,) in s -> P(T > t) (m,)

# Clenshaw-Curtis nodes; they include the ends of a panel, so that every jump is seen
NODES = np.cos(np.pi * np.arange(17) / 16)
MOMENTS = np.array([2 / (1 - k * k) if k % 2 == 0 else 0.0 for k in range(17)])
WEIGHTS = np.linalg.solve(np.polynomial.chebyshev.chebvander(NODES, 16).T, MOMENTS)
TOLERANCE = 1e-13  # tolerance of each panel, relative to the mean (roughly)
# panels are not split in the middle, where jumps at round numbers may cancel by symmetry
SPLIT_SHARE = 0.5 * (3 - 5**0.5)
MAX_SPLITS = 70  # max number of splits of a panel, after which a jump is located to 1e-14 of the panel


def mean_time(survival: Survival, start: float = 0.0) -> float:
    """Return E[T] = start + integral of P(T > t) over t >= start, for a time T >= start.

    `survival`: function from times, an array (m,), in s, to P(T > t), an array (m,), which must not increase. `start`:
    lower bound of T, s. It only saves the search for a kink there.

    Panels begin where the survival function leaves 1, double in length, and end where it is negligible. They are split
    until splitting changes nothing. Kinks (a shift, a deadline) and jumps are found, because the function is monotone.

    Returns the mean, in the unit of the times. The relative error is about 1e-11 for smooth distributions. Raises
    `SettingError` if the mean is infinite or cannot be distinguished from infinite. It is also raised if the function
    returns values that are not probabilities.

    >>> round(mean_time(lambda t: np.exp(-t / 3)), 9)
    3.0
    """

    def left(beyond: Array) -> Array:
        return survival(start + beyond)

    edges = _edges(left)
    return float(start + edges[0] + _integrate(left, edges[:-1], edges[1:], start + edges[0]))


def _edges(survival: Survival) -> Array:
    """Return powers of two, from a time at which P(T > t) is 1 to one after which the integral is negligible."""
    powers: Array = np.exp2(np.arange(-150.0, 1000.0))
    left = survival(powers[:250])
    if left[-1] > 0:
        left = np.concatenate([left, survival(powers[250:])])
    if not ((left > -1e-9) & (left < 1 + 1e-9)).all():
        why = "gives values that are not probabilities; it must map times >= 0 to P(T > t)"
        raise SettingError(f"survival: {why}")
    rest = left * powers[: len(left)]
    first = int(np.argmax((1.0 - left) * powers[: len(left)] > 1e-14 * rest.max()))
    unfinished = np.flatnonzero(rest > 1e-17 * rest.max())
    last = int(unfinished[-1]) + 1 if len(unfinished) else 0
    if last >= len(rest):
        why = "this time has no finite mean (its tail is too heavy); use a lighter tail"
        raise SettingError(f"survival: {why}")
    return powers[max(first - 1, 0) : max(last, first) + 1]


def _integrate(f: Survival, a: Array, b: Array, before: float) -> float:
    """Return the integral over all panels a..b.

    A panel is split in two if the sum of its pieces differs from its own value.
    """
    total, coarse = 0.0, _panels(f, a, b)
    tolerance = TOLERANCE * (before + float(coarse.sum()))
    for _ in range(MAX_SPLITS):
        between = a + SPLIT_SHARE * (b - a)
        a, b = np.stack([a, between], 1).ravel(), np.stack([between, b], 1).ravel()
        pieces = _panels(f, a, b)
        fine = pieces.reshape(-1, 2).sum(1)
        wrong = np.abs(fine - coarse) > tolerance
        total += float(fine[~wrong].sum())
        again = np.repeat(wrong, 2)
        a, b, coarse = a[again], b[again], pieces[again]
        if not len(a):
            break
    return total + float(coarse.sum())


def _panels(f: Survival, a: Array, b: Array) -> Array:
    """Return the integral over each panel; shape like a."""
    half = (b - a) / 2
    times = (a + half)[:, None] + half[:, None] * NODES
    return np.asarray(half * (f(times.ravel()).reshape(times.shape) @ WEIGHTS))
