"""The table of runs in JupyterLab: searched, marked by click and by key, plotted; pictures that are saved."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page

import workbench as wb
from tests.browser.lab import Lab, Noise, Server
from workbench.trace.about import keep

pytestmark = pytest.mark.browser
ROWS = ".itables_anywidget .dt-scroll-body tbody tr"
COUNT = f"n => document.querySelectorAll('{ROWS}').length === n"
NAMELESS = """() => [...document.querySelectorAll('.wb-pane :is(input, select, textarea, button)')]
  .filter(e => e.offsetParent && !e.closest('.modebar'))
  .filter(e => !(e.labels?.length || e.getAttribute('aria-label') || e.getAttribute('title') || e.innerText?.trim()))
  .map(e => e.outerHTML.slice(0, 120))"""
SAVED = "() => document.querySelector('.wb-still img') !== null"


def test_runs_are_found_marked_and_plotted_and_leave_a_picture(
    page: Page,
    server: Server,
    noise: Noise,
    root: Path,
    write: Callable[..., str],
    picture: Callable[[str], Path],
) -> None:
    for trace in wb.compare(wb.rivals(3, 2, 1, rounds=5)):
        keep(trace, root / "kept", trace.label, tags=["coded"] if trace.label in ("GC", "CR") else [])
    foreign: list[str] = []
    page.on("request", lambda r: foreign.append(r.url) if r.url.startswith("http") else None)
    live = "wb.watch(wb.start(wb.Experiment(rounds=5)))"
    lab = Lab(page, server, write("import workbench as wb\nwb.runs('kept')", live))
    lab.run_all()
    page.wait_for_function(COUNT, arg=5)
    assert page.evaluate(NAMELESS) == []
    page.locator(".itables_anywidget input[type=search]").fill("coded")
    page.wait_for_function(COUNT, arg=2)
    rows = page.locator(ROWS)
    rows.first.locator("td").nth(1).click()
    rows.nth(1).focus()
    page.keyboard.press("Space")  # a row is reached and marked by key as well
    page.wait_for_function(
        "() => document.querySelectorAll('[role=figure] .wb-plot[data-drawn] .legendtext').length === 2"
    )
    page.get_by_label("Tags", exact=True).fill("together")
    page.get_by_role("button", name="Write", exact=True).click()
    page.locator(ROWS).get_by_text("coded, together").nth(1).wait_for()  # the table is drawn anew
    picture("runs-light")
    lab.dark()
    picture("runs-dark")
    lab.go_to(1)
    page.wait_for_function(SAVED)
    lab.save()
    page.wait_for_timeout(500)
    saved = json.loads((root / lab.notebook).read_text())
    assert "data:image/png;base64" in json.dumps(saved["cells"][1]["outputs"])
    assert not page.locator(".wb-still img").first.is_visible()
    assert [url for url in foreign if "127.0.0.1" not in url] == []
    assert noise.ours() == []
