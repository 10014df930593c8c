"""Sequential gradient coding: the load of SR-SGC and M-SGC in every round, and the cost of their old gradients.

Krishnan, Ebrahimi, Khisti, "Sequential gradient coding for straggler mitigation", ICLR 2023.
"""

from __future__ import annotations

import math

from workbench.core.theory._checks import divides, whole


def sr_sgc_stragglers(workers: int, burst: int, window: int, stragglers: int) -> int:
    """Return the number of stragglers s that each job's gradient code tolerates in SR-SGC.

    `workers`: n, 1 or more. `burst`: B, number of successive rounds in which a worker may be late; B must divide W - 1.
    `window`: W, above B. `stragglers`: lambda, number of different workers that may be late within W rounds, 0 to n.

    Returns s = ceil(B lambda / (W - 1 + B)), 0 to n (section 3.2). The load of a round is (s + 1) / n. A job takes at
    most B additional rounds.

    >>> sr_sgc_stragglers(workers=16, burst=2, window=3, stragglers=6)
    3
    """
    _numbers(workers, burst, window, stragglers)
    divides("burst", burst, "window - 1", window - 1)
    return -(-burst * stragglers // (window - 1 + burst))


def m_sgc_load(workers: int, burst: int, window: int, stragglers: int) -> float:
    """Return the share of the data set that a worker computes in a round of M-SGC.

    `workers`, `burst`, `window`, `stragglers`: n, B, W and lambda, as in `sr_sgc_stragglers`; B may be any below W.

    Returns (lambda + 1)(W - 1 + B) / (n (B + (W - 1)(lambda + 1))), see section 3.3. For lambda = n it is (W - 1 + B)
    / (n (W - 1)). The last B minitasks are then idle unless they repeat something. A job takes W - 2 + B additional
    rounds.
    Gradient coding that tolerates lambda stragglers in every round has the load (lambda + 1) / n.

    >>> m_sgc_load(workers=16, burst=1, window=3, stragglers=4) == 15 / 176
    True
    """
    _numbers(workers, burst, window, stragglers)
    own, minitasks = window - 1, window - 1 + burst
    if stragglers == workers:
        return minitasks / (workers * own)
    size = stragglers + 1
    return size * minitasks / (workers * (burst + own * size))


def delayed_step(lag: int) -> float:
    """Return the largest stable step size of gradient descent with old gradients, divided by that with fresh ones.

    `lag`: T, age in updates of the model at which a gradient is computed, 0 or more.

    Returns sin(pi / (2 (2 T + 1))), above 0 to 1: about pi / (4 T) for long lags. On a quadratic of smoothness L, the
    recursion is x(t+1) = x(t) - h L x(t-T). Its first root reaches the unit circle at the angle pi / (2 T + 1), for h L
    = 2 sin(pi / (2 (2 T + 1))). Without a lag this is h L = 2 (Levin and May, 1976).

    >>> [round(delayed_step(lag), 3) for lag in (0, 1, 3)]
    [1.0, 0.5, 0.223]
    """
    whole("lag", lag, 0)
    return math.sin(math.pi / (2 * (2 * lag + 1)))


def _numbers(workers: int, burst: int, window: int, stragglers: int) -> None:
    whole("workers", workers, 1)
    whole("window", window, 2)
    whole("burst", burst, 1, window - 1, "window - 1")
    whole("stragglers", stragglers, 0, workers, "workers")
