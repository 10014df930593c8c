"""Result of the planner: a ranking of schemes and their parameters, the costs of their rounds, and an explanation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from html import escape
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from workbench.analysis.planning.quantities import INEXACT_MARK, quantity_of
from workbench.core.base.results import results
from workbench.core.base.settings import SettingError, unknown_name
from workbench.core.contract.scheme import mark_note, marked
from workbench.core.experiment import Experiment
from workbench.core.trace.trace import Trace
from workbench.mpi.running.real import start_real

COST_LABELS = {  # cause that takes time in a round -> its name in sentences
    "computing": "computing",
    "stragglers": "waiting for stragglers",
    "latency": "latency, message after message",
    "transfers": "transfers through the busiest port",
}
WARM_ROUNDS = 3  # number of first rounds of a real run that do not count
# a forecast holds if the ratio of measured to forecast round time is at most this, or its inverse
MAX_TRIAL_RATIO = 1.5
MAX_OVERRUN_SHARE = 0.05  # max share of computations that take longer than planned; else cores are too few
MAX_EQUAL_RATIO = 1.02  # ratio of two times up to which they count as equal


@dataclass(frozen=True)
class Choice:
    """Scheme with its parameters, and its expected times in s.

    `seconds`: expected time to the target, averaged over the clusters that the measurement allows. Nine in ten runs
    should take between `low` and `high`. `sure`: share of the resampled predictions in which this choice is the fastest
    of all. Of those within 2 % of the fastest, the first in the ranking counts. `experiment`: with the optimiser and
    step size of the comparison, and as many rounds as 95 % of the seeds need. `rounds`: mean number of rounds. `parts`:
    cause -> seconds of a round, empty if not computed.
    """

    experiment: Experiment
    per_round: float
    rounds: float
    source: str  # source of the number of rounds
    seconds: float
    low: float
    high: float
    sure: float
    load: float  # largest share of the data that one worker computes
    messages: float
    bytes: float
    exact: bool = True  # commits the full gradient, at the round's own model
    parts: Mapping[str, float] = field(default_factory=dict)

    @property
    def step(self) -> str:
        """Optimiser and step size with which the choice is compared."""
        return " ".join(filter(None, [self.experiment.optimiser, self.experiment.build_optimiser().summary]))

    @property
    def marked(self) -> str:
        """Name, marked if the scheme is inexact or follows only the abstract of its paper."""
        name = marked(self.name, self.scheme)
        return name if self.exact else f"{INEXACT_MARK} {name}"

    @property
    def name(self) -> str:
        """Scheme and its parameters, as legends show them."""
        return name_of(self.experiment)

    @property
    def scheme(self) -> str:
        """Name of the scheme."""
        return self.experiment.scheme

    @property
    def dominant(self) -> str:
        """Cause that takes most of a round's time; empty if unknown."""
        return max(self.parts, key=lambda name: self.parts[name]) if self.parts else ""


@dataclass(frozen=True)
class Refusal:
    """Scheme, perhaps with its parameters, that is not ranked, and the reason."""

    name: str
    reason: str


class RunnerUp(NamedTuple):
    """Another choice that may be faster, because the measurement of the cluster is too small to decide.

    >>> print(RunnerUp("GC s=2", 0.12, 3.0, "GC s=2", 0.04, lasting=False))  # doctest: +NORMALIZE_WHITESPACE
    The first choice is not certain, because too few rounds were measured. Another one, most likely GC s=2, may take up
    to 12% less time. To decide this to within 2%, measure about 3 times as many rounds. As things are, the safest
    choice is GC s=2: in 19 of 20 cases it takes at most 4% longer than the fastest one.
    """

    rival: str  # the choice that is most likely to be faster
    # share of the first choice's time that another choice saves in at least one of 20 possible clusters
    quicker: float
    # a measurement this many times as large would decide, in two of three cases, which is faster (to 2 %)
    times: float
    safe: str  # choice that is least behind the best in 19 of 20 clusters
    # in 19 of 20 clusters, `safe` takes at most this share longer than the fastest choice
    behind: float
    lasting: bool = True  # whether workers differ permanently, and not only from round to round
    able: bool = True  # whether at least as many workers were measured as are planned for

    def __str__(self) -> str:
        more = "workers" if self.lasting else "rounds"
        very = ", or plan for the measured ones with machines='same'" if self.lasting and self.able else ""
        return (
            f"The first choice is not certain, because too few {more} were measured. Another one, most likely"
            f" {self.rival}, may take up to {self.quicker:.0%} less time. To decide this to within 2%, measure about"
            f" {max(self.times, 1.1):.2g} times as many {more}{very}. As things are, the safest choice is {self.safe}:"
            f" in 19 of 20 cases it takes at most {self.behind:.0%} longer than the fastest one."
        )


class Trial(NamedTuple):
    """Check of a forecast by a short real run of the first choice: mean seconds of a round, and number of rounds."""

    measured: float
    predicted: float
    rounds: int

    @property
    def holds(self) -> bool:
        """Whether the measured round is within `MAX_TRIAL_RATIO` of the forecast."""
        return 1 / MAX_TRIAL_RATIO <= self.measured / self.predicted <= MAX_TRIAL_RATIO

    def __str__(self) -> str:
        start = f"measured {quantity_of(self.measured)} a round over {self.rounds} rounds"
        end = "the forecast holds"
        if not self.holds:
            ratio = self.measured / self.predicted
            end = f"{ratio:.2g} times the forecast, so measure the cluster again before relying on the order"
        return f"{start}, forecast {quantity_of(self.predicted)}: {end}"


# head of a verdict and its colour, by whether forecasts were right; None: nothing was measured
HEADS = {True: ("Right", "#17a04f"), False: ("Not right", "#e03058"), None: ("Not measured", "currentColor")}


class Verdict(NamedTuple):
    """Whether forecasts were right. `text`: the ratios. `why`: reason if a ratio is too large or too small, else "".

    `right` is None if nothing was measured.

    A notebook shows it in colour.

    >>> print(Verdict(False, "GC takes 7.7 times its forecast", "the machine was busier"))
    Not right: GC takes 7.7 times its forecast. Why: the machine was busier.
    """

    right: bool | None
    text: str
    why: str = ""

    def __str__(self) -> str:
        why = f" Why: {self.why}." if self.why else ""
        return f"{HEADS[self.right][0]}: {self.text}.{why}"

    def _repr_html_(self) -> str:
        # mixed with the text's colour, because JupyterLab's dark theme sets no color-scheme
        colour = f"color-mix(in srgb, {HEADS[self.right][1]} 65%, currentColor)"
        head, _, rest = str(self).partition(":")
        return f'<p><b style="color: {colour}">{head}:</b>{escape(rest)}</p>'


def _reason(off: pd.DataFrame, traces: Sequence[Trace]) -> str:
    """Return why real rounds differ from their forecasts, as far as the runs show it."""
    if not len(off):
        return ""
    overrun = max(float(trace.info.get("overrun_share", 0.0)) for trace in traces)
    if overrun > MAX_OVERRUN_SHARE:
        return f"computing took longer than planned in {overrun:.0%} of the time: the processes share too few cores"
    if (off["ratio"] > 1).all():
        return "the machine was busier, or its links slower, than when it was measured; measure again just before"
    return "the cluster has changed since it was measured; measure again just before"


@dataclass(frozen=True)
class Advice:
    """Choices by expected time, the fastest first.

    `target`: target as text. `loss`: value of the target, None if the target is a number of rounds.

    `runner_up`: choice that may be faster, None if the measurement is large enough. `trial`: check by a real run
    (`tried`). `str(advice)` is the advice in a few sentences.
    """

    choices: tuple[Choice, ...]
    refusals: tuple[Refusal, ...]
    target: str
    notes: tuple[str, ...] = ()
    loss: float | None = None
    runner_up: RunnerUp | None = None
    trial: Trial | None = None

    def tried(self, cluster: Any = "local", rounds: int = 20, **options: Any) -> Advice:
        """Return the advice with its forecast checked by a short real run of the first choice.

        `cluster`, `options`: as in `wb.run` with `engine="mpi"`. `rounds`: rounds of the run, at least 4. Delays and
        links are real. The headline and `trial` then contain the verdict.
        """
        if rounds <= WARM_ROUNDS:
            raise SettingError(
                f"rounds = {rounds}: take {WARM_ROUNDS + 1} or more, as the first are not counted"
            )
        e = self.best.experiment.replace(rounds=rounds)
        run = start_real(e, cluster=cluster, emulate="nothing", events=False, **options)
        measured = float(np.diff(run.result().columns["time"])[WARM_ROUNDS - 1 :].mean())
        return replace(self, trial=Trial(measured, self.best.per_round, rounds - WARM_ROUNDS))

    @property
    def best(self) -> Choice:
        """Fastest choice."""
        return self.choices[0]

    @property
    def schemes(self) -> tuple[Choice, ...]:
        """Fastest choice of every scheme, in order."""
        first: dict[str, Choice] = {}
        for choice in self.choices:
            first.setdefault(choice.scheme, choice)
        return tuple(first.values())

    def sure(self, scheme: str) -> float:
        """Return the share of the resampled predictions in which the scheme is the fastest, with any parameters."""
        return sum(choice.sure for choice in self.choices if choice.scheme == scheme)

    def beside(self, traces: Sequence[Trace]) -> pd.DataFrame:
        """Compare predicted and measured round times, for runs of some of the choices: one row per run.

        Columns: name, predicted and measured (mean seconds per round, without the first one), ratio of the two. NaN for
        a run of less than two rounds.

        Raises
        ------
        SettingError
                A run whose scheme and parameters are not one of the choices.
        """
        known = {choice.name: choice.per_round for choice in self.choices}
        rows = []
        for trace in traces:
            name = name_of(trace.experiment)
            if name not in known:
                raise unknown_name("traces", name, known)
            rounds = np.diff(trace.columns["time"])
            measured = float(rounds.mean()) if len(rounds) else float("nan")
            rows.append((name, known[name], measured, measured / known[name]))
        return results(rows, columns=["name", "predicted", "measured", "ratio"])

    def verdict(self, traces: Sequence[Trace]) -> Verdict:
        """Compare forecasts with real runs of some choices in a sentence: ratios, order, and reasons for differences.

        Runs of less than two rounds do not count.

        Raises `SettingError` as `beside` does.
        """
        rows = self.beside(traces).dropna()
        if not len(rows):
            return Verdict(None, "give runs of some choices, of at least two rounds")
        off = rows[
            [not Trial(m, p, 0).holds for m, p in zip(rows["measured"], rows["predicted"], strict=True)]
        ]
        predicted, measured = (list(rows.sort_values(name)["name"]) for name in ("predicted", "measured"))
        pairs = zip(rows["name"], rows["ratio"], strict=True)
        texts = [f"{name} takes {ratio:.2g} times its forecast" for name, ratio in pairs]
        kept = predicted == measured
        if len(rows) > 1:
            texts.append(f"the order of their rounds is {'as forecast' if kept else 'not as forecast'}")
        return Verdict(not len(off) and kept, "; ".join(texts), _reason(off, traces))

    @property
    def favourite(self) -> Choice:
        """Choice that is the fastest most often. It differs from `best` if `best` is faster only on average."""
        return max(self.choices, key=lambda choice: choice.sure)

    @property
    def headline(self) -> str:
        """One line: the first choice, whether it is fastest only on average, its certainty, and a trial's verdict."""
        if self.trial is not None and not self.trial.holds:
            return f"Not confirmed: {self.best.name}; {self.trial}"
        return f"{self._first}; {self.trial}" if self.trial is not None else self._first

    @property
    def _first(self) -> str:
        if self.runner_up is not None:
            return f"Too close to call between {self.best.name} and {self.runner_up.rival}: measure more"
        how = "" if self.favourite is self.best else " on average"
        return f"Quickest{how}: {self.best.name}"

    @property
    def why(self) -> str:
        """Reasons for the first choice, with numbers."""
        best, *others = self.schemes
        texts = [
            f"{self.headline}.",
            f"{best.name} takes {quantity_of(best.seconds)} {self.target} with {best.step},"
            f" {quantity_of(best.per_round)} a round ({_made_of(best)}).",
        ]
        texts += [_against(best, other) for other in others[:1]]
        unless = "" if self.trial is None or self.trial.holds else ", none of which this run confirms"
        share = f"{best.sure:.0%} of the resampled predictions{unless}"
        texts.append(
            f"Of all {len(self.choices)} choices it is the fastest in {share},"
            f" {best.scheme} with any parameters in {self.sure(best.scheme):.0%}."
        )
        if self.favourite is not best:
            texts.append(
                f"{self.favourite.name} is the fastest in {self.favourite.sure:.0%}, yet takes longer on average."
            )
        if self.runner_up:
            texts.append(str(self.runner_up))
        about = [choice.scheme for choice in (best, *others[:1]) if mark_note([choice.scheme])]
        texts += [f"{scheme} is written after the abstract of its paper only." for scheme in about]
        return " ".join(texts)

    def __str__(self) -> str:
        return self.why

    @property
    def table(self) -> pd.DataFrame:
        """One row per choice, by expected time.

        Columns: scheme, follows (what it was written after: paper, abstract or code), settings, step (optimiser and
        step size), exact, per_round, rounds, source, seconds, low, high, sure, load, messages, bytes, dominant.
        """
        numbers = [each.name for each in fields(Choice) if each.name not in ("experiment", "exact", "parts")]
        shown = ("step", "exact", *numbers, "dominant")
        return results(
            {
                "scheme": c.scheme,
                "follows": c.experiment.built_scheme.follows,
                "settings": settings_of(c.experiment),
                **{n: getattr(c, n) for n in shown},
            }
            for c in self.choices
        )


def name_of(e: Experiment) -> str:
    """Return the scheme and its parameters as text.

    >>> name_of(Experiment(scheme="GC", scheme_args={"stragglers": 2}))
    'GC stragglers 2'
    """
    return " ".join(filter(None, [e.scheme, settings_of(e)]))


def settings_of(e: Experiment) -> str:
    """Return the parameters of the scheme as text, and the size of mini-batches."""
    batch = {} if e.batch is None else {"batch": e.batch}
    return ", ".join(f"{name} {_plain(value)}" for name, value in {**e.scheme_args, **batch}.items())


def _plain(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _made_of(choice: Choice) -> str:
    """Return the shares of a round's time by cause as text, the largest first, as in the figure."""
    whole = sum(choice.parts.values())
    if whole <= 0:
        return "parts unknown"
    order = sorted(choice.parts.items(), key=lambda item: -item[1])
    shares = [
        f"{COST_LABELS[name]} {seconds / whole:.0%}" for name, seconds in order if seconds > 0.005 * whole
    ]
    return ", ".join(shares)


def _against(best: Choice, other: Choice) -> str:
    """Return by how much the next scheme is slower, and the main cause of the difference, as text."""
    ratio = other.seconds / best.seconds
    if ratio < MAX_EQUAL_RATIO:
        return f"{other.name} is as good as {best.name}, as far as the forecast can tell."
    start = f"Next is {other.name}, which takes {ratio:.3g} times as long as {best.name}"
    if not best.parts or not other.parts:
        return f"{start}."
    if other.rounds > 1.2 * best.rounds:
        return f"{start}: it needs {other.rounds:.0f} rounds instead of {best.rounds:.0f} ({other.source})."
    more = {name: other.parts[name] - best.parts[name] for name in COST_LABELS}
    name = max(more, key=lambda each: more[each])
    if more[name] <= 0:
        return f"{start}."
    return f"{start}, above all for {COST_LABELS[name]}: {quantity_of(more[name])} more a round."
