"""Searches: runs that are chosen by earlier results, to find where two schemes cross, or the best parameters.

A search maps the available results to the runs that it needs next. It has neither state nor randomness (seeds are
settings). The same results give the same requests, so a stopped sweep can be resumed from its folder alone.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple, Self

import numpy as np
from pydantic import ConfigDict, Field, model_validator

from workbench.core.base.extras import needs
from workbench.core.base.intervals import band
from workbench.core.base.settings import SettingError, Settings, setting
from workbench.core.base.text import plain
from workbench.core.trace.metrics import rises
from workbench.lab.batch.sampling import Span, Spans

# after this number of successive draws without a new setting, all settings count as tried
MAX_REPEATED_DRAWS = 100
Changes = dict[str, Any]
Values = Callable[[Changes], float | None]  # result of a run; None: not known yet; NaN: target not reached


class Step(NamedTuple):
    """State of a search: all runs requested so far, its findings in words and numbers, and whether it is complete."""

    runs: list[Changes]
    text: str
    numbers: dict[str, Any]
    over: bool


class Search(Settings):
    """Base of all searches."""

    of: str = setting("time", "result that is compared, a column of the table of runs")
    target: float | None = setting(None, "value of the metric to reach, for results time_to and rounds_to")
    metric: str = setting("loss", "metric of the target")
    seeds: int = setting(4, "number of seeds of each setting at first, from the base's seed on", ge=2)
    budget: int = setting(200, "max number of runs", ge=4)

    @model_validator(mode="after")
    def _wanted(self) -> Self:
        if self.of in ("time_to", "rounds_to") and self.target is None:
            raise SettingError(f"target: is missing; of = {self.of!r} needs one, such as 0.3")
        self.model_fields_set.add("kind")  # so that the plan's file always contains the kind
        return self

    @abstractmethod
    def step(self, value: Values, first: int = 0) -> Step:
        """Return the requests and results that follow from the known values. `first`: seed of the base experiment."""


class Crossing(Search):
    """Bisection, on equal seeds, for the value of a field at which the better of two settings changes.

    At each point, both settings run with equal seeds. If the Student t interval of the mean paired difference does not
    contain 0, its sign decides. Otherwise the number of seeds is doubled, up to `most`. The level of the intervals is
    corrected (Bonferroni), so that all decisions of the search are right with probability `confidence`. Statements
    about points between these assume that there is one crossing.

    >>> found = Crossing(field="x", span={"low": 0, "high": 1}, sides=[{"s": 1}, {"s": 2}], tolerance=0.3)
    >>> cost = lambda run: (0.6 if run["s"] == 1 else run["x"]) + 0.001 * run["seed"] * run["s"]
    >>> print(found.step(cost).text)
    s=2 has the lower time up to x = 0.5, s=1 from 0.75 on
    """

    kind: Literal["crossing"] = setting("crossing", "crossing: where the better of two settings changes")
    field: str = setting(description="the field that is varied, such as delays.alpha")
    span: Span = setting(description="{low, high, scale, whole}: range of values to search")
    sides: tuple[Changes, Changes] = setting(description="two settings, such as [{scheme: GC}, {scheme: CR}]")
    most: int = setting(32, "max number of seeds of each setting", ge=2)
    confidence: float = setting(0.95, "probability that all decisions of the search are right", gt=0, lt=1)
    tolerance: float = setting(0.05, "max width of the answer, as a share of the span", gt=0, lt=1)

    def step(self, value: Values, first: int = 0) -> Step:
        """Bisect as far as results allow."""
        bisection = _Bisection(self, value, first)
        over = True
        try:
            text = bisection.answer()
        except _Never as never:
            text = str(never)
        except _Missing as missing:
            text, over = str(missing), len(bisection.runs) > self.budget
            if over:
                text = f"{bisection.so_far()}; the budget of {self.budget} runs is spent"
                del bisection.runs[bisection.known :]
        return Step(bisection.runs, text, bisection.numbers(), over)

    @property
    def better(self) -> str:
        """Word for a better result, such as "lower"."""
        return "higher" if rises(self.of) else "lower"

    @property
    def names(self) -> tuple[str, str]:
        """Names of the two settings, by the values in which they differ."""
        one, other = self.sides
        keys = [key for key in {**one, **other} if one.get(key) != other.get(key)]
        if "scheme" in keys:
            return str(one.get("scheme", "")), str(other.get("scheme", ""))
        texts = ([f"{k.rsplit('.', 1)[-1]}={side[k]}" for k in keys if k in side] for side in self.sides)
        return tuple(", ".join(each) for each in texts)  # type: ignore[return-value]


class _Missing(Exception):
    """Exception: the search needs results that do not exist yet."""


class _Never(Exception):
    """Exception: a run never reaches the target, so the mean difference does not exist."""


class _Bisection:
    """Bisection on the available results.

    `signs`: point -> 1 if the first setting is better, -1 if the second is, 0 if it is undecided.
    """

    def __init__(self, search: Crossing, value: Values, first: int) -> None:
        self.search, self.value, self.first = search, value, first
        self.runs: list[Changes] = []
        self.known = 0  # number of runs up to the last complete comparison
        self.signs: dict[float, int] = {}
        halvings = math.ceil(math.log2(1 / search.tolerance)) + 1
        looks = math.ceil(math.log2(max(search.most / search.seeds, 1))) + 1
        self.level = 1 - (1 - search.confidence) / (looks * (2 + 2 * halvings))

    def sign(self, x: float) -> int:
        """Return which setting is better at x: -1 the second, 1 the first, 0 undecided."""
        if x not in self.signs:
            self.signs[x] = self._decided(x)
        return self.signs[x]

    def _decided(self, x: float) -> int:
        s, seeds, done = self.search, min(self.search.seeds, self.search.most), 0
        differences: list[float] = []
        while True:
            differences += self._differences(x, range(self.first + done, self.first + seeds))
            ends = band(differences, self.level)
            if ends.low > 0 or ends.high < 0:
                return 1 if ends.low > 0 else -1
            if seeds == s.most or not np.any(differences):
                return 0
            done, seeds = seeds, min(2 * seeds, s.most)

    def _differences(self, x: float, seeds: range) -> list[float]:
        s = self.search
        pairs = [[{**side, s.field: x, "seed": seed} for side in s.sides] for seed in seeds]
        every = [run for pair in pairs for run in pair]
        self.runs += every
        values = [self.value(run) for run in every]
        if any(v is None for v in values):
            raise _Missing(
                f"comparing at {self.at(x)}, with {seeds.stop - self.first} seeds; {self.so_far()}"
            )
        self.known = len(self.runs)
        if any(math.isnan(v) for v in values if v is not None):
            never = [run for run, v in zip(every, values, strict=True) if v is not None and math.isnan(v)]
            raise _Never(
                f"search.target = {s.target}: at {self.at(x)} {len(never)} of {len(every)} runs never get there; take"
                " more rounds, or a target that all reach"
            )
        both = np.array(values, dtype=float).reshape(-1, 2)
        return list((both[:, 1] - both[:, 0]) * (-1.0 if rises(s.of) else 1.0))

    def answer(self) -> str:
        """Bisect, and return the result as text. Raises `_Missing` if it needs runs that do not exist yet."""
        s = self.search
        low, high = self._cast(s.span.low), self._cast(s.span.high)
        ends = self.sign(low), self.sign(high)
        if 0 in ends or ends[0] == ends[1]:
            return self._no_crossing(*ends)
        while (x := self._next(ends[0])) is not None:
            self.sign(x)
        return self.so_far()

    def _next(self, left: int) -> float | None:
        """Return the next point: in the middle, or between an end and an undecided point."""
        a, b = self.bracket(left)
        between = sorted(x for x in self.signs if a < x < b)
        gaps = [(a, b)] if not between else [(a, between[0]), (between[-1], b)]
        for one, other in gaps:
            middle = self._middle(one, other)
            if self._width(one, other) > self.search.tolerance and middle not in (one, other):
                return middle
        return None

    def bracket(self, left: int) -> tuple[float, float]:
        """Return the last point where the left end's winner wins, and the first where the other setting wins."""
        a = max(x for x, sign in self.signs.items() if sign == left)
        b = min(x for x, sign in self.signs.items() if sign == -left and x > a)
        return a, b

    def _cast(self, x: float) -> float:
        return round(x) if self.search.span.whole else float(x)

    def _middle(self, a: float, b: float) -> float:
        return self._cast(math.sqrt(a * b) if self.search.span.scale == "log" else (a + b) / 2)

    def _width(self, a: float, b: float) -> float:
        span = self.search.span
        if span.scale == "log":
            return math.log(b / a) / math.log(span.high / span.low)
        return (b - a) / (span.high - span.low)

    def at(self, x: float) -> str:
        return f"{self.search.field.rsplit('.', 1)[-1]} = {x:.4g}"

    def _sides(self, left: int) -> tuple[str, str]:
        one, other = self.search.names
        return (one, other) if left > 0 else (other, one)

    def _no_crossing(self, low: int, high: int) -> str:
        s, one = self.search, self._sides(low or high)[0]
        if 0 not in (low, high):
            ends = f"{self.at(s.span.low)} and {s.span.high:.4g}"
            return f"{one} has the {s.better} {s.of} at both ends, {ends}: no crossing"
        where = [self.at(x) for x, sign in ((s.span.low, low), (s.span.high, high)) if sign == 0]
        open_ = f"at {' and '.join(where)} stays open after {s.most} seeds"
        return f"who has the {s.better} {s.of} {open_}: no crossing is told"

    def _turned(self) -> int:
        """Return the sign at the left end if the right end has the opposite sign, else 0."""
        low, high = (self.signs.get(self._cast(x), 0) for x in (self.search.span.low, self.search.span.high))
        return low if low == -high else 0

    def so_far(self) -> str:
        """Describe the known bounds of the crossing."""
        if not (left := self._turned()):
            return "nothing is known yet"
        (a, b), (one, other) = self.bracket(left), self._sides(left)
        return (
            f"{one} has the {self.search.better} {self.search.of} up to {self.at(a)}, {other} from {b:.4g} on"
        )

    def numbers(self) -> dict[str, Any]:
        """Return the result as numbers. The crossing is between low and high."""
        found: dict[str, Any] = {
            "confidence": self.search.confidence,
            "level": self.level,
            "runs": self.known,
        }
        if left := self._turned():
            found["low"], found["high"] = self.bracket(left)
            found["lower_first"], found["lower_then"] = self._sides(left)
        return found


class Optimum(Search):
    """Parameters with the best mean of a result, by Optuna's tree-structured Parzen estimator (extra "search").

    Invalid combinations (a tree that does not have the right number of workers) are skipped at no cost. The best of
    many means is better than its expected value. So run the best parameters on other seeds before you quote the result.

    >>> Optimum(fields={"scheme_args.stragglers": {"low": 0, "high": 4, "whole": True}}, budget=12).seeds
    4
    """

    model_config = ConfigDict(populate_by_name=True)

    kind: Literal["optimum"] = setting("optimum", "optimum: parameters with the least mean")
    fields_: Spans = Field(
        alias="fields", min_length=1, description="field -> list to choose from, or {low, high, scale, whole}"
    )
    cases: tuple[Changes, ...] = setting(
        ({},), "changes that are tried with all parameters, such as schemes", min_length=1
    )
    greatest: bool | None = setting(
        None, "true: greatest mean; false: least; empty = greatest if more is better (accuracy, AUC)"
    )
    sampler_seed: int = setting(0, "seed of the draws", ge=0)

    @property
    def rising(self) -> bool:
        """Whether the search maximises the mean."""
        return rises(self.of) if self.greatest is None else self.greatest

    def step(self, value: Values, first: int = 0) -> Step:
        """Replay all trials with the known results, until a result is missing."""
        optuna = _optuna()
        samplers = optuna.samplers
        guided = samplers.TPESampler(seed=self.sampler_seed, n_startup_trials=8)
        anywhere = samplers.RandomSampler(seed=self.sampler_seed)
        study = optuna.create_study(direction="maximize" if self.rising else "minimize")
        runs: list[Changes] = []
        tried: list[tuple[float, str, Changes]] = []
        seen, repeated, worst = set[str](), 0, -math.inf if self.rising else math.inf
        for _ in range(10 * self.budget):  # because most draws may be invalid settings
            # because `guided` may repeat a few settings forever
            study.sampler = anywhere if repeated else guided
            trial = study.ask()
            changes = self._suggested(trial)
            repeated = repeated + 1 if repr(changes) in seen else 0
            if repeated:
                study.tell(trial, state=optuna.trial.TrialState.FAIL)
                if repeated > MAX_REPEATED_DRAWS:
                    break
                continue
            seen.add(repr(changes))
            wanted = [{**changes, "seed": first + i} for i in range(self.seeds)]
            try:
                values = [value(run) for run in wanted]
            except SettingError:
                study.tell(trial, worst)  # otherwise the sampler would repeat settings that failed
                continue
            if len(runs) + len(wanted) > self.budget:
                break
            runs += wanted
            if any(v is None for v in values):
                return self._step(runs, tried, over=False)
            mean = float(np.mean(values))  # type: ignore[arg-type]
            study.tell(trial, worst if math.isnan(mean) else mean)
            if not math.isnan(mean):
                tried.append((mean, _interval(values), changes))
        return self._step(runs, tried, over=True)

    def _suggested(self, trial: Any) -> Changes:
        place = trial.suggest_categorical("case", list(range(len(self.cases)))) if len(self.cases) > 1 else 0
        found = dict(self.cases[place])
        for name, values in self.fields_.items():
            if not isinstance(values, Span):
                found[name] = values[trial.suggest_categorical(name, list(range(len(values))))]
            elif values.whole:
                log = values.scale == "log"
                found[name] = trial.suggest_int(name, math.ceil(values.low), math.floor(values.high), log=log)
            else:
                found[name] = trial.suggest_float(name, values.low, values.high, log=values.scale == "log")
        return found

    def _step(self, runs: list[Changes], tried: list[tuple[float, str, Changes]], over: bool) -> Step:
        if not tried:
            text = "no numbers fit together" if over else "nothing is known yet"
            return Step(runs, text, {}, over)
        mean, interval, best = (max if self.rising else min)(tried, key=lambda each: each[0])
        named = ", ".join(f"{k} = {f'{v:.4g}' if isinstance(v, float) else v}" for k, v in best.items())
        which = "greatest" if self.rising else "least"
        text = f"{which} mean {self.of} {interval} at {named}, of {len(tried)} settings"
        return Step(runs, text, {"best": best, "mean": mean, "runs": len(runs)}, over)


def _interval(values: list[float | None]) -> str:
    ends = band(np.array(values, dtype=float))
    return f"{ends.mean:.4g} ({ends.low:.4g} to {ends.high:.4g}, 95 %)"


def _optuna() -> Any:
    try:
        import optuna
    except ImportError:
        raise SettingError(needs("search.kind = 'optimum'", "the package optuna", "search")) from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna


def searched(search: Any) -> Any:
    """Build the search that a dict's `kind` names."""
    if not isinstance(search, Mapping):
        return search
    fields = plain(dict(search))
    kinds: dict[Any, type[Search]] = {"crossing": Crossing, "optimum": Optimum}
    if (kind := fields.get("kind")) not in kinds:
        raise SettingError(f"kind = {kind!r:.60}: choose one of {', '.join(kinds)}")
    return kinds[kind](**fields)
