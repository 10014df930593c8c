"""Asynchronous SGD: commits per second, and the age of the answers in them."""

from __future__ import annotations

from collections.abc import Sequence

from workbench.core.base.settings import SettingError, short
from workbench.core.base.types import Array
from workbench.core.theory._checks import numbers, whole


def async_rate(seconds: Sequence[float] | Array, buffer: int = 1) -> float:
    """Return the commits per second of asynchronous SGD, for one answer per commit: sum over i of 1 / E[T_i].

    `seconds`: E[T_i], mean seconds from one answer of worker i to its next, above 0; shape (N,). `buffer`: K >= 1,
    answers that make a commit (FedBuff), by which the sum is divided; 1 is plain asynchronous SGD.

    Returns commits per second in the long run. The result is our own, by the renewal theorem. It is exact for any
    distribution of the times, if messages do not queue at the master's port. A master that waits for all workers
    makes 1 / E[max T_i] rounds of N answers. Here the mean takes the place of the maximum.

    >>> async_rate([0.5, 1.0, 1.0])
    4.0
    >>> async_rate([0.5, 1.0, 1.0], buffer=4)
    1.0
    """
    means = numbers("seconds", seconds)
    if means.ndim != 1 or not len(means) or means.min() <= 0:
        raise SettingError(f"seconds = {short(seconds)}: must be a non-empty list of numbers above 0")
    return float((1.0 / means).sum() / whole("buffer", buffer, 1))


def async_staleness(workers: int, buffer: int = 1) -> float:
    """Return the mean age of an answer in commits: (N - 1) / K.

    The age counts from the model that the answer was computed at to the model that it changes.

    `workers`: N >= 1. `buffer`: K >= 1, answers that make a commit.

    Returns commits. The result is our own, by counting. Whenever the master commits, all workers but the one that has
    just answered have an answer under way, which is then one commit older. The result therefore holds for any times,
    any link and any queue at the port.

    >>> async_staleness(12), async_staleness(12, buffer=4)
    (11.0, 2.75)
    """
    return (whole("workers", workers, 1) - 1) / whole("buffer", buffer, 1)
