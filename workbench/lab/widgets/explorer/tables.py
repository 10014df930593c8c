"""HTML tables."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING

from workbench.analysis.planning.quantities import quantity, quantity_of
from workbench.core.contract.scheme import ABSTRACT_MARK, ABSTRACT_NOTE, mark_note
from workbench.core.experiment import Experiment
from workbench.lab.figures.labels import ratio_text
from workbench.lab.figures.passes import data_share, pass_times, verdict
from workbench.lab.widgets.callbacks import sentence
from workbench.lab.widgets.explorer.ahead import Ahead
from workbench.lab.widgets.explorer.boxes import table_of_boxes

if TYPE_CHECKING:
    import pandas as pd


def table(columns: Sequence[str], rows: Sequence[Sequence[str]], caption: str, text_columns: int = 1) -> str:
    """Return an HTML table; the first `text_columns` columns are text, the others numbers, aligned right.

    Cells are escaped.

    >>> table(["scheme", "s"], [["<CR>", "1.5"]], "times").count("&lt;CR&gt;")
    1
    """
    head = "".join(_cell("th", name, i >= text_columns, name) for i, name in enumerate(columns))
    lines = [
        "".join(_cell("td", cell, i >= text_columns, columns[i]) for i, cell in enumerate(row))
        for row in rows
    ]
    body = "".join(f"<tr>{line}</tr>" for line in lines)
    return (
        f'<div class="wb"><table class="wb-table" aria-label="{escape(caption)}"><thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )


def _cell(tag: str, text: str, right: bool, column: str = "") -> str:
    """Return a cell. Narrow pages show the name of its column beside it."""
    mark = ' class="wb-number"' if right else ""
    scope = ' scope="col"' if tag == "th" else ""
    return f'<{tag}{mark}{scope} data-column="{escape(column)}">{escape(text)}</{tag}>'


def costs(ahead: Sequence[Ahead]) -> str:
    """Return the forecasts as HTML: box and mean of each scheme's round times. Load, messages and bytes are folded.

    Schemes are compared by the time of a pass over the data, because a round of some schemes uses little data.
    """
    known = {a.name: a.forecast for a in ahead if a.forecast is not None}
    passes = pass_times(known)
    best = min(passes, key=passes.__getitem__, default="")
    columns = {"mean round": [quantity_of(known[a.name].mean) if a.name in known else "–" for a in ahead]}
    if any(data_share(f) < 1 for f in known.values()):
        columns["pass over the data"] = [
            quantity_of(passes[a.name]) if a.name in passes else "–" for a in ahead
        ]
    shortest = passes.get(best, 0.0)
    ratios = [passes[a.name] / shortest if a.name in passes and shortest > 0 else float("nan") for a in ahead]
    columns[f"against {best}"] = [_against(ratio) for ratio in ratios]
    times = {a.name: a.forecast.seconds if a.forecast is not None else None for a in ahead}
    heads = ["scheme", "may be late", "load", "messages", "bytes", "data in a round"]
    more = table(heads, [_costs(a) for a in ahead], "load, messages, bytes")
    return (
        f"{table_of_boxes(times, columns, best, 'costs of a round')}"
        '<div class="wb-note">Box: middle half and median. Line: 5 to 95 %. Diamond: mean.</div>'
        f'<details class="wb-more"><summary>Load, messages, bytes</summary>{more}</details>'
    )


def finding(ahead: Sequence[Ahead]) -> str:
    """Return the result of the forecasts as HTML: the fastest scheme, and remarks on the comparison."""
    known = {a.name: a.forecast for a in ahead if a.forecast is not None}
    if not known:
        return ""
    head, notes = verdict(known)
    below = "; ".join(filter(None, [*notes, mark_note(known)]))
    return f'<div class="wb"><div class="wb-finding">{escape(head)}</div>{sentence(below)}</div>'


def _costs(a: Ahead) -> list[str]:
    if (f := a.forecast) is None:
        return [a.name, *["–"] * 5]
    messages, size = quantity(f.messages, "messages"), quantity(f.bytes, "bytes")
    share = f"{100 * data_share(f):.3g} %"
    return [a.name, tolerated_text(a.experiment), f"{100 * f.load:.3g} %", messages, size, share]


def tolerated_text(e: Experiment) -> str:
    """Return the number and share of tolerated stragglers: of a parent's children, a group, or all workers.

    >>> tolerated_text(Experiment(scheme="GC", workers=84, scheme_args={"stragglers": 17}))
    '17 of 84 (20 %)'
    >>> tolerated_text(Experiment(scheme="CR", workers=84, scheme_args={"children": 4, "layers": 3, "stragglers": 1}))
    '1 of 4 children (25 %)'
    """
    found, names = e.built_scheme.tolerated(e.workers), type(e.built_scheme).model_fields
    if found is None:
        return "–"
    whom = " children" if "children" in names else " in a group" if "groups" in names else ""
    return f"{found[0]} of {found[1]}{whom} ({100 * found[0] / found[1]:.2g} %)"


def speeds(found: pd.DataFrame, target: float) -> str:
    """Return a table of seconds to the target, and of how many times as long as the reference each run takes."""
    columns = ["scheme", "seconds", "times_as_long", "follows"]
    rows = [
        [
            f"{name}{ABSTRACT_MARK * (follows == 'abstract')}",
            "never" if seconds != seconds else quantity_of(seconds),
            _times(ratio),
        ]
        for name, seconds, ratio, follows in found[columns].itertuples(index=False)
    ]
    name = next(iter(found["reference"]), "")
    reference = f"times as long as {name}" if name else "no run reaches the target"
    note = f'<div class="wb">{ABSTRACT_NOTE}</div>' if "abstract" in set(found["follows"]) else ""
    return table(["run", f"time to {target:.4g}", reference], rows, "time to the target") + note


def _times(value: float) -> str:
    return "–" if value != value else ratio_text(value, 3)


def _against(ratio: float) -> str:
    return "fastest" if ratio == 1 else "–" if ratio != ratio else f"{_times(ratio)} as long"
