"""What the planner answers: schemes and their parameters in order, what each round is made of, and why in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from workbench.analysis.planning.quantities import INEXACT_MARK, quantity_of
from workbench.core.base.results import results
from workbench.core.base.settings import unknown_name
from workbench.core.experiment import Experiment
from workbench.core.trace.trace import Trace

COST_LABELS = {  # of a round's time, and what they are called in a sentence
    "computing": "computing",
    "stragglers": "waiting for stragglers",
    "latency": "latency, message after message",
    "transfers": "transfers through the busiest port",
}
MAX_EQUAL_RATIO = 1.02  # times as long: no difference


@dataclass(frozen=True)
class Choice:
    """One scheme with its parameters, and what it is expected to take; times in s.

    `seconds`: expected time to the target, over the clusters that the measurement allows. Nine in ten runs should lie
    between `low` and `high`. `sure`: the share of the resampled predictions in which this choice is the quickest, or as
    good (within 2 %) and ahead of the quickest in the order. The experiment has the optimiser and the step that the
    choice was compared with, and as many rounds as 95 % of the seeds need at most; `rounds` is their mean. `parts`:
    what a round is made of, empty where nobody asked.
    """

    experiment: Experiment
    per_round: float
    rounds: float
    source: str  # of the rounds
    seconds: float
    low: float
    high: float
    sure: float
    load: float  # largest share of the data that one worker goes through
    messages: float
    bytes: float
    exact: bool = True  # commits the full gradient, at the round's own model
    parts: Mapping[str, float] = field(default_factory=dict)

    @property
    def step(self) -> str:
        """Optimiser and step that it is compared with."""
        return " ".join(filter(None, [self.experiment.optimiser, self.experiment.build_optimiser().summary]))

    @property
    def marked(self) -> str:
        """The name; that of an inexact scheme is marked."""
        return self.name if self.exact else f"{INEXACT_MARK} {self.name}"

    @property
    def name(self) -> str:
        """The scheme and its parameters, as legends show them."""
        return name_of(self.experiment)

    @property
    def scheme(self) -> str:
        """The scheme's name."""
        return self.experiment.scheme

    @property
    def dominant(self) -> str:
        """The part that takes longest; empty where the parts are unknown."""
        return max(self.parts, key=lambda name: self.parts[name]) if self.parts else ""


@dataclass(frozen=True)
class Refusal:
    """A scheme, perhaps with its parameters, that is not ranked, and why."""

    name: str
    reason: str


class RunnerUp(NamedTuple):
    """Another choice may be the quicker one: so small a measurement of the cluster leaves that open."""

    rival: str  # above all
    quicker: float  # share of the first choice's time that is saved in one of 20 clusters as the measurement allows
    times: float  # as large a measurement would tell which is quicker, to 2 %, in two of three cases
    safe: str  # what is behind the best by least in one of 20 clusters
    behind: float  # by which share of the best's time
    lasting: bool = True  # do workers differ, or rounds only?
    able: bool = True  # were as many workers measured as are planned for?

    def __str__(self) -> str:
        more = "workers" if self.lasting else "rounds"
        very = " or plan for these very ones (machines='same');" if self.lasting and self.able else ""
        return (
            f"On other {more} of the kind another choice, above all {self.rival}, may be up to {self.quicker:.0%}"
            f" quicker: measure about {max(self.times, 1.1):.2g} times as many to tell to 2 %;{very}"
            f" else take {self.safe}, in 19 of 20 cases at most {self.behind:.0%} behind the best."
        )


@dataclass(frozen=True)
class Advice:
    """Choices by expected time, the quickest first; `target`: in words; `loss`: it, None where rounds are counted.

    `doubt`: what a larger measurement would tell, None where this one is large enough. `str(advice)` is the advice in a
    few sentences.
    """

    choices: tuple[Choice, ...]
    refusals: tuple[Refusal, ...]
    target: str
    notes: tuple[str, ...] = ()
    loss: float | None = None
    runner_up: RunnerUp | None = None

    @property
    def best(self) -> Choice:
        """The quickest."""
        return self.choices[0]

    @property
    def schemes(self) -> tuple[Choice, ...]:
        """The quickest choice of every scheme, in order."""
        first: dict[str, Choice] = {}
        for choice in self.choices:
            first.setdefault(choice.scheme, choice)
        return tuple(first.values())

    def sure(self, scheme: str) -> float:
        """Share of the resampled predictions in which the scheme wins, whatever its parameters."""
        return sum(choice.sure for choice in self.choices if choice.scheme == scheme)

    def beside(self, traces: Sequence[Trace]) -> pd.DataFrame:
        """Predicted and measured rounds of runs of some choices: one row a run.

        Columns: name, predicted and measured (mean seconds a round, the first one left out), ratio of the two.

        Raises
        ------
        SettingError
            A run whose scheme and parameters are no choice.
        """
        known = {choice.name: choice.per_round for choice in self.choices}
        rows = []
        for trace in traces:
            name = name_of(trace.experiment)
            if name not in known:
                raise unknown_name("traces", name, known)
            measured = float(np.diff(trace.columns["time"]).mean())
            rows.append((name, known[name], measured, measured / known[name]))
        return results(rows, columns=["name", "predicted", "measured", "ratio"])

    @property
    def favourite(self) -> Choice:
        """The choice that wins most often: another than the best where that is better on average only."""
        return max(self.choices, key=lambda choice: choice.sure)

    @property
    def headline(self) -> str:
        """The first choice, whether it is only on average that it is the first, and whether that can be told."""
        if self.runner_up is not None:
            return f"Too close to call between {self.best.name} and {self.runner_up.rival}: measure more"
        how = "" if self.favourite is self.best else " on average"
        return f"Quickest{how}: {self.best.name}"

    @property
    def why(self) -> str:
        """Why the first is first, with numbers."""
        best, *others = self.schemes
        texts = [
            f"{self.headline}.",
            f"{best.name} takes {quantity_of(best.seconds)} {self.target} with {best.step},"
            f" {quantity_of(best.per_round)} a round ({_made_of(best)}).",
        ]
        texts += [_against(best, other) for other in others[:1]]
        texts.append(
            f"It wins in {best.sure:.0%} of the resampled predictions,"
            f" {best.scheme} with any parameters in {self.sure(best.scheme):.0%}."
        )
        if self.favourite is not best:
            texts.append(
                f"{self.favourite.name} wins in {self.favourite.sure:.0%}, yet takes longer on average."
            )
        return " ".join([*texts, *([str(self.runner_up)] if self.runner_up else [])])

    def __str__(self) -> str:
        return self.why

    @property
    def table(self) -> pd.DataFrame:
        """One row a choice, by expected time.

        Columns: scheme, settings, step (optimiser and step), exact, per_round, rounds, source, seconds, low, high,
        sure, load, messages, bytes, dominant.
        """
        numbers = [each.name for each in fields(Choice) if each.name not in ("experiment", "exact", "parts")]
        shown = ("step", "exact", *numbers, "dominant")
        return results(
            {"scheme": c.scheme, "settings": settings_of(c.experiment), **{n: getattr(c, n) for n in shown}}
            for c in self.choices
        )


def name_of(e: Experiment) -> str:
    """Scheme and parameters.

    >>> name_of(Experiment(scheme="GC", scheme_args={"stragglers": 2}))
    'GC stragglers 2'
    """
    return " ".join(filter(None, [e.scheme, settings_of(e)]))


def settings_of(e: Experiment) -> str:
    """The scheme's parameters."""
    return ", ".join(f"{name} {_plain(value)}" for name, value in e.scheme_args.items())


def _plain(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _made_of(choice: Choice) -> str:
    """Shares of what a round is long by, the largest first, as in the figure.

    Stragglers shorten a round that waits for the quickest only: no share of it.
    """
    whole = sum(max(cost, 0.0) for cost in choice.parts.values())
    if whole <= 0:
        return "parts unknown"
    order = sorted(choice.parts.items(), key=lambda item: -item[1])
    shares = [
        f"{COST_LABELS[name]} {seconds / whole:.0%}" for name, seconds in order if seconds > 0.005 * whole
    ]
    less = [f"less {quantity_of(-s)} by {COST_LABELS[name]}" for name, s in order if s < -0.005 * whole]
    return ", ".join(shares + less)


def _against(best: Choice, other: Choice) -> str:
    """By how much the next scheme is behind, and what makes the difference."""
    ratio = other.seconds / best.seconds
    if ratio < MAX_EQUAL_RATIO:
        return f"{other.name} is as good, as far as the forecast can tell."
    start = f"Next is {other.name}, {ratio:.3g} times as long"
    if not best.parts or not other.parts:
        return f"{start}."
    if other.rounds > 1.2 * best.rounds:
        return f"{start}: it needs {other.rounds:.0f} rounds instead of {best.rounds:.0f} ({other.source})."
    more = {name: other.parts[name] - best.parts[name] for name in COST_LABELS}
    name = max(more, key=lambda each: more[each])
    if more[name] <= 0:
        return f"{start}."
    return f"{start}, above all for {COST_LABELS[name]}: {quantity_of(more[name])} more a round."
