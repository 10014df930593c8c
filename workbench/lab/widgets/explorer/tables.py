"""HTML tables."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING

from workbench.analysis.planning.quantities import quantity, quantity_of
from workbench.core.contract.scheme import ABSTRACT_MARK, ABSTRACT_NOTE
from workbench.core.experiment import Experiment
from workbench.lab.widgets.explorer.ahead import Ahead

if TYPE_CHECKING:
    import pandas as pd


def table(columns: Sequence[str], rows: Sequence[Sequence[str]], caption: str, text_columns: int = 1) -> str:
    """Return an HTML table; the first `words` columns are text, the others numbers, aligned right. Cells are escaped.

    >>> table(["scheme", "s"], [["<CR>", "1.5"]], "times").count("&lt;CR&gt;")
    1
    """
    head = "".join(_cell("th", name, i >= text_columns) for i, name in enumerate(columns))
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
    scope = ' scope="col"' if tag == "th" else f' data-column="{escape(column)}"'
    return f"<{tag}{mark}{scope}>{escape(text)}</{tag}>"


def costs(ahead: Sequence[Ahead]) -> str:
    """Return the table of costs of a round per scheme: tolerated stragglers, load, messages, bytes, time.

    Numbers are in multiples of the best scheme's.
    """
    known = [a.forecast.mean for a in ahead if a.forecast is not None]
    best = min(known, default=0.0)
    numbers = ["load", "messages", "bytes", "mean round", "spread", "times the fastest"]
    columns = ["scheme", "may be late", *numbers]
    return table(columns, [_costs(a, best) for a in ahead], "costs of a round")


def _costs(a: Ahead, best: float) -> list[str]:
    f = a.forecast
    if f is None:
        return [a.name, *["–"] * 7]
    return [
        a.name,
        may_be_late(a.experiment),
        f"{100 * f.load:.3g} %",
        quantity(f.messages, "messages"),
        quantity(f.bytes, "bytes"),
        quantity_of(f.mean),
        quantity_of(f.std),
        _times(f.mean / best if best > 0 else float("nan")),
    ]


def may_be_late(e: Experiment) -> str:
    """Return the number and share of tolerated stragglers: of the children of a parent, or of all workers.

    >>> may_be_late(Experiment(scheme="GC", workers=84, scheme_args={"stragglers": 17}))
    '17 of 84 (20 %)'
    >>> may_be_late(Experiment(scheme="CR", workers=84, scheme_args={"children": 4, "layers": 3, "stragglers": 1}))
    '1 of 4 children (25 %)'
    """
    found, names = e.built_scheme.tolerated(e.workers), type(e.built_scheme).model_fields
    if found is None:
        return "–"
    whom = " children" if "children" in names else " in a group" if "groups" in names else ""
    return f"{found[0]} of {found[1]}{whom} ({100 * found[0] / found[1]:.2g} %)"


def speeds(found: pd.DataFrame, target: float) -> str:
    """Return a table of seconds to the target, and of how many times as long as the reference each run takes."""
    columns, mark = ["scheme", "seconds", "times_as_long", "follows"], ABSTRACT_MARK
    rows = [
        [
            f"{name}{mark * (follows == 'abstract')}",
            "never" if seconds != seconds else quantity_of(seconds),
            _times(ratio),
        ]
        for name, seconds, ratio, follows in found[columns].itertuples(index=False)
    ]
    bases = [f"times as long as {name}" for name, _, ratio in rows if ratio == "1×"]
    reference = bases[0] if bases else "no run reaches the target"
    note = f'<div class="wb">{ABSTRACT_NOTE}</div>' if "abstract" in set(found["follows"]) else ""
    return table(["run", f"time to {target:.4g}", reference], rows, "time to the target") + note


def _times(value: float) -> str:
    return "–" if value != value else f"{value:.3g}×"
