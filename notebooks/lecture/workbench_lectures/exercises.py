"""Exercises with computed answers: a question about the current sliders, and its check."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from html import escape
from math import isclose, isfinite
from typing import Generic, Literal, NamedTuple

from workbench_lectures.knobs import K

Verdict = Literal["", "right", "wrong", "unclear"]
Slip = tuple[Callable[[K], float | str], str]  # a typical wrong answer, and its feedback

NUMBER = re.compile(r"([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:e[+-]?[0-9]+)?)(?:/([0-9]+))?(%?)", re.IGNORECASE)
BLANK = re.compile("[ \t\n\u00a0\u2009\u202f]")  # also narrow spaces, as between digits or before %
SHOWN_LETTERS = 20  # max characters of an answer that are quoted if it is not a number


class Judgement(NamedTuple):
    """Feedback for the student."""

    verdict: Verdict
    words: str


@dataclass(frozen=True)
class Exercise(Generic[K]):
    """Question with one answer: a number or a choice.

    Numbers count as equal within `tolerance` (relative) or `absolute`; whole ones exactly.

    Texts are HTML. `hint` is for any wrong answer, `slips` for wrong ones that are likely; `why` is the solution.
    """

    title: str
    text: Callable[[K], str]
    answer: Callable[[K], float | str]
    hint: Callable[[K], str]
    why: Callable[[K], str]
    unit: str = ""
    whole: bool = False
    tolerance: float = 0.01
    absolute: float = 1e-9
    choices: Callable[[K], Mapping[str, str]] | None = None  # value -> label
    slips: tuple[Slip[K], ...] = ()

    def judge(self, knobs: K, given: str) -> Judgement:
        """Compare a typed or chosen answer with the correct one for these sliders."""
        if not given.strip():
            return Judgement("unclear", "choose one first" if self.choices else "type a number first")
        if self.choices is not None:
            return self._judged(knobs, given == self.answer(knobs), given)
        value = read_number(given.strip().removesuffix(self.unit) if self.unit else given)
        if value is None:
            text = escape(given.strip()[:SHOWN_LETTERS], quote=False)
            return Judgement("unclear", f"“{text}” is not a finite number; write one such as 0.25 or 4/15")
        return self._judged(knobs, self._meets(value, self.answer(knobs)), value)

    def _judged(self, knobs: K, right: bool, given: float | str) -> Judgement:
        if right:
            return Judgement("right", "Right.")
        slip = next((text for wrong, text in self.slips if self._meets(given, wrong(knobs))), "")
        return Judgement("wrong", f"Not yet. {slip or self.hint(knobs)}")

    def _meets(self, value: float | str, wanted: float | str) -> bool:
        if isinstance(value, str) or isinstance(wanted, str):
            return value == wanted
        if self.whole:
            return value == wanted
        return isclose(value, wanted, rel_tol=self.tolerance, abs_tol=self.absolute)


def read_number(text: str) -> float | None:
    """Return a finite number as students write it, or None if the text is not one.

    A decimal point or comma, fractions and percentages are accepted. `readNumber` in offline/js/desk.js does the same,
    on pages without a kernel.

    >>> read_number("0,25"), read_number("4/16"), read_number("25 %"), read_number("a quarter")
    (0.25, 0.25, 0.25, None)
    """
    found = NUMBER.fullmatch(BLANK.sub("", text).replace(",", ".").replace("−", "-"))
    if found is None:
        return None
    number, below, percent = found.groups()
    whole = re.fullmatch("[+-]?[0-9]+", number) is not None
    top, bottom = float(number), float(below or 1)
    if not isfinite(top) or not isfinite(bottom) or bottom == 0 or (below and not whole):
        return None
    return top / bottom / (100 if percent else 1)
