"""The table of runs in JupyterLab: searched, filtered, selected, sorted, plotted, saved as pictures."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import nbformat
import pytest
from playwright.sync_api import Page, expect

import workbench as wb
from tests.support.browser.jupyterlab import Lab, Noise, Server, nameless
from tests.support.sampled_cases import rotated, sampled_test
from workbench.analysis.tables.about import describe, keep

pytestmark = [pytest.mark.browser, pytest.mark.usefixtures("alone")]
ROWS = ".wb-grid tbody tr"
COUNT = f"n => document.querySelectorAll('{ROWS}').length === n"
SAVED = "n => document.querySelectorAll('.jp-CodeCell')[n].querySelector('.wb-still img') !== null"
COLUMN = """name => { const at = [...document.querySelectorAll('.wb-grid th')].findIndex(e => e.title === name);
  return [...document.querySelectorAll('.wb-grid tbody tr')].map(row => row.cells[at].innerText); }"""
HEADS = "() => [...document.querySelectorAll('.wb-grid th[title]')].map(e => e.title)"
NAME = """() => { const e = document.activeElement;
  return e.getAttribute('aria-label') || e.labels?.[0]?.innerText || e.innerText; }"""
WHEN = "() => [...document.querySelectorAll('.wb-grid td.wb-c-when')].map(e => e.title)"
STATES = """() => [...document.querySelectorAll('.wb-grid .wb-state')].map(e =>
  [e.innerText, [...e.classList].find(name => name.startsWith('wb-is-')), e.querySelectorAll('svg.wb-i > *').length])"""
# px between the button Delete and the one before it, and between two other buttons of the bar
GAPS = """() => { const all = [...document.querySelectorAll('.wb-select-bar.wb-on button')].filter(e => e.offsetWidth);
  const boxes = all.map(e => e.getBoundingClientRect()), at = all.findIndex(e => e.innerText.startsWith('Delete'));
  return [boxes[at].left - boxes[at - 1].right, boxes[at - 1].left - boxes[at - 2].right]; }"""
TWO_CURVES = "() => document.querySelectorAll('[role=figure] .wb-plot[data-drawn] .legendtext').length === 2"


@sampled_test("the table of runs", 0, 2)
def test_runs_table_filters_selects_and_plots(
    page: Page,
    server: Server,
    noise: Noise,
    root: Path,
    write: Callable[..., str],
    picture: Callable[[str], Path],
) -> None:
    for trace in wb.compare(wb.baselines(3, 2, 1, rounds=5)):
        keep(trace, root / "kept", trace.label, tags=["coded"] if trace.label in ("GC", "CR") else [])
    describe(root / "kept" / "umw", note="<img src=x onerror=document.title='bad'>")
    foreign: list[str] = []
    page.on("request", lambda r: foreign.append(r.url) if r.url.startswith("http") else None)
    live = "wb.watch(wb.start(wb.Experiment(rounds=5)))"
    explorer = "wb.explore(wb.Experiment(scheme='UMW', workers=3, rounds=2))"
    lab = Lab(page, server, write("import workbench as wb\nwb.runs('kept')", live, explorer))
    lab.run_all()
    page.wait_for_function(COUNT, arg=5)
    page.locator(".wb-runs input[type=search]").first.fill("coded")
    page.wait_for_function(COUNT, arg=2)
    rows = page.locator(ROWS)
    rows.first.locator("td").nth(1).click()
    rows.nth(1).locator("input").focus()
    page.keyboard.press("Space")  # a row is reached and selected by key as well
    page.wait_for_function(TWO_CURVES)
    press = lambda name: page.get_by_role("button", name=name, exact=True).locator("visible=true").click()  # noqa: E731
    press("Tag …")
    page.get_by_label("Tags", exact=True).first.fill("together")
    press("Write")
    page.wait_for_function(  # the table is drawn again
        "() => [...document.querySelectorAll('.wb-tag')].filter(e => e.innerText === 'together').length === 2"
    )
    picture("runs-light")
    lab.dark()
    picture("runs-dark")
    for cell in (1, 2):
        lab.go_to(cell)
        page.wait_for_function(SAVED, arg=cell)
    assert not page.locator(".wb-still img").first.is_visible()
    assert page.title() != "bad"
    lab.save()
    page.wait_for_function("() => !document.querySelector('.jp-mod-dirty')")

    # open a copy of the file, for which no kernel has run
    shutil.copy(root / lab.notebook, root / "sent.ipynb")
    outputs = nbformat.read(root / "sent.ipynb", as_version=4).cells[0].outputs
    texts = [each.data["text/html"] for each in outputs if "text/html" in each.get("data", {})]
    assert "UMW" in texts[0]  # for sites and editors without widgets
    page.goto("about:blank")  # start from a page without widgets, whose style would hide the pictures
    Lab(page, server, "sent.ipynb")
    for text in ("curves", "forecast of round times"):
        image = page.get_by_alt_text(text)
        image.scroll_into_view_if_needed()
        assert image.is_visible()
        assert image.evaluate("e => e.naturalWidth") > 300
    picture("saved-without-kernel")
    assert [url for url in foreign if "127.0.0.1" not in url] == []
    assert noise.after_reload() == []


@sampled_test("the table of runs", 1, 2)
def test_runs_table_sorts_filters_groups_and_chooses_columns(
    page: Page,
    server: Server,
    noise: Noise,
    root: Path,
    write: Callable[..., str],
    picture: Callable[[str], Path],
) -> None:
    found = wb.compare([e.replace(seed=s) for e in wb.baselines(3, 2, 1, rounds=5) for s in range(2)])
    for i, trace in enumerate(found):
        trace.save(root / "ranges" / f"{i}")
    times = sorted(float(f"{trace.columns['time'][-1]:.4g}") for trace in found)
    shutil.copytree(root / "ranges" / "0", root / "ranges" / "half")
    # without run.json, this row has no time: it is sorted behind the others, and no range contains it
    (root / "ranges" / "half" / "run.json").unlink()
    dates = [datetime(2026, 1, 1 + 7 * i % 11, 12) for i in range(11)]  # not in the order of the names
    for date, folder in zip(dates, sorted((root / "ranges").iterdir()), strict=True):
        os.utime(folder, (date.timestamp(), date.timestamp()))
    lab = Lab(page, server, write("import workbench as wb\nwb.RunsTable('ranges')"))
    lab.run_all()
    page.wait_for_function(COUNT, arg=10)

    def press(name: str) -> None:
        page.get_by_role("button", name=name, exact=True).locator("visible=true").first.click()

    def column(name: str) -> list[float]:
        return [float(text.replace("–", "nan").replace("\u2009", "")) for text in page.evaluate(COLUMN, name)]

    # show all rows, then sort them by clicks on a column's heading, in both orders
    newest = [date.isoformat() for date in sorted(dates, reverse=True)]
    assert page.evaluate(WHEN) == newest[:10]  # before any click
    press("Show more")
    page.wait_for_function(COUNT, arg=11)
    assert page.evaluate(WHEN) == newest
    states = page.evaluate(STATES)
    assert sorted({(word, look) for word, look, _ in states}) == [
        ("damaged", "wb-is-bad"),
        ("done", "wb-is-done"),
    ]
    assert all(parts for _, _, parts in states)  # each has an icon
    press("Time, s")
    assert column("time")[:10] == times[::-1]
    assert column("time")[10] != column("time")[10]  # NaN: the missing time
    press("Time, s ↓")
    assert column("time")[:10] == times
    assert "NaN" not in page.locator(".wb-grid").inner_text()
    assert page.locator("th[aria-sort=ascending]").get_attribute("title") == "time"

    # filter by a range of times, and by a second column
    for name, op, value in (
        ("time", "at least", times[2]),
        ("time", "at most", times[7]),
        ("straggler_fraction", "at least", 0.01),
    ):
        page.locator(".wb-runs summary", has_text="Filter").click()
        page.get_by_label("column of the filter").select_option(name)
        page.get_by_label("comparison").select_option(op)
        page.get_by_label("value", exact=True).fill(str(value))
        page.get_by_label("value", exact=True).press("Enter")
    expect(page.locator(".wb-chip")).to_have_count(3)
    shown = column("time")
    assert 0 < len(shown) < 10
    assert all(times[2] * 0.999 <= t <= times[7] * 1.001 for t in shown)
    assert nameless(page, ".wb-pane") == []
    picture("runs-filters")

    # filters and selection stay when a run is added, when columns change, and when the page is loaded again
    found[0].save(root / "ranges" / "new")
    press("Refresh")
    expect(page.locator(".wb-runs .wb-bar [role=status]")).to_contain_text("from 12 in all")
    page.locator(ROWS).first.locator("td").nth(1).click()
    page.wait_for_function(
        "() => document.querySelectorAll('[role=figure] .wb-plot[data-drawn]').length === 1"
    )
    apart, usual = page.evaluate(GAPS)
    assert apart > usual + 16
    before = page.evaluate(HEADS)
    page.locator(".wb-runs summary", has_text="Columns").click()
    page.get_by_label("Seed", exact=True).check()
    page.get_by_label("State", exact=True).uncheck()
    page.wait_for_function(
        "() => !!document.querySelector('th[title=seed]') && !document.querySelector('th[title=state]')"
    )
    expect(page.locator(".wb-chip")).to_have_count(3)
    picture("runs-columns")
    press("Usual columns")
    page.wait_for_function("() => !!document.querySelector('.wb-grid th[title=state]')")
    assert page.evaluate(HEADS) == before
    page.keyboard.press("Escape")
    lab.save()
    lab.reload()
    expect(page.locator(".wb-chip")).to_have_count(3)
    expect(page.locator(f"{ROWS}[aria-selected=true]")).to_have_count(1)
    expect(page.locator(".wb-runs .wb-bar [role=status]")).to_contain_text("from 12 in all")
    for name in ("Time, s", "Time, s", "Share that may be late"):
        press(f"remove the filter {name}")
    page.wait_for_function(COUNT, arg=12)

    # a target adds a column, whose heading has the target
    press("Clear")
    page.get_by_label("Target", exact=True).fill("0.69")
    page.get_by_label("Target", exact=True).press("Enter")
    page.locator(".wb-grid th", has_text="To loss 0.69, s").wait_for()

    # the menu of a row, by key
    menu = page.locator(ROWS).first.locator(".wb-c-menu button")
    menu.focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("menuitem", name="Open a round")).to_be_focused()
    page.keyboard.press("ArrowDown")
    expect(page.get_by_role("menuitem", name="Show on the live plot")).to_be_focused()
    picture("runs-menu")
    items = page.locator(".wb-menu").get_by_role("menuitem")
    expect(items.last).to_have_text("Delete …")
    lines = [
        float(each.evaluate("e => parseFloat(getComputedStyle(e).borderTopWidth)")) for each in items.all()
    ]
    assert lines == [0] * (len(lines) - 1) + [1]  # a line above Delete only
    page.keyboard.press("Escape")
    expect(menu).to_be_focused()

    # groups as a figure; every control is reached in its order
    press("Means …")
    press("Group")
    page.locator('[role=figure][aria-label^="Time of the whole run"] .wb-plot[data-drawn]').wait_for()
    assert nameless(page, ".wb-pane") == []
    picture("runs-groups")
    page.get_by_label("Target", exact=True).focus()
    names = []
    for _ in range(40):
        names.append(page.evaluate(NAME).split("\n")[0].strip())
        page.keyboard.press("Tab")
    wanted = [
        "Target",
        "Means …",
        "Export …",
        "Refresh",
        "Mean of",
        "by",
        "Group",
        "Search",
        "Filter",
        "Columns",
    ]
    assert [name for name in names if name in wanted] == wanted
    assert noise.after_reload() == []


EMPTY = """import workbench as wb
from pathlib import Path
Path("filled-later").mkdir()
wb.RunsTable("filled-later")"""
FILL = """plan = {"base": {"workers": 4, "rounds": 5}, "seeds": 1, "cases": [{"scheme": "UMW"}, {"scheme": "RAR"}],
        "grid": {"delays.rate": [1e3, 1e4]}}
sweep = wb.batch.start(plan, "filled-later/swept", pictures=False)
sweep.wait()
print("swept")"""
HEADS_OF = """(n) => [...(document.querySelectorAll('.jp-Notebook .wb-grid')[n]?.querySelectorAll('th[title]') ?? [])]
  .map((e) => e.title)"""
ROWS_OF_ALL = """() => [...document.querySelectorAll('.jp-Notebook .wb-grid')]
  .map((e) => e.querySelectorAll('tbody tr').length)"""
ALWAYS = {"scheme", "state", "when", "workers", "rounds_done", "time", "loss"}


@rotated
def test_columns_of_an_empty_table_appear_with_its_first_sweep(
    page: Page, noise: Noise, server: Server, write: Callable[..., str], screens: Path
) -> None:
    """The table that was empty has the columns of one that is opened afterwards."""
    lab = Lab(page, server, write(EMPTY, FILL, 'wb.RunsTable("filled-later")'))
    lab.run_all()
    page.get_by_role("button", name="Refresh", exact=True).first.click()
    page.wait_for_function(f"() => ({ROWS_OF_ALL})().join() === '4,4'")
    page.screenshot(path=screens / "columns.png")
    fresh, filled = page.evaluate(HEADS_OF, 1), page.evaluate(HEADS_OF, 0)
    assert set(filled) >= ALWAYS | {"delays.rate"}
    assert filled == fresh
    assert noise.ours() == []
