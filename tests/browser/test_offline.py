"""Lectures without a server, opened from a folder without a network: figures and answers equal those of Python."""

from __future__ import annotations

import json
import math
import random
import re
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import BrowserContext, Page, expect
from workbench_lectures.exercises import Exercise
from workbench_lectures.knobs import Knobs
from workbench_lectures.lecture import Script
from workbench_lectures.offline.engine import engine
from workbench_lectures.offline.natives import source
from workbench_lectures.offline.pages import index, write
from workbench_lectures.titles import info_of

from tests.support.browser.jupyterlab import NOTEBOOKS, Noise
from tests.support.browser.lecture_pages import SCREENS, incomplete, not_typeset, off_centre
from tests.support.browser.student import NAMELESS, OVERFLOW, Student, first_slider
from tests.support.lecture_settings import SCRIPTS
from tests.support.sampled_cases import rotated, sampled_cases

pytestmark = [
    pytest.mark.browser,
    pytest.mark.xdist_group("pages"),
]  # in the same group as the lectures with a server

OPENED = sampled_cases("without a server", 2, SCRIPTS)  # lectures with a test of their translated code
# drawn settings for each lecture, and the number in slow tests: 10,000 in total
SAMPLED_SETTINGS, SLOW_SETTINGS = 8, 1250
MAX_RELATIVE_DIFFERENCE = 1e-12  # max relative difference of numbers
SETTINGS_PER_CALL = 25  # number of settings whose figures are computed in one call
VALUES_WITH_RUNS = {  # lecture -> all slider values for which its pages contain runs
    "6-asking-less": {"workers": (6, 12), "c": (1, 5), "max_age": (5, 10)},
    "8-who-is-late": {"workers": (6, 8), "late": (2,), "factor": (1.6,), "often": (0.5,)},
}
ASK = """(jobs) => jobs.map((values) => {
  const knobs = LECTURE.knobs.of(values), ask = (f) => plain(py.call(f, [knobs]));
  const drawn = Object.entries(LECTURE.figures).filter(([, f]) => f).map(([name, f]) => {
    const { data, layout: { template, ...layout } } = py.call(f, [knobs, "light"]);
    return [name, plain({ data, layout })];
  });
  const texts_of = LECTURE.exercises.map(({ text, answer, hint, why, slips }) =>
    [ask(text), ask(answer), ask(hint), ask(why), (slips ?? []).map(([wrong]) => ask(wrong))]);
  return { figures: Object.fromEntries(drawn), texts_of };
})"""


def write_lecture(folder: Path, name: str) -> None:
    script = SCRIPTS[name]
    write(
        folder,
        NOTEBOOKS / "lecture",
        {name: replace(script, places=VALUES_WITH_RUNS.get(name, script.places))},
    )


# JavaScript: elements that cover the presenter's buttons, at any scroll position. Wide tables scroll by themselves.
COVERED = """() => { const bar = document.querySelector('.wb-present').getBoundingClientRect();
  return [...document.querySelectorAll('#rendered_cells :is(h1, h2, p, li, .wb-plot, .wb-form, .wb-question)')]
    .filter(e => e.offsetWidth && e.getBoundingClientRect().right > bar.left).map(e => e.outerHTML.slice(0, 80)); }"""


@pytest.fixture
def shared(context: BrowserContext, page: Page, noise: Noise) -> Iterator[tuple[Page, Noise, list[str]]]:
    """Yield a page of 1280 x 720 without a network, its errors, and the requested addresses."""
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.set_viewport_size({"width": 1280, "height": 720})
    context.set_offline(True)
    yield page, noise, asked
    context.set_offline(False)


@rotated
@pytest.mark.parametrize("name", OPENED)
def test_offline_lecture_works_from_a_folder(
    name: str, tmp_path: Path, shared: tuple[Page, Noise, list[str]], screens: Path
) -> None:
    page, noise, asked = shared
    write_lecture(site := tmp_path, name)
    dark = list(SCRIPTS).index(name) % 2 == 1
    page.emulate_media(color_scheme="dark" if dark else "light")
    began = time.monotonic()
    page.goto((site / f"{name}.html").as_uri())
    page.locator(".wb-plot[data-drawn]").first.wait_for()
    print(f"{name}: first figure after {time.monotonic() - began:.2f} s")
    assert (site / f"{name}.html").stat().st_size + (site / "plotly.js").stat().st_size < 5e6
    student = Student(page, SCRIPTS[name])
    text = page.get_by_text("sliders stop at places", exact=False)
    assert (text.count() > 0) == (name in VALUES_WITH_RUNS)
    assert page.evaluate(NAMELESS) == []
    assert page.evaluate(OVERFLOW) <= 0
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == (
        "rgb(17, 17, 17)" if dark else "rgb(255, 255, 255)"
    )
    for view in page.locator("[data-figure]").all():  # each figure fits into the window of a projector
        assert view.bounding_box()["height"] <= 720  # type: ignore[index]
    slider, value = ("workers", 6) if name in VALUES_WITH_RUNS else first_slider(student.script)
    student.slide(slider, value)
    # the address contains the values of the sliders
    expect(page).to_have_url(re.compile(f"[#&]{slider}={value:g}(&|$)"))
    student.answer_all()
    page.reload()
    expect(page.locator(".wb-score")).to_have_text("3 of 3 right")
    label = next(line.label for line in student.knobs.entries() if line.name == slider)
    assert page.get_by_label(label, exact=True).first.input_value() == f"{value:g}"
    page.locator(".wb-plot[data-drawn]").first.wait_for()
    page.screenshot(path=screens / f"offline-{name}.png", full_page=True)
    assert noise.errors == []
    assert {url.split(":")[0] for url in asked} <= {"file", "blob", "data"}


@rotated
def test_offline_lectures_are_linked_by_list_and_keys(
    tmp_path: Path, shared: tuple[Page, Noise, list[str]]
) -> None:
    page, first = shared[0], next(iter(SCRIPTS))
    write_lecture(tmp_path, first)
    infos = {name: info_of(NOTEBOOKS / "lecture" / f"{name}.ipynb", each) for name, each in SCRIPTS.items()}
    (tmp_path / "index.html").write_text(index(infos))
    page.goto((tmp_path / "index.html").as_uri())
    for width, height in SCREENS:
        page.set_viewport_size({"width": width, "height": height})
        assert off_centre(page) == []
        assert incomplete(page, len(SCRIPTS)) == []
    assert page.locator(".wb-index a").count() == len(SCRIPTS)
    expect(page.locator(".wb-index li").first).to_contain_text("Lecture 1: stragglers and the tail")
    expect(page.locator(".wb-index li").first).to_contain_text("min")
    page.locator(".wb-index a").first.click()
    for width, height in (*SCREENS, (1280, 720)):
        page.set_viewport_size({"width": width, "height": height})
        assert off_centre(page) == []
        assert not_typeset(page) == []
    page.goto(f"{page.url.split('#')[0]}#workers=40&distribution=pareto")
    page.reload()
    expect(page.get_by_label("workers N", exact=True).first).to_have_value("40")
    expect(page.get_by_label("distribution", exact=True).first).to_have_value("pareto")
    page.locator(".wb-plot[data-drawn]").first.wait_for()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("PageDown")
    top = "() => Math.round(document.querySelector('[data-figure]').getBoundingClientRect().top)"
    page.wait_for_function(f"() => ({top})() === 8")
    bottom = page.locator("[data-figure]").first.bounding_box()
    assert bottom is not None
    assert bottom["y"] + bottom["height"] <= 720
    page.keyboard.press("c")
    expect(page.locator(".wb-clock")).to_contain_text("0:0")
    assert page.evaluate(COVERED) == []
    page.keyboard.press("+")
    assert page.evaluate("getComputedStyle(document.querySelector('.jp-RenderedMarkdown')).zoom") == "1.15"
    sizes = "() => [...document.querySelectorAll('.wb-plot .gtitle')].map(title => parseFloat(title.style.fontSize))"
    page.wait_for_function(f"(want) => ({sizes})().some(size => Math.abs(size - want) < 0.1)", arg=1.15 * 22)
    page.keyboard.press("ArrowLeft")
    page.wait_for_function(f"() => ({top})() > 8")
    page.get_by_role("button", name="Run", exact=True).click()
    page.wait_for_function(
        "() => Number(document.querySelector('.wb-plot[data-points]')?.dataset.points) > 4"
    )


# ---------------------------------------------------------------- compared with Python


JUDGE = """([values, i, typed]) => {
  const knobs = LECTURE.knobs.of(values);
  return typed.map((text) => judge(LECTURE.exercises[i], knobs, text));
}"""
TYPED = [  # inputs of students, including text that only resembles a number
    "", " ", "1e999", "-1e999", "1E+999", "1e-999", "1e999999999", "9" * 400, "5/" + "9" * 400, "1e999/2", "1/1e999",
    "nan", "NaN", "inf", "Infinity", "-Infinity", "∞", "0x10", "0b1", "1_000", "²", "\uff11", "1,5", "1.000,5",
    "1,000.5", "4/15", "1.5/3", "1/0", "12 %", "%", "−0,5", "1 000", "1\u202f000", "5.", ".5", ".", "+3", "--3", "1e3",
    "1e", "3 apples", "<b>1</b>", "1 & 2", "a quarter", "😀" * 30, "1\n2",
]  # fmt: skip


def test_offline_answers_are_judged_as_in_python(shared: tuple[Page, Noise, list[str]]) -> None:
    """Verdict and text are the same for any input. Only finite numbers are judged."""
    page = shared[0]
    desk = source("desk")
    judging = desk[desk.index("function readNumber") : desk.index("/** The lecture of this page")]
    for script in SCRIPTS.values():
        knobs = script.knobs().fit()
        page.goto("about:blank")
        page.add_script_tag(content=f"{engine(script).code}\n{judging}")
        for i, exercise in enumerate(script.exercises):
            typed = TYPED if exercise.choices is None else ["", "1e999", "nowhere", *exercise.choices(knobs)]
            if exercise.choices is None and exercise.unit:
                typed = [*typed, *(f"{text} {exercise.unit}" for text in TYPED)]
            found = page.evaluate(JUDGE, [knobs.model_dump(mode="json"), i, typed])
            assert found == [list(exercise.judge(knobs, text)) for text in typed]
            infinite = [
                verdict
                for text, (verdict, _) in zip(typed, found, strict=True)
                if "999" in text and "e-" not in text
            ]
            assert "right" not in infinite


@pytest.mark.parametrize("count", [SAMPLED_SETTINGS, pytest.param(SLOW_SETTINGS, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", SCRIPTS)
def test_offline_lecture_computes_what_python_does(
    name: str, count: int, shared: tuple[Page, Noise, list[str]]
) -> None:
    script = SCRIPTS[name]
    drawn = random.Random(f"{name} {count}")
    settings = [drawn_knobs(script, drawn) for _ in range(count)]
    made, page = engine(script), shared[0]
    page.goto("about:blank")
    page.add_script_tag(content=made.code)
    wrong: list[tuple[Knobs, list[str]]] = []
    for start in range(0, count, SETTINGS_PER_CALL):
        some = settings[start : start + SETTINGS_PER_CALL]
        found = page.evaluate(ASK, [knobs.model_dump(mode="json") for knobs in some])
        for knobs, there in zip(some, found, strict=True):
            figures = {
                p: part.draw(knobs, "light") for p, part in script.figures.items() if p not in made.missing
            }
            drawn_here = {p: figure_json(figure) for p, figure in figures.items()}
            said_here = [texts_of(exercise, knobs) for exercise in script.exercises]
            pair = [drawn_here, said_here], [there["figures"], there["texts_of"]]
            if others := different(*pair):
                wrong.append((knobs, others))
    assert not wrong, f"{len(wrong)} of {count}, such as {wrong[:3]}"


def drawn_knobs(script: Script[Any], drawn: random.Random) -> Knobs:
    """Draw values of all sliders, uniformly on their scales, linear or logarithmic."""
    found: dict[str, Any] = {}
    for line in script.knobs.entries():
        low, high = line.low or 0.0, line.high or 0.0
        if line.kind == "choice":
            found[line.name] = drawn.choice(line.choices)
        elif line.kind == "whole":
            found[line.name] = drawn.randint(int(low), int(high))
        else:
            value = low * (high / low) ** drawn.random() if line.log else drawn.uniform(low, high)
            found[line.name] = float(f"{value:.3g}")
    return script.knobs(**found).fit()


def figure_json(figure: Any) -> dict[str, Any]:
    layout = {name: value for name, value in figure.layout.to_plotly_json().items() if name != "template"}
    return {"data": [trace.to_plotly_json() for trace in figure.data], "layout": layout}


def texts_of(exercise: Exercise[Any], knobs: Knobs) -> list[Any]:
    wrong = [slip(knobs) for slip, _ in exercise.slips]
    return [exercise.text(knobs), exercise.answer(knobs), exercise.hint(knobs), exercise.why(knobs), wrong]


def different(here: Any, there: Any, path: str = "") -> list[str]:
    """Return where two figures differ by more than `MAX_RELATIVE_DIFFERENCE`. Unset fields count as missing."""
    here = here.tolist() if isinstance(here, np.ndarray | np.generic) else here
    if isinstance(here, dict):
        mine = {name: value for name, value in here.items() if value is not None}
        if mine.keys() != there.keys():
            return [f"{path}: {sorted(mine.keys() ^ there.keys())}"]
        return [each for name in mine for each in different(mine[name], there[name], f"{path}.{name}")]
    if isinstance(here, list | tuple):
        if not isinstance(there, list) or len(here) != len(there):
            return [f"{path}: lengths"]
        pairs = enumerate(zip(here, there, strict=True))
        return [each for i, pair in pairs for each in different(*pair, f"{path}[{i}]")]
    if isinstance(here, float) and not math.isfinite(here):
        return [] if there is None else [f"{path}: {there}"]
    if isinstance(here, int | float) and isinstance(there, int | float):
        same = math.isclose(here, there, rel_tol=MAX_RELATIVE_DIFFERENCE, abs_tol=1e-12)
        return [] if same else [f"{path}: {here} {there}"]
    return [] if here == there else [f"{path}: {json.dumps(here)} {json.dumps(there)}"]
