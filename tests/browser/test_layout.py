"""The explorer's layout in windows of several sizes: no text is cut, covered or pale, and there is one background.

Tested as a notebook in JupyterLab with its file browser open, and as a separate page, light and dark.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page

from tests.support.browser.explorer_user import User
from tests.support.browser.jupyterlab import CONNECTED, Lab, Noise, Server
from tests.support.browser.layout import faults, grounds
from tests.support.sampled_cases import rotated

pytestmark = pytest.mark.browser

WINDOWS = ((1280, 800), (1440, 900), (1920, 1080))
PHONE = (390, 844)
WIDTH = "() => document.querySelector('.wb-explorer').clientWidth"
ALL_FIT = """() => [...document.querySelectorAll('.wb-plot')].filter(p => p.offsetParent && p._fullLayout)
  .every(p => Math.abs(p._fullLayout.width - p.offsetWidth) < 2)"""
LOOKS = """(dark) => { const shown = [...document.querySelectorAll('.wb-plot[data-drawn]')].filter(p => p.offsetParent);
  return shown.length && shown.every(p => (p.layout.template.layout.paper_bgcolor === '#111111') === dark); }"""
DRAWER = (
    "() => getComputedStyle(document.querySelector('.wb-controls')).getPropertyValue('--wb-drawer').trim()"
)
TOP = "(selector) => document.querySelector(selector).getBoundingClientRect().top"
SCROLL = """(y) => { const e = document.querySelector('.jp-WindowedPanel-outer') ?? document.scrollingElement;
  document.querySelector('.wb-explorer').scrollIntoView({ block: 'start' }); e.scrollBy(0, y); }"""


def found(page: Page, about: str) -> list[str]:
    """Return the layout faults of the shown tab, once its figures have the width of their containers."""
    page.wait_for_function(ALL_FIT)
    page.evaluate("() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
    several = grounds(page)
    return [f"{about}: {each}" for each in (*faults(page), *(several if len(several) != 1 else ()))]


def resized(page: Page, size: tuple[int, int]) -> None:
    page.set_viewport_size({"width": size[0], "height": size[1]})
    page.wait_for_timeout(300)  # containers and figures need some time to be resized


def test_layout_in_jupyterlab_beside_the_file_browser(
    page: Page, noise: Noise, server: Server, write: object, root: Path, screens: Path, alone: None
) -> None:
    assert callable(write)
    name = write("import workbench as wb\nexplorer = wb.explore()\nexplorer")
    page.goto(server.address(f"lab/tree/{name}?reset"))
    page.wait_for_selector(".jp-NotebookPanel")
    page.wait_for_function(CONNECTED)
    lab, me = Lab.of(page, server, name), User(page)
    resized(page, WINDOWS[0])
    lab.run_all()
    me.drawn("Time per round")
    assert page.locator(".jp-FileBrowser").is_visible()
    me.press("Run")
    page.locator("table[aria-label='time to the target']").wait_for()
    bad: list[str] = []
    for dark in (False, True):
        lab.dark(dark)
        # a change of theme may collapse the file browser
        page.evaluate("() => window.jupyterapp.shell.expandLeft()")
        for size in WINDOWS:
            resized(page, size)
            wide = page.evaluate(WIDTH) >= 900
            assert page.evaluate(DRAWER) == ("0" if wide else "1")
            for tab in ("Before a run", "Run", "Save / export"):
                me.tab(tab)
                page.evaluate(SCROLL, 0)
                bad += found(page, f"{size}, {'dark' if dark else 'light'}, {tab}")
                page.screenshot(
                    path=screens
                    / f"layout-{size[0]}-{'dark' if dark else 'light'}-{tab.split()[0].lower()}.png"
                )
    assert not bad, "\n".join(bad)

    # narrow page: one group of settings at a time, opened by its value, above the figure
    resized(page, WINDOWS[0])
    me.tab("Before a run")
    page.get_by_role("button", name=re.compile("^Delays: pareto")).click()
    assert me.field("shape").is_visible()
    page.get_by_role("button", name=re.compile("^Links: 1 ms, 1 MB.s")).click()
    assert me.field("latency").is_visible()
    assert page.get_by_label("shape", exact=True).locator("visible=true").count() == 0
    assert found(page, "drawer") == []
    me.field("latency").press("Escape")
    assert page.get_by_label("latency", exact=True).locator("visible=true").count() == 0

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
def test_layout_of_the_explorer_as_a_page_on_a_phone(
    page: Page, noise: Noise, address: str, screens: Path, alone: None
) -> None:
    resized(page, PHONE)
    page.goto(address)
    me = User(page)
    me.drawn("Time per round")
    me.press("Run")
    page.locator("table[aria-label='time to the target']").wait_for()
    bad: list[str] = []
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
        for size in (PHONE, WINDOWS[0]):
            resized(page, size)
            for tab in ("Before a run", "Run", "Who is late?", "Runs", "Save / export"):
                me.tab(tab)
                if tab == "Runs":
                    page.locator(".wb-grid tbody td", has_text="CR").first.wait_for()
                bad += found(page, f"{size}, {scheme}, {tab}")
                page.screenshot(
                    path=screens / f"page-{size[0]}-{scheme}-{tab.split()[0].lower()}.png", full_page=True
                )
    page.emulate_media(color_scheme="light")
    assert not bad, "\n".join(bad)
    assert page.evaluate("() => document.documentElement.scrollWidth - innerWidth") <= 0
    assert noise.ours() == []
