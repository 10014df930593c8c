"""Contents of an entry: numbers, claims, misprints and pictures, all as plain data that is stored as JSON."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal, Self

from workbench.core.base.text import plain
from workbench.core.experiment import Experiment

SWEEP = "sweep"  # name of the lines with `swept`, which are compared like a column
COLUMNS = {  # column of numbers -> heading, in this order
    "ours": "virtual clock, stated settings",
    "per_round": "virtual clock, time per round only",
    "exact": "formula",
    "events": "virtual clock, event by event",
    "low": "virtual clock, least over the sweep",
    "high": "virtual clock, most over the sweep",
    "fitted": "virtual clock, EC2 constants, fitted to this number",
    "tested": "virtual clock, EC2 constants, not fitted to this number",
    "scaled": "virtual clock, scaled settings",
    "recorded": "recorded on EC2 by the paper's authors",
    "measured": "measured on local MPI, scaled settings",
}


Kind = Literal["simulated", "computed", "real"]  # computed: by formulas; real: measured times


@dataclass(frozen=True)
class Line:
    """One number of a figure or table: the paper's, and ours in one or more columns.

    `published` is None if the paper prints no number. `errors`: standard errors by column. `by`: the call, or the
    label of the spec, that computes our number. `swept`: our numbers at every value of a constant that the paper does
    not state. A verdict then depends on all these numbers.

    >>> Line("UMW", 6.6, {"ours": 6.9}).ratio("ours")
    1.0454545454545456
    """

    what: str
    published: float | None = None
    values: Mapping[str, float] = field(default_factory=dict)
    unit: str = ""
    by: str = ""
    errors: Mapping[str, float] = field(default_factory=dict)
    swept: Sequence[float] = ()

    def ratio(self, column: str) -> float:
        """Return our number divided by the paper's, or NaN if one of them is missing."""
        value = self.values.get(column, float("nan"))
        return float("nan") if not self.published else value / self.published


@dataclass(frozen=True)
class Claim:
    """Statement of a paper's text, and whether it holds here. None: the numbers do not decide.

    `reworded`: a wording that holds, if the paper's wording does not.
    """

    text: str
    holds: bool | None
    found: str  # the numbers on which the result is based
    by: str = ""
    reworded: str = ""


@dataclass(frozen=True)
class Misprint:
    """Error in a paper: the printed value, the value found, and the computation that shows it."""

    where: str
    printed: str
    found: str
    by: str  # the computation, as a user would type it
    confirmed: bool  # whether the computation, run now, confirms the error


@dataclass(frozen=True)
class Picture:
    """Figure in both themes: plotly's `data`, and the differences of the dark theme. `kind`: kind of its numbers."""

    caption: str
    data: Sequence[Any]
    light: Mapping[str, Any]
    dark: Mapping[str, Any]
    dark_data: Sequence[Any] | None = None
    kind: Kind = "simulated"


@dataclass(frozen=True)
class Result:
    """All results of an entry.

    `columns`: columns that are compared with the paper. The first one decides the verdict of the entry. `heads`:
    headings of columns whose constants are not those of the paper. `reasons`: reasons why numbers differ, by column.
    `baseline`: a further value for comparing orders (CR's own 1 among speedups of CR). `facts`: numbers for other
    entries. `specs`: experiments by label. `data`: description of the data.
    """

    lines: Sequence[Line] = ()
    claims: Sequence[Claim] = ()
    misprints: Sequence[Misprint] = ()
    pictures: Sequence[Picture] = ()
    text: Sequence[str] = ()
    columns: Sequence[str] = ("ours",)
    heads: Mapping[str, str] = field(default_factory=dict)
    reasons: Mapping[str, str] = field(default_factory=dict)
    baseline: float | None = None
    specs: Mapping[str, Experiment | Mapping[str, Any]] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)
    data: Sequence[str] = ()
    measured: str = ""  # how the column was measured, or why it is empty
    seed: int | None = 0

    def head(self, column: str) -> str:
        """Return the heading of a column."""
        return self.heads.get(column, COLUMNS.get(column, "the whole sweep"))

    def to_json(self) -> dict[str, Any]:
        """Return plain lists and dicts."""
        specs = {
            label: e.model_dump(mode="json") for label, e in self.specs.items() if isinstance(e, Experiment)
        }
        return dict(plain({**asdict(replace(self, specs={})), "specs": {**self.specs, **specs}}))

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> Self:
        """Make a result from the output of `to_json`."""
        parts: dict[str, Any] = dict(fields)
        kinds = {"lines": Line, "claims": Claim, "misprints": Misprint, "pictures": Picture}
        parts |= {name: tuple(kind(**each) for each in parts[name]) for name, kind in kinds.items()}
        return cls(**parts)


def printed(value: float | None) -> str:
    """Format a paper's number with all its digits (the papers have six at most).

    >>> printed(36.1138), printed(9219), printed(None)
    ('36.1138', '9219', '')
    """
    return "" if value is None else f"{value:.6g}"


def number(value: float | None, error: float | None = None) -> str:
    """Format a number with four digits, and its standard error if there is one.

    >>> number(1234.5678), number(0.5, 0.01), number(None)
    ('1235', '0.5 ± 0.01', '')
    """
    if value is None:
        return ""
    if not math.isfinite(value):
        return "never"
    text = f"{value:.4g}" if abs(value) < 1e4 or abs(value) >= 1e6 else f"{value:.0f}"
    return f"{text} ± {error:.2g}" if error else text
