"""Base classes of schemes, and helpers for declaring their parameters.

A scheme consists of parameters, a plan, a program and round times.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from workbench.core.base.plugins import Catalogue, Family
from workbench.core.base.settings import SettingError, setting
from workbench.core.base.types import Array
from workbench.core.codes import GradientCode
from workbench.core.contract.batches import BatchSampler
from workbench.core.contract.delays import CACHED_ROUNDS, DelayModel, DelayStream
from workbench.core.contract.exchanges import ExchangeRule
from workbench.core.contract.plan import Plan, star_plan
from workbench.core.contract.protocol import Node, Program
from workbench.core.contract.round_times import RoundTimes, SampledTimes

ABSTRACT_MARK = "†"  # suffix of the names of schemes that follow the abstract of their paper, in rankings
ABSTRACT_NOTE = f"{ABSTRACT_MARK}: written after the abstract of its paper, not after the whole paper"
MIN_DIGITS = 6  # default number of decimal digits that decoding must keep


class Scheme(Family):
    """Base class of schemes: frozen, validated parameters. Defining a subclass with a `name` registers it.

    >>> import workbench as wb
    >>> [scheme for scheme in wb.schemes.names() if not wb.schemes.get(scheme).exact][:3]
    ['ASGD', 'AdaptiveK', 'BGC']
    """

    name: ClassVar[str] = ""  # name that users type, such as "CR"
    title: ClassVar[str] = ""  # description in a few words
    paper: ClassVar[str] = ""  # source
    # source that the scheme follows: the whole paper, only its abstract, or the authors' program
    follows: ClassVar[Literal["paper", "abstract", "code"]] = "paper"
    exact: ClassVar[bool] = True  # whether it commits the full gradient, whichever workers straggle
    # whether it commits gradients at older models, unlike other exact schemes
    delayed: ClassVar[bool] = False
    all_models: ClassVar[bool] = False  # whether its workers need the models of all rounds, in order
    # whether messages must carry vectors: its decisions depend on gradients, or its answers are not linear
    # combinations of the parts' gradients
    numeric: ClassVar[bool] = False
    optimiser: ClassVar[str] = "gd"  # optimiser that its paper uses; an experiment may choose another
    # Parameters of that optimiser in its paper, used unless the experiment sets them.
    optimiser_args: ClassVar[Mapping[str, float]] = {}
    # Parameter, and the direction (+1 or -1) in which it must change so that codes keep more digits.
    precision_knob: ClassVar[tuple[str, int] | None] = None
    self_paced: ClassVar[bool] = False  # whether workers draw times at their own pace (see `Compute.draw`)
    # Whether workers finish all work that they begin, so that their messages show all of their work.
    non_preemptive: ClassVar[bool] = False
    # Whether nodes read the clock, so that the answers do not show all work of the workers.
    clock_driven: ClassVar[bool] = False
    # whether gradients decide which workers compute; forecasts assume that all do
    data_dependent: ClassVar[bool] = False
    catalogue: ClassVar[Catalogue[Scheme]] = Catalogue(
        "scheme", "workbench.core.schemes", "workbench.schemes"
    )

    @property
    def epochs_per_round(self) -> int:
        """Number of times that a worker processes its load in a round."""
        return 1

    @property
    def is_exact(self) -> bool:
        """Whether it commits the full gradient with these parameters. Always True if `exact` is."""
        return self.exact

    @classmethod
    def candidates(cls, workers: int) -> Iterable[dict[str, Any]]:
        """Return the parameters (`scheme_args`) that the planner tries for that many workers.

        Candidates that `check` refuses are skipped. Override it in schemes with parameters, with the help of
        `log_spaced_ints` and `divisors`.
        """
        return [{}]

    def own_step(self, smoothness: float) -> float | None:
        """Return the step size with which the scheme's commits must be applied, or None if they are gradients."""
        return None

    def with_step(self, step: float) -> dict[str, Any]:
        """Return the parameters (`scheme_args`) with which workers take steps of that size, or {} if they take none.

        `tune` chooses them together with the optimiser's step size.
        """
        return {}

    def measured(self, draws: Callable[[], SampledTimes], workers: int) -> dict[str, Any]:
        """Return the unset parameters (`scheme_args`), chosen from the times of some rounds.

        See `forecasting.settled`.
        """
        return {}

    def stream(self, delays: DelayModel, seed: int, workers: int, rounds: int) -> DelayStream:
        """Return the delays of a run.

        A self-paced scheme caches all rounds, because its workers are in different rounds.
        """
        return DelayStream(delays, seed, workers, rounds if self.self_paced else CACHED_ROUNDS)

    def check(self, workers: int) -> None:
        """Raise `SettingError` if that number of workers does not fit. The message contains numbers that fit."""

    def check_problem(self, problem: str) -> None:
        """Raise `SettingError` if the scheme does not support the problem of that name. The message has the reason."""

    def check_samples(self, workers: int, samples: int) -> None:
        """Raise `SettingError` if that many samples cannot be divided. The message contains numbers that can be."""

    def check_batch(self, plan: Plan, sampler: BatchSampler) -> None:
        """Raise `SettingError` if rounds cannot use mini-batches. The message has the reason or a batch that fits.

        By default every part of the data needs a sample in each batch, and encoded data are refused.
        """
        batch, least = sampler.batch, int(np.count_nonzero(plan.sizes))
        if plan.blocks is not None:
            why = f"{self.name} encodes the data themselves, so it has no single samples; leave it empty"
        elif plan.batch is not None:
            why = f"scheme_args.worker_batch = {plan.batch} already sets what a worker takes; give only one of them"
        elif sampler.strata < least:
            why = f"{self.name} cuts the data into {least} parts, each of which needs a sample; take {least} or more"
        else:
            return
        raise SettingError(f"batch = {batch}: {why}")

    @abstractmethod
    def plan(self, workers: int, samples: int) -> Plan:
        """Return the plan for that many samples: the allocation of parts, and which ranks communicate."""

    @abstractmethod
    def program(self, node: Node) -> Program:
        """Return the program of one node, as a generator of effects."""

    @abstractmethod
    def round_times(self, draws: SampledTimes, workers: int) -> RoundTimes:
        """Return the round times for drawn computing times, vectorised over rounds. `forecast` uses it."""

    def exchange_rule(self, workers: int) -> ExchangeRule:
        """Return how the scheme combines gradients or models in training scripts, which `workbench.ddp` starts.

        Scripts cannot use a scheme without this method. A subclass that overrides `program` overrides it as well.
        Raises `SettingError` for a parameter that scripts cannot use.
        """
        raise SettingError(f"scheme = {self.name!r}: has no exchange_rule for training scripts")

    @classmethod
    def has_rule(cls) -> bool:
        """Return whether `exchange_rule` is its own. An inherited rule does not fit a scheme with another program.

        >>> import workbench as wb
        >>> [wb.schemes.get(name).has_rule() for name in ("Backup", "PGC", "CR")]
        [True, False, False]
        """
        names = ("exchange_rule", "program")
        rule, program = (next(base for base in cls.__mro__ if name in vars(base)) for name in names)
        return rule is not Scheme and issubclass(rule, program)

    def rows(self, workers: int, round: int) -> NDArray[np.int64] | None:
        """Return for each worker, (workers,), the worker of the plan whose parts it computes in a round.

        Workers are counted from 0. None means that each worker always computes its own parts. Schemes that shuffle
        override this method, which `round_plan`, `encoding`, delays and forecasts use.
        """
        return None

    def round_plan(self, plan: Plan, round: int) -> Plan:
        """Return the plan with the parts as they are allocated in one round (see `rows`)."""
        rows = self.rows(plan.workers, round)
        return plan if rows is None else plan.shuffled(rows)

    def codes(self, workers: int) -> list[GradientCode]:
        """Return the codes whose decoding may lose digits. `wb.run` warns if many are lost, or refuses the run."""
        return []

    def encoding(self, plan: Plan, round: int) -> Array:
        """Return the encoding matrix of a round, shape (ranks, parts)."""
        return self.round_plan(plan, round).matrix()

    def loads(self, workers: int, samples: int) -> NDArray[np.int64]:
        """Return the samples that each worker processes per round, shape (workers,). No plan is needed for this."""
        return self.plan(workers, samples).loads[1:]

    def tolerated(self, workers: int) -> tuple[int, int] | None:
        """Return the number of tolerated stragglers, and of the workers among which they are, or None if not fixed.

        In a tree, both numbers are about the children of one parent.

        >>> from workbench.core.schemes import get
        >>> get("CR")(children=4, layers=3, stragglers=1).tolerated(84)
        (1, 4)
        """
        numbers = self.model_dump()
        late = numbers.get("stragglers")
        return (late, decoded_together(numbers, numbers, workers)) if isinstance(late, int) else None


def decoded_together(names: Mapping[str, Any], args: Mapping[str, Any], workers: int) -> int:
    """Return the number of workers whose answers are decoded together: a parent's children, a group, or all workers.

    `names`: fields of the scheme. `args`: their values, as far as they are given.
    """
    if "children" in names:
        children = args.get("children")
        return children if isinstance(children, int) else workers
    groups = args.get("groups", getattr(names.get("groups"), "default", 1))
    return max(1, workers // groups) if isinstance(groups, int) and groups > 0 else workers


def follows(scheme: str) -> str:
    """Return the field `follows` of a scheme, or empty if its name is not registered, such as a name in a user file.

    Names may come from other people's files, so this function loads no code that they name.

    >>> follows("LAGC"), follows("GC"), follows("mine.py:Half")
    ('abstract', 'paper', '')
    """
    found = Scheme.catalogue.get(scheme)
    return "" if found is None else found.follows


def marked(label: str, scheme: str) -> str:
    """Return a label for a ranking, marked if the scheme of that name follows only the abstract of its paper.

    >>> marked("LAGC groups 3", "LAGC"), marked("GC", "GC")
    ('LAGC groups 3†', 'GC')
    """
    return label + ABSTRACT_MARK * (follows(scheme) == "abstract")


def mark_note(names: Iterable[str]) -> str:
    """Return the footnote of a ranking of these schemes or marked labels, or empty if none of them is marked.

    >>> mark_note(["GC", "LAGC"])
    '†: written after the abstract of its paper, not after the whole paper'
    >>> mark_note(["LAGC groups 3†"]) == ABSTRACT_NOTE, mark_note(["GC"])
    (True, '')
    """
    return ABSTRACT_NOTE if any(marked(name, name).endswith(ABSTRACT_MARK) for name in names) else ""


class Coded(Scheme):
    """Base of schemes with one code. The default plan is a star, with one row of the code for each worker."""

    @abstractmethod
    def build_code(self, workers: int) -> GradientCode:
        """Return the code: its encoding matrix and its decoder."""

    def codes(self, workers: int) -> list[GradientCode]:
        """Return a list with the scheme's only code."""
        return [self.build_code(workers)]

    def plan(self, workers: int, samples: int) -> Plan:
        """Return a star with one part for each column of the code."""
        return star_plan(self.build_code(workers).matrix, samples)


def least_digits_field() -> Any:
    """Declare the field `least_digits` of a scheme whose codes may keep too few digits (see `precision`)."""
    return setting(
        MIN_DIGITS,
        "decimal digits, of 16, that decoding must keep; a code that keeps fewer is refused before the run;"
        " 0 = accept every code",
        "digits",
        ge=0,
        le=15,
    )


def log_spaced_ints(low: int, high: int, count: int = 8) -> list[int]:
    """Return whole numbers from low to high, both included, denser at the low end.

    The result is empty if high is below low.

    >>> log_spaced_ints(1, 100, 5)
    [1, 3, 10, 32, 100]
    """
    if high < low:
        return []
    steps = np.geomspace(1, high - low + 1, count)
    return sorted({low - 1 + round(float(x)) for x in steps})


def divisors(number: int) -> list[int]:
    """Return all divisors of a number, ascending.

    >>> divisors(12)
    [1, 2, 3, 4, 6, 12]
    """
    return [k for k in range(1, number + 1) if number % k == 0]
