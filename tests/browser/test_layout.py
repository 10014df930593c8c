"""The layout of pages in windows of several sizes: no text is cut, covered or pale, and there is one background.

`tests/support/browser/viewed.py` lists the pages and their states: the explorer, the table of runs, live plots, the
stream, sweeps and lectures, in JupyterLab with its file browser open and as pages of their own, light and dark.
`make test` samples a few of them, and `make test-all` sees all.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Locator, Page

from tests.support.browser.explorer_user import User
from tests.support.browser.jupyterlab import Lab, Noise, Server
from tests.support.browser.layout import faults, grounds
from tests.support.browser.viewed import DRAWN, EXPLORER, GROUPS, PHONE, SHOWN, TARGET, WINDOWS, AsPage, InLab
from tests.support.sampled_cases import rotated, sampled_cases, sampled_indices

pytestmark = pytest.mark.browser

SOME = 6  # number of sampled states, windows and themes of a sampled page
WIDTH = "() => document.querySelector('.wb-explorer').clientWidth"
LOOKS = """(dark) => { const shown = [...document.querySelectorAll('.wb-plot[data-drawn]')].filter(p => p.offsetParent);
  return shown.length && shown.every(p => (p.layout.template.layout.paper_bgcolor === '#111111') === dark); }"""
DRAWER = (
    "() => getComputedStyle(document.querySelector('.wb-controls')).getPropertyValue('--wb-drawer').trim()"
)
TOP = "(selector) => document.querySelector(selector).getBoundingClientRect().top"
HEIGHT = "(selector) => Math.ceil(document.querySelector(selector).scrollHeight) + 200"
# scroll the page until the last setting is in view, at the lower edge of the window
LAST_SETTING = """() => { const all = [...document.querySelectorAll('.wb-controls :is(input, select)')];
  all.filter((e) => e.checkVisibility()).at(-1).scrollIntoView({ block: 'end' }); }"""
# boxes of the last setting, and of the figure and its tabs, below the bars of JupyterLab: top and bottom
IN_VIEW = """() => {
  const bar = document.querySelector('.jp-WindowedPanel-outer')?.getBoundingClientRect() ??
    { top: 0, bottom: innerHeight };
  const seen = (selector) => [...document.querySelectorAll(selector)].filter((e) => e.checkVisibility());
  const last = seen('.wb-controls :is(input, select)').at(-1);
  const figure = seen('.wb-tabbed :is(.wb-plot[data-frames], .wb-forecast[data-drawn])')[0];
  const found = Object.entries({ last, figure }).map(([name, e]) => [name, e.getBoundingClientRect()]);
  return found.filter(([, box]) => box.top < bar.top - 1 || box.bottom > bar.bottom + 1)
    .map(([name, { top, bottom }]) => `${name} from ${top} to ${bottom} of ${bar.top} to ${bar.bottom}`); }"""
# the tabs that are wholly within their strip and the window
WHOLE_TABS = """() => { const strip = document.querySelector('.wb-tabs').getBoundingClientRect();
  return [...document.querySelectorAll('.wb-tabs > button')].filter((tab) => {
    const { left, right } = tab.getBoundingClientRect();
    return left >= Math.max(0, strip.left) - 1 && right <= Math.min(innerWidth, strip.right) + 1;
  }).map((tab) => tab.innerText); }"""
# the tab that is chosen, and the tab whose panel is shown, if it is the only one and has fields
CHOSEN = """() => { const chosen = document.querySelector('.wb-tabs > [aria-selected=true]').innerText;
  const panels = [...document.querySelectorAll('.wb-panels > [role=tabpanel]')].filter((e) => e.checkVisibility());
  if (panels.length !== 1 || !panels[0].querySelector('input, select, button, textarea')) return [chosen, ''];
  return [chosen, document.getElementById(panels[0].getAttribute('aria-labelledby')).innerText]; }"""
SCROLL = """(y) => { const e = document.querySelector('.jp-WindowedPanel-outer') ?? document.scrollingElement;
  document.querySelector('.wb-explorer').scrollIntoView({ block: 'start' }); e.scrollBy(0, y); }"""


def found(page: Page, about: str, selector: str = ".wb-explorer") -> list[str]:
    """Return the layout faults of a part, once its figures have the width of their containers."""

    def look() -> list[str]:
        page.wait_for_function(DRAWN)
        page.evaluate("() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
        several = grounds(page, selector)
        return [
            f"{about}: {each}" for each in (*faults(page, selector), *(several if len(several) != 1 else ()))
        ]

    if not look():
        return []
    page.wait_for_timeout(1000)  # a figure may have been redrawn meanwhile
    return look()


def resized(page: Page, size: tuple[int, int]) -> None:
    page.set_viewport_size({"width": size[0], "height": size[1]})
    page.wait_for_timeout(300)  # containers and figures need some time to be resized


def picture_of_all(page: Page, selector: str, path: Path) -> None:
    """Take a screenshot of a part in a window that is as high as the part. On a phone, nothing is below the window."""
    before = page.viewport_size
    assert before is not None
    width, height = before["width"], before["height"]
    higher = max(height, page.evaluate(HEIGHT, selector))
    if higher > height:
        resized(page, (width, higher))
    page.locator(selector).first.screenshot(path=path)
    if higher > height:
        resized(page, (width, height))


def cases() -> list[Any]:
    """Return pages with the number of their views: a few of two sampled pages, and all of each page, which are slow."""
    some = sampled_indices("layout", len(SHOWN), 2)
    few = [pytest.param(name, SOME, id=f"{name}, some") for i, name in enumerate(SHOWN) if i in some]
    return few + [pytest.param(name, None, id=f"{name}, every", marks=pytest.mark.slow) for name in SHOWN]


@pytest.mark.parametrize(("name", "count"), cases())
def test_layout_of_a_page(
    name: str,
    count: int | None,
    page: Page,
    noise: Noise,
    server: Server,
    write: Callable[..., str],
    screens: Path,
    alone: None,
) -> None:
    part, host = SHOWN[name]
    shown = host(page, server, part.path or write(part.cell))
    page.locator(part.selector).first.wait_for()
    views = list(product((False, True), host.sizes, part.states))
    chosen = sampled_indices(name, len(views), min(len(views), count or len(views)))
    bad: list[str] = []
    before: tuple[Any, ...] = ()
    for dark, size, state in (view for i, view in enumerate(views) if i in chosen):
        if dark not in before[:1]:
            shown.dark(dark)
        if before != (dark, size):
            resized(page, size)
        before = (dark, size)
        part.states[state](page)
        about = f"{size[0]} px, {'dark' if dark else 'light'}, {state}"
        bad += found(page, about, part.selector)
        path = screens / f"{name}-{about}.png".replace(", ", "-").replace(" ", "-")
        picture_of_all(page, part.selector, path)
    page.emulate_media(color_scheme="light")
    assert not bad, "\n".join(bad)
    assert noise.ours() == []


@rotated
def test_settings_are_a_drawer_on_narrow_pages(
    page: Page, noise: Noise, server: Server, write: Callable[..., str], alone: None
) -> None:
    shown, me = InLab(page, server, write(EXPLORER)), User(page)
    me.drawn("Time per round")
    shown.dark(False)
    for size in WINDOWS:
        resized(page, size)
        assert page.evaluate(DRAWER) == ("0" if page.evaluate(WIDTH) >= 900 else "1")

    # narrow page: one group of settings at a time, opened by its value, above the figure
    resized(page, WINDOWS[0])
    page.get_by_role("button", name=re.compile("^Delays: pareto")).click()
    assert me.field("shape").is_visible()
    page.get_by_role("button", name=re.compile("^Links: 1 ms, 1 MB.s")).click()
    assert me.field("latency").is_visible()
    assert page.get_by_label("shape", exact=True).locator("visible=true").count() == 0
    me.field("latency").press("Escape")
    assert page.get_by_label("latency", exact=True).locator("visible=true").count() == 0

    # the fields of a scheme are in two columns
    page.get_by_role("button", name=re.compile("^Schemes: 5")).click()
    page.locator(".wb-entry summary", has_text="GC").click()
    assert middle(me.field("stragglers"))[1] == middle(me.field("code"))[1]

    # the buttons of the views stay where they are while the fastest scheme is looked for
    page.get_by_role("button", name=re.compile("^Schemes: 5")).click()
    views = page.locator(".widget-toggle-buttons").locator("visible=true")
    before = middle(views)[1]
    me.press("Fastest scheme")
    page.get_by_text("looking for the fastest scheme").locator("visible=true").wait_for()
    assert middle(views)[1] == before
    me.drawn("Fastest scheme")
    me.press("Time per round")

    # wide page: the figure stays visible while the settings scroll
    resized(page, WINDOWS[1])
    for group in ("Delays", "Links", "Problem and data", "Optimiser"):
        page.get_by_role("button", name=re.compile(f"^{group}:")).click()
    page.evaluate(SCROLL, 400)
    assert page.evaluate(TOP, ".wb-controls") < 0
    assert page.evaluate(TOP, ".wb-tabs") >= 0
    assert found(page, "all groups") == []
    assert noise.errors == []


@rotated
@pytest.mark.parametrize("host", sampled_cases("a figure stays in view", 1, (InLab, AsPage)))
def test_figure_stays_in_view_while_settings_scroll(
    host: type[InLab] | type[AsPage],
    page: Page,
    noise: Noise,
    server: Server,
    write: Callable[..., str],
    screens: Path,
    alone: None,
) -> None:
    shown, me = host(page, server, write(EXPLORER)), User(page)
    me.drawn("Time per round")
    if isinstance(shown, InLab):
        page.evaluate("() => window.jupyterapp.shell.collapseLeft()")
    resized(page, WINDOWS[0])
    assert page.evaluate(WIDTH) >= 900
    for name in GROUPS:
        opener = page.get_by_role("button", name=re.compile(f"^{name}:"))
        if opener.get_attribute("aria-expanded") != "true":
            opener.click()
    for view in ("Before a run", "Run"):
        me.tab(view)
        if view == "Run":
            me.press("Run")
            page.locator(TARGET).wait_for()
        page.evaluate(LAST_SETTING)
        page.wait_for_timeout(300)
        page.screenshot(path=screens / f"last-setting-{view}-{host.__name__}.png".replace(" ", "-"))
        assert page.evaluate(TOP, ".wb-controls") < 0
        assert page.evaluate(IN_VIEW) == [], view
    assert noise.ours() == []


@rotated
def test_strip_of_tabs_scrolls_on_a_phone(
    page: Page, noise: Noise, server: Server, write: Callable[..., str], screens: Path, alone: None
) -> None:
    """The last tab is reached by scrolling and by keys, and is then whole."""
    resized(page, PHONE)
    AsPage(page, server, write(EXPLORER))
    User(page).drawn("Time per round")
    tabs = page.locator(".wb-tabs > button")
    first, last = tabs.first.inner_text(), tabs.last.inner_text()
    whole = page.evaluate(WHOLE_TABS)
    assert first in whole
    assert last not in whole
    page.evaluate("() => document.querySelector('.wb-tabs').scrollBy(1e4, 0)")
    assert last in page.evaluate(WHOLE_TABS)
    page.evaluate("() => document.querySelector('.wb-tabs').scrollTo(0, 0)")
    tabs.first.focus()
    page.keyboard.press("End")
    page.wait_for_function("() => document.activeElement.matches('.wb-tabs > button:last-child')")
    page.screenshot(path=screens / "last-tab.png")
    assert last in page.evaluate(WHOLE_TABS)
    assert tabs.last.get_attribute("aria-selected") == "true"
    assert noise.ours() == []


@rotated
@pytest.mark.parametrize("by", ["touch", "mouse"])
def test_last_tab_is_reached_by_touch_and_by_mouse_on_a_phone(
    by: str, page: Page, noise: Noise, server: Server, write: Callable[..., str], screens: Path, alone: None
) -> None:
    """A finger swipes the strip, and a mouse presses the last visible tab, which then moves to the middle."""
    resized(page, PHONE)
    AsPage(page, server, write(EXPLORER))
    User(page).drawn("Time per round")
    tabs = page.locator(".wb-tabs > button")
    first, last = tabs.first.inner_text(), tabs.last.inner_text()
    page.locator(".wb-tabs").scroll_into_view_if_needed()
    assert last not in page.evaluate(WHOLE_TABS)
    assert page.evaluate(CHOSEN) == [first, first]
    if by == "touch":
        y = middle(tabs.first)[1]
        for _ in range(3):
            touched(page, *((x, y) for x in range(360, 10, -10)))
        page.wait_for_function(f"(last) => ({WHOLE_TABS})().includes(last)", arg=last)
        touched(page, middle(tabs.last))
    for _ in range(tabs.count() if by == "mouse" else 0):
        page.mouse.click(*middle(page.get_by_role("tab", name=page.evaluate(WHOLE_TABS)[-1], exact=True)))
        page.wait_for_timeout(100)
    page.wait_for_function(f"(last) => ({CHOSEN})().join() === `${{last}},${{last}}`", arg=last)
    page.screenshot(path=screens / f"last-tab-{by}.png")
    assert last in page.evaluate(WHOLE_TABS)
    assert noise.ours() == []


def touched(page: Page, *places: tuple[float, float]) -> None:
    """Touch the window at the first place, move the finger to the others, and lift it. Places are in px."""
    session = page.context.new_cdp_session(page)
    for i, (x, y) in enumerate(places):
        points = [{"x": x, "y": y}]
        session.send(
            "Input.dispatchTouchEvent", {"type": "touchMove" if i else "touchStart", "touchPoints": points}
        )
    session.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})
    session.detach()


def middle(part: Locator) -> tuple[float, float]:
    """Return the middle of an element in the window, px."""
    box = part.bounding_box()
    assert box is not None
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


@rotated
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_banner_of_a_kernel_that_was_shut_down(
    dark: bool, page: Page, server: Server, write: object, screens: Path, alone: None
) -> None:
    """The banner is shown without a click, and its button brings the explorer back. Figures keep their theme."""
    assert callable(write)
    lab = Lab(page, server, write("import workbench as wb\nexplorer = wb.explore('fig8')\nexplorer"))
    me, banner, bad = User(page), page.locator(".wb-tools .wb-banner"), list[str]()
    resized(page, WINDOWS[2])
    lab.dark(dark)
    lab.run_all()
    me.drawn("Time per round")
    page.wait_for_function(LOOKS, arg=dark)  # figures cannot follow the theme without a kernel
    assert not banner.is_visible()
    server.end_kernels()
    banner.wait_for()
    for size in WINDOWS:
        resized(page, size)
        bad += found(page, f"{size}, banner")
        page.screenshot(path=screens / f"banner-{size[0]}-{'dark' if dark else 'light'}.png")
    lab.dark(False)
    assert not bad, "\n".join(bad)
    banner.get_by_role("button").click()
    banner.wait_for(state="hidden")
    me.drawn("Time per round")


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    """Serve the explorer as a page of its own, and return its address."""
    code = "from workbench.cli.main import main; main()"
    argv = [sys.executable, "-c", code, "explore", "--no-browser", "--folder", str(tmp_path / "runs")]
    log = tmp_path / "log"
    with log.open("w") as out:
        served = subprocess.Popen(
            argv, stdout=out, stderr=out, cwd=tmp_path, env={**os.environ, "JUPYTER_PLATFORM_DIRS": "1"}
        )
    try:
        for _ in range(600):
            if where := re.search(r"http://127\S+", log.read_text()):
                break
            assert served.poll() is None, log.read_text()
            time.sleep(0.1)
        else:
            raise AssertionError(log.read_text())
        yield where[0]
    finally:
        served.terminate()
        served.wait(30)


@rotated
def test_explore_command_serves_a_page_for_phones(
    page: Page, noise: Noise, address: str, screens: Path, alone: None
) -> None:
    resized(page, PHONE)
    page.goto(address)
    User(page).drawn("Time per round")
    assert found(page, "phone") == []
    page.screenshot(path=screens / "page-phone.png", full_page=True)
    assert page.evaluate("() => document.documentElement.scrollWidth - innerWidth") <= 0
    assert noise.ours() == []
