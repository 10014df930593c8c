"""Properties of the contract: a statement, a test that drawn cases must pass, and exceptions."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from random import Random
from typing import Any, Generic, Literal, TypeVar

from hypothesis import HealthCheck, Phase, find, reject, settings
from hypothesis import strategies as st
from hypothesis.errors import HypothesisException

from workbench.core.base.settings import Settings
from workbench.core.base.user_code import fault_of

T = TypeVar("T")  # type of the checked object: a class, or an instance of one
Case = Mapping[str, Any]  # plain values, so that a case can be printed and pasted
Verdict = Literal["passes", "fails", "does not apply"]
EXAMPLES_PER_PROPERTY = 60  # cases drawn for each property
# Seconds after which no further case is drawn for a property. Shrinking a case may take the same time again.
MAX_SECONDS_PER_PROPERTY = 1.2


class PropertyFailed(AssertionError):
    """Error: a property does not hold. The message has the actual and the expected result."""


@dataclass(frozen=True)
class Property(Generic[T]):
    """Property: `test(subject, case)` raises `PropertyFailed`. `but(subject)` returns why it does not apply, or ""."""

    name: str
    test: Callable[[T, Case], None]
    but: Callable[[T], str] = lambda subject: ""
    once: bool = False  # whether one test is enough, because it does not depend on the case

    @property
    def statement(self) -> str:
        """Statement of the property: the docstring of its test without "Check that"."""
        text = (
            (self.test.__doc__ or self.name).partition("\n")[0].removeprefix("Check that ").removesuffix(".")
        )
        return text[:1].lower() + text[1:]

    def row(self, verdict: Verdict, why: str = "", **found: Any) -> Row:
        """Return a result of this property. `found`: further fields of `Row`."""
        return Row(self.name, self.statement, verdict, why, **found)


@dataclass(frozen=True)
class Row:
    """Result of one property.

    `why`: reason why it fails or does not apply. `case`: smallest failing case that was found. `show`: call that
    repeats the case.
    """

    property: str
    statement: str
    verdict: Verdict
    why: str = ""
    case: Case | None = None
    show: str = ""
    cases: int = 0  # number of cases that were tried


def run_property(
    checked: Property[T],
    subject: T,
    draw: st.SearchStrategy[Case],
    name: str,
    seed: int,
    examples: int = EXAMPLES_PER_PROPERTY,
) -> Row:
    """Test a property with drawn cases; if one fails, search for a smaller one."""
    if why := checked.but(subject):
        return checked.row("does not apply", why)
    if checked.once:
        why = _fault(checked, subject, {})
        return checked.row("fails" if why else "passes", why, cases=1)
    tried, wrong, ends = 0, None, math.inf

    @st.composite
    def in_time(choose: st.DrawFn) -> Case:
        nonlocal ends
        if time.monotonic() > ends:
            reject()
        ends = min(ends, time.monotonic() + MAX_SECONDS_PER_PROPERTY)  # the time begins with the first case
        return choose(draw)

    def breaks(case: Case) -> bool:
        nonlocal tried, wrong, ends
        tried += 1
        if not _fault(checked, subject, case):
            return False
        if wrong is None:  # this is the first failing case, which hypothesis shrinks from here on
            ends = time.monotonic() + MAX_SECONDS_PER_PROPERTY
        wrong = case
        return True

    how: dict[str, Any] = {"database": None, "deadline": None, "phases": [Phase.generate, Phase.shrink]}
    rules = settings(max_examples=examples, suppress_health_check=list(HealthCheck), **how)
    with suppress(HypothesisException):  # raised if no case fails, no case is valid, or the time is over
        wrong = find(in_time(), breaks, settings=rules, random=Random(seed))
    if wrong is not None:
        show = f"wb.check({name}, only={checked.name!r}, case={dict(wrong)!r})"
        return checked.row("fails", _fault(checked, subject, wrong), case=wrong, show=show, cases=tried)
    if not tried:
        return checked.row("fails", "no drawn setting is valid: see `check` and `candidates`")
    return checked.row("passes", cases=tried)


def _fault(checked: Property[T], subject: T, case: Case) -> str:
    """Return the reason why a case fails, in one line, or empty if it passes."""
    try:
        checked.test(subject, case)
    except PropertyFailed as broken:
        return str(broken)
    except Exception as error:  # user-defined code may raise anything
        fault = fault_of(error)
        return f"raises {type(error).__name__}: {error}" + (f" ({fault.line})" if fault else "")
    return ""


def through_json(subject: Settings, case: Case) -> None:
    """Check that settings come back from JSON unchanged."""
    back = type(subject).model_validate_json(subject.model_dump_json())
    if back != subject:
        raise PropertyFailed(f"{subject!r} became {back!r}")


def table(rows: Sequence[Row]) -> str:
    """Return the rows as plain text."""
    width = max(len(row.property) for row in rows)
    lines = []
    for row in rows:
        lines.append(f"{row.property:{width}}  {row.verdict:14}  {row.statement}")
        lines += [f"{'':{width}}  {'':14}  {text}" for text in (row.why, row.show) if text]
    return "\n".join(lines)
