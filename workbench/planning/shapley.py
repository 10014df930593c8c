"""What a number is made of: Shapley values of factors that can be switched on and off."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence


def shapley(factors: Sequence[str], value: Callable[[frozenset[str]], float]) -> dict[str, float]:
    """How much each factor adds to a value, over all orders in which the factors can be switched on, on average.

    The parts add up to the value with all factors on less the value with none. `value` is asked once for each subset.

    >>> shapley(["a", "b"], lambda on: 1.0 + 2.0 * ("a" in on) + 4.0 * (len(on) == 2))
    {'a': 4.0, 'b': 2.0}
    """
    n = len(factors)
    subsets = [frozenset(on) for size in range(n + 1) for on in itertools.combinations(factors, size)]
    known = {on: value(on) for on in subsets}
    parts = dict.fromkeys(factors, 0.0)
    for on in subsets:
        for name in factors:
            if name not in on:
                weight = math.factorial(len(on)) * math.factorial(n - len(on) - 1) / math.factorial(n)
                parts[name] += weight * (known[on | {name}] - known[on])
    return parts
