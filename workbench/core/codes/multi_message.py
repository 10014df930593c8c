"""Several coded messages per worker and iteration, GC-MMC: the parts that each message combines, and its senders.

E. Ozfatura, D. Gunduz, S. Ulukus, "Gradient coding with clustering and multi-message communication", DSW 2019,
sections III-A (correlated) and III-B (uncorrelated). There are K workers and K parts. Worker w computes on parts w,
w+1, ... in this order. A clustered scheme uses one code per cluster, with K the cluster's size.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from workbench.core.base.settings import SettingError
from workbench.core.base.types import Array
from workbench.core.codes.base import GradientCode, Span
from workbench.core.codes.checks import between, kinds_fit, remembered, seed_fits, some_are_there
from workbench.core.codes.cyclic import cyclic
from workbench.core.codes.dual import best_dual, gaussian


@dataclass(frozen=True, eq=False)
class MultiMessage(GradientCode):
    """Code whose rows are distinct messages. Message j of worker w is row messages[w, j], ready after[j] computations.

    Any `needed` distinct messages decode.
    """

    messages: NDArray[np.int64] = field(kw_only=True)  # (K, l): row numbers
    after: tuple[int, ...] = field(kw_only=True)  # (l,): number of parts that the worker has computed by then

    @property
    def needed(self) -> int:
        """Number of distinct messages that are always enough."""
        return len(self.matrix) - self.stragglers


@remembered
def correlated(parts: int, load: int, order: int, seed: int = 0) -> MultiMessage:
    """Return K coded gradients of `order` parts each, (K, K). Any K - order + 1 distinct ones decode.

    A worker sends coded gradients w, w+1, ..., w + load - order, so two workers may send the same one. Order 1 is the
    uncoded scheme, UC-MMC.

    >>> code = correlated(6, load=3, order=2)
    >>> code.messages[0].tolist(), code.after, code.needed
    ([0, 1], (2, 3), 5)
    """
    some_are_there("parts", parts)
    between("load", load, 1, parts, f"a worker computes on some of the {parts} parts")
    why = f"a message combines some of the {load} gradients that a worker computes"
    between("order", order, 1, load, why)
    base = cyclic(parts, order - 1, seed)
    messages = (np.arange(parts)[:, None] + np.arange(load - order + 1)) % parts
    after = tuple(range(order, load + 1))
    return MultiMessage(base.matrix, order - 1, spans=base.spans, messages=messages, after=after)


def uncorrelated(
    parts: int, orders: Sequence[int], seed: int = 0, construction: Literal["joint", "separate"] = "joint"
) -> MultiMessage:
    """Return a code in which message j of worker w combines parts w, ..., w + orders[j] - 1; only w can send it.

    The matrix is (K l, K), row w*l + j. Any K l - sum(orders) + 1 messages decode with both constructions; fewer may
    lose a part. "joint" is one code over all messages, as in the paper, but from random decoding weights. (The
    paper's Reed-Solomon code loses all digits at a hundred messages.) "separate" is one cyclic code for each j. Code j
    fails only if orders[j] of its messages are missing, so all codes fail only if sum(orders) are missing. With fewer
    missing messages, one of the codes decodes, with small weights, and often from fewer messages. If orders[j] = K, the
    code contains the paper's hybrid rule.

    >>> code = uncorrelated(6, [3, 2])
    >>> code.matrix.shape, code.needed, code.messages[1].tolist()
    ((12, 6), 8, [2, 3])
    """
    kinds_fit(uncorrelated, (parts, orders, seed, construction), {})
    some_are_there("parts", parts)
    if not len(orders):
        raise SettingError("orders = (): a worker sends at least one message; take one number for each")
    for order in orders:
        between("orders", order, 1, parts, f"a message combines some of the {parts} parts")
    seed_fits(seed)
    return _uncorrelated(parts, tuple(orders), seed, construction)


@remembered
def _uncorrelated(parts: int, orders: tuple[int, ...], seed: int, construction: str) -> MultiMessage:
    rows = np.arange(parts * len(orders)).reshape(parts, -1)
    instead = "fewer messages"
    if construction == "separate":
        matrix, spans = _separate(parts, orders, seed)
    else:
        matrix = best_dual(gaussian(rows.size, sum(orders), seed), 1, _holders(parts, orders)).matrix
        spans, instead = (), "construction = 'separate'"
    return MultiMessage(matrix, sum(orders) - 1, spans=spans, instead=instead, messages=rows, after=orders)


def _holders(parts: int, orders: Sequence[int]) -> list[NDArray[np.int64]]:
    """Return the messages that contain each part: those of the workers w = k - t, t < orders[j]."""
    size = len(orders)
    steps = [(t, j) for j, order in enumerate(orders) for t in range(order)]
    return [np.array([(k - t) % parts * size + j for t, j in steps]) for k in range(parts)]


def _separate(parts: int, orders: Sequence[int], seed: int) -> tuple[Array, tuple[Span, ...]]:
    size = len(orders)
    matrix = np.zeros((parts * size, parts))
    spans: list[Span] = []
    for j, order in enumerate(orders):
        code = cyclic(parts, order - 1, seed)
        matrix[j::size] = code.matrix
        spans += [Span(span.rows * size + j, span.particular, span.null) for span in code.spans]
    return matrix, tuple(spans)
