"""Sequential gradient coding: what SR-SGC and M-SGC cost in every round, and how long a job takes at most."""

from __future__ import annotations

from workbench.theory._checks import divides, whole


def sr_sgc_stragglers(workers: int, burst: int, window: int, stragglers: int) -> int:
    """Stragglers s that each job's gradient code stands in SR-SGC.

    Parameters
    ----------
    workers : int
        n, 1 or more.
    burst : int
        B, rounds in a row in which a worker may be late. Must divide W - 1.
    window : int
        W, above B.
    stragglers : int
        lambda, different workers that may be late within W rounds, 0 to n.

    Returns
    -------
    int
        s = ceil(B lambda / (W - 1 + B)), 0 to n. A round's load is (s + 1) / n; a job takes B rounds more at most.

    Notes
    -----
    Krishnan, Ebrahimi, Khisti, "Sequential gradient coding for straggler mitigation", ICLR 2023, section 3.2.

    Examples
    --------
    >>> sr_sgc_stragglers(workers=16, burst=2, window=3, stragglers=6)
    3
    """
    _numbers(workers, burst, window, stragglers)
    divides("burst", burst, "window - 1", window - 1)
    return -(-burst * stragglers // (window - 1 + burst))


def m_sgc_load(workers: int, burst: int, window: int, stragglers: int) -> float:
    """Share of the data set that a worker goes through in a round of M-SGC.

    Parameters
    ----------
    workers : int
        n, 1 or more.
    burst : int
        B, rounds in a row in which a worker may be late, below W.
    window : int
        W.
    stragglers : int
        lambda, different workers that may be late within W rounds, 0 to n.

    Returns
    -------
    float
        (lambda + 1)(W - 1 + B) / (n (B + (W - 1)(lambda + 1))), and (W - 1 + B) / (n (W - 1)) for lambda = n, where the
        last B minitasks are idle unless they repeat something. A job takes W - 2 + B rounds more.

    Notes
    -----
    Krishnan, Ebrahimi, Khisti, "Sequential gradient coding for straggler mitigation", ICLR 2023, section 3.3. Gradient
    coding that stands lambda stragglers in every round has (lambda + 1) / n.

    Examples
    --------
    >>> m_sgc_load(workers=16, burst=1, window=3, stragglers=4) == 15 / 176
    True
    """
    _numbers(workers, burst, window, stragglers)
    own, minitasks = window - 1, window - 1 + burst
    if stragglers == workers:
        return minitasks / (workers * own)
    size = stragglers + 1
    return size * minitasks / (workers * (burst + own * size))


def _numbers(workers: int, burst: int, window: int, stragglers: int) -> None:
    whole("workers", workers, 1)
    whole("window", window, 2)
    whole("burst", burst, 1, window - 1, "window - 1")
    whole("stragglers", stragglers, 0, workers, "workers")
