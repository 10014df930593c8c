"""The explorer's notebook in JupyterLab, operated like a user does."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import nbformat
import pytest
from playwright.sync_api import Page, expect

import workbench as wb
from tests.support.browser.explorer_user import ROWS, User
from tests.support.browser.jupyterlab import NOTEBOOKS, PACED, RUN_CELL, Lab, Noise, Server, nameless
from tests.support.sampled_cases import rotated, sampled_test

pytestmark = pytest.mark.browser

NOTEBOOK = "02-explore.ipynb"
NAME = """() => { const e = document.activeElement;
  return e.getAttribute('aria-label') || e.labels?.[0]?.innerText || e.innerText; }"""
ALL_DARK = """() => [...document.querySelectorAll('.wb-plot')].filter(p => p.layout && p.offsetParent)
  .every(p => p.layout.template.layout.paper_bgcolor === '#111111')"""
WRITTEN = """(ending) => [...document.querySelectorAll('.wb-note')]
  .some(e => e.innerText.startsWith('written') && e.innerText.includes('.' + ending))"""
FITS = """() => [...document.querySelectorAll('.wb-plot[data-drawn]')].filter((p) => p.offsetParent)
  .every((p) => Math.abs(p._fullLayout.width - p.offsetWidth) < 2)"""
SCROLLED = """() => [...document.querySelectorAll('.wb-explorer, .wb-explorer *')]
  .filter(e => /auto|scroll/.test(getComputedStyle(e).overflowY) && !e.matches('textarea, select'))
  .filter(e => e.scrollHeight > e.clientHeight + 1)
  .map(e => [e.className, e.scrollHeight, e.clientHeight])"""
OWN_STRAGGLERS = """[...document.querySelectorAll('.wb-entry input[type=range][aria-label^="stragglers"]')]"""
POINTS = "() => Number(document.querySelector('.wb-plot[data-points]')?.dataset.points ?? 0) > 50"
# record all notes of the table of states, from now on
RECORD = """() => { window.notes = new Set();
  const look = () => document.querySelectorAll('.wb-status td:last-child').forEach(each => notes.add(each.textContent));
  const what = { childList: true, characterData: true, subtree: true };
  new MutationObserver(look).observe(document.querySelector('.wb-status'), what); }"""
# numbers of points, states and notes so far, once each of five curves has a point
FIVE_CURVES = """() => {
  const lines = document.querySelector('.wb-live .wb-plot[data-points]')?.data?.slice(0, 5) ?? [];
  const counts = lines.map(({ x, y }) => Math.min(x.length, y.length)), names = lines.map(({ name }) => name);
  const states = [...document.querySelectorAll('.wb-status tr')].map(row => row.className);
  return counts.length === 5 && Math.min(...counts) > 0 && { names, counts, states, notes: [...notes] }; }"""
LONGER = """(before) => document.querySelector('.wb-live .wb-plot').data.slice(0, 5)
  .every(({ x }, i) => x.length > before[i])"""
TICKS = "() => document.querySelectorAll('.wb-live .xtick').length"
MOVING = """() => [...document.querySelectorAll('.wb-status tr')].flatMap((row) => row.getAnimations({ subtree: true }))
  .map((each) => each.animationName)"""
AT_CLICK = f"() => {{ document.querySelector('.wb-starts').click(); return ({MOVING})(); }}"


@pytest.fixture
def user(page: Page, server: Server, root: Path) -> tuple[Lab, User]:
    notebook = nbformat.read(NOTEBOOKS / NOTEBOOK, as_version=4)
    notebook.cells.insert(0, nbformat.v4.new_code_cell(PACED))
    # One notebook per test: a saved notebook requests the widgets of a kernel that has ended.
    nbformat.write(notebook, root / "paced.ipynb")
    lab = Lab(page, server, "paced.ipynb")
    lab.run_all()
    user = User(page)
    user.drawn("Time per round")
    return lab, user


@rotated
def test_explorer_before_a_run(
    user: tuple[Lab, User], page: Page, noise: Noise, picture: Callable[[str], Path]
) -> None:
    lab, me = user
    reached_by_keyboard(me, page)
    fits_into_pages(page, picture)
    click_in_figures(lab, me, page, picture)
    try_all_controls(me, page, picture)
    assert noise.errors == []
    assert lab.failures() == []


def reached_by_keyboard(me: User, page: Page) -> None:
    """Tab through the first fields in their order, and move a slider by its keys."""
    me.field("children").focus()
    names: list[Any] = []
    for _ in range(12):
        page.keyboard.press("Tab")
        names.append(page.evaluate(NAME))
    assert names[:4] == ["children, slider", "layers", "layers, slider", "stragglers"]
    assert "nearest trees" in names
    before = me.costs()
    page.get_by_label("stragglers, slider", exact=True).first.focus()
    page.keyboard.press("ArrowRight")
    me.changed(before)
    assert me.field("stragglers").input_value() == "2"


def fits_into_pages(page: Page, picture: Callable[[str], Path]) -> None:
    """Check that the explorer fits into narrow and wide pages."""
    for width, height in ((1280, 800), (1920, 1000)):
        page.set_viewport_size({"width": width, "height": height})
        page.wait_for_function(FITS)
        page.evaluate("() => document.activeElement.blur()")  # a focused field shows its help
        overflow = page.locator(".wb-explorer").evaluate("e => e.scrollWidth - e.clientWidth")
        assert overflow <= 1
        # once the help is hidden, nothing is scrolled
        page.wait_for_function(f"() => !({SCROLLED})().length", timeout=5000)
        expect(page.locator('[role=figure][aria-label*="CR (children"]')).to_be_visible(visible=width > 1700)
        picture(f"explore-{width}")
    page.set_viewport_size({"width": 1280, "height": 900})


def click_in_figures(lab: Lab, me: User, page: Page, picture: Callable[[str], Path]) -> None:
    """Click in the figures of allocation, code and phase diagram, and check that the clicked setting is used."""
    before = me.costs()
    me.slide("stragglers", 1)
    me.changed(before)
    me.press("Who holds what")
    tree = me.drawn("CR (children 4")
    place = tree.evaluate("e => [e.data[1].x, e.data[1].y].map(a => (a._inputArray ?? a)[9])")
    me.click_in(tree, *place)
    me.drawn("CR: what rank 9 computes")
    me.press("Code")
    me.drawn("Encoding matrix of CR")
    picture("explore-code")
    me.press("Fastest scheme")
    map_ = me.drawn("Fastest scheme")
    picture("explore-map")
    me.click_in(map_, 6, 2)  # the seventh latency, two stragglers
    page.wait_for_function("(e) => e.value === '2'", arg=me.field("stragglers").element_handle())
    page.get_by_text("Links", exact=True).click()
    assert float(me.field("latency").input_value()) == pytest.approx(10**-2.5, rel=1e-3)
    lab.dark()
    page.wait_for_function(ALL_DARK)
    picture("explore-dark")
    lab.dark(False)


def try_all_controls(me: User, page: Page, picture: Callable[[str], Path]) -> None:
    """Try sliders, invalid values, presets, trees and schemes."""
    assert len(me.costs()) == 5
    assert nameless(page, ".wb-explorer") == []
    picture("explore-light")

    # a slider
    before = me.costs()
    me.slide("stragglers", 1)
    before = me.changed(before)
    me.slide("stragglers", 2)
    after = me.changed(before)
    assert (after[0], after[4]) != (before[0], before[4])
    assert page.get_by_text("the share α = s/n = 1/2").is_visible()

    # an invalid value is marked and explained, and Run is disabled; then it is fixed
    me.field("stragglers").fill("4")
    page.get_by_text("cannot tolerate it; take 0 to 3").locator("visible=true").first.wait_for()
    assert me.field("stragglers").get_attribute("aria-invalid") == "true"
    picture("explore-bad-value")
    me.tab("Run")
    assert page.get_by_role("button", name="Run", exact=True).is_disabled()
    me.field("stragglers").fill("")
    page.get_by_text("stragglers: is empty; write a value").locator("visible=true").first.wait_for()
    me.field("stragglers").fill("1")
    page.wait_for_function("() => !document.querySelector('.wb-explorer [aria-invalid=true]')")
    page.wait_for_function(
        "() => ![...document.querySelectorAll('button')].find(b => b.innerText === 'Run').disabled"
    )

    # a preset, then workers that form no tree, then the suggested tree
    me.tab("Before a run")
    before = me.costs()
    page.evaluate(f"{OWN_STRAGGLERS}.forEach(slider => (slider.dataset.mark = 'kept'))")
    me.field("Preset").select_option("fig9c")
    before = me.changed(before)
    expect(me.field("workers")).to_have_value("156")
    # the sliders of the schemes have the ranges for 156 workers, and are the same widgets as before
    page.wait_for_function(f"() => {OWN_STRAGGLERS}.map(slider => slider.max).join() === '155,155,11'")
    assert page.evaluate(f"{OWN_STRAGGLERS}.map(slider => slider.dataset.mark)") == ["kept"] * 3
    me.field("workers").fill("150")
    page.get_by_text("nearest regular trees").locator("visible=true").first.wait_for()
    me.field("nearest trees").select_option("12,2")
    page.wait_for_function("() => !document.querySelector('.wb-explorer [aria-invalid=true]')")
    expect(me.field("workers")).to_have_value("156")

    # add a scheme, then remove one
    me.field("add a scheme").select_option("FRC")
    page.wait_for_function("(rows) => document.querySelectorAll(rows).length === 6", arg=ROWS)
    page.locator(".wb-entry summary", has_text="FRC").click()
    me.press("Remove FRC")
    page.wait_for_function("(rows) => document.querySelectorAll(rows).length === 5", arg=ROWS)


@rotated
def test_curves_of_fig9c_grow_together_before_any_run_is_complete(
    page: Page, noise: Noise, server: Server, write: Callable[..., str], picture: Callable[[str], Path]
) -> None:
    """On the virtual clock, no scheme waits for the simulation of the others, and Stop keeps the rounds so far."""
    lab, me = Lab(page, server, write("import workbench as wb\nwb.explore('fig9c', 'explored')")), User(page)
    lab.run_all()
    me.drawn("Time per round")
    me.tab("Run")
    page.evaluate(RECORD)
    me.press("Run")
    found = page.wait_for_function(FIVE_CURVES, polling=50).json_value()
    picture("run-fig9c")
    assert found["names"] == ["UMW", "GC", "RAR", "SGD", "CR"]
    assert max(found["counts"]) < 300
    assert found["states"] == ["wb-running"] * 5
    assert [note for note in found["notes"] if "other" in note] == []
    simulated = [int(note.split()[2]) for note in found["notes"] if note.startswith("simulating round")]
    assert max(simulated, default=0) < 100
    # the curves grow further
    page.wait_for_function(LONGER, arg=found["counts"])
    me.press("Stop")
    page.wait_for_function(
        "() => [...document.querySelectorAll('.wb-status tr')].every(row => row.className === 'wb-stopped')"
    )
    kept = page.evaluate(FIVE_CURVES)
    assert all(after > before for after, before in zip(kept["counts"], found["counts"], strict=True))
    assert noise.errors == []


def test_explorer_run_is_watched_reloaded_stopped_and_saved(
    user: tuple[Lab, User], page: Page, noise: Noise, root: Path, picture: Callable[[str], Path]
) -> None:
    lab, me = user
    me.field("children").fill("2")
    me.field("layers").fill("2")
    page.get_by_text("Rounds, batches, faults", exact=True).click()  # the help above it disappears on a click
    me.field("rounds").fill("3000")
    me.tab("Run")
    # axes of a plot without curves have no numbers
    page.get_by_text("no runs yet").locator("visible=true").wait_for()
    assert page.evaluate(TICKS) == 0
    # a bar moves from the click on, before the kernel responds, except for users who prefer reduced motion
    assert page.evaluate(AT_CLICK) == ["wb-moves"]
    page.emulate_media(reduced_motion="reduce")
    assert page.evaluate(MOVING) == []
    page.emulate_media(reduced_motion="no-preference")
    page.wait_for_function(POINTS)
    assert page.evaluate(TICKS) > 0
    assert page.evaluate(MOVING) == []

    # reload the page during a run: the explorer keeps its state, and the curves continue
    lab.save()
    page.wait_for_function("() => !document.querySelector('.jp-mod-dirty')")
    lab.reload()
    page.wait_for_function(POINTS)
    assert me.field("rounds").count() == 0 or me.field("rounds").input_value() == "3000"
    assert page.get_by_role("tab", name="Run", exact=True).get_attribute("aria-selected") == "true"
    picture("run-live")
    me.press("Stop")
    page.wait_for_function(
        "() => [...document.querySelectorAll('.wb-status tr')].every(row => row.className === 'wb-stopped')"
    )
    page.locator("table[aria-label='time to the target']").wait_for()
    picture("run-stopped")

    # open a round and play it in slow motion
    me.tab("One round")
    gantt = me.drawn("CR, 6 workers: round 0")
    clock = page.locator(".wb-clock:visible")
    full = clock.inner_text()
    me.press("Start")
    assert clock.inner_text().startswith("0 ")
    me.press("Step ▶")
    assert "1 of" in page.locator(".wb-moment:visible").inner_text()
    page.get_by_label("speed", exact=True).locator("visible=true").select_option("4")
    me.press("▶ Play")
    expect(clock).not_to_have_text(full)
    expect(clock).to_have_text(full)
    picture("round-gantt")
    me.click_in(gantt, 1, 2)
    me.drawn("CR: what rank 2 computes")
    me.drawn("CR: decode weights of rank 2 in round 0")
    me.click_in(gantt, 1, 0)
    me.drawn("CR: decode weights of the master in round 0")
    picture("round-details")

    save_and_delete(me, page, root, picture)
    assert noise.after_reload() == []
    assert lab.failures() == []


@sampled_test("an explorer between cells", 1, 2)
def test_explorer_run_uses_what_was_typed_while_the_kernel_was_busy(
    page: Page, noise: Noise, server: Server, write: Callable[..., str]
) -> None:
    name = write(
        "import time\nimport workbench as wb\nexplorer = wb.explore()\nexplorer",
        "run = explorer.running.plot.runs[0].experiment\nprint(run.rounds, run.seed, run.problem_args['data'])",
        "time.sleep(5)",
    )
    lab, me = Lab(page, server, name), User(page)
    page.evaluate(RUN_CELL, 0)
    me.drawn("Time per round")
    page.get_by_text("Problem and data", exact=True).click()
    page.get_by_text("Rounds, batches, faults", exact=True).click()
    me.tab("Run")
    page.evaluate("run => void (" + RUN_CELL + ")(run)", 2)
    page.wait_for_function(
        "() => window.jupyterapp.shell.currentWidget.sessionContext.kernelDisplayStatus === 'busy'"
    )
    for field, value in (("seed", "7"), ("rounds", "12"), ("data", "wine"), ("rounds", "13")):
        me.field(field).fill(value)
    me.press("Run")
    page.wait_for_function("() => document.querySelectorAll('.wb-status .wb-finished').length === 5")
    assert lab.answer(1) == "13 7 wine"
    assert [me.field(field).input_value() for field in ("seed", "rounds", "data")] == ["7", "13", "wine"]
    assert noise.errors == []


def save_and_delete(me: User, page: Page, root: Path, picture: Callable[[str], Path]) -> None:
    """Save a figure, data, a setting and a run, then delete the run after the confirmation."""
    me.tab("Save / export")
    page.wait_for_function(
        "() => [...document.querySelectorAll('textarea')].some(t => t.value.startsWith('papermill'))"
    )
    for text, ending in (("Save figure", "png"), ("Save data", "parquet"), ("Save setting", "yaml")):
        me.press(text)
        page.wait_for_function(WRITTEN, arg=ending)
    exports = root / "runs" / "exports"
    assert {path.suffix for path in exports.iterdir()} >= {".png", ".parquet", ".yaml", ".sh"}
    assert isinstance(wb.Experiment.read(next(exports.glob("*.yaml"))), wb.Experiment)
    page.get_by_label("Name", exact=True).locator("visible=true").fill("Stopped early")
    me.press("Save run")
    page.get_by_text("kept: ").locator("visible=true").first.wait_for()
    assert len(wb.Trace.load(root / "runs" / "stopped-early").rounds) > 0
    picture("keep")
    me.tab("Runs")
    page.locator(".wb-grid tbody tr").first.click()
    me.press("Tag …")
    expect(page.get_by_label("Name", exact=True).locator("visible=true")).to_have_value("Stopped early")
    assert nameless(page, ".wb-explorer") == []
    picture("runs-tab")
    me.press("Delete …")
    page.get_by_text("Delete stopped-early from the disk?").wait_for()
    me.press("Delete for good")
    page.get_by_text("deleted: stopped-early").wait_for()
    assert not (root / "runs" / "stopped-early").exists()


@rotated
@pytest.mark.mpi  # these ranks belong to the kernel, so no other test has started them
def test_explorer_stops_real_runs_at_once(
    user: tuple[Lab, User], page: Page, noise: Noise, picture: Callable[[str], Path]
) -> None:
    _, me = user
    me.field("children").fill("2")
    me.field("layers").fill("2")
    me.tab("Run")
    me.field("Engine").select_option("real processes (MPI)")
    expect(me.field("Cluster")).to_have_value("local")
    picture("run-cluster")
    me.press("Run")
    page.wait_for_function("() => document.querySelectorAll('.wb-status tr').length === 5")
    me.press("Stop")
    page.wait_for_function(
        "() => [...document.querySelectorAll('.wb-status tr')].every(row => row.className === 'wb-stopped')"
    )
    assert page.locator(".wb-failed").count() == 0
    assert page.locator(".wb-explorer .wb-wrong").locator("visible=true").all_inner_texts() == []
    picture("run-stopped-at-once")
    assert noise.errors == []


@sampled_test("Voila", 0, 2)
def test_explorer_as_a_voila_page(
    page: Page, noise: Noise, server: Server, picture: Callable[[str], Path]
) -> None:
    page.goto(server.address(f"voila/render/{NOTEBOOK}?theme=light"))
    me = User(page)
    me.drawn("Time per round")
    before = me.costs()
    me.slide("stragglers", 2)
    me.changed(before)
    me.tab("Run")
    me.press("Run")
    page.wait_for_function(POINTS)
    page.locator("table[aria-label='time to the target']").wait_for()
    picture("voila-explore")
    assert noise.ours() == []


@rotated
def test_explorer_trains_with_batches_to_a_held_out_accuracy(
    page: Page, noise: Noise, server: Server, write: Callable[..., str], picture: Callable[[str], Path]
) -> None:
    """Set batch, evaluations, held-out share and schedule, then plot the accuracy with its target."""
    name = write(
        "import workbench as wb\nexplorer = wb.explore()\nexplorer",
        "e = explorer.experiments[0]\nprint(e.batch, e.evaluate_every, e.optimiser_args, e.problem_args['test'])",
    )
    page.set_viewport_size({"width": 1280, "height": 800})
    lab, me = Lab(page, server, name), User(page)
    page.evaluate(RUN_CELL, 0)
    me.drawn("Time per round")
    me.field("children").fill("3")
    me.field("layers").fill("2")
    page.get_by_text("Rounds, batches, faults", exact=True).click()
    me.field("batch").fill("5000")
    page.get_by_text("batch = 5000: there are 1797 samples").locator("visible=true").first.wait_for()
    picture("training-refused")
    for field, value in (("batch", "300"), ("evaluate every", "2"), ("rounds", "60")):
        me.field(field).fill(value)
    picture("training-batches")
    page.get_by_text("Rounds, batches, faults", exact=True).click()
    page.get_by_text("Problem and data", exact=True).click()
    me.field("test").fill("0.25")
    me.field("test").focus()
    picture("training-held-out")
    page.get_by_text("Problem and data", exact=True).click()
    page.get_by_text("Optimiser", exact=True).click()
    me.field("optimiser").select_option("sgd")
    me.field("step").fill("1.5")
    me.field("schedule").select_option("cosine")
    me.field("schedule warmup").fill("4")
    picture("training-schedule")
    me.tab("Run")
    me.press("Run")
    page.wait_for_function("() => document.querySelectorAll('.wb-status .wb-finished').length === 5")
    page.locator("table[aria-label='time to the target']").wait_for()
    page.locator("summary", has_text="Axes").locator("visible=true").click()
    me.field("vertical axis").select_option("test_accuracy")
    page.locator(".wb-plot[data-points]").first.wait_for()
    target = page.locator(".wb-explorer").get_by_label("target", exact=True).locator("visible=true").first
    page.wait_for_function("e => Number(e.value) > 0.5 && Number(e.value) <= 1", arg=target.element_handle())
    page.locator("table[aria-label='time to the target']").wait_for()
    picture("training-accuracy")
    expected = "300 2 {'step': 1.5, 'schedule': {'kind': 'cosine', 'warmup': 4}} 0.25"
    page.evaluate(RUN_CELL, 1)
    assert lab.answer(1) == expected
    assert noise.errors == []
