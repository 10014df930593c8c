"""Lagrange coded computing, LCC, for linear regression: the data are encoded, not the gradients.

S. Li, S. Kalan, Q. Yu, M. Soltanolkotabi, A. Avestimehr, "Polynomially coded regression: Optimal straggler
mitigation via data encoding", 2018 (reference [4] of GC-MMC); Q. Yu et al., "Lagrange coded computing",
AISTATS 2019.

The papers evaluate polynomials. On real points these lose many digits, even at Chebyshev nodes, because any subset of
the results may arrive. Seven random results of forty already cost eight digits. A polynomial on the unit circle of the
complex plane is real after a shift that makes its frequencies symmetric about zero. It is then a trigonometric
polynomial, with half-integer frequencies if their number is even. J frequencies interpolate J blocks, and products of
two have 2J - 1 frequencies. So the threshold is the same with real numbers, and only half as many digits are lost.
"""

from dataclasses import dataclass, field
from math import gcd

import numpy as np

from workbench.core.base.settings import SettingError
from workbench.core.base.types import Array
from workbench.core.codes.base import GradientCode
from workbench.core.codes.checks import between, nearest, remembered, some_are_there


@dataclass(frozen=True, eq=False)
class Lagrange(GradientCode):
    """Code whose workers evaluate a polynomial f(angle) at one angle each.

    f(angle) is the sum over t of Xt^T Xt w, where Xt(angle) is the encoded block t. There are J = ceil(K/r) groups.

    Row i of `matrix` has the values of f's 2J - 1 basis functions at worker i's angle, (n, 2J - 1). So a worker's
    result is its row times f's coefficients. `target` sums them over the angles of the data, which gives the sum over
    all blocks of X_j^T X_j w.
    """

    encoding: Array = field(kw_only=True)  # (n, r, K)

    def encode(self, worker: int) -> Array:
        """Return the coefficients of a worker's r stored blocks over the K data blocks, (r, K)."""
        return np.asarray(self.encoding[worker])

    @property
    def threshold(self) -> int:
        """Number of results that decode, 2 ceil(K/r) - 1."""
        return self.matrix.shape[1]


@remembered
def lagrange(parts: int, workers: int, load: int) -> Lagrange:
    """Return a code of K = parts data blocks on n workers that store r = load coded blocks each.

    The blocks are taken r at a time into J = ceil(K/r) groups (the last is filled with zeros). Stored block t of
    worker i is the sum over groups j of l_j(angle_i) X_(j r + t), where l_j are the Lagrange functions of the groups'
    angles.

    >>> code = lagrange(4, workers=5, load=2)
    >>> X, w = np.arange(4 * 3 * 2.0).reshape(4, 3, 2), np.array([1.0, -1.0])
    >>> stored = [np.einsum("rk,kdp->rdp", code.encode(i), X) for i in (0, 2, 4)]
    >>> results = np.array([sum(B.T @ B @ w for B in blocks) for blocks in stored])
    >>> (code.decode((0, 2, 4)).weights @ results).round(9).tolist()
    [-132.0, -144.0]
    """
    _check(parts, workers, load)
    groups = -(-parts // load)
    threshold = 2 * groups - 1
    centres, angles = _circle(groups), _circle(workers)[spread_order(workers)]
    basis = np.linalg.solve(trigonometric(centres, groups).T, trigonometric(angles, groups).T)
    encoding = np.zeros((workers, load, groups, load))
    encoding[:, np.arange(load), :, np.arange(load)] = basis.T
    return Lagrange(
        trigonometric(angles, threshold),
        workers - threshold,
        target=trigonometric(centres, threshold).sum(axis=0),
        instead="a larger load",
        encoding=encoding.reshape(workers, load, -1)[:, :, :parts],
    )


def _check(parts: int, workers: int, load: int) -> None:
    some_are_there("parts", parts)
    some_are_there("workers", workers)
    between("load", load, 1, parts, f"a worker stores as much as some of the {parts} blocks")
    threshold = 2 * -(-parts // load) - 1
    if threshold > workers:
        fits = nearest(load, [r for r in range(1, parts + 1) if 2 * -(-parts // r) - 1 <= workers])
        raise SettingError(
            f"load = {load}: 2 ceil({parts}/{load}) - 1 = {threshold} results are needed and there are {workers}"
            f" workers; take {fits}"
        )


def _circle(count: int) -> Array:
    return 2 * np.pi * np.arange(count) / count


def trigonometric(angles: Array, count: int) -> Array:
    """Return cos + sin of `count` frequencies, symmetric about zero, at some angles: (angles, count).

    >>> trigonometric(np.array([0.0, np.pi / 2]), 3).round(9).tolist()
    [[1.0, 1.0, 1.0], [-1.0, 1.0, 1.0]]
    """
    phase = np.outer(angles, np.arange(count) - (count - 1) / 2)
    return np.asarray(np.cos(phase) + np.sin(phase))


def spread_order(count: int) -> list[int]:
    """Return an order in which neighbours are far apart: steps near the golden section, coprime to `count`.

    Neighbouring workers often fail together. In this order, their points are not neighbours.

    >>> spread_order(8)
    [0, 3, 6, 1, 4, 7, 2, 5]
    """
    step = next(k for k in range(round(count * 0.381966), 2 * count + 2) if gcd(k, count) == 1)
    return [k * step % count for k in range(count)]
