"""Paper 3: CADA against G-CADA for many units of the rule's constant c. The paper does not state the unit.

The rule of (7) and (9) compares L^2 |th_k - th_(k-tau)|^2 with c times the last steps. The paper states c = 2 and 0.3
but not its smoothness constants L, so c may have any unit. Here, c is the paper's c times a unit times L^2, with L
the measured smoothness of the whole data set. The unit is swept. A statement counts as true only if it holds at every
unit.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from workbench.core import theory
from workbench.core.base.types import Array
from workbench.core.experiment import Experiment
from workbench.core.running.start import run
from workbench_book import drawing
from workbench_book.cada import COSTS, MEANT, PUBLISHED, STATED, TARGET, costs, data_of, experiments
from workbench_book.catalogue import Entry
from workbench_book.setting import Setting
from workbench_book.values import Claim, Line, Picture, Result

UNITS = (0.01, 0.03, 0.1, 0.3, 1.0)
QUICK_UNITS = (0.01, 0.03, 0.1, 0.3)
QUICK_TARGET = 1.0  # training loss of the quick form, whose runs are short
SEEDS = 3
FIRST = 4  # a quarter of the rounds is tried first, since most runs have reached the target by then
SWEPT = ("D-Adam", "CADA", STATED, MEANT)
NAMES = {STATED: "G = 3, M_G = 4", MEANT: "G = 4, M_G = 3"}


@dataclass(frozen=True)
class Sweep:
    """Costs until a training loss: `costs[label][cost]`, (units, seeds). Infinite: not within `rounds` rounds."""

    units: tuple[float, ...]
    target: float
    rounds: int
    costs: Mapping[str, Mapping[str, Array]]

    @classmethod
    def from_facts(cls, facts: Mapping[str, Any]) -> Self:
        """Return the sweep that the entry `gcada-sweep` has saved."""
        found = {
            label: {name: np.array(table, float) for name, table in each.items()}
            for label, each in facts["costs"].items()
        }
        return cls(tuple(facts["units"]), facts["target"], facts["rounds"], found)

    @property
    def seeds(self) -> int:
        """Number of seeds."""
        return int(self.costs["CADA"]["time"].shape[1])

    def ratio(self, over: str, of: str, cost: str) -> Array:
        """Return the cost of `over` divided by that of `of`, (units, seeds). NaN if neither reaches the target."""
        with np.errstate(invalid="ignore"):
            return np.asarray(self.costs[over][cost] / self.costs[of][cost])

    def best(self, label: str, cost: str) -> float:
        """Return the least cost of a scheme: the mean over the seeds at its best constant."""
        return float(self.costs[label][cost].mean(axis=1).min())


def find(setting: Setting) -> Result:
    """Compute the costs at every unit with every seed, as ratios with bands. Statements are checked at all units."""
    sweep = swept(setting)
    every = dict(experiments(setting))
    return Result(
        lines=[*_lines(sweep), *_best(sweep)],
        claims=claims_of(sweep),
        pictures=_pictures(sweep, data_of(setting)[2]),
        text=[_words(sweep), limit_words(), _quick(sweep)]
        if setting.quick
        else [_words(sweep), limit_words()],
        columns=[],
        reasons={"claims": "over the whole sweep of c"},
        specs={label: every[label] for label in SWEPT},
        facts={"units": sweep.units, "target": sweep.target, "rounds": sweep.rounds, "costs": sweep.costs},
        data=[data_of(setting)[1]],
        seed=setting.seed,
    )


# ---------------------------------------------------------------- the runs


def swept(setting: Setting) -> Sweep:
    """Run every scheme at every unit over some seeds. D-Adam has no constant and is run once per seed."""
    units, target = setting.pick(QUICK_UNITS, UNITS), setting.pick(QUICK_TARGET, TARGET)
    rounds, seeds = setting.pick(480, 6000), SEEDS
    base = {label: e for label, e in experiments(setting, unit=1.0) if label in SWEPT}
    found = {label: {name: np.empty((len(units), seeds)) for name in COSTS} for label in base}
    total, done = len(base) * seeds, 0
    for label, e in base.items():
        for seed in range(seeds):
            for place, unit in enumerate(units):
                if place and label == "D-Adam":
                    continue
                reached = until(at(e, unit, rounds, setting.seed + seed), target)
                for name, value in reached.items():
                    found[label][name][place if label != "D-Adam" else slice(None), seed] = value
            done += 1
            setting.report(done, total)
    return Sweep(units, target, rounds, found)


def at(e: Experiment, unit: float, rounds: int, seed: int) -> Experiment:
    """Return an experiment, given for unit 1, with another unit of its c."""
    rule = {"c": e.scheme_args["c"] * unit} if "c" in e.scheme_args else {}
    return e.replace(scheme_args={**e.scheme_args, **rule}, rounds=rounds, seed=seed)


def until(e: Experiment, target: float) -> dict[str, float]:
    """Return the costs until the loss reaches the target, or infinity. A shorter run has the same first rounds."""
    for rounds in (max(1, e.rounds // FIRST), e.rounds):
        found = costs(run(e.replace(rounds=rounds), events=False), target)
        if not np.isnan(found["time"]):
            return found
    return dict.fromkeys(COSTS, float("inf"))


# ---------------------------------------------------------------- evaluation


def holding(ratios: Array) -> list[bool | None]:
    """Return whether a ratio is above 1, unit by unit, or None where the seeds do not agree.

    >>> holding(np.array([[1.2, 1.3], [0.9, 1.1], [0.8, 1.0]]))
    [True, None, False]
    """
    return [True if (row > 1).all() else False if (row <= 1).all() else None for row in ratios]


def claim(text: str, ratios: Array, units: tuple[float, ...], by: str = "wb.run") -> Claim:
    """Return the claim "this ratio is above 1" for the whole sweep.

    The claim is True or False only if the ratio is above 1, or not above 1, at every unit.
    """
    states = holding(ratios)
    first = states[0]
    holds = first if all(state is first for state in states) else None
    fields = {True: "so at", False: "not so at", None: "undecided at"}
    parts = [
        f"{fields[state]} c × {', '.join(f'{u:g}' for u, s in zip(units, states, strict=True) if s is state)}"
        for state in (True, False, None)
        if state in states
    ]
    where = f"at all {len(units)} constants" if holds is not None else "; ".join(parts)
    return Claim(text, holds, f"ratio {span(ratios)}: {where}", by)


def span(ratios: Array) -> str:
    """Return the minimum and the maximum of a sweep."""
    return f"{np.nanmin(ratios):.3g} to {np.nanmax(ratios):.3g}".replace("inf", "∞")


def claims_of(sweep: Sweep) -> list[Claim]:
    """Return the claims of the paper's text about the figure, for both interpretations of the groups."""
    texts = {
        "time": "needs less time than CADA",
        "communication": "needs fewer messages than CADA",
        "computation": "computes no more than CADA",
    }
    grouped = [
        claim(f"G-CADA ({NAMES[label]}) {text}", sweep.ratio("CADA", label, cost), sweep.units)
        for label in NAMES
        for cost, text in texts.items()
    ]
    lazy = [
        claim(
            f"CADA needs less {cost} than distributed Adam", sweep.ratio("D-Adam", "CADA", cost), sweep.units
        )
        for cost in ("communication", "computation")
    ]
    return grouped + lazy


def limit(label: str, cost: str) -> float:
    """Return CADA's cost of a round divided by G-CADA's for c = 0, where all workers are asked in every round.

    The costs are those of equations (12) to (22) with full sets.

    >>> round(limit(STATED, "time"), 2), limit(STATED, "communication"), limit(MEANT, "communication")
    (6.77, 1.6, 1.5)
    """
    groups = {STATED: 3, MEANT: 4}[label]
    size, workers = 12 // groups, 12
    return {
        "time": theory.dadam_time(workers, 1.0) / theory.gcada_time(groups, size, 1.0),
        "communication": 2 * workers / (groups * (size + 1)),
        "computation": 1.0,
    }[cost]


# ---------------------------------------------------------------- table, pictures, texts


def _lines(sweep: Sweep) -> Iterator[Line]:
    """Return the means over the seeds at every unit."""
    for place, unit in enumerate(sweep.units):
        for over, of, text in _pairs():
            for cost in COSTS:
                each = sweep.ratio(over, of, cost)[place]
                error = float(each.std(ddof=1) / np.sqrt(len(each))) if np.isfinite(each).all() else 0.0
                yield Line(f"c × {unit:g}: {text}, {cost}", None, {"ours": float(each.mean())}, "×", "wb.run",
                           {"ours": error})  # fmt: skip


def _pairs() -> list[tuple[str, str, str]]:
    grouped = [("CADA", label, f"CADA over G-CADA ({name})") for label, name in NAMES.items()]
    return [*grouped, ("D-Adam", "CADA", "D-Adam over CADA")]


def _best(sweep: Sweep) -> Iterator[Line]:
    """Return each scheme at its best constant."""
    for over, of, text in _pairs():
        for cost in COSTS:
            ratio = sweep.best(over, cost) / sweep.best(of, cost)
            yield Line(f"each at its own best c: {text}, {cost}", None, {"ours": ratio}, "×", "wb.run")


def _pictures(sweep: Sweep, data: str) -> list[Picture]:
    return [_picture(sweep, over, of, text, data) for over, of, text in _pairs()]


def _picture(sweep: Sweep, over: str, of: str, text: str, data: str) -> Picture:
    found = {cost: _band(sweep.ratio(over, of, cost)) for cost in COSTS}
    marks = (
        {cost: PUBLISHED["CADA"][cost] / PUBLISHED["G-CADA"][cost] for cost in COSTS}
        if over == "CADA"
        else {}
    )
    lines = (
        " Broken lines: the ratios that the paper prints."
        if marks
        else (
            " The paper prints no such ratios. Communication and computation lie on one another: an answer is a"
            " download, an upload and a mini-batch."
        )
    )
    caption = (
        f"Until a training loss of {sweep.target:g}: lines are means over {sweep.seeds} seeds, bands their least and"
        f" largest value.{lines} Above 1, {of.split(',')[0]} needs less. Simulated wall clock, learnt on {data}."
    )
    axis = "unit of c: the rule's constant is the paper's × this × L²"
    return drawing.banded(sweep.units, found, marks, f"Costs of {text}", axis, "ratio", caption)


def _band(ratios: Array) -> tuple[Array, Array, Array]:
    """Return minimum, mean and maximum over the seeds."""
    return ratios.min(axis=1), ratios.mean(axis=1), ratios.max(axis=1)


def _words(sweep: Sweep) -> str:
    return (
        "The paper states c = 2 for CADA and 0.3 for G-CADA, but not the smoothness constants that c stands beside."
        " Here c is the paper's number times a unit times L², L the measured smoothness of the whole data set; the unit"
        f" goes from {sweep.units[0]:g} to {sweep.units[-1]:g}. A statement holds if it does at every unit with each of"
        f" {sweep.seeds} seeds. Costs are those until a training loss of {sweep.target:g}; within {sweep.rounds} rounds"
        f" {_never(sweep)}."
    )


def _never(sweep: Sweep) -> str:
    missed = {
        label: [
            f"{u:g}"
            for u, row in zip(sweep.units, sweep.costs[label]["time"], strict=True)
            if np.isinf(row).any()
        ]
        for label in SWEPT
    }
    texts = [f"{label} does not always reach it at c × {', '.join(at)}" for label, at in missed.items() if at]
    return "; ".join(texts) or "all reach it"


def limit_words() -> str:
    """Describe the ratios of a round in which no worker skips."""
    parts = [
        f"{', '.join(f'{limit(label, cost):.3g}' for cost in COSTS)} times with {name}"
        for label, name in NAMES.items()
    ]
    return (
        "To the left, as c goes to 0, everybody is asked in every round and CADA is distributed Adam: a round of CADA"
        f" then takes, in time, communication and computation, as much as one of G-CADA {'; '.join(parts)}."
    )


def _quick(sweep: Sweep) -> str:
    return (
        f"Quick form: a loss of {sweep.target:g} in place of the paper's {TARGET:g}, less data, fewer seeds."
    )


PLACE = (3, 1)  # paper, and position in its chapter of the book
ENTRIES = (
    Entry(
        "gcada-sweep",
        "Figure 2 for every c: the unit of the rule's constant is not stated, so it is swept",
        find,
        weight=11.0,
    ),
)
