"""Cyclic MDS code: a circulant matrix from a real Reed-Solomon (BCH) code.

N. Raviv, I. Tamo, R. Tandon, A. Dimakis, "Gradient coding from cyclic MDS codes and expander graphs", ICML
2018, section III; W. Halbawi, N. Azizan, F. Salehi, B. Hassibi, "Improving distributed gradient descent using
Reed-Solomon codes", ISIT 2018.
"""

import numpy as np

from workbench.core.base.settings import SettingError
from workbench.core.base.types import Array
from workbench.core.codes.base import GradientCode, Span
from workbench.core.codes.checks import nearest, remembered, stragglers_fit


@remembered
def mds(workers: int, stragglers: int) -> GradientCode:
    """Return a code of n workers and n parts that any n-s answers decode. Row i is a window of s+1, shifted by i.

    The zeros of the generator polynomial are the s consecutive n-th roots of unity around -1. If one of n and s is even
    and the other odd, the zeros are closed under conjugation, so the coefficients are real. If not, the coefficients
    would be complex. Messages are real, so `mds` then raises `SettingError`. (s = 0 always works.)

    By algebra no set of answers fails, not only with probability one. But consecutive roots are the worst conditioned
    choice: with a large number of workers use `cyclic`.

    >>> mds(5, 2).matrix[0].round(3).tolist()
    [0.618, 1.0, 0.618, 0.0, 0.0]
    """
    stragglers_fit(workers, stragglers)
    if stragglers and (workers - stragglers) % 2 == 0:
        fits = nearest(stragglers, [0, *(s for s in range(workers) if (workers - s) % 2)], 2)
        raise SettingError(
            f"stragglers = {stragglers}: the cyclic MDS code of {workers} workers is complex unless one of the two"
            f" numbers is even and the other odd; take {fits}"
        )
    window = generator(workers, stragglers)
    row = np.concatenate([window, np.zeros(workers - len(window))])
    matrix = np.stack([np.roll(row, shift) for shift in range(workers)])
    particular = np.full((1, workers), 1 / window.sum())
    span = Span(np.arange(workers), particular, zeros(workers, stragglers))
    return GradientCode(matrix, stragglers, spans=(span,), instead="code = 'cyclic'")


def generator(n: int, s: int) -> Array:
    """Return the coefficients, (s+1,), of the polynomial whose zeros are the s n-th roots of unity around -1.

    By the q-binomial theorem at q = exp(2 pi i/n), coefficient k is the product over j = 1..k of sin(pi (s-j+1)/n) /
    sin(pi j/n). All are positive and at most 1. No digits cancel, as they would if the factors were multiplied.
    """
    j = np.arange(1, s + 1)
    window = np.concatenate([[1.0], np.cumprod(np.sin(np.pi * (s - j + 1) / n) / np.sin(np.pi * j / n))])
    return np.asarray(window / window.max())


def zeros(n: int, s: int) -> Array:
    """Return the left null space of the circulant, (s, n) orthonormal: Fourier vectors at the polynomial's zeros."""
    frequencies = (n - s + 1) // 2 + np.arange(s)
    angle = 2 * np.pi * np.outer(frequencies, np.arange(n)) / n
    return np.asarray((np.cos(angle) + np.sin(angle)) / np.sqrt(n))
