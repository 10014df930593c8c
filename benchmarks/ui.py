"""Measure the response times of the notebooks in a browser, by the clock of the page.

    python benchmarks/ui.py [--tries 15] [first] [explorer] [curves] [lectures] [static] [live]
        [runs] [stream] [many]

JupyterLab and Voila run headless on this machine in an installed Chromium. Without Chromium, nothing is measured. A
time begins with the event of a slider or a button. For a button, it ends when the page has changed. For a slider, it
ends when the figure has been painted. This is when the second animation frame after the change begins: the first frame
has been painted then. Goals: a slider's figure within 100 ms (156 workers), 10 updates per second, Stop at once.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import nbformat
import numpy as np
from playwright.sync_api import Page
from workbench_lectures import scripts
from workbench_lectures.offline.pages import write

import workbench as wb
from tests.support.browser.jupyterlab import CHROMIUM, RUN_CELL, Lab, Server, browser, jupyter
from tests.support.browser.response_times import (
    CURVE,
    DRAG,
    DRAWN,
    FILTER,
    FILTERED,
    FIRST,
    FRAMES,
    MOVES,
    SLIDE,
    STOP,
)
from tests.support.browser.student import Student

NOTEBOOKS = Path(__file__).resolve().parents[1] / "notebooks"
LIVE = {
    "sim": """import workbench as wb
runs = wb.start_all(wb.baselines(3, 2, 1, rounds=4000, problem_args={"samples": 20_000, "features": 200}))
wb.watch(runs)""",
    "mpi": """import workbench as wb
e = wb.Experiment(scheme="CR", scheme_args={"children": 3, "layers": 2, "stragglers": 1}, workers=12, rounds=3000)
run = wb.start(e, engine="mpi")
wb.watch(run)""",
}
STREAM = """import workbench as wb
tree = {"children": 12, "layers": 2, "stragglers": 2}
e = wb.Experiment(scheme="CR", workers=156, scheme_args=tree, rounds=20_000, problem="unit",
                  delays={"kind": "heterogeneous"}, link={"latency": 1e-3, "bandwidth": 1e6})
"""
STREAMS = {
    "simulated": f"{STREAM}wb.stream(wb.start(e))",
    # a task takes 0.4 s + Exp(0.1 s)
    "real, rounds of half a second and more": f"""{STREAM}load = float(e.plan.loads.max())
e = e.replace(delays={{"kind": "shifted_exponential", "shift": 0.4 / load, "rate": load / 0.1}})
wb.stream(wb.start(e, engine="mpi"))""",
}
REAL = """import workbench as wb
tree = {"children": 4, "layers": 3, "stragglers": 1}
e = wb.Experiment(scheme="CR", scheme_args=tree, workers=84, rounds=20_000)"""
SEARCH = ".wb-runs input[type=search]"
FIRST_ROUND_TIMEOUT_S = 150  # s to wait for the first round of 84 real workers
# rows of the table; executed runs, of which all other rows are copies
RUNS_IN_TABLE, EXECUTED_RUNS = 10_000, 20


@contextmanager
def served() -> Iterator[tuple[Server, Path]]:
    """Start a server with copies of the notebooks. Yield it, and the folder of the copies."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "notebooks"
        shutil.copytree(NOTEBOOKS, root)
        with jupyter(root, Path(folder) / "home") as server:
            yield server, root


def move_times(page: Page, slider: str, values: list[int], plot: str) -> list[float]:
    """Move a slider to each value. Return the ms until the figure is drawn, for all moves but the first."""
    handles = page.get_by_label(slider, exact=True).first, page.locator(plot).first
    elements = [handle.element_handle() for handle in handles]
    found = []
    for value in values:
        found.append(float(page.evaluate(SLIDE, [elements[0], value, elements[1]])))
        time.sleep(0.2)
    return found[1:]


def print_times(name: str, ms: list[float]) -> None:
    """Print one line: median and 90th percentile of times in ms."""
    print(f"  {name:46s} median {np.median(ms):5.0f} ms, 90 % {np.percentile(ms, 90):5.0f} ms", flush=True)


def explorer(page: Page, server: Server, root: Path, tries: int) -> None:
    """Measure the explorer with 156 workers: the first figure in a new kernel, and moves of a slider."""
    print(
        "the explorer, 156 workers, five schemes; goals: first figure 3 s after Run, slider to drawn figure 100 ms"
    )
    (root / "explore.ipynb").write_text(
        nbformat.writes(notebook('import workbench as wb\nwb.explore("fig9a")'))
    )
    lab, began = Lab(page, server, "explore.ipynb"), time.monotonic()
    lab.run_all(wait=False)
    plot = '[role=figure][aria-label*="Time per round"] .wb-forecast[data-drawn]'
    page.locator(plot).wait_for()
    print(f"  {'first figure':46s} {time.monotonic() - began:.1f} s", flush=True)
    print_times(
        "forecast of round times", move_times(page, "stragglers, slider", alternating(2, 3, tries), plot)
    )
    slider = page.get_by_label("stragglers, slider", exact=True).first.element_handle()
    missing, drawn = page.evaluate(DRAG, [slider, page.locator(plot).first.element_handle(), [2, 3] * 60])
    print(
        f"  {'120 moves, one in each frame':46s} {drawn} figures drawn, {missing} frames without one",
        flush=True,
    )


def curves(page: Page, server: Server, root: Path, tries: int) -> None:
    """Measure the explorer: from Run to the curves, and Stop, with 12 workers (simulated, real) and with fig9c."""
    print("the explorer, 12 workers, five schemes; goals: Run to the first curve 1.5 s, Stop 0.5 s")
    source = "import workbench as wb\nwb.explore([e.replace(rounds=20_000) for e in wb.baselines(3, 2, 1)])"
    (root / "curves.ipynb").write_text(nbformat.writes(notebook(source)))
    Lab(page, server, "curves.ipynb").run_all()
    page.locator('[role=figure][aria-label*="Time per round"] .wb-forecast[data-drawn]').wait_for()
    page.get_by_role("tab", name="Run", exact=True).click()
    for engine, text in (("sim", "simulated"), ("mpi", "12 real workers")):
        page.get_by_label("Engine").select_option(index=("sim", "mpi").index(engine))
        found = []
        for _ in range(1 + max(2, tries // 3)):  # the first real run starts the ranks
            time.sleep(1)
            found.append((float(page.evaluate(CURVE, 1)), float(page.evaluate(STOP))))
        print_curves(f"{text}: first curve", found)
    (root / "fig9c.ipynb").write_text(
        nbformat.writes(notebook("import workbench as wb\nwb.explore('fig9c')"))
    )
    Lab(page, server, "fig9c.ipynb").run_all()
    page.locator('[role=figure][aria-label*="Time per round"] .wb-forecast[data-drawn]').wait_for()
    page.get_by_role("tab", name="Run", exact=True).click()
    found = []
    for _ in range(1 + max(2, tries // 3)):  # the first run makes the data and searches the step
        time.sleep(1)
        found.append((float(page.evaluate(CURVE, 5)), float(page.evaluate(STOP))))
    print_curves("fig9c, 156 workers: all five curves", found)


def print_curves(what: str, found: list[tuple[float, float]]) -> None:
    """Print the ms from Run to the curves, of the first run and of later ones, and those of Stop."""
    print(f"  {what + ' of the first run':46s} {found[0][0]:.0f} ms", flush=True)
    print_times(f"{what} of later runs", [first for first, _ in found[1:]])
    print_times(f"{what.split(':')[0]}: Stop", [stop for _, stop in found])


def lectures(page: Page, server: Server, _: Path, tries: int) -> None:
    """Measure moves of a slider in each lecture, as a page of Voila."""
    print("slider to drawn figure in the lectures (Voila)")
    for name in scripts():
        page.goto(server.address(f"voila/render/lecture/{name}.ipynb"))
        page.locator(".wb-score").wait_for(state="attached")
        print_times(name, lecture_slider_times(page, name, tries))


def lecture_slider_times(page: Page, name: str, tries: int) -> list[float]:
    """Return the ms from moves of a lecture's slider until its first figure is drawn."""
    first = {"1-stragglers": "workers N", "2-by-hand": "draw", "3-why-a-tree": "children n"}
    first |= {"4-communication": "workers n", "5-not-waiting": "workers n", "6-asking-less": "workers M"}
    first |= {"7-coding-or-not": "severity", "8-who-is-late": "workers"}
    plot = ".wb-lecture-view [role=figure] .wb-plot[data-drawn]"
    page.locator(plot).first.wait_for()
    page.locator(plot).first.scroll_into_view_if_needed()  # figures outside the window are drawn last
    low, high = {"3-why-a-tree": (5, 4), "6-asking-less": (6, 12), "7-coding-or-not": (5, 1)}.get(
        name, (6, 8)
    )
    return move_times(page, f"{first[name]}, slider", alternating(low, high, tries), plot)


def static(page: Page, _: Server, root: Path, tries: int) -> None:
    """Measure the lectures as files, without a network, in a window of 1280 x 720. All exercises are answered."""
    print("lectures without a server; goals 5 MB with plotly.js, first figure 3 s, slider 100 ms, 720 px")
    print(
        "  lecture           MB   first figure s   slider ms   90 %   figure px   right   requests   elsewhere"
    )
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.set_viewport_size({"width": 1280, "height": 720})
    page.context.set_offline(True)
    for name, script in scripts().items():
        write(root / "site", NOTEBOOKS / "lecture", {name: script})
        files = root / "site" / f"{name}.html", root / "site" / "plotly.js"
        asked.clear()
        began = time.monotonic()
        page.goto(files[0].as_uri())
        page.locator(".wb-plot[data-drawn]").first.wait_for()
        first, student = time.monotonic() - began, Student(page, script)
        boxes = [view.bounding_box() for view in page.locator("[data-figure]").all()]
        high = max(box["height"] for box in boxes if box)
        student.answer_all()
        right = page.locator(".wb-score").inner_text().removesuffix(" right")
        ms = lecture_slider_times(page, name, tries)
        away = sum(not url.startswith(("file:", "blob:", "data:")) for url in asked)
        size = sum(file.stat().st_size for file in files) / 1e6
        times = f"{first:14.2f} {np.median(ms):11.0f} {np.percentile(ms, 90):6.0f}"
        print(
            f"  {name:15s} {size:5.2f} {times} {high:11.0f} {right:>9s} {len(asked):8d} {away:11d}",
            flush=True,
        )


def first(page: Page, server: Server, _: Path, tries: int) -> None:
    """Measure the time until the first figure of the first notebook, in a new kernel.

    This time includes the tuning of steps and the simulation of five schemes.
    """
    print("first figure of notebooks/01-quickstart.ipynb after Run All in a fresh kernel; goal 10 s")
    lab = Lab(page, server, "01-quickstart.ipynb")
    began = time.monotonic()
    lab.run_all(wait=False)
    page.locator(".jp-Notebook .js-plotly-plot").first.wait_for()
    print(f"  {'first figure':46s} {time.monotonic() - began:.1f} s", flush=True)


def live(page: Page, server: Server, root: Path, tries: int) -> None:
    """Measure runs that are under way: frames per second, response time of the kernel, Stop."""
    print("live plot: pictures a second, the kernel's answer while runs go on, Stop; goal 10 a second")
    for engine, source in LIVE.items():
        (root / "live.ipynb").write_text(nbformat.writes(notebook(source, "print(1 + 1)")))
        lab = Lab(page, server, "live.ipynb")
        lab.run_all()
        page.wait_for_function(
            "() => Number(document.querySelector('.wb-plot[data-points]')?.dataset.points) > 20"
        )
        rate = page.evaluate(FRAMES, max(2, tries // 3))
        began = time.monotonic()
        assert lab.answer(1) == "2"
        answer = 1e3 * (time.monotonic() - began)
        stopped = page.evaluate(STOP)
        what = {"sim": "five schemes simulated", "mpi": "12 real workers"}[engine]
        print(
            f"  {what:46s} {rate:.1f} a second, kernel answers in {answer:.0f} ms, stopped in {stopped:.0f} ms",
            flush=True,
        )


def runs(page: Page, server: Server, root: Path, tries: int) -> None:
    """Measure the table of 10,000 runs: reading, opening, and filtering by text and by a range."""
    print(f"table of {RUNS_IN_TABLE:,} runs: goals 3 s to open, 200 ms to filter")
    for i in range(EXECUTED_RUNS):
        wb.run(wb.Experiment(rounds=20, seed=i)).save(root / "many" / f"{i:05d}")
    for i in range(EXECUTED_RUNS, RUNS_IN_TABLE):
        shutil.copytree(root / "many" / f"{i % EXECUTED_RUNS:05d}", root / "many" / f"{i:05d}")
    ways = {"read for the first time": None, "read again": None, "read with a target": 0.6}
    for text, target in ways.items():
        began = time.monotonic()
        table = wb.runs(root / "many", target=target).table
        print(f"  {text:46s} {time.monotonic() - began:.1f} s", flush=True)
    (root / "table.ipynb").write_text(
        nbformat.writes(notebook("import workbench as wb\nprint(wb.RunsTable)", "wb.runs('many')"))
    )
    lab = Lab(page, server, "table.ipynb")
    lab.answer(0)
    began = time.monotonic()
    page.evaluate(RUN_CELL, 1)
    page.locator(".wb-grid tbody tr").first.wait_for()
    print(f"  {'opened, rows on the screen':46s} {time.monotonic() - began:.1f} s", flush=True)
    print_times("filtered by text", [found_by(page, f"{i:05d}") for i in range(1, 2 + tries)][1:])
    page.evaluate(FILTER, [SEARCH, ""])
    ends = [f"{q:.5g}" for q in np.quantile(table["time"], [0.3, 0.7])]
    page.locator(".wb-runs summary", has_text="Filter").click()
    page.get_by_label("column of the filter").select_option("time")
    times = []
    for i in range(1 + tries):
        page.get_by_label("value", exact=True).fill(ends[i % 2])
        times.append(float(page.evaluate(FILTERED)))
        page.get_by_role("button", name="remove the filter Time, s").click()
        page.locator(".wb-runs summary", has_text="Filter").click()
    print_times("filtered by a number of seconds", times[1:])


def found_by(page: Page, word: str) -> float:
    """Filter the table by a word. Return the ms until only rows with it are shown."""
    passed = float(page.evaluate(FILTER, [SEARCH, word]))
    assert all(word in text for text in page.locator(".wb-grid tbody tr").all_inner_texts())
    return passed


def stream(page: Page, server: Server, root: Path, tries: int) -> None:
    """Measure the stream of rounds with 156 workers, simulated and real."""
    print("rounds as a stream, 156 workers; goal 10 pictures a second")
    for text, source in STREAMS.items():
        (root / "stream.ipynb").write_text(nbformat.writes(notebook(source)))
        Lab(page, server, "stream.ipynb").run_all()
        page.wait_for_function(
            "() => Number(document.querySelector('.wb-stream canvas')?.dataset.rounds) > 20"
        )
        time.sleep(5)  # until the page is set up completely
        frames, rounds, behind = page.evaluate(DRAWN, max(3, tries // 3))
        came = f"pictures a second, while {rounds:.1f} rounds came; {behind:.0f} rounds behind"
        print(f"  {text:46s} {frames:.1f} {came}", flush=True)
        page.get_by_role("button", name="Stop", exact=True).click()
        page.locator(".wb-stream .wb-stop[hidden]").wait_for(
            state="attached", timeout=FIRST_ROUND_TIMEOUT_S * 1000
        )


@contextmanager
def screenshots(page: Page) -> Iterator[list[tuple[float, str]]]:
    """Yield a list that collects screenshots: time, s, and JPEG. The browser makes them even if the page is busy."""
    session, pictures = page.context.new_cdp_session(page), list[tuple[float, str]]()

    def keep(frame: dict[str, Any]) -> None:
        pictures.append((frame["metadata"]["timestamp"], frame["data"]))
        session.send("Page.screencastFrameAck", {"sessionId": frame["sessionId"]})

    session.on("Page.screencastFrame", keep)
    session.send("Page.startScreencast", {"format": "jpeg", "quality": 70, "everyNthFrame": 10})
    yield pictures
    session.send("Page.stopScreencast")
    session.detach()


def many(page: Page, server: Server, root: Path, _: int) -> None:
    """Measure 84 real workers: first round on the screen, movements of the progress bar, Stop."""
    print(
        "84 real workers, no ranks of a pool; goals: first round within 8 s, a bar that moves all the time, Stop 0.5 s"
    )
    (root / "many.ipynb").write_text(
        nbformat.writes(notebook(f"{REAL}\nwb.watch(wb.start(e, engine='mpi'))"))
    )
    for film in (False, True):  # screenshots take a quarter of a core, so times are measured without them
        server.end_kernels()
        lab = Lab(page, server, "many.ipynb")
        print_start(page, "Run All in a fresh kernel", lab, film)
    server.end_kernels()
    (root / "click.ipynb").write_text(nbformat.writes(notebook(f"{REAL}\nwb.explore(e)")))
    Lab(page, server, "click.ipynb").run_all()
    page.locator('[role=figure][aria-label*="Time per round"] .wb-forecast[data-drawn]').wait_for()
    page.get_by_role("tab", name="Run", exact=True).click()
    page.get_by_label("Engine").select_option("real processes (MPI)")
    page.get_by_role("button", name="Run", exact=True).scroll_into_view_if_needed()
    time.sleep(3)  # until the page is drawn completely
    print_start(page, "the explorer's Run", None, True)


def print_start(page: Page, how: str, lab: Lab | None, film: bool) -> None:
    """Measure the time from a click to the first round, and Stop.

    `film`: measure the longest time without a movement of the progress bar instead of the first round.
    """
    nobody: AbstractContextManager[list[tuple[float, str]]] = nullcontext([])
    with screenshots(page) if film else nobody as pictures:
        clicked = time.time()
        if lab is None:
            page.get_by_role("button", name="Run", exact=True).click()
        else:
            lab.run_all(wait=False)
        ended, places = page.evaluate(FIRST, FIRST_ROUND_TIMEOUT_S)
        page.wait_for_timeout(500)
    if film:
        moves = [at for at in page.evaluate(MOVES, [pictures, places]) if clicked < at < ended]
        still = max(np.diff([*moves, ended]), default=np.inf)
        there = f"there after {places[0][0] - clicked:.2f} s"
        print(
            f"  {how + ', with screenshots: the bar':46s} {there}, then still for {still:.2f} s at most",
            flush=True,
        )
    else:
        print(f"  {how + ': first round':46s} on screen after {ended - clicked:.1f} s", flush=True)
    print(f"  {'Stop':46s} {page.evaluate(STOP):.0f} ms", flush=True)


def alternating(first: int, second: int, tries: int) -> list[int]:
    """Return `tries` + 1 values that alternate. The first one has to differ from the slider's current value."""
    return [(first, second)[i % 2] for i in range(tries + 1)]


def notebook(*cells: str) -> nbformat.NotebookNode:
    """Return a notebook with these code cells."""
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3"}}
    return nbformat.v4.new_notebook(
        cells=[nbformat.v4.new_code_cell(cell) for cell in cells], metadata=kernel
    )


PARTS: dict[str, Callable[[Page, Server, Path, int], None]] = {
    "first": first,
    "explorer": explorer,
    "curves": curves,
    "lectures": lectures,
    "static": static,
    "live": live,
    "runs": runs,
    "stream": stream,
    "many": many,
}


def main() -> None:
    """Measure the given parts, or all."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("parts", nargs="*", choices=[[], *PARTS], default=[])
    parser.add_argument("--tries", type=int, default=15, help="moves that are counted (default 15)")
    options = parser.parse_args()
    if not CHROMIUM:
        sys.exit("no Chromium here: nothing to measure with")
    with served() as (server, root):
        for name in options.parts or PARTS:
            with browser() as (page, _):
                PARTS[name](page, server, root, options.tries)


if __name__ == "__main__":
    main()
