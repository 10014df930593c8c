"""The live plot in JupyterLab and in Voila: it grows, can be stopped, and survives a reload of the page."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page, WebSocket, expect

from tests.support.browser.jupyterlab import CONNECTED, PACED, Lab, Noise, Server
from tests.support.sampled_cases import rotated, sampled_test

pytestmark = pytest.mark.browser

LONG = f"""{PACED}
import workbench as wb
runs = wb.start_all(wb.baselines(3, 2, 1, rounds=3000))
plot = wb.watch(runs)
plot"""
RESTART = "() => void window.jupyterapp.shell.currentWidget.sessionContext.session.kernel.restart()"
POINTS = "() => Number(document.querySelector('.wb-plot[data-points]')?.dataset.points ?? 0)"
MARKS = """() => document.querySelector('.wb-plot[data-points]')?.data?.filter(({ name }) => name === 'changes')
  .map(({ x, y, text }) => ({ x: [...x], y: [...y], text: [...text] }))[0]"""
PLACE = """([x, y]) => {
  const plot = document.querySelector('.wb-plot');
  const { xaxis, yaxis } = plot._fullLayout, box = plot.getBoundingClientRect();
  return [box.x + xaxis._offset + xaxis.d2p(x), box.y + yaxis._offset + yaxis.d2p(y)];
}"""
SHORT = """import workbench as wb
runs = wb.start_all(wb.baselines(3, 2, 1, rounds=20))
[run.result() for run in runs]
wb.watch(runs)"""
# change the theme twice: plotly.js draws the first change late, after the second one. Return the color of the text.
LATE_DRAWING = """async () => {
  const Plotly = await globalThis[Symbol.for('workbench.plotly')].ready, { react } = Plotly;
  const pause = (ms) => new Promise((done) => setTimeout(done, ms)), set = (light) => {
    document.body.dataset.jpThemeLight = String(light); };
  let drawn = 0;
  Plotly.react = async (...all) => (drawn++ || (await pause(600)), react(...all));
  set(false);
  while (!drawn) await pause(10);
  set(true);
  await pause(1500);
  Plotly.react = react;
  return [drawn, document.querySelector('.wb-plot').layout.font.color];
}"""
ROUNDS = """() => [...document.querySelectorAll('.wb-status td:last-child')]
  .map(cell => Number(/round (\\d+)/.exec(cell.innerText)?.[1] ?? 0))"""


class Traffic:
    """Records the messages on the page's web sockets."""

    def __init__(self, page: Page) -> None:
        self.sizes: list[int] = []
        page.on("websocket", self._listen)

    def _listen(self, socket: WebSocket) -> None:
        socket.on("framereceived", lambda frame: self.sizes.append(len(frame)))

    @property
    def libraries(self) -> int:
        """Return the number of times that plotly.js was sent, which is by far the largest message."""
        return sum(size > 1_000_000 for size in self.sizes)


@pytest.fixture
def traffic(alone: None, page: Page) -> Traffic:
    """Return the messages over the sockets of a new page."""
    return Traffic(page)


def grows(page: Page) -> None:
    """Wait until the curves get longer."""
    page.wait_for_function(f"() => ({POINTS})() > 10")
    before = max(page.evaluate(ROUNDS))
    page.wait_for_function(f"(before) => Math.max(...({ROUNDS})()) > before + 20", arg=before)


def stop(page: Page) -> None:
    """Press Stop and wait until all runs have ended."""
    page.get_by_role("button", name="Stop", exact=True).click()
    page.wait_for_function(
        "() => [...document.querySelectorAll('.wb-status tr')].every(row => row.className === 'wb-stopped')"
    )
    # the page may get the message a moment later
    expect(page.get_by_role("button", name="Stop", exact=True)).to_be_disabled()


@sampled_test("reloaded", 0, 2)
def test_live_plot_watches_and_stops_a_run_and_survives_a_reload(
    page: Page,
    noise: Noise,
    traffic: Traffic,
    server: Server,
    root: Path,
    write: Callable[..., str],
    picture: Callable[[str], Path],
) -> None:
    name = write(LONG, "state = {run.state for run in runs}; print(state)")
    lab = Lab(page, server, name)
    lab.run_all()
    grows(page)
    assert lab.answer(1) == "{'running'}"  # the kernel responds during the runs
    page.locator("summary", has_text="Axes").click()
    page.get_by_label("horizontal axis", exact=True).select_option("bytes")
    page.get_by_label("horizontal scale").select_option("log")
    page.wait_for_function("() => document.querySelector('.wb-plot').layout.xaxis.type === 'log'")
    assert "bytes received" in page.evaluate(
        "() => document.querySelector('.wb-plot').layout.xaxis.title.text"
    )
    picture("live-light")
    lab.save()
    loads = 1 + lab.reload()
    grows(page)
    assert page.get_by_label("horizontal axis", exact=True).input_value() == "bytes"
    lab.dark()
    page.wait_for_function("() => document.querySelector('.wb-plot').layout.font.color === '#EEF0F3'")
    picture("live-dark")
    stop(page)
    assert traffic.libraries == loads  # plotly.js is loaded once per page
    assert "plotly.js v" not in (root / name).read_text()

    # after the kernel's end, the page shows stopped runs, and none can be stopped
    page.evaluate(RESTART)  # restarts the kernel
    page.wait_for_function(CONNECTED)
    # the status from before the restart
    assert page.locator(".wb-status tr").first.get_attribute("class") == "wb-stopped"
    lab.run_all(wait=False)
    grows(page)
    page.evaluate(RESTART)
    expect(page.locator(".wb-status tr").first).to_contain_text("its kernel has ended; run the cell again")
    assert page.locator(".wb-status .wb-running").count() == 0
    expect(page.get_by_role("button", name="Stop", exact=True)).to_be_disabled()
    picture("live-restarted")
    assert noise.after_reload() == []
    assert lab.failures() == []


@rotated
def test_live_plot_has_the_last_theme_if_drawings_overlap(
    page: Page, noise: Noise, server: Server, write: Callable[..., str]
) -> None:
    lab = Lab(page, server, write(SHORT))
    lab.dark(False)
    lab.run_all()
    page.wait_for_function(f"() => ({POINTS})() > 90")
    drawn, color = page.evaluate(LATE_DRAWING)
    assert drawn > 1
    assert color == "#1B1F24"
    assert noise.errors == []


@sampled_test("marks on curves", 0, 2)
def test_live_plot_target_can_be_typed_and_dragged(
    page: Page, noise: Noise, server: Server, write: Callable[..., str]
) -> None:
    name = write(
        "import workbench as wb\nplot = wb.watch(wb.start_all(wb.baselines(3, 2, 1, rounds=30)))\nplot",
        "print(plot.target)",
    )
    lab = Lab(page, server, name)
    lab.run_all()
    page.wait_for_function(f"() => ({POINTS})() >= 150")
    page.get_by_label("target", exact=True).fill("0.66")
    page.get_by_label("target", exact=True).press("Enter")
    line = page.locator(".wb-plot .shapelayer path[style*=move]").first
    line.wait_for(state="attached")
    lab.await_answer(1, lambda text: text == "0.66")
    box = line.bounding_box()
    assert box is not None
    middle = (box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.mouse.move(*middle)
    page.mouse.down()
    page.mouse.move(middle[0], middle[1] - 60, steps=5)
    page.mouse.up()
    page.wait_for_function("() => Number(document.querySelector('.wb-bar input').value) > 0.6601")
    dragged = float(page.get_by_label("target", exact=True).input_value())
    lab.await_answer(1, lambda text: float(text) == pytest.approx(dragged, rel=1e-4))
    shape = page.evaluate("() => document.querySelector('.wb-plot').layout.shapes[0]")
    assert (shape["x0"], shape["x1"]) == (0, 1)
    assert noise.errors == []


ADAPTIVE = """import workbench as wb
slow = {"kind": "changing", "after": {"kind": "constant", "shift": 1e-3}, "at": 40, "worker": 2}
e = wb.Experiment(scheme="GC", scheme_args={"stragglers": 1}, workers=6, rounds=120, delays=slow, adaptive=True)
run = wb.start(e)
plot = wb.watch([run, wb.start(e.replace(adaptive=False))])
plot"""


@sampled_test("marks on curves", 1, 2)
def test_live_plot_marks_changes_of_scheme(
    page: Page, noise: Noise, server: Server, write: Callable[..., str], picture: Callable[[str], Path]
) -> None:
    name = write(ADAPTIVE, "print(len(run.result().changes))")
    lab = Lab(page, server, name)
    lab.run_all()
    count = int(lab.answer(1))
    assert count > 0
    page.wait_for_function(f"() => ({MARKS})()?.x.length === {count}")
    marks, curve = page.evaluate(f"() => [({MARKS})(), document.querySelector('.wb-plot').data[0]]")
    points = set(zip(curve["x"], curve["y"], strict=True))
    assert set(zip(marks["x"], marks["y"], strict=True)) <= points
    assert "GC (stragglers = 1) → " in marks["text"][0]
    x, y = page.evaluate(PLACE, [marks["x"][1], marks["y"][1]])
    page.mouse.move(x, y - 20)
    page.mouse.move(x, y - 5, steps=4)  # on the marker itself, the hover text is that of the curve
    expect(page.locator(".wb-plot .hoverlayer")).to_contain_text("would save", timeout=8000)
    picture("changes")
    assert noise.errors == []


@sampled_test("plots", 1, 3, 2)
def test_live_plots_share_one_library(
    page: Page, noise: Noise, traffic: Traffic, server: Server, root: Path, write: Callable[..., str]
) -> None:
    cells = ["import workbench as wb\nfrom workbench.lab.widgets import Plot\ne = wb.presets['fig8']['CR']"]
    cells += [
        "Plot(lambda theme: wb.figures.code(e, theme=theme))",
        "Plot(lambda theme: wb.figures.tree(e, theme=theme))",
    ] * 3
    name = write(*cells)
    lab = Lab(page, server, name)
    lab.run_all()
    page.wait_for_function("() => document.querySelectorAll('.wb-plot[data-drawn]').length === 6")
    assert traffic.libraries == 1
    lab.save()
    page.wait_for_function("() => !document.querySelector('.jp-mod-dirty')")
    assert len(json.dumps(json.loads((root / name).read_text()))) < 100_000
    assert noise.errors == []


@sampled_test("Voila", 1, 2)
# the light theme is tested by other tests
@pytest.mark.parametrize("dark", [pytest.param(False, marks=pytest.mark.slow), True])
def test_live_plot_as_a_voila_page(
    page: Page,
    noise: Noise,
    server: Server,
    write: Callable[..., str],
    picture: Callable[[str], Path],
    dark: bool,
) -> None:
    name = write(LONG)
    page.goto(server.address(f"voila/render/{name}?theme={'dark' if dark else 'light'}"))
    grows(page)
    assert page.locator("text=import workbench").count() == 0
    expected = "#EEF0F3" if dark else "#1B1F24"
    assert page.evaluate("() => document.querySelector('.wb-plot').layout.font.color") == expected
    picture(f"voila-{'dark' if dark else 'light'}")
    stop(page)
    assert noise.ours() == []
