"""Paper 3, CADA and G-CADA: number of selected workers, and time, messages and samples of an iteration.

F. Zhu, J. Zhang, O. Simeone, X. Wang, "Adaptive worker grouping for communication-efficient and straggler-tolerant
distributed SGD". There are M workers, or G groups of M_G = M / G workers. A worker takes Exp(mean eta). Section VI
calls eta "mu", which equation (6) uses for the mini-batch size. Distributed Adam and SGD are the case that all M
workers are selected, CADA the case of groups of one worker.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from workbench.core.base.settings import SettingError
from workbench.core.base.types import Array
from workbench.core.theory._checks import choice, numbers, positive, real, whole
from workbench.core.theory.order_statistics import exponential_order_mean, harmonic


def cada_selected(
    smoothness: Sequence[float] | Array, c: float, max_age: int, form: Literal["rule", "published"] = "rule"
) -> float:
    """Return an upper bound on the average number of workers (or groups) that the adaptive rule selects per iteration.

    A worker with L_m^2 <= c / d cannot break rule (7) before its age is d + 1. It is selected at most once in d + 1
    iterations, and at least once in D. With d_m = floor(c / L_m^2), worker m adds 1 / min(d_m + 1, D).

    Returns M-bar or G-bar, 0 to M or G. Paper 3, equations (12) and (15): M-bar = sum over d = 0..D of n_d / (d + 1).
    Here n_d is the number of workers with Lbar_(d+1)^2 < L_m^2 < Lbar_d^2, where Lbar_d^2 = c_d / (d M^2). The paper
    prints Lbar_0 = 0, which counts no worker of class 0 (those selected in every iteration). Lbar_0 must be infinite.
    Class D is selected when its age is D (algorithm 1, line 3, "tau >= D"): in 1 / D of the iterations, not 1
    / (D + 1). The M^2 belongs to a rule scaled otherwise (LAG, the paper's reference 8).

    `smoothness`: L_m of every worker's loss, or L_g of every group's loss; shape (M,) or (G,), not negative. `c`:
    constant of the rule, above 0. `max_age`: D >= 1; a worker that was not selected for D iterations is selected.
    `form`: "rule" for the bound by rule (7), or "published" for (12) or (15) as printed, with every c_d = c.

    >>> cada_selected([3.0, 1.0, 0.1], c=2.0, max_age=10)  # every, every third and every tenth iteration
    1.4333333333333333
    >>> round(cada_selected([3.0, 1.0, 0.1], c=2.0, max_age=10, form="published"), 6)
    0.090909
    """
    squares = numbers("smoothness", smoothness) ** 2
    if squares.ndim != 1 or not len(squares):
        why = f"must be a non-empty list of finite numbers, not shape {squares.shape}"
        raise SettingError(f"smoothness: {why}")
    c, max_age = positive("c", c), whole("max_age", max_age, 1)
    choice("form", form, "rule", "published")
    if form == "published":
        return _published(squares, c, max_age)
    with np.errstate(divide="ignore", over="ignore"):
        ages = np.minimum(np.floor(c / squares), max_age)
    return float((1.0 / np.minimum(ages + 1, max_age)).sum())


def _published(squares: Array, c: float, max_age: int) -> float:
    ages = np.arange(max_age + 2)
    limits = np.zeros(max_age + 2)  # Lbar_0 and Lbar_(D+1) are 0
    limits[1:-1] = c / (ages[1:-1] * len(squares) ** 2)
    within = (limits[1:, None] < squares) & (squares < limits[:-1, None])
    return float((within.sum(1) / (ages[:-1] + 1)).sum())


def dadam_time(workers: int, mean: float = 1.0) -> float:
    """Return the expected time per iteration of distributed Adam (and SGD): the slowest of all workers, eta H_M.

    `workers`: M >= 1. `mean`: mean time of one mini-batch, eta, s.

    Returns seconds. Paper 3, equation (11).

    >>> round(dadam_time(12, mean=1e-4), 9)
    0.000310321
    """
    return exponential_order_mean(whole("workers", workers, 1), workers, mean)


def cada_time(selected: float, mean: float = 1.0) -> float:
    """Return the expected time per iteration of CADA: the slowest of the selected workers, eta H_Mbar.

    `selected`: mean number of workers selected per iteration, M-bar, which need not be whole. `mean`: mean time of one
    mini-batch, eta, s.

    Returns seconds. The result is exact if the number of selected workers is always the same, and an upper bound if it
    varies, since H is concave. Paper 3, equation (13), with `harmonic` between whole numbers.

    >>> round(cada_time(2, mean=1.0), 9)
    1.5
    """
    return gcada_time(selected, 1, mean)


def gcada_time(selected: float, group_size: int, mean: float = 1.0) -> float:
    """Return the expected time per iteration of G-CADA: (eta / M_G) H_Gbar.

    That is the time of the slowest selected group's fastest worker.

    `selected`: mean number of groups selected per iteration, G-bar, which need not be whole. `group_size`: workers per
    group, M_G >= 1 (1 is CADA). `mean`: mean time of one mini-batch, eta, s.

    Returns seconds. The result is exact if the number of selected groups is always the same, and an upper bound if it
    varies, since H is concave. Paper 3, equations (14) and (16). The fastest of M_G exponential times is exponential
    with mean eta / M_G, so the integral (14) is that of H. (14) is the mean of the largest of a groups. Its printed
    subscript a : M_G should read a : a.

    >>> gcada_time(2, group_size=3, mean=1.0)
    0.5
    """
    size = whole("group_size", group_size, 1)
    return positive("mean", mean) / size * harmonic(real("selected", selected))


def gcada_communication(selected: float, group_size: int = 1) -> float:
    """Return messages per iteration: G-bar (M_G + 1), since every selected worker downloads and one per group uploads.

    `selected`: mean number of groups selected per iteration, G-bar; for CADA M-bar, for distributed Adam M.
    `group_size`: workers per group, M_G; 1 for CADA and distributed Adam, with 2 messages per worker.

    Returns model downloads plus gradient uploads. Paper 3, equations (17), (18) and (19).

    >>> gcada_communication(3073, 3), gcada_communication(9646)  # the paper's totals at training loss 0.1
    (12292.0, 19292.0)
    """
    return real("selected", selected) * (whole("group_size", group_size, 1) + 1)


def gcada_computation(selected: float, group_size: int = 1, batch: float = 1.0) -> float:
    """Return the number of samples processed per iteration: G-bar M_G mu.

    `selected`, `group_size`: as in `gcada_communication`. `batch`: samples of a mini-batch, mu. With 1, mini-batch
    gradients are counted, as in the paper's figures.

    Returns samples (mini-batches with batch=1). Paper 3, equations (20), (21) and (22).

    >>> gcada_computation(3073, 3), gcada_computation(9646)
    (9219.0, 9646.0)
    """
    return real("selected", selected) * whole("group_size", group_size, 1) * positive("batch", batch)


def communication_ratio(group_size: int) -> float:
    """Return communication divided by computation (in mini-batches) of G-CADA: (M_G + 1) / M_G, for any selection.

    `group_size`: workers per group, M_G; 1 (CADA, distributed Adam) gives 2.

    Returns a pure number. Paper 3, (19) divided by (22). The published 12292 / 9219 = 4 / 3 means M_G = 3, although
    M_G = 4 is stated.

    >>> communication_ratio(3) == 12292 / 9219
    True
    """
    return gcada_communication(1.0, group_size) / gcada_computation(1.0, group_size)
