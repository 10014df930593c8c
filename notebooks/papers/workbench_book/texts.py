"""Pieces of HTML: an entry's text, table, claims, misprints and settings. All inserted text is escaped."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from workbench.core.base.text import dump, upper
from workbench.core.experiment import Experiment
from workbench_book.catalogue import Outcome
from workbench_book.setting import Setting
from workbench_book.values import Claim, Line, Misprint, Picture, Result, number, printed
from workbench_book.verdicts import Verdict, all_of, columns_of

REAL = ("recorded", "measured")
LONG = 20  # a table with more rows scrolls
SHORT = 14  # a row's name with at most this many characters stays on one line
BREAKS = re.compile(r"([._(\[])(?=[A-Za-z])")  # code may be wrapped after these characters
CLAIMED: dict[bool | None, Verdict] = {
    True: Verdict("holds", "holds"),
    False: Verdict("differs", "does not hold"),
    None: Verdict("open", "undecided"),
}


def code(text: str) -> str:
    """Return code in a cell, which may be wrapped within long words."""
    broken = BREAKS.sub(r"\1<wbr>", escape(text))
    return f"<code>{broken}</code>"


def badge(verdict: Verdict) -> str:
    """Return a verdict with its symbol and colour."""
    return f'<span class="verdict {verdict.kind}"><b>{verdict.symbol}</b> {escape(verdict.text)}</span>'


def entry(outcome: Outcome, setting: Setting) -> str:
    """Return one entry of the page."""
    name, title = outcome.entry.name, outcome.entry.title
    head = f'<section class="entry" id="{escape(name)}"><h3>{escape(title)} <code>{escape(name)}</code></h3>'
    result = outcome.result
    if result is None:
        text = f'<p><span class="verdict differs"><b>!</b> not computed: {escape(outcome.error)}</span></p>'
        return f"{head}{text}</section>"
    parts = [
        head,
        verdicts(result),
        *(f"<p>{escape(text)}</p>" for text in result.text),
        table(result),
        claims(result.claims),
        misprints(result.misprints),
        *(f"<p class=data><b>Data.</b> {escape(text)}</p>" for text in result.data),
        _real(result),
        *(picture(name, i, each) for i, each in enumerate(result.pictures)),
        settings(outcome, result, setting),
        "</section>",
    ]
    return "\n".join(parts)


def _real(result: Result) -> str:
    """Return how the column was measured, or why it is empty."""
    text = result.measured.removeprefix("measured: ")
    return f"<p class=data><b>Real runs.</b> {escape(upper(text))}.</p>" if text else ""


def verdicts(result: Result) -> str:
    """Return the verdict, or one for each judged column."""
    found = all_of(result)
    if len(found) < 2:
        return badge(found[0][1])
    rows = "".join(
        f"<li><small>{escape(heading)}:</small> {badge(verdict)}</li>" for heading, verdict in found
    )
    return f'<ul class="legend">{rows}</ul>'


def table(result: Result) -> str:
    """Return the table of the paper's numbers and the computed ones, with their ratio.

    Measured columns are separate.
    """
    if not result.lines:
        return ""
    columns = columns_of(result)
    compared = any(line.published is not None for line in result.lines)
    heads = "".join(_head(result.head(column), column) for column in columns)
    rows = "".join(_row(line, columns, compared) for line in result.lines)
    paper = "<th>the paper</th>" if compared else ""
    notes = ["In brackets: the ratio to the paper's number."] if compared else []
    if "measured" in columns:
        notes.append(
            "In brackets beside what is measured: the ratio to the same rounds on the virtual clock."
        )
    notes += [f"{len(result.lines)} rows: the table scrolls."] if len(result.lines) > LONG else []
    note = f"<p class=data>{' '.join(notes)}</p>" if notes else ""
    kind = "scroll long" if len(result.lines) > LONG else "scroll"
    return (
        f'<div class="{kind}"><table><thead><tr><th></th>{paper}{heads}<th>unit</th><th>computed by</th></tr></thead>'
        f"<tbody>{rows}</tbody></table></div>{note}"
    )


def _head(heading: str, column: str) -> str:
    real = column in REAL
    tag = '<span class="tag real">real</span>' if real else '<span class="tag">simulated</span>'
    tag = '<span class="tag">computed</span>' if column == "exact" else tag
    return f'<th class="{"real" if real else ""}">{escape(heading)} {tag}</th>'


def _row(line: Line, columns: Sequence[str], compared: bool) -> str:
    cells = "".join(_cell(line, column) for column in columns)
    paper = f"<td class=n>{printed(line.published)}</td>" if compared else ""
    short = " class=n" if len(line.what) <= SHORT else ""
    return (
        f"<tr><th{short}>{escape(line.what)}</th>{paper}{cells}<td class=n>{escape(line.unit)}</td>"
        f"<td>{code(line.by)}</td></tr>"
    )


def _cell(line: Line, column: str) -> str:
    kind = f'class="n {"real" if column in REAL else ""}"'
    if column not in line.values:
        return f"<td {kind}>–</td>"
    ratio = math.nan if column == "scaled" else line.ratio(column)
    if column == "measured" and line.values.get("scaled"):
        ratio = line.values["measured"] / line.values["scaled"]
    beside = "" if math.isnan(ratio) else f" <small>({ratio:.3g})</small>"
    return f"<td {kind}>{number(line.values[column], line.errors.get(column))}{beside}</td>"


def claimed(claim: Claim) -> Verdict:
    """Return whether a claim holds as worded in the paper."""
    if claim.reworded and not claim.holds:
        return Verdict("differs", f"holds only if reworded: {claim.reworded}")
    return CLAIMED[claim.holds]


def claims(found: Sequence[Claim]) -> str:
    """Return the claims of the paper's text."""
    if not found:
        return ""
    rows = "".join(
        f"<tr><td>{badge(claimed(c))}</td>"
        f"<td>{escape(c.text)}</td><td>{escape(c.found)}</td><td>{code(c.by)}</td></tr>"
        for c in found
    )
    return text_table(("", "statement", "what decides, here", "computed by"), rows)


def text_table(heads: Sequence[str], rows: str) -> str:
    """Return a table of sentences."""
    head = "".join(f"<th>{text}</th>" for text in heads)
    return f'<div class="scroll"><table class="words"><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>'


def misprints(found: Sequence[Misprint]) -> str:
    """Return a table of misprints: the printed and the found value side by side, and the computation."""
    if not found:
        return ""
    rows = "".join(
        f"<tr><td>{escape(m.where)}</td><td>{escape(m.printed)}</td><td>{escape(m.found)}</td>"
        f"<td>{badge(Verdict('holds', 'shown') if m.confirmed else Verdict('differs', 'not shown'))}</td>"
        f"<td>{code(m.by)}</td></tr>"
        for m in found
    )
    return text_table(("where", "the paper", "found", "", "computed by"), rows)


def picture(name: str, place: int, each: Picture) -> str:
    """Return a figure that plotly draws once it is visible.

    Its caption states whether it is simulated, computed or real.
    """
    fields = {"data": each.data, "darkData": each.dark_data, "light": each.light, "dark": each.dark}
    text = json.dumps(fields, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")
    height = int(each.light.get("height", 520))
    return (
        f'<figure><div class="plot" id="{escape(name)}-{place}" style="height:{height}px" role="img"'
        f' aria-label="{escape(each.caption)}"></div><script type="application/json">{text}</script>'
        f"<figcaption>{caption(each)}</figcaption></figure>"
    )


def caption(each: Picture) -> str:
    """Return the caption: the content of a figure, and the kind of its numbers."""
    return f'<span class="tag {each.kind}">{each.kind}</span> {escape(each.caption)}'


def settings(outcome: Outcome, result: Result, setting: Setting) -> str:
    """Return seed, experiments, versions, and the command that makes this entry again."""
    specs = "".join(
        f"<h5>{escape(label)}</h5><pre>{escape(_yaml(spec))}</pre>" for label, spec in result.specs.items()
    )
    seed = "no random numbers" if result.seed is None else f"seed {result.seed}"
    versions = ", ".join(f"{name} {version}" for name, version in outcome.versions)
    command = f"workbench reproduce {outcome.entry.name}{' --quick' if setting.quick else ''} --fresh"
    how = "kept from an earlier run with the same inputs" if outcome.reused else "computed in this run"
    return (
        f"<details><summary>Settings: {escape(seed)}, {_experiments(len(result.specs))}, {outcome.seconds:.1f} s"
        f" ({how})</summary><p>Again: <code>{escape(command)}</code></p><p>{escape(versions)}</p>{specs}</details>"
    )


def _experiments(count: int) -> str:
    return f"{count or 'no'} experiment{'' if count == 1 else 's'}"


def _yaml(spec: Experiment | Mapping[str, Any]) -> str:
    fields = spec.model_dump(mode="json") if isinstance(spec, Experiment) else dict(spec)
    return dump(fields, default_flow_style=None, width=110)
