"""Verdicts: whether a column of numbers agrees with the paper's, has the same order, or differs."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

from workbench_book.values import COLUMNS, SWEEP, Line, Result

Kind = Literal["agrees", "ordering", "differs", "holds", "fitted", "open"]

STEPS = (0.1, 0.5, 1, 2, 5, 10, 15)  # per cent; numbers with larger differences do not agree
TIE = 0.02  # published numbers that are closer than this have no order
SYMBOLS: dict[Kind, str] = {
    "agrees": "✓", "ordering": "≈", "differs": "≠", "holds": "✓", "fitted": "→", "open": "○",
}  # fmt: skip
WORST: tuple[Kind, ...] = ("differs", "ordering", "agrees")
SAYS: dict[Kind, str] = {"agrees": "agrees", "ordering": "same ordering", "differs": "differs"}


class Verdict(NamedTuple):
    """Comparison of a column, or of an entry, with the paper. `text`: its wording."""

    kind: Kind
    text: str

    @property
    def symbol(self) -> str:
        """Symbol that distinguishes verdicts without colour."""
        return SYMBOLS[self.kind]


def compare(
    published: Sequence[float], ours: Sequence[float], baseline: float | None = None, reason: str = ""
) -> Verdict:
    """Compare numbers one by one, then their order.

    Parameters
    ----------
    published, ours
        The same quantities in the same order. NaN in `ours` never agrees.
    baseline
        A further quantity that has this value in both, such as the 1 of the reference among ratios.
    reason
        Reason why the numbers differ, for the text of the verdict.

    Examples
    --------
    >>> compare([2.0, 3.0], [2.0, 3.05]).text
    'agrees within 2 %'
    >>> compare([2.0, 3.0], [4.0, 9.0]).text
    'same ordering (up to a factor of 3)'
    >>> compare([2.0, 3.0], [4.0, 1.0], reason="a misprint").text
    'differs (0 of 2 numbers within 15 %): a misprint'

    Equal numbers have no order that ours could share:

    >>> compare([2.0, 2.0], [4.0, 9.0]).kind
    'differs'
    """
    off = max((_off(a, b) for a, b in zip(ours, published, strict=True)), default=math.nan)
    within = next((step for step in STEPS if 100 * off <= step), None)
    if within is not None:
        return Verdict("agrees", f"agrees within {within:g} %")
    pairs = [*zip(published, ours, strict=True), *([(baseline, baseline)] if baseline is not None else [])]
    if same_order(pairs):
        return Verdict("ordering", f"same ordering (up to a factor of {_factor(published, ours):.2g})")
    return Verdict("differs", f"differs{_some(published, ours)}: {reason or 'the model lacks what made it'}")


def _off(ours: float, published: float) -> float:
    """Return the relative deviation. It is infinite for a missing number, and absolute if the paper's number is 0."""
    if math.isnan(ours):
        return math.inf
    return abs(ours / published - 1) if published else abs(ours)


def _some(published: Sequence[float], ours: Sequence[float]) -> str:
    """Return how many numbers agree, as text, if there are several."""
    close = sum(_off(a, b) <= STEPS[-1] / 100 for a, b in zip(ours, published, strict=True))
    return f" ({close} of {len(ours)} numbers within {STEPS[-1]} %)" if len(ours) > 1 else ""


def same_order(pairs: Sequence[tuple[float, float]]) -> bool:
    """Return whether our numbers have the order of the published ones.

    Pairs of nearly equal published numbers are ignored. If all are nearly equal, the result is False.

    >>> same_order([(1.0, 10.0), (2.0, 11.0), (2.01, 10.9)]), same_order([(1.0, 10.0), (1.0, 70.0)])
    (True, False)
    """
    ordered = [(x, y) for (a, x), (b, y) in itertools.permutations(pairs, 2) if a > b * (1 + TIE)]
    whole = not any(math.isnan(x) for _, x in pairs)
    return whole and bool(ordered) and all(x > y * (1 - TIE) for x, y in ordered)


def of_column(result: Result, column: str) -> Verdict | None:
    """Return the verdict of one column of an entry, or None if it cannot be compared.

    Measurements at scaled settings are compared with the virtual clock at the same settings. Columns that were
    fitted to the paper's numbers are not compared. A sweep is compared at each value of its constant.
    """
    if column == SWEEP:
        return of_sweep([line for line in result.lines if line.swept], result)
    if column == "measured" and any("scaled" in line.values for line in result.lines):
        return _alike(result)
    lines = [line for line in result.lines if line.published is not None and column in line.values]
    if not lines:
        return None
    published = [line.published for line in lines if line.published is not None]
    ours = [line.values[column] for line in lines]
    if column == "fitted":
        return Verdict(
            "fitted", f"fitted to: off by a factor of up to {_factor(published, ours):.2g}; decides nothing"
        )
    return compare(published, ours, result.baseline, result.reasons.get(column, ""))


def of_sweep(lines: Sequence[Line], result: Result) -> Verdict | None:
    """Return the worst verdict over a sweep, with the count of each kind, or None without published numbers.

    >>> lines = [Line("a", 2.0, swept=(2.0, 9.0)), Line("b", 3.0, swept=(3.0, 8.0))]
    >>> of_sweep(lines, Result(lines=lines, reasons={"sweep": "it hangs on c"})).text
    'differs at 1 of 2 constants, agrees at 1: it hangs on c'
    """
    compared = [(line.published, line.swept) for line in lines if line.published is not None]
    if not compared:
        return None
    published, swept = (list(each) for each in zip(*compared, strict=True))
    found = [compare(published, ours, result.baseline) for ours in zip(*swept, strict=True)]
    counts = {kind: sum(each.kind == kind for each in found) for kind in WORST}
    kinds = [kind for kind in WORST if counts[kind]]
    if kinds == ["differs"] or len(kinds) > 1:
        parts = [f"{SAYS[kind]} at {counts[kind]}" for kind in kinds]
        parts[0] += f" of {len(found)} constants"
        return Verdict(
            kinds[0], f"{', '.join(parts)}: {result.reasons.get(SWEEP, 'it hangs on the constant')}"
        )
    off = max(_log(a, b) for a, each in compared for b in each)
    return Verdict(
        kinds[0], f"{SAYS[kinds[0]]} at all {len(found)} constants, up to a factor of {math.exp(off):.2g}"
    )


def _alike(result: Result) -> Verdict:
    lines = [line for line in result.lines if {"scaled", "measured"} <= set(line.values)]
    expected, found = ([line.values[column] for line in lines] for column in ("scaled", "measured"))
    verdict = compare(expected, found, result.baseline, "this machine was late for some of the drawn times")
    fields = {"agrees": "agrees with", "ordering": "same ordering as", "differs": "differs from"}
    first = fields[verdict.kind]
    rest = verdict.text.removeprefix("agrees").removeprefix("same ordering").removeprefix("differs")
    return Verdict(verdict.kind, f"{first} the virtual clock at the same settings{rest}")


def judged(result: Result) -> list[tuple[str, Verdict]]:
    """Return the verdicts of all compared columns by heading. Measured columns are always compared."""
    columns = dict.fromkeys([*result.columns, "measured"])
    found = [(result.head(column), of_column(result, column)) for column in columns]
    return [(heading, verdict) for heading, verdict in found if verdict is not None]


def of_result(result: Result) -> Verdict:
    """Return the verdict of an entry: of its first compared column, or else of claims, misprints or measurements."""
    columns = dict(judged(result))
    real = columns.pop(result.head("measured"), None)
    if columns:
        return next(iter(columns.values()))
    if result.claims:
        return _stated(result)
    if result.misprints:
        shown = sum(m.confirmed for m in result.misprints)
        kind: Kind = "holds" if shown == len(result.misprints) else "differs"
        return Verdict(kind, f"{shown} of {len(result.misprints)} shown by computation")
    return real or Verdict("open", "the paper prints nothing to compare with")


def all_of(result: Result) -> list[tuple[str, Verdict]]:
    """Return the verdicts of an entry and of its columns, by subject."""
    found = judged(result)
    first = of_result(result)
    if first in [verdict for _, verdict in found]:
        return found
    return [("what the paper says" if result.claims else "", first), *found]


def _stated(result: Result) -> Verdict:
    text = len(result.claims)
    unclear = sum(claim.holds is None for claim in result.claims)
    missed = sum(not claim.holds for claim in result.claims) - unclear
    why = f" ({result.reasons['claims']})" if "claims" in result.reasons else ""
    if missed:
        reworded = sum(not claim.holds and bool(claim.reworded) for claim in result.claims)
        but = f" ({reworded} would if reworded)" if reworded else ""
        return Verdict(
            "differs", f"differs: {missed} of {text} {_statements(text, missed)} not hold{but}{why}"
        )
    if unclear:
        return Verdict("open", f"open: {unclear} of {text} statement{'s' if text > 1 else ''} undecided{why}")
    return Verdict("holds", f"what the paper says holds ({text} statement{'s' if text > 1 else ''})")


def _statements(message: int, missed: int) -> str:
    return f"statement{'s' if message > 1 else ''} {'does' if missed == 1 else 'do'}"


def columns_of(result: Result) -> list[str]:
    """Return the columns that have a number in some line, in the book's order."""
    return [column for column in COLUMNS if any(column in line.values for line in result.lines)]


def _factor(published: Sequence[float], ours: Sequence[float]) -> float:
    return math.exp(max((_log(a, b) for a, b in zip(published, ours, strict=True)), default=0.0))


def _log(published: float, ours: float) -> float:
    """Return the logarithm of the factor between two numbers, or 0 if one is missing or not positive."""
    return abs(math.log(published / ours)) if published > 0 and 0 < ours < math.inf else 0.0
