"""Compute the regret of an oracle for GC, to which only the share of permanently slow workers is unknown.

    python benchmarks/planner_oracle.py

Regrets are in closed form, with computing times only, for GC by groups and by windows. In the measurement, as many
workers are observed as the plan is for. No rule for the choice has a mean regret below "least possible".
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import numpy as np
from scipy.stats import beta, binom

from workbench.core.base.types import Array

# Rule -> function of the seconds (choices, shares) and the weights of the shares; the choice with the least value wins.
RULES: dict[str, Callable[[Array, Array], Array]] = {
    "mean": lambda took, w: took @ w,
    "mean regret": lambda took, w: lost(took) @ w,
    "median": lambda took, w: took[:, np.searchsorted(np.cumsum(w), 0.5)],
    "greatest regret": lambda took, w: lost(took)[:, within(w)].max(axis=1),
    "greatest extra time": lambda took, w: (took - took.min(axis=0))[:, within(w)].max(axis=1),
}


def lost(took: Array) -> Array:
    """Return the regret of each choice: its time divided by that of the best choice, minus 1."""
    return np.asarray(took / took.min(axis=0) - 1)


def within(weights: Array) -> np.ndarray:
    """Return a mask of the places within the central 90 % of the cumulative weight."""
    return np.abs(np.cumsum(weights) - 0.5) < 0.45


def main() -> None:
    """Print the mean regret of each rule, for clusters that differ in size, slowdown and its frequency."""
    shares = np.linspace(0.001, 0.999, 999)
    truths = np.searchsorted(shares, np.linspace(0.05, 0.5, 10))
    print("mean regret over shares of 5 to 50 %, by the quantity that the rule minimises")
    regrets = []
    for n, factor, often in product((8, 12, 24), (3, 6, 20), (0.4, 0.8, 1.0)):
        late = shares * often + (1 - shares) * 0.02
        groups = [
            g * (1 + (factor - 1) * (1 - (1 - late**g) ** (n // g))) for g in range(1, n + 1) if n % g == 0
        ]
        windows = [g * (1 + (factor - 1) * binom.sf(g - 1, n, late)) for g in range(1, n + 1)]
        took = np.array(groups + windows)
        known = np.array([beta.pdf(shares, k + 0.5, n - k + 0.5) for k in range(n + 1)])
        known /= known.sum(axis=1, keepdims=True)
        chance = np.array([binom.pmf(np.arange(n + 1), n, shares[at]) for at in truths])
        off = lost(took)[:, truths]
        picks = [[int(np.argmin(rule(took, w))) for w in known] for rule in RULES.values()]
        picks.append(np.argmin(off @ chance, axis=0).tolist())  # Bayes' rule with the true prior
        found = [float((chance * off[pick].T).sum(axis=1).mean()) for pick in picks]
        regrets.append(found)
        print(f"  {n} workers, {factor} times as slow in {often:.0%} of rounds: {summary(found)}")
    print("  mean of all:", summary(np.mean(regrets, axis=0).tolist()))


def summary(found: list[float]) -> str:
    """Return the mean regrets by rule, and the lower bound for any rule, as text."""
    return ", ".join(f"{name} {x:.1%}" for name, x in zip([*RULES, "least possible"], found, strict=True))


if __name__ == "__main__":
    main()
