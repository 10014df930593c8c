"""The table of runs in JupyterLab: searched, selected by click and by key, plotted, saved as pictures."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import nbformat
import pytest
from playwright.sync_api import Page, expect

import workbench as wb
from tests.support.browser.jupyterlab import Lab, Noise, Server, nameless
from tests.support.sampled_cases import sampled_test
from workbench.analysis.tables.about import keep

pytestmark = [pytest.mark.browser, pytest.mark.usefixtures("alone")]
ROWS = ".itables_anywidget .dt-scroll-body tbody tr"
COUNT = f"n => document.querySelectorAll('{ROWS}').length === n"
SAVED = "n => document.querySelectorAll('.jp-CodeCell')[n].querySelector('.wb-still img') !== null"
COLUMN = """name => { const titles = [...document.querySelectorAll('.itables_anywidget .dt-scroll-head th')];
  const at = titles.findIndex(e => e.innerText.trim() === name);
  return [...document.querySelectorAll('.itables_anywidget .dt-scroll-body tbody tr')]
    .map(row => row.cells[at].innerText); }"""
HEADS = """() => [...document.querySelectorAll('.itables_anywidget .dt-scroll-head th')]
  .map(e => [e.innerText.trim(), e.classList.contains('dtfc-fixed-start')])"""
NAME = """() => { const e = document.activeElement;
  return e.getAttribute('aria-label') || e.labels?.[0]?.innerText || e.innerText; }"""


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
    foreign: list[str] = []
    page.on("request", lambda r: foreign.append(r.url) if r.url.startswith("http") else None)
    live = "wb.watch(wb.start(wb.Experiment(rounds=5)))"
    explorer = "wb.explore(wb.Experiment(scheme='UMW', workers=3, rounds=2))"
    lab = Lab(page, server, write("import workbench as wb\nwb.runs('kept')", live, explorer))
    lab.run_all()
    page.wait_for_function(COUNT, arg=5)
    page.locator(".itables_anywidget input[type=search]").fill("coded")
    page.wait_for_function(COUNT, arg=2)
    rows = page.locator(ROWS)
    rows.first.locator("td").nth(1).click()
    rows.nth(1).focus()
    page.keyboard.press("Space")  # a row is reached and marked by key as well
    page.wait_for_function(
        "() => document.querySelectorAll('[role=figure] .wb-plot[data-drawn] .legendtext').length === 2"
    )
    page.get_by_label("Tags", exact=True).first.fill("together")
    page.get_by_role("button", name="Write", exact=True).click()
    page.locator(ROWS).get_by_text("coded, together").nth(1).wait_for()  # the table is drawn again
    picture("runs-light")
    lab.dark()
    picture("runs-dark")
    for cell in (1, 2):
        lab.go_to(cell)
        page.wait_for_function(SAVED, arg=cell)
    assert not page.locator(".wb-still img").first.is_visible()
    lab.save()
    page.wait_for_function("() => !document.querySelector('.jp-mod-dirty')")

    # the file as somebody opens it who has not its kernel
    shutil.copy(root / lab.notebook, root / "sent.ipynb")
    outputs = nbformat.read(root / "sent.ipynb", as_version=4).cells[0].outputs
    texts = [each.data["text/html"] for each in outputs if "text/html" in each.get("data", {})]
    assert "UMW" in texts[0]  # for sites and editors without widgets
    page.goto("about:blank")  # their page has not seen a widget, whose style would hide the pictures
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
def test_runs_table_sorts_filters_groups_and_pins_columns(
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
    times = sorted(float(f"{trace.columns['time'][-1]:.5g}") for trace in found)
    shutil.copytree(root / "ranges" / "0", root / "ranges" / "half")
    (root / "ranges" / "half" / "run.json").unlink()  # has no number: sorted behind the others, in no range
    lab = Lab(page, server, write("import workbench as wb\nwb.RunsTable('ranges')"))
    lab.run_all()
    page.wait_for_function(COUNT, arg=10)

    def column(name: str) -> list[float]:
        return [float(text or "nan") for text in page.evaluate(COLUMN, name)]

    # sorted by a click on a column's title, both ways
    title = page.locator(".dt-scroll-head th", has_text="time").first
    title.click()
    assert column("time") == times
    title.click()
    for _ in range(100):  # a table that is being drawn sorts a moment later
        if column("time")[1:] == times[:0:-1]:
            break
        page.wait_for_timeout(50)
    assert column("time")[1:] == times[:0:-1]
    assert column("time")[0] != column("time")[0]  # the missing one
    assert "NaN" not in page.locator(".itables_anywidget").inner_text()

    # between two numbers, of two columns
    press = lambda name: page.get_by_role("button", name=name, exact=True).click()  # noqa: E731
    for i, (name, low, high) in enumerate((("time", times[2], times[7]), ("straggler_fraction", 0.01, 0.5))):
        press("Add a condition")
        page.get_by_label("column of the condition").nth(i).select_option(name)
        page.get_by_label("comparison").nth(i).select_option("between")
        fields = page.locator(".dtsb-criteria").nth(i).get_by_label("value", exact=True)
        expect(fields).to_have_count(2)
        fields.first.fill(str(low))
        fields.last.fill(str(high))
        if not i:
            page.wait_for_function(COUNT, arg=6)
    fractions = [f for f in column("straggler_fraction") if 0.01 <= f <= 0.5]
    page.wait_for_function(COUNT, arg=len(fractions))
    assert sorted(column("time")) == sorted(t for t in column("time") if times[2] <= t <= times[7])
    assert nameless(page, ".wb-pane") == []
    picture("runs-conditions")

    # what was asked stays when a run comes, when columns change, and when the page is loaded again
    found[0].save(root / "ranges" / "new")
    press("Refresh")
    expect(page.locator(".dt-info")).to_contain_text("from 12 total")
    page.locator(ROWS).first.locator("td").nth(1).click()
    page.wait_for_function(
        "() => document.querySelectorAll('[role=figure] .wb-plot[data-drawn]').length === 1"
    )
    press("Columns …")
    page.get_by_label("Columns", exact=True).select_option(["run", "seed", "loss"])
    page.wait_for_function("() => document.querySelectorAll('.dt-scroll-head th').length === 3")
    expect(page.locator(".dtsb-criteria")).to_have_count(2)
    lab.save()
    lab.reload()
    expect(page.locator(".dtsb-criteria")).to_have_count(2)
    expect(page.locator(f"{ROWS}.selected")).to_have_count(1)
    expect(page.locator(".dt-info")).to_contain_text("from 12 total")
    press("Clear All")
    page.wait_for_function(COUNT, arg=10)

    # a target, columns, and some that stay in sight
    page.get_by_label("Target", exact=True).fill("0.69")
    page.get_by_label("Target", exact=True).press("Enter")
    page.locator(".dt-scroll-head th", has_text="time_to").wait_for()
    page.get_by_label("Columns", exact=True).select_option(["run", "seed", "loss", "time_to"])
    page.get_by_label("Pinned", exact=True).select_option(["loss"])
    page.wait_for_function("() => document.querySelectorAll('.dt-scroll-head th').length === 4")
    expect(page.locator(".dt-scroll-head th").first).to_contain_text("loss")
    assert page.evaluate(HEADS) == [["loss", True], ["run", False], ["seed", False], ["time_to", False]]
    picture("runs-columns")

    # groups as a figure, by one click; every control is reached in its order
    press("Group")
    page.locator('[role=figure][aria-label^="Time of the whole run"] .wb-plot[data-drawn]').wait_for()
    assert nameless(page, ".wb-pane") == []
    picture("runs-groups")
    page.get_by_role("button", name="Refresh").focus()
    names = []
    for _ in range(40):
        names.append(page.evaluate(NAME).split("\n")[0].strip())
        page.keyboard.press("Tab")
    wanted = ["Refresh", "Columns …", "Target", "Show archived", "Columns", "Pinned", "Search:"]
    wanted += ["Look into a round", "Delete", "Mean of", "by", "Group"]
    assert [name for name in names if name in wanted] == wanted
    assert noise.after_reload() == []
