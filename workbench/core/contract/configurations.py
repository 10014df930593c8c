"""Configurations that an adaptive run may change to, and the samples that such a change moves."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from workbench.core.base.settings import SettingError
from workbench.core.codes.quality import FLOAT64_BYTES, digits_of, dtype_of, least_digits, lost
from workbench.core.contract.batches import BatchSampler
from workbench.core.contract.plan import MASTER, Plan
from workbench.core.contract.scheme import MIN_DIGITS, Scheme

DEADLINE_FACTORS = (0.5, 0.7, 1.4, 2.0)  # other deadlines that are tried, in units of the scheme's deadline


@dataclass(frozen=True)
class Configuration:
    """Scheme with its parameters, for a number of workers and samples.

    >>> way = Configuration("GC", {"stragglers": 1}, workers=4, samples=40)
    >>> str(way), way.plan.stored.tolist()
    ('GC (stragglers = 1)', [0, 20, 20, 20, 20])
    """

    name: str
    parameters: dict[str, Any]
    workers: int
    samples: int

    @cached_property
    def scheme(self) -> Scheme:
        """The scheme, made from its name and parameters."""
        return Scheme.catalogue.get_class(self.name)(**self.parameters)

    @cached_property
    def plan(self) -> Plan:
        """The plan of the scheme."""
        return self.scheme.plan(self.workers, self.samples)

    def __str__(self) -> str:
        numbers = ", ".join(f"{name} = {value}" for name, value in self.parameters.items())
        return f"{self.name} ({numbers})" if numbers else self.name


class StoredParts:
    """Samples that each worker stores: those of all plans so far.

    >>> held = StoredParts(Configuration("GC", {"stragglers": 1}, 4, 40).plan)
    >>> held.missing(Configuration("UMW", {}, 4, 40).plan).tolist()
    [0, 0, 0, 0]
    >>> held.missing(Configuration("GC", {"stragglers": 2}, 4, 40).plan).tolist()
    [10, 10, 10, 10]
    """

    def __init__(self, plan: Plan) -> None:
        # bounds of pieces of the data, and which worker stores which piece, (workers, pieces)
        self.bounds, self.stored = _pieces(plan)

    def missing(self, plan: Plan) -> NDArray[np.int64]:
        """Return the number of samples that each worker needs for a plan and does not store, (workers,)."""
        bounds, wanted = _pieces(plan)
        both = np.union1d(self.bounds, bounds)
        lacks = _cut(wanted, bounds, both) & ~_cut(self.stored, self.bounds, both)
        return np.asarray(lacks @ np.diff(both))

    def add(self, plan: Plan) -> None:
        """Add the samples of a plan to those that the workers store."""
        bounds, more = _pieces(plan)
        both = np.union1d(self.bounds, bounds)
        self.bounds, self.stored = both, _cut(self.stored, self.bounds, both) | _cut(more, bounds, both)


def _pieces(plan: Plan) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    has = np.zeros((plan.ranks, plan.parts), dtype=bool)
    has[np.repeat(np.arange(plan.ranks), np.diff(plan.indptr)), plan.indices] = True
    full = plan.sizes > 0
    return np.unique(plan.bounds), has[1:, full]


def _cut(has: NDArray[np.bool_], bounds: NDArray[np.int64], finer: NDArray[np.int64]) -> NDArray[np.bool_]:
    return np.asarray(has[:, np.searchsorted(bounds, finer[:-1], side="right") - 1])


def reason_fixed(scheme: Scheme, plan: Plan) -> str:
    """Return the reason why a run of a scheme cannot change to another scheme between rounds, or empty if it can."""
    if scheme.self_paced or scheme.delayed or plan.versions > 1:
        return "its rounds overlap, so there is no time between them"
    if scheme.data_dependent or scheme.numeric:
        return "its decisions depend on values of earlier rounds, which no other scheme has"
    if scheme.clock_driven:
        return "its workers stop by the clock, so their times are not seen"
    if plan.committers != (MASTER,):
        return "it has no master that could decide"
    if plan.answers > 1:
        return "its workers answer several times a round, which the forecast of others does not follow"
    if plan.batch is not None or plan.blocks is not None or scheme.rows(plan.workers, 0) is not None:
        return "its workers' samples change from round to round"
    return ""


def configurations_of(
    current: Configuration, problem: str, sampler: BatchSampler | None = None, width: int = FLOAT64_BYTES
) -> list[Configuration]:
    """Return the configurations that a run may change to, the current one first.

    From an exact scheme these are exact schemes, which commit the same gradients. From an inexact scheme, they are the
    same scheme with other numbers of awaited answers (or deadlines). Its commits then stay comparable. Schemes for
    which `reason_fixed` gives a reason are left out.

    `sampler`: sampler of the run's mini-batches, which not every candidate supports. `width`: bytes of a number in a
    message, which decide how many digits decoding keeps.
    """
    found, several = [current], set[str]()
    for name, numbers in _candidates(current):
        candidate = Configuration(name, numbers, current.workers, current.samples)
        try:
            if sampler is not None:
                candidate.scheme.check_batch(candidate.plan, sampler)
            if _fits(candidate, current, problem, width) and candidate not in found:
                found.append(candidate)
            if candidate.plan.answers > 1:
                # With one answer per round, a multi-message scheme equals a coded star, but its forecast is slower to
                # compute.
                several.add(name)
        except SettingError:
            continue
    return [candidate for candidate in found if candidate is current or candidate.name not in several]


def _candidates(current: Configuration) -> Iterator[tuple[str, dict[str, Any]]]:
    if not current.scheme.is_exact:
        deadline = getattr(current.scheme, "deadline", None)
        if deadline is not None:
            yield from (
                (current.name, {**current.parameters, "deadline": deadline * f}) for f in DEADLINE_FACTORS
            )
        else:
            numbers = type(current.scheme).candidates(current.workers)
            yield from ((current.name, {**current.parameters, **some}) for some in numbers)
        return
    for name in Scheme.catalogue:
        cls = Scheme.catalogue.get_class(name)
        if cls.exact and not (
            cls.self_paced or cls.delayed or cls.data_dependent or cls.numeric or cls.clock_driven
        ):
            yield from ((name, numbers) for numbers in cls.candidates(current.workers))


def _fits(candidate: Configuration, current: Configuration, problem: str, width: int) -> bool:
    """Return whether a run may change to a candidate. Raises `SettingError` if its parameters do not fit."""
    scheme = candidate.scheme
    scheme.check(candidate.workers)
    scheme.check_problem(problem)
    scheme.check_samples(candidate.workers, candidate.samples)
    if reason_fixed(scheme, candidate.plan) or not candidate.plan.loads[1:].all():
        return False
    if not scheme.is_exact and not np.array_equal(candidate.plan.sizes, current.plan.sizes):
        return False
    kept = digits_of(width) - max(digits_lost(scheme, candidate.workers, width), default=0.0)
    return kept >= digits_needed(scheme, width)


def digits_needed(scheme: Scheme, width: int) -> int:
    """Return the digits that decoding must keep, in numbers of `width` bytes."""
    return least_digits(getattr(scheme, "least_digits", MIN_DIGITS), width)


@lru_cache(maxsize=256)
def digits_lost(scheme: Scheme, workers: int, width: int) -> tuple[float, ...]:
    """Return the digits that decoding may lose, for each code of a scheme, in numbers of `width` bytes."""
    return tuple(lost(code, dtype=dtype_of(width)) for code in scheme.codes(workers))
