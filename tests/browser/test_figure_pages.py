"""Figures on pages: they cannot be uploaded, and they are dark on a dark page of a notebook."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nbformat
import plotly.graph_objects as go
import pytest
from playwright.sync_api import Page
from plotly.offline import get_plotlyjs
from workbench_book import Outcome, Result, Setting, drawing, get
from workbench_book.page import html

import workbench as wb
from tests.support.browser.jupyterlab import Lab, Noise, Server
from tests.support.every_figure import EVERY
from tests.support.sampled_cases import rotated, sampled_indices, sampled_test
from workbench.lab.batch.page import write_page, write_script
from workbench.lab.figures.page import PALETTES, dark_style

pytestmark = pytest.mark.browser

SHARES = """() => [...document.querySelectorAll('.js-plotly-plot')].map(plot => [
  plot.querySelectorAll('.modebar-btn').length > 3,
  plot.querySelectorAll('[data-title^="Share"]').length,
  plot._context.showSendToCloud, plot._context.plotlyServerURL])"""
NO_SHARE = [True, 0, False, ""]
DRAWN = "figures => document.querySelectorAll('.js-plotly-plot .modebar-btn[data-title=Autoscale]').length === figures"
# opacity of the buttons, and whether they are in the lower half of their figure
BUTTONS = """() => { const bar = document.querySelector('.modebar-group'), box = bar.getBoundingClientRect();
  const plot = bar.closest('.js-plotly-plot').getBoundingClientRect();
  return [getComputedStyle(bar).opacity, 2 * box.top > plot.top + plot.bottom && box.bottom <= plot.bottom]; }"""
GROUNDS = """() => [...document.querySelectorAll('.js-plotly-plot .main-svg:first-child')]
  .map(svg => getComputedStyle(svg).backgroundColor.match(/\\d+/g))
  .map(rgb => '#' + rgb.map(part => Number(part).toString(16).padStart(2, '0')).join('').toUpperCase())"""
DRAW = """async ({data, layout}) => {
  document.querySelectorAll('.drawn').forEach(plot => (Plotly.purge(plot), plot.remove()));
  const plot = document.body.appendChild(document.createElement('div'));
  plot.className = 'drawn';
  await Plotly.newPlot(plot, data, layout); }"""
# A diverging scale has its own colours, and plotly chooses readable ones for the text in its cells.
LOOKS = """() => [...document.querySelectorAll('.drawn .main-svg, .drawn .main-svg *')]
  .filter(e => !e.matches('.barlayer *, .heatmaplayer *, .cbfill'))
  .map(e => [e, getComputedStyle(e)])
  .map(([e, s]) => [e.tagName, s.fill, s.stroke, e.matches('.main-svg') ? s.backgroundColor : ''])"""


def looks(page: Page, figure: go.Figure, name: str = "") -> Any:
    """Return the colours of the elements of a figure, without those of bars, heat maps and colour bars.

    The legend of a stream has the colours of its heat map, and is therefore left out as well.
    """
    page.evaluate(DRAW, json.loads(figure.to_json()))
    return page.evaluate(LOOKS.replace(".cbfill", ".cbfill, .legendpoints *") if name == "stream" else LOOKS)


# Four figures are sampled. The slow case has all figures.
SOME = tuple(sorted(EVERY)[i] for i in sorted(sampled_indices("dark figures", len(EVERY), 4)))


@rotated
@pytest.mark.parametrize(
    "names", [SOME, pytest.param(tuple(EVERY), marks=pytest.mark.slow)], ids=["some", "every"]
)
def test_figure_on_a_dark_page_has_dark_colours(names: tuple[str, ...], page: Page) -> None:
    page.set_content(f"<body>{dark_style()}<script>{get_plotlyjs()}</script></body>")
    other = go.Figure(go.Scatter(y=[1, 2]), {"template": "plotly_white"})
    ours = EVERY["gantt"]("light")
    before = [looks(page, figure) for figure in (ours, other)]
    page.evaluate("document.body.dataset.jpThemeLight = 'false'")
    assert looks(page, other) == before[1]  # figures that are not the workbench's keep their colours
    for name in names:
        draw = EVERY[name]
        assert looks(page, draw("light"), name) == looks(page, draw("dark"), name), name
    page.evaluate("document.body.dataset.jpThemeLight = 'true'")
    assert looks(page, ours) == before[0]


def shares(page: Page, figures: int = 1) -> Any:
    """Return for each figure whether it has buttons, how many buttons upload it, and the configuration of plotly.js."""
    page.wait_for_function(DRAWN, arg=figures)
    return page.evaluate(SHARES)


@sampled_test("pages", 0, 2)
def test_saved_figure_has_no_upload_button(page: Page, tmp_path: Path, noise: Noise) -> None:
    figure = EVERY["gantt"]("light")
    wb.figures.save(figure, tmp_path / "saved.html")
    wb.figures.save(go.Figure(go.Scatter(y=[1, 2])), tmp_path / "plain.html")
    figure.write_html(tmp_path / "written.html")
    for file in ("saved", "plain", "written"):
        page.mouse.move(0, 0)
        page.goto((tmp_path / f"{file}.html").as_uri())
        assert shares(page) == [NO_SHARE], file
        assert page.evaluate(BUTTONS) == ["0", file != "plain"], file  # figures of others stay as they are
        page.locator(".js-plotly-plot").hover()
        page.wait_for_function(f"() => ({BUTTONS})()[0] === '1'")
    assert noise.errors == []


@sampled_test("pages", 1, 2)
def test_pages_of_sweep_and_book_have_no_upload_button(page: Page, tmp_path: Path, noise: Noise) -> None:
    figure = json.loads(EVERY["gantt"]("light").to_json())
    output = nbformat.v4.new_output("display_data", {"application/vnd.plotly.v1+json": figure})
    cell = nbformat.v4.new_code_cell("figure", outputs=[output])
    (tmp_path / "run").mkdir()
    nbformat.write(nbformat.v4.new_notebook(cells=[cell]), tmp_path / "run" / "run.ipynb")
    write_script(tmp_path)
    write_page(tmp_path / "run" / "run.ipynb", tmp_path / "run" / "run.html")
    page.goto((tmp_path / "run" / "run.html").as_uri())
    assert shares(page) == [NO_SHARE]
    result = Result(pictures=[drawing.curves({"CR": ([0, 1], [1, 2])}, "", "", "", "")])
    (tmp_path / "book.html").write_text(html([Outcome(get("fig8"), result)], Setting()), encoding="utf-8")
    page.goto((tmp_path / "book.html").as_uri())
    assert shares(page) == [NO_SHARE]
    assert noise.errors == []


BARE = """import workbench as wb
trace = wb.run(wb.Experiment(rounds=5))
wb.figures.convergence([trace])"""
LIVE = "run = wb.start(trace.experiment); run.result(); wb.watch(run)"
PLOT = """from workbench.lab.widgets import Plot
Plot(lambda theme: wb.figures.gantt(trace, theme=theme))"""


@rotated
def test_figure_in_jupyterlab_has_no_upload_button_and_follows_the_theme(
    page: Page, noise: Noise, server: Server, write: Callable[..., str], picture: Callable[[str], Path]
) -> None:
    lab = Lab(page, server, write(BARE, LIVE, PLOT))
    lab.dark(False)  # start light, whatever theme the server has stored
    lab.run_all()
    assert shares(page, 3) == [NO_SHARE] * 3
    page.mouse.move(0, 0)
    page.wait_for_function(f"() => ({BUTTONS})().join() === '0,true'")
    picture("figures-light")
    assert grounds(page) == [PALETTES["light"].background] * 3
    lab.dark()
    page.wait_for_function(f"() => ({GROUNDS})().every(ground => ground === '{PALETTES['dark'].background}')")
    picture("figures-dark")
    lab.save()
    assert noise.errors == []
    lab.reload()  # the notebook has static images first, and the figures later
    still = page.locator(".jp-RenderedPlotly .plot-img").first
    still.wait_for()
    assert "invert" in still.evaluate("still => getComputedStyle(still).filter")
    picture("figures-dark-stills")
    lab.dark(False)
    assert still.evaluate("still => getComputedStyle(still).filter") == "none"
    assert noise.after_reload() == []


def grounds(page: Page) -> Any:
    """Return the background colour of each figure."""
    return page.evaluate(GROUNDS)
