"""Attribution of a number, or a series of numbers, to factors that can be switched on and off: Shapley values."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from functools import reduce
from itertools import combinations
from operator import add
from typing import TypeVar

from workbench.core.base.types import Array

Factor = TypeVar("Factor", bound=Hashable)
Value = TypeVar("Value", float, Array)


def shapley(factors: Sequence[Factor], value: Callable[[frozenset[Factor]], Value]) -> dict[Factor, Value]:
    """Return how much each factor adds to a value, averaged over all orders of switching the factors on.

    The results add up to the value with all factors less the value with none. `value` is called once for each subset.

    >>> shapley(["a", "b"], lambda on: 1.0 + 2.0 * ("a" in on) + 4.0 * (len(on) == 2))
    {'a': 4.0, 'b': 2.0}
    """
    n = len(factors)
    known = {frozenset(on): value(frozenset(on)) for k in range(n + 1) for on in combinations(factors, k)}

    def value_of(name: Factor) -> Value:
        without = [on for on in known if name not in on]
        weights = [1 / (n * math.comb(n - 1, len(on))) for on in without]
        return reduce(
            add, (w * (known[on | {name}] - known[on]) for w, on in zip(weights, without, strict=True))
        )

    return {name: value_of(name) for name in factors}
