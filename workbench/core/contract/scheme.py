"""What a scheme is: parameters, a plan, a program, and round times; and what schemes declare their parameters with."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from workbench.core.base.plugins import Catalogue, Family
from workbench.core.base.settings import SettingError, setting
from workbench.core.base.types import Array
from workbench.core.codes import GradientCode
from workbench.core.contract.batches import BatchSampler
from workbench.core.contract.delays import CACHED_ROUNDS, DelayModel, DelayStream
from workbench.core.contract.plan import Plan, star_plan
from workbench.core.contract.protocol import Node, Program
from workbench.core.contract.round_times import RoundTimes, SampledTimes

MIN_DIGITS = 6  # that decoding must keep, unless a scheme is told otherwise


class Scheme(Family):
    """A frozen, validated bag of numbers; defining a subclass with a `name` registers it.

    >>> import workbench as wb
    >>> [scheme for scheme in wb.schemes.names() if not wb.schemes.get(scheme).exact][:3]
    ['ASGD', 'AdaptiveK', 'BGC']
    """

    name: ClassVar[str] = ""  # what users see: "CR", "GC" ...
    title: ClassVar[str] = ""  # a few words
    paper: ClassVar[str] = ""  # source
    exact: ClassVar[bool] = True  # commits the full gradient, whatever the stragglers
    delayed: ClassVar[bool] = False  # of older models, so that it does not learn what other exact schemes do
    numeric: ClassVar[bool] = False  # its decisions depend on the numbers, so messages must carry them
    optimiser: ClassVar[str] = "gd"  # that its paper defines it with; experiments may take another
    optimiser_args: ClassVar[
        Mapping[str, float]
    ] = {}  # its numbers there, where an experiment leaves them open
    precision_knob: ClassVar[tuple[str, int] | None] = (
        None  # number, and direction, in which codes keep more digits
    )
    self_paced: ClassVar[bool] = False  # its workers go through drawn times on their own: see `Compute.draw`
    non_preemptive: ClassVar[bool] = (
        False  # its workers end what they begin, so what they sent tells what they did
    )
    clock_driven: ClassVar[bool] = (
        False  # its nodes look at the clock, so who answered does not tell what they did
    )
    data_dependent: ClassVar[bool] = False  # it asks whom the learning tells it to; a forecast asks all
    catalogue: ClassVar[Catalogue[Scheme]] = Catalogue(
        "scheme", "workbench.core.schemes", "workbench.schemes"
    )

    @property
    def epochs_per_round(self) -> int:
        """How many times a worker goes through its load in a round."""
        return 1

    @property
    def is_exact(self) -> bool:
        """Does it commit the full gradient with these very numbers? Where `exact` says so it always does."""
        return self.exact

    @classmethod
    def candidates(cls, workers: int) -> Iterable[dict[str, Any]]:
        """Parameters (`scheme_args`) that the planner tries with so many workers; `check` refuses what does not fit.

        Schemes with numbers of their own override it; see `some` and `divisors`.
        """
        return [{}]

    def own_step(self, smoothness: float) -> float | None:
        """Step that its commits are made for, where they are no gradients; None where they are."""
        return None

    def measured(self, draws: Callable[[], SampledTimes], workers: int) -> dict[str, Any]:
        """Parameters (`scheme_args`) left open that times of some rounds tell; see `forecasting.settled`."""
        return {}

    def stream(self, delays: DelayModel, seed: int, workers: int, rounds: int) -> DelayStream:
        """Draws of a run; all are kept where workers go through them on their own: the last may be at the first."""
        return DelayStream(delays, seed, workers, rounds if self.self_paced else CACHED_ROUNDS)

    def check(self, workers: int) -> None:
        """Raise `SettingError` if this many workers do not fit; the message lists what would."""

    def check_problem(self, problem: str) -> None:
        """Raise `SettingError` if the scheme is not made for the problem of that name; the message says why."""

    def check_samples(self, workers: int, samples: int) -> None:
        """Raise `SettingError` if so many samples cannot be shared out; the message says how many could."""

    def check_batch(self, plan: Plan, sampler: BatchSampler) -> None:
        """Raise `SettingError` if rounds cannot be of mini-batches; the message says why, or which could.

        By default every part of the data has samples in a batch, and nothing but whole samples is encoded.
        """
        batch, least = sampler.batch, int(np.count_nonzero(plan.sizes))
        if plan.blocks is not None:
            why = f"{self.name} encodes the data themselves, so it has no single samples; leave it empty"
        elif plan.batch is not None:
            why = (
                f"scheme_args.worker_batch = {plan.batch} already says what a worker takes; give one of both"
            )
        elif sampler.strata < least:
            why = f"{self.name} cuts the data into {least} parts, each of which needs a sample; take {least} or more"
        else:
            return
        raise SettingError(f"batch = {batch}: {why}")

    @abstractmethod
    def plan(self, workers: int, samples: int) -> Plan:
        """Say who holds which parts of a data set of that many samples, and who talks to whom."""

    @abstractmethod
    def program(self, node: Node) -> Program:
        """Say what one node does, as a generator of effects."""

    @abstractmethod
    def round_times(self, draws: SampledTimes, workers: int) -> RoundTimes:
        """Round times over drawn compute times, vectorised: what `forecast` shows."""

    def rows(self, workers: int, round: int) -> NDArray[np.int64] | None:
        """Worker of the plan whose parts each worker takes in a round, (workers,); None: its own, always.

        Counted from 0. Schemes that shuffle override it; `round_plan` and `encoding`, delays and forecasts follow.
        """
        return None

    def round_plan(self, plan: Plan, round: int) -> Plan:
        """Plan as it is in one round."""
        rows = self.rows(plan.workers, round)
        return plan if rows is None else plan.shuffled(rows)

    def codes(self, workers: int) -> list[GradientCode]:
        """Codes whose decoding may cost digits; `wb.run` warns beforehand where it costs too many."""
        return []

    def encoding(self, plan: Plan, round: int) -> Array:
        """Encoding matrix of a round, shape (ranks, parts)."""
        return self.round_plan(plan, round).matrix()

    def loads(self, workers: int, samples: int) -> NDArray[np.int64]:
        """Samples that each worker goes through per round, shape (workers,), without drawing the whole plan."""
        return self.plan(workers, samples).loads[1:]

    def tolerated(self, workers: int) -> tuple[int, int] | None:
        """How many may be late, and of how many: a tree's parent has few children; None: it has no such number.

        >>> from workbench.core.schemes import get
        >>> get("CR")(children=4, layers=3, stragglers=1).tolerated(84)
        (1, 4)
        """
        numbers = self.model_dump()
        late = numbers.get("stragglers")
        return (late, decoded_together(numbers, numbers, workers)) if isinstance(late, int) else None


def decoded_together(names: Mapping[str, Any], args: Mapping[str, Any], workers: int) -> int:
    """Among how many the stragglers of a scheme are: a parent's children, a group's workers, all workers.

    names: fields that the scheme has; args: their values, as far as they are given.
    """
    if "children" in names:
        children = args.get("children")
        return children if isinstance(children, int) else workers
    groups = args.get("groups", getattr(names.get("groups"), "default", 1))
    return max(1, workers // groups) if isinstance(groups, int) and groups > 0 else workers


class Coded(Scheme):
    """A scheme with one code; on a star, unless it plans otherwise, with a row of it for each worker."""

    @abstractmethod
    def build_code(self, workers: int) -> GradientCode:
        """Encoding matrix and decoder."""

    def codes(self, workers: int) -> list[GradientCode]:
        """The one code."""
        return [self.build_code(workers)]

    def plan(self, workers: int, samples: int) -> Plan:
        """A part per column of the code."""
        return star_plan(self.build_code(workers).matrix, samples)


def least_digits_field() -> Any:
    """Declare the field `least_digits` of a scheme with codes that may keep too few digits; see `precision`."""
    return setting(
        MIN_DIGITS,
        "of the 16 decimal digits of a number, how many decoding must keep; before a run, a code that keeps"
        " fewer is refused. 0 = run it all the same",
        "digits",
        ge=0,
        le=15,
    )


def log_spaced_ints(low: int, high: int, count: int = 8) -> list[int]:
    """Whole numbers from low to high, ends included, denser at the low end; none where high is below low.

    >>> log_spaced_ints(1, 100, 5)
    [1, 3, 10, 32, 100]
    """
    if high < low:
        return []
    steps = np.geomspace(1, high - low + 1, count)
    return sorted({low - 1 + round(float(x)) for x in steps})


def divisors(number: int) -> list[int]:
    """All divisors, ascending.

    >>> divisors(12)
    [1, 2, 3, 4, 6, 12]
    """
    return [k for k in range(1, number + 1) if number % k == 0]
