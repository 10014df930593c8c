"""The explorer's controls in JupyterLab and as a page: their place above the figure, steps back, marks of errors."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.support.browser.explorer_user import User
from tests.support.browser.jupyterlab import Noise, Server
from tests.support.browser.viewed import EXPLORER, TARGET, AsPage, InLab, opened
from tests.support.sampled_cases import rotated

pytestmark = [pytest.mark.browser, pytest.mark.usefixtures("alone")]

MAX_ROWS, MAX_ABOVE = 4, 190  # rows of controls above the live curves, and their height, px
LONG_RUNS = "import workbench as wb\nwb.explore('fig9c', 'explored')"
STATES = "() => [...document.querySelectorAll('.wb-status tr')].map((row) => row.className)"
# height above the live curves, and the middles of the rows of controls there, px from the top of the explorer
ABOVE = """() => {
  const { top } = document.querySelector('.wb-explorer').getBoundingClientRect();
  const end = document.querySelector('.wb-explorer .wb-live .wb-plot').getBoundingClientRect().top;
  const controls = [...document.querySelectorAll('.wb-explorer :is(button, select, input, summary)')];
  const boxes = controls.filter((e) => e.checkVisibility()).map((e) => e.getBoundingClientRect());
  const above = boxes.filter(({ bottom, width }) => width && bottom <= end + 2);
  const middles = above.map(({ y, height }) => y + height / 2 - top);
  const rows = middles.sort((a, b) => a - b).filter((y, i) => !i || y - middles[i - 1] > 10);
  return [end - top, rows]; }"""
WIDTH = "() => document.querySelector('.wb-explorer').clientWidth"
# width of the container and of the shown figure; texts of the summary, how many lines they take, which are cut
SUMMARY = """() => {
  const root = document.querySelector('.wb-explorer'), { left, right } = root.getBoundingClientRect();
  const plot = [...root.querySelectorAll('.wb-tabbed :is(.wb-plot, .wb-forecast)')].find((e) => e.checkVisibility());
  const buttons = [...root.querySelectorAll('.wb-fold > button')].filter((e) => e.checkVisibility());
  const cut = buttons.filter((e) => {
    const range = document.createRange(), frame = e.getBoundingClientRect();
    range.selectNodeContents(e.querySelector('.wb-now'));
    const words = range.getBoundingClientRect();
    const within = (box, outer) => box.left >= outer.left - 1 && box.right <= outer.right + 1;
    return !within(words, frame) || !within(frame, { left, right }) || words.bottom > frame.bottom + 1;
  });
  return { root: root.clientWidth, figure: plot.getBoundingClientRect().width, cut: cut.map((e) => e.innerText),
    texts: buttons.map((e) => e.innerText.trim()),
    lines: new Set(buttons.map((e) => Math.round(e.getBoundingClientRect().top))).size,
    above: buttons.at(-1).getBoundingClientRect().bottom <= plot.getBoundingClientRect().top }; }"""
VALUES = [
    "84 workers, tree (4,3), 1 of 4 late",
    "5 schemes",
    "pareto, shape 1.3",
    "1 ms, 1 MB/s",
    "digits, softmax",
    "gd",
    "100 rounds",
]


# lower ends of the headings of the table of times to the target, px
HEADS = """() => [...document.querySelectorAll("table[aria-label='time to the target'] th")].map((e) => {
  const range = document.createRange();
  range.selectNodeContents(e);
  return Math.round(range.getBoundingClientRect().bottom); })"""


def group(page: Page, name: str) -> Locator:
    """Return the button of a group of settings, whose name begins with the group's and has its values."""
    return page.get_by_role("button", name=re.compile(f"^{name}:"))


@rotated
def test_live_curves_are_below_four_rows_of_controls(
    page: Page, noise: Noise, server: Server, write: Callable[..., str], screens: Path
) -> None:
    """At 1280x800 with the file browser open, curves begin as high as in the design, before a run and during it."""
    page.set_viewport_size({"width": 1280, "height": 800})
    shown, me = InLab(page, server, write(LONG_RUNS)), User(page)
    shown.dark(False)  # asserts that the file browser is open
    me.drawn("Time per round")
    assert page.evaluate(WIDTH) < 900
    opened("Run")(page)
    page.get_by_text("no runs yet").wait_for()
    for state in ("before", "during"):
        if state == "during":
            me.press("Run")
            page.wait_for_function(
                "() => document.querySelector('.wb-plot[data-points]').dataset.points > 20"
            )
            assert "wb-running" in page.evaluate(STATES)
        page.screenshot(path=screens / f"rows-{state}.png")
        height, rows = page.evaluate(ABOVE)
        assert len(rows) <= MAX_ROWS, (state, rows)
        assert height <= MAX_ABOVE, (state, height)
    me.press("Stop")
    page.wait_for_function(f"() => ({STATES})().every((state) => state === 'wb-stopped')")
    assert noise.ours() == []


@rotated
def test_narrow_page_has_a_summary_of_settings_and_a_figure_of_full_width(
    page: Page, noise: Noise, server: Server, write: Callable[..., str], screens: Path
) -> None:
    AsPage(page, server, write(EXPLORER))
    me = User(page)
    me.drawn("Time per round")
    for name in ("Before a run", "Run"):
        me.tab(name)
        for width, lines in ((899, 1), (830, 1), (700, 2), (390, 3)):
            for _ in range(2):  # margins of the page depend on the width
                beside = page.viewport_size["width"] - page.evaluate(WIDTH)  # type: ignore[index]
                page.set_viewport_size({"width": width + beside, "height": 844})
                page.wait_for_timeout(300)
            found = page.evaluate(SUMMARY)
            page.screenshot(path=screens / f"summary-{width}-{name}.png".replace(" ", "-"))
            assert found["root"] == width
            assert found["texts"] == VALUES
            assert found["cut"] == []
            assert found["lines"] <= lines
            assert found["figure"] == pytest.approx(width, abs=1)
            assert found["above"]
            # the drawer takes no width from the figure
            group(page, "Delays").click()
            expect(me.field("shape")).to_be_visible()
            assert page.evaluate(SUMMARY)["figure"] == pytest.approx(width, abs=1)
            group(page, "Delays").click()
            expect(page.get_by_label("shape", exact=True).locator("visible=true")).to_have_count(0)
    assert noise.ours() == []


def press(page: Page, name: str, key: str) -> None:
    """Press a button of the header by mouse, or by a key."""
    button = page.locator(".wb-tools").get_by_role("button", name=re.compile(name))
    if not key:
        return button.click()
    button.focus()
    return page.keyboard.press(key)


@rotated
@pytest.mark.parametrize("key", ["", "Enter", "Space"], ids=["mouse", "enter", "space"])
def test_steps_back_change_settings_summary_and_figure(
    key: str, page: Page, noise: Noise, server: Server, write: Callable[..., str], screens: Path
) -> None:
    """Undo, Redo, Reset, and the empty choice of the preset, before and after a run."""
    page.set_viewport_size({"width": 1280, "height": 800})
    InLab(page, server, write(EXPLORER))
    me = User(page)
    me.drawn("Time per round")

    def state() -> list[Any]:
        values = [page.get_by_role("button", name=re.compile(f"^{each}:")).inner_text() for each in GROUPS]
        return [page.locator(".wb-explorer select").first.input_value(), *values, me.costs()]

    def becomes(wanted: list[Any]) -> None:
        for _ in range(100):
            if (found := state()) == wanted:
                return
            page.wait_for_timeout(100)
        assert found == wanted

    def changes(before: list[Any], *at: int) -> list[Any]:
        """Wait until the figure has changed, and check that only these groups have changed. Return the state."""
        me.changed(before[-1])
        found = state()
        assert [i for i, pair in enumerate(zip(before, found, strict=True)) if pair[0] != pair[1]] == [
            *at,
            -1 + len(found),
        ]
        return found

    first = state()
    undo, redo = (page.get_by_role("button", name=re.compile(f"^{each}")) for each in ("undo", "redo"))
    expect(undo).to_be_disabled()
    expect(redo).to_be_disabled()
    group(page, "Delays").click()
    me.field("shape").fill("2.5")
    second = changes(first, 3)
    expect(undo).to_have_attribute("title", "undo: shape 2.5 to 1.3")
    press(page, "^undo", key)
    becomes(first)
    expect(me.field("shape")).to_have_value("1.3")
    expect(redo).to_have_attribute("title", "redo: shape 1.3 to 2.5")
    press(page, "^redo", key)
    becomes(second)
    expect(me.field("shape")).to_have_value("2.5")
    expect(redo).to_be_disabled()

    # a preset, and back by its menu
    me.field("Preset").select_option("fig2")
    expect(undo).to_have_attribute("title", "undo: preset left")
    me.changed(second[-1])
    page.wait_for_function("() => document.querySelector('.wb-explorer select').value === 'fig2'")
    preset = state()
    for _ in range(20):  # each scheme's forecast is shown as soon as it is known
        page.wait_for_timeout(200)
        before, preset = preset, state()
        if before == preset:
            break
    assert preset != second
    me.field("Preset").select_option("own setting")
    becomes(second)
    press(page, "^undo", key)
    becomes(preset)
    press(page, "^undo", key)
    becomes(second)

    # after a run
    me.tab("Run")
    me.press("Run")
    page.locator(TARGET).wait_for()
    assert len(set(page.evaluate(HEADS))) == 1
    me.tab("Before a run")
    press(page, "^Reset", key)
    becomes(first)
    expect(me.field("shape")).to_have_value("1.3")
    page.screenshot(path=screens / "reset.png")
    press(page, "^undo", key)
    becomes(second)
    assert page.locator(TARGET).count() == 1  # the run is still shown
    assert noise.ours() == []


# labels of the fields that are marked as invalid, and groups that are
MARKED = """() => {
  const fields = [...document.querySelectorAll('.wb-explorer [aria-invalid=true]')].map((e) => e.labels[0].innerText);
  const groups = [...document.querySelectorAll('.wb-fold > button')].filter((e) => !e.querySelector('.wb-dot').hidden);
  return [fields, groups.map((e) => e.querySelector('.wb-what').textContent)]; }"""


@rotated
@pytest.mark.parametrize("width", [1440, 830])
def test_choice_of_a_kind_keeps_its_group_open_and_an_error_marks_only_its_field(
    width: int, page: Page, noise: Noise, server: Server, write: Callable[..., str], screens: Path
) -> None:
    """On a wide page, where several groups are open, and on a narrow page, where one is."""
    page.set_viewport_size({"width": width, "height": 900})
    AsPage(page, server, write(EXPLORER))
    me = User(page)
    me.drawn("Time per round")

    def marked(*wanted: list[str]) -> None:
        same = f"(wanted) => JSON.stringify(({MARKED})()) === JSON.stringify(wanted)"
        page.wait_for_function(same, arg=wanted)

    for name, field, kinds in (
        ("Delays", "kind", {"markov": "factor", "pareto": "shape"}),
        ("Optimiser", "optimiser", {"adam": "beta1", "gd": "step"}),
    ):
        group(page, name).click()
        for kind, own in kinds.items():
            me.field(field).focus()
            me.field(field).select_option(kind)
            expect(me.field(own)).to_be_visible()
            expect(group(page, name)).to_have_attribute("aria-expanded", "true")
            expect(me.field(field)).to_be_focused()  # and it has not lost the keyboard

    def mistaken(name: str, field: str, text: str, good: str) -> None:
        """Type a wrong text and see which field is marked, then a good one."""
        if group(page, name).get_attribute("aria-expanded") != "true":
            group(page, name).click()
        me.field(field).fill(text)
        marked([field], [name])
        expect(group(page, name)).to_have_attribute("aria-expanded", "true")
        page.screenshot(path=screens / f"marked-{field}-{width}.png")
        me.field(field).fill(good)
        marked([], [])

    mistaken("Optimiser", "step", "-1", "0.1")
    mistaken("Links", "latency", "soon", "1e-3")
    mistaken("Problem and data", "data", "nowhere", "digits")
    assert noise.ours() == []


# number of changes of colour along each row of pixels of the table of rounds; the most of all rows
COLOURS = """() => {
  const canvas = document.querySelector('.wb-stream canvas'), scale = devicePixelRatio || 1;
  const [left, top, right, bottom] = [56 * scale, 24 * scale, canvas.width - 170 * scale, canvas.height - 42 * scale];
  const image = canvas.getContext('2d').getImageData(left, top, right - left, bottom - top);
  const pixels = new Uint32Array(image.data.buffer);
  const changes = Array.from({ length: image.height }, (_, y) =>
    pixels.subarray(y * image.width, (y + 1) * image.width)
      .reduce((sum, pixel, x, row) => sum + (x > 0 && pixel !== row[x - 1]), 0));
  return Math.max(...changes); }"""


@rotated
def test_rounds_of_84_workers_are_shown_as_shares_over_blocks(
    page: Page, noise: Noise, server: Server, write: Callable[..., str], screens: Path
) -> None:
    """The states of 84 workers in 100 rounds would be noise."""
    page.set_viewport_size({"width": 1440, "height": 900})
    AsPage(page, server, write(EXPLORER))
    me = User(page)
    me.drawn("Time per round")
    me.tab("Run")
    me.press("Run")
    page.locator(TARGET).wait_for()
    me.tab("Rounds")
    page.wait_for_function("() => document.querySelector('.wb-stream canvas').dataset.rounds === '100'")
    legend = page.locator(".wb-stream .wb-legend")
    expect(legend).to_contain_text("50 % of")
    expect(page.locator(".wb-stream .wb-finding")).to_contain_text("late")
    page.screenshot(path=screens / "rounds-84.png")
    assert 1 <= page.evaluate(COLOURS) <= 5  # blocks of 20 rounds
    assert noise.ours() == []


GROUPS = (
    "Tree and stragglers", "Schemes", "Delays", "Links", "Problem and data", "Optimiser", "Rounds, batches, faults",
)  # fmt: skip
