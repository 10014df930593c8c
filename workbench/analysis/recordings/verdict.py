"""Result of a diagnosis, and its card: culprits, costs, first steps and advice. Further results are folded."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from workbench.analysis.recordings.card import Change
from workbench.analysis.recordings.mitigations import Mitigation
from workbench.analysis.recordings.phases import STEP_PHASE_NAMES
from workbench.analysis.recordings.run_model import COMPUTE, LINK, SLOWER, WAITING, Cause
from workbench.core.base.plugins import registered
from workbench.core.base.reading import read_text
from workbench.core.base.text import upper

UNEVEN = Cause("imbalance", name="uneven work")
CAUSE_TEXTS = {
    COMPUTE: "by computing",
    LINK: "on its way",
    str(UNEVEN): "as its amount differs, for example the lengths of sequences",
    WAITING: "waiting for a processor that another process keeps busy",
    SLOWER: "its processor needs {more:.0%} longer for the same work",
}  # other causes are described by their name
UNTRIED = "what would help was not computed: the full times of the work are not known"
USELESS = "a code, or leaving out a worker, would save no time"
FIX_TEXTS = {  # mitigations of a cause
    WAITING: "ending what else keeps the processors of {} busy",
    SLOWER: "a processor as quick as the others' for {}",
}


class Culprit(NamedTuple):
    """Worker, host or component whose delays make steps longer."""

    who: str
    cost: float  # share of the step's time
    low: float  # lower limit of its 90 % band, from the recorded steps
    high: float
    chronic: bool  # whether it is late in most steps (of its spells)
    since: Change | None = None  # first step of its first spell; None if late from the first step on
    what: str = COMPUTE  # cause: compute, link, waiting, slower core, a layer, or a component of that name
    more: float = np.nan  # relative excess of its waiting or computing time over the other workers' median
    spells: tuple[tuple[int, int], ...] = ()  # first and last step of each spell; empty: all steps

    @property
    def why(self) -> str:
        """Cause as text, or "" without one."""
        reason = CAUSE_TEXTS.get(self.what, "").format(more=self.more)
        inside = self.what.startswith("layer ") or self.what in STEP_PHASE_NAMES.values()
        return f"in {self.what}" if inside else reason

    @property
    def label(self) -> str:
        """Name, with the component of its computing if it is known."""
        return label_of(self.who, self.what)


@dataclass(frozen=True)
class Diagnosis:
    """Result of a diagnosis: the slowdown of the steps, and the culprits.

    `slowdown`: ratio of the steps' time to the time if all workers were like `like`. `culprits`: the worst first.
    `costs`: the share of each worker, and of each other cause, in the steps' time. `left_out`: effects that the model
    of a step does not contain. `like`: whom all workers are compared with, as text. `harmless`: slow workers that cost
    nothing, because the scheme tolerates them. `notice`: doubt about the times, or "". `tried`: function that finds
    mitigations (None: not available). `last`: number of the last step.
    """

    name: str
    slowdown: float
    culprits: tuple[Culprit, ...]
    costs: dict[str, float]
    left_out: str
    like: str = "the median"
    harmless: tuple[str, ...] = ()
    notice: str = ""
    tried: Callable[[], tuple[Mitigation, ...]] | None = None
    last: int | None = None

    @cached_property
    def mitigations(self) -> tuple[Mitigation, ...] | None:
        """Mitigations, the best first; None if they are not available."""
        return None if self.tried is None else self.tried()

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _repr_html_(self) -> str:
        return self.card()

    def card(self, more: Sequence[tuple[str, str]] = ()) -> str:
        """Return the verdict as HTML: culprit, cost, first step, advice. `more`: titles and folded texts."""
        doubts = [Fact("Check", "the units of the times", self.notice)] * bool(self.notice)
        folded = [("All that was found", str(self)), *more]
        return card(headline(self), [*facts(self), *doubts], advice(self), folded)

    def figure(self, theme: str = "light") -> Any:
        """Return bars of all costs, with bands for the culprits: see `culprits`."""
        return registered("workbench.displays", "Diagnosis")(self, theme)

    def _lines(self) -> Iterator[str]:
        yield f"{self.name}: steps take {self.slowdown:.4g} times what they would if all were like {self.like}"
        if by_chance(self):
            yield "no worker stands out: lateness is by chance, and changes between workers"
        for one in self.culprits:
            when = "in most steps" if one.chronic else "now and then"
            band = f"({one.low:.1%} to {one.high:.1%})"
            why = one.why + ", " * bool(one.why)
            yield f"{one.who} costs {one.cost:.1%} of the time {band}, {why}{when}{in_steps(one, self.last)}"
        if self.harmless:
            yield f"slow, but the scheme does without: {', '.join(self.harmless)}"
        yield from filter(None, [self.notice])
        yield from map(str, self.mitigations or ())
        yield from [USELESS] * (self.mitigations == ())
        disk = any(one.what == WAITING for one in self.culprits)
        yield f"left out: {self.left_out}{'; waiting for a disk looks like waiting for a processor' * disk}"


def label_of(who: str, what: str) -> str:
    """Return the name of a culprit, with the component of its computing if it is known."""
    return f"{who} ({what})" if what in FIX_TEXTS else who


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


def by_chance(found: Diagnosis) -> bool:
    """Return whether nothing is named, or no worker, and what is named costs less than half of the lateness."""
    named = any(one.who.startswith("worker") for one in found.culprits)
    small = 2 * sum(one.cost for one in found.culprits) <= 1 - 1 / found.slowdown
    return not found.culprits or (small and not named)


def headline(found: Diagnosis) -> str:
    """Return the verdict in one sentence."""
    nobody = "No worker stands out: lateness is by chance" if by_chance(found) else ""
    if not found.culprits:
        return nobody
    worst, *others = found.culprits
    who = f"{nobody}; {worst.who}" if nobody else upper(worst.who)
    more = f", and {len(others)} more stand out" if others else ""
    return f"{who} costs {worst.cost:.0%} of the time{in_steps(worst, found.last)}{more}"


def facts(found: Diagnosis) -> list[Fact]:
    """Return the facts: culprit, cost, first step, and certainty."""
    even = f"the steps' time, divided by the time with all workers like {found.like}"
    if not found.culprits:
        return [
            Fact("Who", "Nobody", "late workers change by chance"),
            Fact("Steps take", f"{found.slowdown:.3g} times as long", even),
        ]
    worst = found.culprits[0]
    count = sum(name.startswith("worker") for name in found.costs)  # not the port, or links
    who = f"1 of {count}" if worst.who.startswith("worker") and count > len(found.culprits) else ""
    when = in_steps(worst, found.last).removeprefix(", ") or "from the first step on"
    return [
        Fact("Who", upper(worst.who), ", ".join(filter(None, (who, worst.why)))),
        Fact("Cost", f"{worst.cost:.0%} of the time", f"90% band: {worst.low:.0%} to {worst.high:.0%}"),
        Fact("When", upper(when), "in most steps" if worst.chronic else "now and then"),
        Fact("Steps take", f"{found.slowdown:.3g} times as long", even),
    ]


def advice(found: Diagnosis) -> str:
    """Return the advice in one sentence: the mitigations, or else which culprit to look at."""
    if not found.mitigations:
        look = [f"look at {one.who}, which costs {one.cost:.0%} of the time" for one in found.culprits[:1]]
        why = UNTRIED if found.mitigations is None else USELESS
        return "; ".join([*(look or ["nothing to repair"]), why])
    best, *others = found.mitigations
    text = f"{best.what} saves {best.saving:.0%} of the time ({best.low:.0%} to {best.high:.0%})"
    return text + "".join(f"; {other.what} {other.saving:.0%}" for other in others[:2])


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
