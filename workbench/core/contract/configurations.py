"""What a run may change to: schemes and numbers, who holds which samples, and what a change would move."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from workbench.core.base.settings import SettingError
from workbench.core.codes.quality import FLOAT64_DIGITS, lost
from workbench.core.contract.batches import BatchSampler
from workbench.core.contract.plan import MASTER, Plan
from workbench.core.contract.scheme import MIN_DIGITS, Scheme

DEADLINE_FACTORS = (0.5, 0.7, 1.4, 2.0)  # times a scheme's own deadline, that are tried as well


@dataclass(frozen=True)
class Configuration:
    """A scheme with its numbers for so many workers and samples.

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
        """The scheme itself."""
        return Scheme.catalogue.get_class(self.name)(**self.parameters)

    @cached_property
    def plan(self) -> Plan:
        """Who holds what under it."""
        return self.scheme.plan(self.workers, self.samples)

    def __str__(self) -> str:
        numbers = ", ".join(f"{name} = {value}" for name, value in self.parameters.items())
        return f"{self.name} ({numbers})" if numbers else self.name


class StoredParts:
    """Which samples every worker holds: all that any plan so far gave it.

    >>> held = StoredParts(Configuration("GC", {"stragglers": 1}, 4, 40).plan)
    >>> held.missing(Configuration("UMW", {}, 4, 40).plan).tolist()
    [0, 0, 0, 0]
    >>> held.missing(Configuration("GC", {"stragglers": 2}, 4, 40).plan).tolist()
    [10, 10, 10, 10]
    """

    def __init__(self, plan: Plan) -> None:
        self.bounds, self.stored = _pieces(plan)  # samples are cut at; (workers, pieces)

    def missing(self, plan: Plan) -> NDArray[np.int64]:
        """Samples that each worker would need and does not have, (workers,)."""
        bounds, wanted = _pieces(plan)
        both = np.union1d(self.bounds, bounds)
        lacks = _cut(wanted, bounds, both) & ~_cut(self.stored, self.bounds, both)
        return np.asarray(lacks @ np.diff(both))

    def add(self, plan: Plan) -> None:
        """The workers keep what they have, and get what a plan gives them."""
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
    """Why a run of a scheme cannot change to another between rounds; empty where it can."""
    if scheme.self_paced or scheme.delayed or plan.versions > 1:
        return "its rounds reach into one another, so there is no moment between them"
    if scheme.data_dependent or scheme.numeric:
        return "what it does hangs on earlier rounds' numbers, which no other scheme has"
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
    current: Configuration, problem: str, sampler: BatchSampler | None = None
) -> list[Configuration]:
    """What a run may change to, itself first: for an exact scheme every exact one, which makes the same steps.

    For another only the same scheme with other numbers of answers (or deadlines): what a step is worth stays
    comparable. `sampler`: of the run's mini-batches, which not every candidate can take.
    """
    found, several = [current], set[str]()
    for name, numbers in _candidates(current):
        candidate = Configuration(name, numbers, current.workers, current.samples)
        try:
            if sampler is not None:
                candidate.scheme.check_batch(candidate.plan, sampler)
            if _fits(candidate, current, problem) and candidate not in found:
                found.append(candidate)
            if candidate.plan.answers > 1:
                # Those that answer once are a coded star by another name, and slow to forecast.
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


def _fits(candidate: Configuration, current: Configuration, problem: str) -> bool:
    """May a run take it? Raises `SettingError` where its numbers do not fit."""
    scheme = candidate.scheme
    scheme.check(candidate.workers)
    scheme.check_problem(problem)
    scheme.check_samples(candidate.workers, candidate.samples)
    if reason_fixed(scheme, candidate.plan) or not candidate.plan.loads[1:].all():
        return False
    if not scheme.is_exact and not np.array_equal(candidate.plan.sizes, current.plan.sizes):
        return False
    return FLOAT64_DIGITS - _stragglers_lost(scheme, candidate.workers) >= getattr(
        scheme, "least_digits", MIN_DIGITS
    )


@lru_cache(maxsize=256)
def _stragglers_lost(scheme: Scheme, workers: int) -> float:
    return max((lost(code) for code in scheme.codes(workers)), default=0.0)
