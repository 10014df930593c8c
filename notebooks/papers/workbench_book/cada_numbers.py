"""Paper 3: time, communication and computation at a training loss of 0.1."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from workbench.core import theory
from workbench_book import drawing
from workbench_book.cada import COSTS, MEANT, PUBLISHED, STATED, TARGET, data_of, experiments
from workbench_book.cada_sweep import NAMES, Sweep, limit, limit_words
from workbench_book.catalogue import Entry
from workbench_book.setting import Setting
from workbench_book.values import SWEEP, Line, Picture, Result

SHOWN = ("CADA", STATED, MEANT)
REASON = "the unit of c is not stated, nor are mini-batch and data"


def find_numbers(setting: Setting) -> Result:
    """Compute CADA's costs divided by G-CADA's, for both interpretations of the groups and every unit of c."""
    sweep, real = Sweep.from_facts(setting.facts["gcada-sweep"]), setting.facts["gcada-fig2"]
    ratios = list(_ratios(sweep, real["short"]))
    return Result(
        lines=[*_costs(sweep), *ratios, *_identities()],
        pictures=[_picture(ratios, data_of(setting)[2])],
        text=[_words(sweep), limit_words()],
        columns=[SWEEP, "measured"],
        heads={SWEEP: "CADA over G-CADA, the whole sweep of c", "exact": "formula, nobody lazy"},
        reasons={SWEEP: REASON},
        baseline=1.0,
        measured=real["note"],
        specs={k: e for k, e in experiments(setting) if k in SHOWN},
        data=[data_of(setting)[1]],
        seed=setting.seed,
    )


def _costs(sweep: Sweep) -> Iterator[Line]:
    """Return the numbers, which are not compared, since they depend on data and mini-batches that are not stated."""
    for label in SHOWN:
        for name, unit in COSTS.items():
            means = sweep.costs[label][name].mean(axis=1)
            values = {"low": float(means.min()), "high": float(means.max())}
            yield Line(f"{label}: {name}", _published(label, name, sweep.target), values, unit, "wb.run")


def _ratios(sweep: Sweep, short: Mapping[str, Any]) -> Iterator[Line]:
    """Return the compared ratios at every unit of c, and those of full rounds and of short real runs."""
    for label, name in NAMES.items():
        for cost in COSTS:
            means = [float(each) for each in sweep.ratio("CADA", label, cost).mean(axis=1)]
            values = {"exact": limit(label, cost), "low": min(means), "high": max(means)}
            values |= {
                column: short["CADA"][column][cost] / of[cost] for column, of in short.get(label, {}).items()
            }
            published = PUBLISHED["CADA"][cost] / PUBLISHED["G-CADA"][cost]
            yield Line(f"CADA's {cost} over G-CADA's ({name})", published, values, "×", "wb.run", swept=means)


def _identities() -> Iterator[Line]:
    """Check the paper's numbers: communication divided by computation is (M_G + 1)/M_G in any run."""
    for label, size in zip(SHOWN, (1, 4, 3), strict=True):
        paper = PUBLISHED[label.split(",")[0]]
        yield Line(
            f"{label}: communication over computation (an identity)",
            paper["communication"] / paper["computation"],
            {"exact": theory.communication_ratio(size)},
            "",
            f"wb.theory.communication_ratio({size})",
        )


def _words(sweep: Sweep) -> str:
    early = (
        ""
        if sweep.target == TARGET
        else f", because this form of the book is too short for the paper's {TARGET:g}"
    )
    paper = "; ".join(
        f"{label} {each['time']:g} s, {each['communication']} messages, {each['computation']} mini-batches"
        for label, each in PUBLISHED.items()
    )
    return (
        f"Ours are at a training loss of {sweep.target:.3g}{early}. The paper's, at {TARGET:g}: {paper}. They depend on"
        " what is not stated, so only ratios are judged, at every unit of c. Communication over computation is"
        " (M_G + 1)/M_G whatever is run: it says that the paper's groups had 3 workers, and is not judged."
    )


def _published(label: str, name: str, target: float) -> float | None:
    """Return the paper's number, if the computed one is at the same loss."""
    return float(PUBLISHED[label.split(",")[0]][name]) if target == TARGET else None


def _picture(ratios: list[Line], data: str) -> Picture:
    heads = {"exact": "formula, nobody lazy"}
    caption = (
        "Costs of CADA over those of G-CADA until the same training loss: least and most over the sweep of c, and with"
        f" nobody lazy, on {data}."
    )
    short = [
        replace(line, what=line.what.removeprefix("CADA's ").replace(" over G-CADA's", "")) for line in ratios
    ]
    return drawing.numbers(short, "CADA over G-CADA", "ratio", caption, heads=heads)


PLACE = (3, 3)  # paper, and position in its chapter of the book
ENTRIES = (
    Entry(
        "gcada-numbers",
        f"The three numbers at a training loss of {TARGET:g}",
        find_numbers,
        ("gcada-sweep", "gcada-fig2"),
    ),
)
