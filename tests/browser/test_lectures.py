"""The lectures as pages without code, and in JupyterLab, operated like a student does."""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import nbformat
import psutil
import pytest
from playwright.sync_api import Page, expect
from workbench_lectures.command import command, templates

from tests.support.browser.jupyterlab import CONNECTED, NOTEBOOKS, Lab, Noise, Server, free_port
from tests.support.browser.lecture_pages import SCREENS, incomplete, not_typeset, off_centre
from tests.support.browser.student import (
    NAMELESS,
    OVERFLOW,
    ROUNDS,
    SERIALS,
    Student,
    first_slider,
)
from tests.support.lecture_settings import SCRIPTS
from tests.support.sampled_cases import rotated, sampled_cases, sampled_test

pytestmark = pytest.mark.browser

NAMES = list(SCRIPTS)
FITTED = """() => [...document.querySelectorAll('.wb-plot')].filter(p => p.offsetParent)
  .every(p => p._fullLayout && Math.abs(p._fullLayout.width - p.offsetWidth) < 2)"""
FOCUSED = """() => { const e = document.activeElement;
  return e.getAttribute('aria-label') || e.labels?.[0]?.innerText || e.innerText; }"""


def voila(page: Page, server: Server, name: str, theme: str = "light") -> Student:
    """Open a lecture as a page."""
    page.goto(server.address(f"voila/render/lecture/{name}.ipynb?theme={theme}"))
    page.locator(".wb-score").wait_for(state="attached")
    return Student(page, SCRIPTS[name])


def cell(name: str, source: str) -> int:
    """Return the index of the cell whose source ends with this text."""
    notebook = nbformat.read(NOTEBOOKS / "lecture" / f"{name}.ipynb", as_version=4)
    return next(i for i, each in enumerate(notebook.cells) if each.source.endswith(source))


@rotated
def test_figures_of_a_lecture_are_whole(page: Page, server: Server) -> None:
    voila(page, server, "3-why-a-tree")
    page.locator("[role=figure] .wb-plot[data-drawn]").first.wait_for()
    page.wait_for_function(
        "() => [...document.querySelectorAll('.jp-OutputArea-output:has([role=figure])')]"
        ".every((each) => each.scrollHeight - each.offsetHeight < 2)"
    )


# Two of these four tests are sampled, with one lecture. test_offline.py tests lectures without a server.
@sampled_test("a lecture", 0, 4, 2)
@pytest.mark.parametrize("name", sampled_cases("a lecture", 1, NAMES))
def test_lecture_is_a_page_without_code(
    name: str, page: Page, noise: Noise, server: Server, picture: Callable[[str], Path]
) -> None:
    theme = "dark" if NAMES.index(name) % 2 else "light"
    student = voila(page, server, name, theme)
    text = page.locator("body").inner_text()
    for word in ("import workbench", "from workbench", "lecture.show", "lecture =", "Traceback", "$"):
        assert word not in text, word
    assert page.evaluate(NAMELESS) == []
    assert page.locator("math, mjx-container").count() == 0
    student.slide(*first_slider(student.script))
    student.run("120")  # rounds that last longer than all checks, even on a slow machine
    for width in (1280, 1920):
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate(OVERFLOW) <= 0
        picture(f"lecture-{name}-{theme}-{width}")
    student.stop()
    student.answer_all()
    picture(f"lecture-{name}-{theme}-answered")
    assert noise.ours() == []


@rotated
@pytest.mark.parametrize("name", sampled_cases("a centred lecture", 1, NAMES))
def test_lecture_is_a_centred_column_with_typeset_mathematics(
    name: str, page: Page, noise: Noise, server: Server, picture: Callable[[str], Path]
) -> None:
    voila(page, server, name)
    for width, height in SCREENS:
        page.set_viewport_size({"width": width, "height": height})
        page.wait_for_function(FITTED)
        picture(f"lecture-{name}-{width}")
        assert off_centre(page) == []
        assert not_typeset(page) == []
    assert noise.ours() == []


# The surrounding notebook is the same for all lectures, so one is enough.
@sampled_test("reloaded", 1, 2)
@pytest.mark.parametrize(
    "name", [NAMES[4], *(pytest.param(name, marks=pytest.mark.slow) for name in NAMES if name != NAMES[4])]
)
def test_lecture_runs_in_jupyterlab_and_survives_a_reload(
    name: str, page: Page, noise: Noise, server: Server, picture: Callable[[str], Path]
) -> None:
    lab = Lab(page, server, f"lecture/{name}.ipynb")
    lab.run_all()
    lab.go_to(cell(name, f'lecture.show("{next(iter(SCRIPTS[name].figures))}")'))
    student = Student(page, SCRIPTS[name])
    student.slide(*first_slider(student.script))
    lab.go_to(cell(name, "lecture.quiz"))
    exercise = student.script.exercises[0]
    student.answer(exercise, "-99", "wrong")
    student.answer(exercise, str(exercise.answer(student.knobs)), "right")
    picture(f"lecture-{name}-lab")
    assert noise.errors == []
    if name == NAMES[4]:
        survives_a_reload(lab, student)
        assert noise.after_reload() == []
    assert lab.failures() == []


def survives_a_reload(lab: Lab, student: Student) -> None:
    """Check that settings and a run survive a reload of the page."""
    page, race = lab.page, cell(NAMES[4], "lecture.race")
    lab.go_to(race)
    student.slide("workers", 6)
    student.run("120")
    before = max(student.rounds())
    lab.save()
    page.wait_for_function("() => !document.querySelector('.jp-mod-dirty')")
    lab.reload()
    page.wait_for_function(CONNECTED)
    lab.go_to(race)
    page.wait_for_function(f"(before) => Math.max(0, ...({ROUNDS})()) > before", arg=before)
    student.grows()
    assert page.get_by_label("workers n", exact=True).first.input_value() == "6"
    student.stop()


@sampled_test("a lecture", 1, 4, 2)
def test_lecture_page_continues_after_a_reload(
    page: Page, noise: Noise, server: Server, picture: Callable[[str], Path]
) -> None:
    name = NAMES[0]
    student = voila(page, server, name)
    student.slide("workers", 7)
    first, second, third = student.script.exercises
    student.answer(first, str(first.answer(student.knobs)), "right")
    student.answer(second, "1", "wrong")
    page.get_by_label(f"Show why, {third.title}", exact=True).click()
    page.locator("summary", has_text="Axes").click()
    page.get_by_label("horizontal axis", exact=True).select_option("round")
    student.run("120")
    before, knobs = student.rounds(), student.knobs

    page.reload()  # Voila ends the kernel of the closed page, and starts a new one
    page.locator(".wb-score").wait_for(state="attached")
    student = Student(page, SCRIPTS[name])
    page.wait_for_function(f"(before) => Math.max(0, ...({ROUNDS})()) > before", arg=max(before))
    student.grows()
    assert page.get_by_label("workers N", exact=True).first.input_value() == "7"
    assert page.get_by_label("horizontal axis", exact=True).input_value() == "round"
    assert page.get_by_label("show it in", exact=True).input_value() == "120"
    expect(student.question(first)).to_have_attribute("data-verdict", "right")
    expect(student.question(second)).to_have_attribute("data-verdict", "wrong")
    expect(student.question(third).locator(".wb-solution p")).to_be_visible()
    assert page.get_by_label(f"answer to {second.title}", exact=True).input_value() == "1"
    student.knobs = knobs
    student.answer(second, str(second.answer(knobs)), "right")
    picture("lecture-reloaded")

    student.stop()
    stopped = student.rounds()
    page.reload()  # a stopped run stays stopped, with its results
    page.locator(".wb-score").wait_for(state="attached")
    student = Student(page, SCRIPTS[name])
    student.stopped()
    assert student.rounds() == stopped
    expect(student.question(second)).to_have_attribute("data-verdict", "right")
    assert noise.ours() == []


@sampled_test("a lecture", 2, 4, 2)
def test_lecture_in_a_second_tab_starts_fresh_and_reports_invalid_input(
    page: Page, noise: Noise, server: Server
) -> None:
    student = voila(page, server, NAMES[2])
    field = page.get_by_label("children n", exact=True).first
    default = field.input_value()
    assert default != "5"
    student.slide("children", 5)
    other = page.context.new_page()
    fresh = voila(other, server, NAMES[2])
    assert fresh.page.get_by_label("children n", exact=True).first.input_value() == default
    other.close()
    page.bring_to_front()
    field.fill("99")
    page.get_by_text("children = 99: take 2 to 6, the nearest is 6").first.wait_for()
    assert field.get_attribute("aria-invalid") == "true"
    field.fill("3")
    page.wait_for_function("() => !document.querySelector('[aria-invalid=true]')")
    assert noise.ours() == []


@sampled_test("a lecture", 3, 4, 2)
def test_lecture_is_usable_by_keyboard(page: Page, noise: Noise, server: Server) -> None:
    student = voila(page, server, NAMES[0])
    page.get_by_label("workers N", exact=True).first.focus()
    names = [page.evaluate(FOCUSED)]
    for _ in range(6):
        page.keyboard.press("Tab")
        names.append(page.evaluate(FOCUSED))
    assert names == [
        "workers N", "workers N, slider", "stragglers s", "stragglers s, slider",
        "tail 1/(aμ)", "tail 1/(aμ), slider", "distribution",
    ]  # fmt: skip
    before = page.evaluate(SERIALS)
    page.get_by_label("workers N, slider", exact=True).first.focus()
    page.keyboard.press("ArrowRight")
    page.wait_for_function(f"(before) => ({SERIALS})()[0] > before[0]", arg=before)
    student.knobs = student.knobs.replace(workers=25)
    exercise = student.script.exercises[0]
    field = page.get_by_label(f"answer to {exercise.title}", exact=True)
    field.focus()
    page.keyboard.type("1")
    page.keyboard.press("Tab")
    assert page.evaluate(FOCUSED) == f"Check {exercise.title}"
    page.keyboard.press("Enter")
    expect(student.question(exercise)).to_have_attribute("data-verdict", "wrong")
    page.keyboard.press("Tab")
    page.keyboard.press("Space")
    expect(student.question(exercise).locator(".wb-solution p")).to_be_visible()
    page.get_by_role("button", name="Run", exact=True).focus()
    page.keyboard.press("Enter")
    student.grows()
    page.get_by_label("target", exact=True).focus()
    page.keyboard.type("0.5")
    page.keyboard.press("Enter")
    page.locator(".wb-plot .shapelayer path").first.wait_for(state="attached")
    assert noise.ours() == []


@pytest.fixture
def served(tmp_path: Path, cache: Path) -> Iterator[tuple[psutil.Process, str]]:
    """Start `workbench lectures`. Return the process and the printed address."""
    text = command(NOTEBOOKS / "lecture", free_port(), browser=False, token=True, dark=False)
    log = tmp_path / "voila.log"
    with log.open("w") as out, templates(NOTEBOOKS / "lecture") as shared:
        settings = {**os.environ, "WORKBENCH_CACHE": str(cache), "JUPYTER_PATH": shared}
        server = subprocess.Popen(text, stdout=out, stderr=out, env=settings)
        try:
            while (address := re.search(r"http://\S+token=\w+", log.read_text())) is None:
                assert server.poll() is None, log.read_text()
                time.sleep(0.1)
            yield psutil.Process(server.pid), address.group()
        finally:
            server.terminate()
            server.wait(30)


@rotated
def test_lectures_command_requires_the_token(
    served: tuple[psutil.Process, str], page: Page, noise: Noise, picture: Callable[[str], Path]
) -> None:
    server, address = served
    ports = {c.laddr.ip for c in server.net_connections() if c.status == psutil.CONN_LISTEN}
    assert ports == {"127.0.0.1"}
    root = address.split("?")[0]
    lecture = f"voila/render/{NAMES[1]}.ipynb"
    assert "/login" in page.request.get(root + lecture).url  # without the token, the page asks for a login
    page.goto(address)
    links = page.get_by_role("link").filter(has_text=re.compile(r"^Lecture \d: "))
    expect(links).to_have_count(len(NAMES))
    for width, height in SCREENS:
        page.set_viewport_size({"width": width, "height": height})
        picture(f"lectures-list-{width}")
        assert off_centre(page) == []
        assert incomplete(page, len(NAMES)) == []
    assert page.request.get(f"{root}voila/files/{NAMES[1]}.ipynb").status == 403
    page.goto(f"{root}{lecture}?{address.split('?')[1]}")
    student = Student(page, SCRIPTS[NAMES[1]])
    student.slide("draw", 3)
    exercise = student.script.exercises[2]
    student.answer(exercise, str(exercise.answer(student.knobs)), "right")
    assert noise.ours() == []
