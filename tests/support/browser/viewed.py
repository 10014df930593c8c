"""What the layout tests look at: parts of the workbench with their states, and the hosts that show them.

A state is a function that brings a part into it from any other state. It is called for each window and each theme, and
does what takes long only once.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from playwright.sync_api import Page

from tests.support.browser.explorer_user import User
from tests.support.browser.jupyterlab import CONNECTED, Lab, Server
from tests.support.browser.student import Student
from tests.support.lecture_settings import SCRIPTS

Size = tuple[int, int]  # width and height of a window, px
State = Callable[[Page], None]

WINDOWS: tuple[Size, ...] = ((1280, 800), (1440, 900), (1920, 1080))
PHONE: Size = (390, 844)

DRAWN = """() => [...document.querySelectorAll('.wb-plot')].filter(p => p.offsetParent)
  .every(p => p._fullLayout && Math.abs(p._fullLayout.width - p.offsetWidth) < 2)"""
OPEN_ALL = "(opened) => document.querySelectorAll('.wb-body details').forEach(each => (each.open = opened))"
CLOSE_GROUPS = (
    "() => document.querySelectorAll('.wb-fold > button[aria-expanded=true]').forEach(each => each.click())"
)
CLOSE_SHEETS = "() => document.querySelectorAll('.wb-pop[open]').forEach(each => (each.open = false))"


@dataclass(frozen=True)
class ShownPart:
    """Part of the workbench. `cell`: source of its cell. `path`: notebook, if it has one. `selector`: its element."""

    selector: str
    cell: str = ""
    path: str = ""
    states: Mapping[str, State] = field(default_factory=lambda: {"": lambda page: None})


# ---------------------------------------------------------------- explorer

GROUPS = (
    "Tree and stragglers", "Schemes", "Delays", "Links", "Problem and data", "Optimiser", "Rounds, batches, faults",
)  # fmt: skip
TARGET = "table[aria-label='time to the target']"


def opened(name: str) -> State:
    """Return the state in which a tab of the explorer is open, and no group of settings."""

    def state(page: Page) -> None:
        page.evaluate(CLOSE_SHEETS)
        page.evaluate(CLOSE_GROUPS)
        User(page).tab(name)

    return state


def ran(name: str) -> State:
    """Return the state in which a tab is open after all schemes have run."""

    def state(page: Page) -> None:
        opened("Run")(page)
        if not page.locator(TARGET).count():
            User(page).press("Run")
            page.locator(TARGET).wait_for(state="attached")
        User(page).tab(name)

    return state


def axes(page: Page) -> None:
    """Open the axes of the curves."""
    ran("Run")(page)
    page.locator("summary", has_text="Axes").locator("visible=true").first.click()


def listed(page: Page) -> None:
    """List the runs that were made in the explorer."""
    ran("Runs")(page)
    page.locator(".wb-grid tbody td", has_text="CR").first.wait_for()


def columns(page: Page) -> None:
    """Open the menu of the columns of the runs that were made in the explorer."""
    listed(page)
    sheet("Columns")(page)


def looked(page: Page) -> None:
    """Show the diagnosis of the last run."""
    ran("Who is late?")(page)
    if not page.locator('[role=figure][aria-label*="Who was late when"]').locator("visible=true").count():
        User(page).press("Look")
        page.get_by_role("button", name=re.compile("^Forecast")).locator("visible=true").wait_for()
        page.wait_for_function(DRAWN)


def figure(name: str) -> State:
    """Return the state in which one of the figures of the first tab is shown."""

    def state(page: Page) -> None:
        opened("Before a run")(page)
        User(page).press(name)

    return state


def group(name: str) -> State:
    """Return the state in which a group of settings is open with all its fields."""

    def state(page: Page) -> None:
        opened("Before a run")(page)
        page.get_by_role("button", name=re.compile(f"^{name}:")).click()
        page.evaluate(OPEN_ALL, True)

    return state


def asked(page: Page) -> None:
    """Press Run, and get a question about a long run instead."""
    opened("Run")(page)
    User(page).press("Run")
    page.get_by_text("; run that?").locator("visible=true").first.wait_for()


FORECASTS = {
    "forecast": figure("Time per round"), "tree": figure("Who holds what"), "code": figure("Code"),
    "map": figure("Fastest scheme"), **{name.split(" ")[0].strip(",").lower(): group(name) for name in GROUPS},
}  # fmt: skip
RESULTS = {
    "run": ran("Run"), "axes": axes, "rounds": ran("Rounds"), "one-round": ran("One round"),
    "late": ran("Who is late?"), "look": looked, "runs": listed, "columns": columns, "save": ran("Save / export"),
}  # fmt: skip
EXTREME = """import workbench as wb
link = {"bandwidth": 1e12, "latency": 1e-9, "downloads": True, "delays": {"kind": "pareto", "shape": 1.3},
        "download_delays": {"kind": "markov", "factor": 1234567.0}}
wb.explore(wb.baselines(12, 2, 1, rounds=10**8, link=link, delays={"kind": "pareto", "shift": 1e5}))"""
EXPLORER = "import workbench as wb\nwb.explore('', 'explored')"

# ---------------------------------------------------------------- other parts

RUNS = """import tempfile
import workbench as wb
from workbench.analysis.tables.about import keep
folder = tempfile.mkdtemp()
for trace in wb.compare(wb.baselines(4, 3, 1, rounds=5)):
    keep(trace, folder, f"{trace.label} with a name that is long", "a note of some words", ["tag", "second tag"])
wb.runs(folder)"""
LIVE = """import workbench as wb
runs = wb.start_all(wb.baselines(4, 3, 1, rounds=50))
[run.result() for run in runs]
wb.watch(runs)"""
STREAM = """import workbench as wb
tree = {"children": 12, "layers": 2, "stragglers": 2}
e = wb.Experiment(scheme="CR", workers=156, scheme_args=tree, rounds=60, delays={"kind": "heterogeneous"},
                  link={"latency": 1e-3, "bandwidth": 1e6}, faults=[{"worker": 30, "round": 40}], problem="unit")
run = wb.start(e)
run.result()
wb.stream(run)"""
SWEEP = """import tempfile
import workbench as wb
plan = {"base": {"workers": 12, "rounds": 20, "delays": {"kind": "shifted_exponential"}}, "seeds": 2,
        "cases": [{"scheme": "UMW"}, {"scheme": "GC", "scheme_args": {"stragglers": 2}},
                  {"scheme": "UMW", "faults": [{"worker": 1, "round": 1}]}],
        "grid": {"delays.rate": [1e3, 1e4], "link.latency": [1e-4, 1e-2]}}
sweep = wb.batch.start(plan, tempfile.mkdtemp() + "/swept", pictures=False)
sweep"""


def all_selected(page: Page) -> None:
    """Select all runs of the table, whose curves are then drawn."""
    nothing(page)
    box = page.locator(".wb-grid :is(td, th).wb-c-tick input")
    for each in box.all():
        if each.is_visible() and not each.is_checked():
            each.check()
    page.locator("[role=figure] .wb-plot[data-drawn]").locator("visible=true").first.wait_for()


def aimed(page: Page) -> None:
    """Type a target, where several curves are near its line."""
    nothing(page)
    page.get_by_label("target", exact=True).fill("0.44")
    page.get_by_label("target", exact=True).press("Enter")
    page.wait_for_function("() => document.querySelector('.wb-live .annotation')")


def sheet(name: str) -> State:
    """Return the state in which a menu is open."""

    def state(page: Page) -> None:
        page.evaluate(CLOSE_SHEETS)
        page.locator("summary", has_text=name).locator("visible=true").first.click()

    return state


def row_menu(page: Page) -> None:
    """Open the menu of the last row of the table."""
    page.evaluate(CLOSE_SHEETS)
    page.locator(".wb-grid .wb-c-menu button").last.click()


def nothing(page: Page) -> None:
    page.keyboard.press("Escape")  # a menu of a row
    page.evaluate(CLOSE_SHEETS)


def one_round(page: Page) -> None:
    """Open a round of the stream."""
    page.locator(".wb-stream canvas").focus()
    page.keyboard.press("End")
    page.keyboard.press("Enter")
    page.locator("[role=figure] .wb-plot[data-drawn]").first.wait_for()


def swept(name: str) -> State:
    """Return the state in which a figure of the finished sweep is shown."""

    def state(page: Page) -> None:
        page.get_by_text(re.compile("failed: 16 of 24 runs done")).wait_for()
        page.get_by_label("Figure").select_option(name)
        page.locator("[role=figure] .wb-plot[data-drawn]").first.wait_for()
        page.wait_for_timeout(300)

    return state


# ---------------------------------------------------------------- lectures


def ends(name: str, low: bool) -> State:
    """Return the state of a lecture with all sliders at one end, and with the first or the last choices."""

    def state(page: Page) -> None:
        for line in SCRIPTS[name].knobs.entries():
            control = page.get_by_label(line.label, exact=True).first
            if line.kind == "choice":
                control.select_option(line.choices[0 if low else -1])
            else:
                control.fill(f"{line.low if low else line.high:g}")
                control.press("Enter")
        page.evaluate("() => document.activeElement.blur()")
        page.wait_for_timeout(500)

    return state


def answered(name: str) -> State:
    """Return the state of a lecture in which exercises are answered, explained, and the run has ended."""

    def state(page: Page) -> None:
        student = Student(page, SCRIPTS[name])
        if page.locator(".wb-solution p").count():
            return
        for exercise in SCRIPTS[name].exercises:
            if exercise.choices is None:
                student.answer(exercise, "-99", "wrong")
            page.get_by_label(f"Show why, {exercise.title}", exact=True).click()
        student.run("10")
        student.stop()

    return state


def lecture(name: str) -> ShownPart:
    states = {"low": ends(name, True), "high": ends(name, False), "answered": answered(name)}
    return ShownPart("#rendered_cells", path=f"lecture/{name}.ipynb", states=states)


SWEEP_FIGURES = ("mean and band", "parallel coordinates", "what decides")
PARTS = {
    "explorer": ShownPart(".wb-explorer", EXPLORER, states=FORECASTS),
    "results": ShownPart(".wb-explorer", EXPLORER, states=RESULTS),
    "extreme": ShownPart(
        ".wb-explorer", EXTREME, states={**FORECASTS, "question": asked, "save": opened("Save / export")}
    ),
    "runs": ShownPart(
        ".wb-pane",
        RUNS,
        states={
            "": nothing,
            "all": all_selected,
            "columns": sheet("Columns"),
            "filter": sheet("Filter"),
            "row": row_menu,
        },
    ),
    "live": ShownPart(".wb-live", LIVE, states={"": nothing, "axes": sheet("Axes"), "target": aimed}),
    "stream": ShownPart(".wb-pane", STREAM, states={"": nothing, "round": one_round}),
    "sweep": ShownPart(".wb-pane", SWEEP, states={name: swept(name) for name in SWEEP_FIGURES}),
}
LECTURES = {name: lecture(name) for name in SCRIPTS}

# ---------------------------------------------------------------- hosts


class InLab:
    """A notebook in JupyterLab with its file browser open."""

    sizes = WINDOWS

    def __init__(self, page: Page, server: Server, name: str) -> None:
        page.goto(server.address(f"lab/tree/{name}?reset"))
        page.wait_for_selector(".jp-NotebookPanel")
        page.wait_for_function(CONNECTED)
        self.page, self.lab = page, Lab.of(page, server, name)
        self.lab.run_all()

    def dark(self, dark: bool) -> None:
        """Choose the theme. A change of theme may collapse the file browser."""
        self.lab.dark(dark)
        self.page.evaluate("() => window.jupyterapp.shell.expandLeft()")
        assert self.page.locator(".jp-FileBrowser").is_visible()


class AsPage:
    """A notebook as a page of its own, as `workbench explore` and `workbench lectures` serve it."""

    sizes = (PHONE, *WINDOWS)

    def __init__(self, page: Page, server: Server, name: str) -> None:
        template = "lab" if name.startswith("lecture/") else "explorer"
        page.goto(server.address(f"voila/render/{name}?template={template}"))
        self.page = page

    def dark(self, dark: bool) -> None:
        """Choose the theme of the system, which the page follows."""
        self.page.emulate_media(color_scheme="dark" if dark else "light")


Host = type[InLab] | type[AsPage]
SHOWN: dict[str, tuple[ShownPart, Host]] = {
    **{f"{name} in JupyterLab": (part, InLab) for name, part in PARTS.items()},
    **{f"{name} as a page": (part, AsPage) for name, part in {**PARTS, **LECTURES}.items()},
}
