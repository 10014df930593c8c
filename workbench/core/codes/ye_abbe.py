"""Communication-efficient gradient coding: messages of p/m coordinates.

M. Ye, E. Abbe, "Communication-computation efficient gradient coding", ICML 2018. There are n workers and n parts, d
parts per worker, s stragglers, and messages are shorter than gradients by a factor of m. That is possible if and only
if d >= s + m (Theorem 1).
"""

from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from workbench.core.base.settings import SettingError
from workbench.core.base.types import Array
from workbench.core.codes.base import GradientCode, Span
from workbench.core.codes.checks import between, remembered, seed_fits, stragglers_fit
from workbench.core.codes.cyclic import cyclic_holders
from workbench.core.codes.dual import Dual, best_dual, dual, harmonics, judged_sets, perturbed

Kind = Literal["auto", "polynomial", "gaussian", "stable"]
# max condition number at which `auto` uses polynomials: beyond it, half of a double's digits may be lost
MAX_CONDITION_NUMBER = 1e8
SURVIVOR_SETS = 500  # number of survivor sets that are evaluated to find the worst condition number
RELATIVE_ZERO = 1e-12  # singular values that are smaller than the largest by this factor count as zeros
MAX_MEASURED_ROWS = 60  # max number of rows of a Vandermonde matrix whose condition number is measured


@dataclass(frozen=True, eq=False)
class YeAbbe(GradientCode):
    """Code whose messages have m coordinates each. `matrix` is (n, n*m), column i*m + u for coordinate u of part i.

    Gradients are cut into blocks of m coordinates, where g[v*m : v*m+m] is block v, and padded with zeros. Block v of
    a worker's message is the sum over its parts i and u = 0..m-1 of encode(worker)[u, i] * g_i[v*m + u]. Weights (m,
    answers) turn block v of the answers into the m coordinates of block v of the sum.
    """

    windows: NDArray[np.int64] = field(kw_only=True)  # (n, d): the parts of each worker
    reduction: int = field(kw_only=True)  # m
    construction: str = field(kw_only=True)
    V: Array = field(kw_only=True, repr=False)  # (n-d+m, n): any n-d+m columns are independent

    def encode(self, worker: int) -> Array:
        """Return the coefficients of a worker's message over its parts, (m, d), in the order of its window."""
        return self.matrix[worker].reshape(-1, self.reduction)[self.windows[worker]].T

    def message(self, worker: int, gradients: Array) -> Array:
        """Return the message of a worker, (ceil(p/m),), from the gradients of its parts, (d, p)."""
        return interleave(self.encode(worker) @ gradients)

    def restore(self, weights: Array, messages: Array, size: int) -> Array:
        """Return the sum of all gradients, (size,), from weights, (m, answers), and messages, (answers, ceil(p/m)).

        Messages may have more axes, as for weights over parts. Then padding is not removed.
        """
        # (p/m, ..., m): axes are the block v, ..., and the coordinate u
        blocks = np.tensordot(messages, weights, axes=([0], [1]))
        whole = np.moveaxis(blocks, -1, 1).reshape(-1, *blocks.shape[1:-1])
        return whole[:size] if whole.ndim == 1 and self.reduction > 1 else whole

    def condition(self, answered: tuple[int, ...]) -> float:
        """Return the condition number of the system that the paper inverts for these answers: the columns of V.

        In the stable construction workers may form classes, whose answers are linearly dependent. Singular values that
        are only rounding errors are then ignored.
        """
        sigma = np.linalg.svd(self.V[:, answered], compute_uv=False)
        rounding = RELATIVE_ZERO * sigma[0] if self.construction == "stable" else 0.0
        return float(sigma[0] / sigma[sigma > rounding][-1])


def interleave(coded: Array) -> Array:
    """Sum coordinates u, u+m, ... of the u-th of m coded gradients over u: (m, p) -> (ceil(p/m),).

    >>> interleave(np.array([[1.0, 2.0, 3.0], [10.0, 20.0, 30.0]])).tolist()
    [21.0, 3.0]
    """
    m = len(coded)
    padding = [(0, 0), (0, -coded.shape[1] % m), *[(0, 0)] * (coded.ndim - 2)]
    blocks = np.pad(coded, padding).reshape(m, -1, m, *coded.shape[2:])
    return np.asarray(np.einsum("uvu...->v...", blocks))


@remembered
def ye_abbe(
    workers: int, load: int, stragglers: int, reduction: int, construction: Kind = "auto", seed: int = 0
) -> YeAbbe:
    """Return a code of n workers, each with d = load parts, for s stragglers, with messages shorter by m = reduction.

    There are four constructions. "polynomial" is section 3 of the paper, with nodes +-(1 + i/2). "gaussian" is the
    paper's alternative for many workers, with a random V. "stable" takes evenly spread Fourier vectors for V: see
    `workbench.core.codes.dual`. "auto" uses polynomials while their worst condition number is below 1e8, else "stable".
    With a load above s + m, the code tolerates load - m stragglers. At most s may be late, and the additional answers
    make the weights smaller.

    >>> code = ye_abbe(5, load=3, stragglers=1, reduction=2)
    >>> gradients = np.arange(5 * 3.0).reshape(5, 3)
    >>> messages = [code.message(worker, gradients[code.windows[worker]]) for worker in (0, 1, 2, 4)]
    >>> weights = code.decode((0, 1, 2, 4)).weights
    >>> code.restore(weights, np.array(messages), size=3).round(9).tolist()
    [30.0, 35.0, 40.0]
    """
    _check(workers, load, stragglers, reduction)
    seed_fits(seed)
    construction = chosen(workers, load, reduction) if construction == "auto" else construction
    code, V = _design(workers, load, reduction, construction, seed)
    return YeAbbe(
        code.matrix,
        stragglers,
        target=np.tile(np.eye(reduction), workers),
        spans=(Span(np.arange(workers), code.particular, code.null),),
        instead="fewer stragglers" if construction == "stable" else "construction = 'stable'",
        windows=(np.arange(workers)[:, None] + np.arange(load)) % workers,
        reduction=reduction,
        construction=construction,
        V=V,
    )


def _check(workers: int, load: int, stragglers: int, reduction: int) -> None:
    stragglers_fit(workers, stragglers)
    between("reduction", reduction, 1, workers, f"a message is cut to a share of 1 to 1/{workers}")
    between("load", load, 1, workers, f"a worker stores some of the {workers} parts")
    if load < stragglers + reduction:
        fits = f"load = {stragglers + reduction}, or " if stragglers + reduction <= workers else ""
        raise SettingError(
            f"load = {load}: must be at least stragglers + reduction = {stragglers} + {reduction} (Theorem 1 of"
            f" Ye and Abbe 2018); take {fits}a sum of the two of at most {load}"
        )


def chosen(workers: int, load: int, reduction: int) -> Literal["polynomial", "stable"]:
    """Return the construction that `auto` uses.

    The condition number of a Vandermonde matrix of k real nodes is at least 2^(k-2) / sqrt(k) (Gautschi and Inglese
    1988). So beyond `MAX_MEASURED_ROWS` nodes it is not measured.
    """
    rows = workers - load + reduction
    if rows > MAX_MEASURED_ROWS:
        return "stable"
    worst = worst_condition(vandermonde(workers, rows))
    return "polynomial" if worst <= MAX_CONDITION_NUMBER else "stable"


def worst_condition(V: Array) -> float:
    """Return the largest condition number of square column subsets of V, over at most `SURVIVOR_SETS` of them."""
    rows, n = V.shape
    missing = judged_sets(n, n - rows)
    missing = missing[:: -(-len(missing) // SURVIVOR_SETS)]
    return max(float(np.linalg.cond(np.delete(V, gone, axis=1))) for gone in missing)


def nodes(n: int) -> Array:
    """Return the evaluation points of section 4 of the paper: +-(1 + i/2), and 0 for an odd number.

    >>> nodes(5).tolist()
    [1.0, 1.5, -1.0, -1.5, 0.0]
    """
    half = 1 + np.arange(n // 2) / 2
    return np.concatenate([half, -half, np.zeros(n % 2)])


def vandermonde(n: int, rows: int) -> Array:
    """Return powers 0, ..., rows-1 of the n nodes, (rows, n): equation (17) of the paper for all workers."""
    return np.vander(nodes(n), rows, increasing=True).T


def from_generator(V: Array, reduction: int, windows: int) -> Dual:
    """Return the code of a matrix V, (n-d+m, n), by the paper: its weights W solve V W^T = the last m unit vectors."""
    rows, n = V.shape
    q, r = np.linalg.qr(V.T, mode="complete")
    last = np.eye(rows)[:, rows - reduction :]
    particular = (q[:, :rows] @ np.linalg.solve(r[:rows].T, last)).T
    return dual(particular, q[:, rows:].T, cyclic_holders(n, windows))


def _design(n: int, d: int, m: int, construction: str, seed: int) -> tuple[Dual, Array]:
    if construction == "stable":
        code = _stable(n, d, m, seed)
        return code, np.linalg.qr(code.null.T, mode="complete")[0].T[d - m :]
    if construction == "polynomial" and n - d + m > MAX_MEASURED_ROWS:
        raise SettingError(
            f"construction = 'polynomial': a Vandermonde matrix of {n - d + m} rows has lost all digits, at most"
            f" {MAX_MEASURED_ROWS} can work; take 'stable' or 'gaussian'"
        )
    if construction == "gaussian":
        V = np.random.default_rng(seed).standard_normal((n - d + m, n))
    else:
        V = vandermonde(n, n - d + m)
    return from_generator(V, m, d), V


def _stable(n: int, d: int, m: int, seed: int) -> Dual:
    """Return the code of evenly spread frequencies.

    If d divides n, the frequencies are exactly even. Then workers in steps of d tile the parts and send the same
    combination of coordinates. With s missing workers, m of the d classes are complete. As trigonometric polynomials,
    the combinations of any m classes are independent.
    """
    base, holders = harmonics(n, d, m), cyclic_holders(n, d)
    if n % d == 0:
        return dual(base[:m], base[m:], holders)
    return best_dual(perturbed(base, m, seed), m, holders)
