"""Actions of a student with a lecture in a browser."""

from __future__ import annotations

from typing import Any

from playwright.sync_api import Locator, Page, expect
from workbench_lectures.exercises import Exercise
from workbench_lectures.lecture import Script

DRAWN = """() => [...document.querySelectorAll('.wb-lecture-view [role=figure] .wb-plot')]
  .every(plot => !plot.offsetParent || plot.data)"""
NAMELESS = """() => [...document.querySelectorAll(':is(.wb-lecture-view, .wb-quiz) :is(input, select, button)')]
  .filter(e => e.offsetParent && !e.closest('.modebar'))
  .filter(e => !(e.labels?.length || e.getAttribute('aria-label') || e.getAttribute('title') || e.innerText?.trim()))
  .map(e => e.outerHTML.slice(0, 120))"""
SERIALS = "() => [...document.querySelectorAll('.wb-plot[data-drawn]')].map(p => Number(p.dataset.drawn))"
ROUNDS = """() => [...document.querySelectorAll('.wb-status td:last-child')]
  .map(cell => Number(/round (\\d+)/.exec(cell.innerText)?.[1] ?? 0))"""
STATES = "() => [...document.querySelectorAll('.wb-status tr')].map(row => row.className)"
OVERFLOW = "() => document.documentElement.scrollWidth - document.documentElement.clientWidth"


class Student:
    """A student with a lecture."""

    def __init__(self, page: Page, script: Script[Any]) -> None:
        self.page, self.script = page, script
        self.knobs = script.knobs().fit()
        page.locator(".wb-lecture-view, .wb-quiz").first.wait_for(state="attached")
        page.wait_for_function(DRAWN)

    def slide(self, name: str, value: float) -> None:
        """Set a slider, and wait until a figure has followed."""
        line = next(line for line in self.knobs.entries() if line.name == name)
        slider = self.page.get_by_label(f"{line.label}, slider", exact=True).first
        before = self.page.evaluate(SERIALS)
        slider.evaluate(
            "(e, value) => { e.value = value; e.dispatchEvent(new Event('input', {bubbles: true})); }", value
        )
        self.page.wait_for_function(f"(before) => ({SERIALS})().some((s, i) => s > before[i])", arg=before)
        shown = self.page.get_by_label(line.label, exact=True).first.input_value()
        self.knobs = self.knobs.replace(**{name: int(shown) if line.kind == "whole" else float(shown)}).fit()

    def question(self, exercise: Exercise[Any]) -> Locator:
        return self.page.locator(".wb-question").filter(has_text=exercise.title)

    def answer(self, exercise: Exercise[Any], text: str, verdict: str) -> str:
        """Give an answer, wait for the verdict, and return its text."""
        field = self.page.get_by_label(f"answer to {exercise.title}", exact=True)
        if exercise.choices is None:
            field.fill("")
            field.press_sequentially(text)
            field.press("Enter")
        else:
            field.select_option(text)
            self.page.get_by_label(f"Check {exercise.title}", exact=True).click()
        expect(self.question(exercise)).to_have_attribute("data-verdict", verdict)
        return self.question(exercise).locator(".wb-said").inner_text()

    def answer_all(self) -> None:
        """Answer each exercise wrongly, then correctly, then show the solution."""
        for i, exercise in enumerate(self.script.exercises, 1):
            answer = exercise.answer(self.knobs)
            wrong = "-99"
            if exercise.choices is not None:
                wrong = next(choice for choice in exercise.choices(self.knobs) if choice != answer)
            assert self.answer(exercise, wrong, "wrong").startswith("✗ Not yet")
            assert "Right" in self.answer(exercise, str(answer), "right")
            expect(self.page.locator(".wb-score")).to_have_text(f"{i} of 3 right")
            self.page.get_by_label(f"Show why, {exercise.title}", exact=True).click()
            expect(self.question(exercise).locator(".wb-solution p")).to_be_visible()

    def run(self, seconds: str = "10") -> None:
        """Press Run, and wait for the first rounds."""
        self.page.get_by_label("show it in", exact=True).select_option(seconds)
        self.page.get_by_role("button", name="Run", exact=True).click()
        self.grows()

    def rounds(self) -> list[int]:
        found: list[int] = self.page.evaluate(ROUNDS)
        return found

    def grows(self) -> None:
        """Wait until the curves get longer."""
        self.page.wait_for_function(f"() => Math.max(0, ...({ROUNDS})()) > 2")
        before = max(self.rounds())
        self.page.wait_for_function(f"(before) => Math.max(0, ...({ROUNDS})()) > before", arg=before)

    def stop(self) -> None:
        self.page.get_by_role("button", name="Stop", exact=True).click()
        self.stopped()

    def stopped(self) -> None:
        self.page.wait_for_function(
            f"() => {{ const s = ({STATES})(); return s.length && s.every(x => x === 'wb-stopped'); }}"
        )


def first_slider(script: Script[Any]) -> tuple[str, float]:
    """Return the first whole-numbered slider of a lecture, and another value for it."""
    line = next(line for line in script.knobs.entries() if line.kind == "whole")
    assert line.low is not None
    assert line.high is not None
    default = script.knobs().model_dump()[line.name]
    return line.name, line.low if default != line.low else line.high
