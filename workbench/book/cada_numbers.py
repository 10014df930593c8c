"""Paper 3: time, communication and computation at a training loss of 0.1."""

from __future__ import annotations

from dataclasses import replace

from workbench.book import drawing
from workbench.book.cada import COSTS, MEANT, PUBLISHED, STATED, TARGET, claims_of, data_of, experiments
from workbench.book.catalogue import Entry
from workbench.book.setting import Setting
from workbench.book.values import Line, Picture, Result

REASON = "smoothness constants, mini-batch and data of the paper are not stated; only ratios can be compared"


def entries() -> list[Entry]:
    """The numbers; figure 2 has computed them."""
    title = f"The three numbers at a training loss of {TARGET:g}"
    return [Entry("gcada-numbers", title, find_numbers, ("gcada-fig2",))]


def find_numbers(setting: Setting) -> Result:
    """CADA's costs over G-CADA's, for both readings of the groups."""
    facts = setting.facts["gcada-fig2"]
    target = float(facts["target"])
    found: dict[str, dict[str, float]] = {label: facts["costs"][label] for label in ("CADA", STATED, MEANT)}
    columns = {label: {"ours": each, **facts["short"].get(label, {})} for label, each in found.items()}
    lines = [
        Line(f"{label}: {name}", _published(label, name, target), {"ours": each[name]}, unit, "wb.run")
        for label, each in found.items()
        for name, unit in COSTS.items()
    ]
    lines += [
        Line(
            f"CADA's {name} over G-CADA's ({label.removeprefix('G-CADA, ')})",
            PUBLISHED["CADA"][name] / PUBLISHED["G-CADA"][name],
            {column: columns["CADA"][column][name] / of[name] for column, of in columns[label].items()},
            "×",
            "wb.run",
        )
        for label in (STATED, MEANT)
        for name in COSTS
    ]
    lines += [
        Line(
            f"{label}: communication over computation",
            PUBLISHED[label.split(",")[0]]["communication"] / PUBLISHED[label.split(",")[0]]["computation"],
            {column: of["communication"] / of["computation"] for column, of in each.items()},
            "",
            "wb.run",
        )
        for label, each in columns.items()
    ]
    return Result(
        lines=lines,
        claims=claims_of(found, target),
        pictures=[_ratios(lines, data_of(setting)[2])],
        text=[_words(target)],
        columns=["ours", "measured"],
        reasons={"ours": REASON},
        measured=facts["note"],
        specs={k: e.model_dump(mode="json") for k, e in experiments(setting) if k in found},
        data=[data_of(setting)[1]],
        seed=setting.seed,
    )


def _words(target: float) -> str:
    early = "" if target == TARGET else f", because this form of the book ends before the paper's {TARGET:g}"
    paper = "; ".join(
        f"{label} {each['time']:g} s, {each['communication']} messages, {each['computation']} mini-batches"
        for label, each in PUBLISHED.items()
    )
    return (
        f"Ours are at a training loss of {target:.3g}{early}. The paper's, at {TARGET:g}: {paper}. They depend on what"
        " is not stated, so ratios are compared, too."
    )


def _published(label: str, name: str, target: float) -> float | None:
    """The paper's number, where ours is at the same loss."""
    return float(PUBLISHED[label.split(",")[0]][name]) if target == TARGET else None


def _ratios(lines: list[Line], data: str) -> Picture:
    caption = f"Costs of CADA over those of G-CADA until the same training loss, on {data}."
    short = [
        replace(line, what=line.what.removeprefix("CADA's ").replace(" over G-CADA's", ""))
        for line in lines
        if line.unit == "×"
    ]
    return drawing.numbers(short, "CADA over G-CADA", "ratio", caption)
