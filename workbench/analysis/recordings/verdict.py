"""Verdict of a diagnosis as a card: culprit, cost, first step and advice. Further results are folded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from workbench.core.base.reading import read_text

if TYPE_CHECKING:
    from workbench.analysis.recordings.diagnosis import Culprit, Diagnosis


class Fact(NamedTuple):
    """Fact of the card: its label, its value, and a note."""

    about: str
    value: str
    note: str = ""


@cache
def style() -> str:
    """Return the card's style sheet."""
    return read_text(Path(__file__).with_name("verdict.css"))


def in_steps(one: Culprit, last: int | None) -> str:
    """Return the steps in which a culprit is late as text; "" if it is late in all. `last`: number of the last step."""
    if not one.spells:
        return ""
    (first, end), *others = one.spells
    if not others and end == last:
        return f", since step {first}"
    if not others and one.since is None:
        return f", until step {end}"
    spells = [f"from {a} on" if b == last else f"{a} to {b}" for a, b in one.spells]
    return f", in steps {' and '.join(spells)}"


def headline(found: Diagnosis) -> str:
    """Return the verdict in one sentence."""
    if not found.culprits:
        return "No worker stands out: lateness is by chance"
    worst, *others = found.culprits
    more = f", and {len(others)} more stand out" if others else ""
    return f"{_upper(worst.who)} costs {worst.cost:.0%} of the time{in_steps(worst, found.last)}{more}"


def facts(found: Diagnosis, cause: str = "") -> list[Fact]:
    """Return the facts: culprit, cost, first step, and certainty. `cause`: cause of the worst culprit, as text."""
    even = f"the steps' time, divided by the time with all workers like {found.like}"
    if not found.culprits:
        return [
            Fact("Who", "Nobody", "late workers change by chance"),
            Fact("Steps take", f"{found.slowdown:.3g} times as long", even),
        ]
    worst = found.culprits[0]
    count = len(found.costs)
    who = f"1 of {count}" if worst.who.startswith("worker") and count > len(found.culprits) else ""
    first = in_steps(worst, found.last).removeprefix(", ")
    return [
        Fact("Who", _upper(worst.who), ", ".join(filter(None, (who, cause)))),
        Fact("Cost", f"{worst.cost:.0%} of the time", f"90 % band: {worst.low:.0%} to {worst.high:.0%}"),
        Fact(
            "When",
            _upper(first or "from the first step on"),
            "in most steps" if worst.chronic else "now and then",
        ),
        Fact("Steps take", f"{found.slowdown:.3g} times as long", even),
    ]


def advice(found: Diagnosis) -> str:
    """Return the advice in one sentence."""
    if found.mitigations is None:
        return "what would help was not computed: the full times of the work are not known"
    if not found.mitigations:
        return "nothing: a code, or leaving out a worker, would save no time"
    best, *others = found.mitigations
    text = f"{best.what} saves {best.saving:.0%} of the time ({best.low:.0%} to {best.high:.0%})"
    return text + "".join(f"; {other.what} {other.saving:.0%}" for other in others[:2])


def html(
    found: Diagnosis, lines: Sequence[str], cause: str = "", more: Sequence[tuple[str, str]] = ()
) -> str:
    """Return the card. `lines`: the whole diagnosis. `more`: titles, and texts of several lines, folded below it."""
    folded = [("All that was found", "\n".join(lines)), *more]
    doubts = [Fact("Check", "the units of the times", found.notice)] * bool(found.notice)
    return card(headline(found), [*facts(found, cause), *doubts], advice(found), folded)


def card(head: str, shown: Sequence[Fact], to_do: str, folded: Sequence[tuple[str, str]]) -> str:
    """Return a card as HTML: a sentence, facts, what to do, and titles with folded texts of several lines."""
    items = "".join(
        f"<div><dt>{escape(f.about)}</dt><dd>{escape(f.value)}<small>{escape(f.note)}</small></dd></div>"
        for f in shown
    )
    return (
        f'<style>{style()}</style><div class="wb"><div class="wb-card" role="group" aria-label="diagnosis">'
        f"<h3>{escape(head)}</h3><dl>{items}</dl>"
        f"<p><b>What to do:</b> {escape(to_do)}.</p>{''.join(_folded(folded))}</div></div>"
    )


def _folded(parts: Sequence[tuple[str, str]]) -> Iterator[str]:
    for title, text in parts:
        items = "".join(f"<li>{escape(line)}</li>" for line in text.splitlines())
        yield f"<details><summary>{escape(title)}</summary><ul>{items}</ul></details>"


def _upper(text: str) -> str:
    return text[:1].upper() + text[1:]
