"""Figures on pages from phones to wide screens: no text is cut or covers another, light and dark."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go
import pytest
from playwright.sync_api import BrowserContext, Page
from plotly.offline import get_plotlyjs

import workbench as wb
from tests.support.browser.jupyterlab import Noise
from tests.support.every_figure import EVERY
from tests.support.lecture_settings import SCRIPTS, at_end
from tests.support.sampled_cases import sampled_cases, sampled_indices, sampled_test
from workbench.analysis.tables.table import Runs
from workbench.lab.figures import SchemeGrid
from workbench.lab.figures.fit import page_script

pytestmark = pytest.mark.browser

WIDTHS = (390, 830, 1280)
DRAW = """async ({data, layout}) => {
  document.querySelectorAll('.drawn').forEach((plot) => (Plotly.purge(plot), plot.remove()));
  const plot = document.body.appendChild(document.createElement('div'));
  plot.className = 'drawn';
  await Plotly.newPlot(plot, data, layout, {responsive: true, displaylogo: false});
  await workbenchFit.keep(plot); }"""
# Labels inside nodes, bars and cells, and along a curve, may cover the shape that they name.
FAULTS = r"""() => {
  const plot = document.querySelector('.drawn'), all = plot.getBoundingClientRect(), found = [], boxes = [];
  const beyond = (box) => box.left < all.left - 1 || box.right > all.right + 1 || box.top < all.top - 1 ||
    box.bottom > all.bottom + 1;
  for (const e of plot.querySelectorAll('.main-svg text')) {
    const words = e.textContent.trim(), box = e.getBoundingClientRect(), style = getComputedStyle(e);
    const px = parseFloat(style.fontSize);
    const unseen = style.visibility === 'hidden' || style.opacity === '0' || style.fillOpacity === '0' || px < 2;
    if (!words || !box.width || unseen || e.closest('.hoverlayer, .modebar, [visibility=hidden]')) continue;
    if (beyond(box)) found.push(`cut: ${words}`);
    const cell = e.closest('.heatmap-label') && plot.querySelector('.heatmaplayer image')?.getBoundingClientRect();
    const columns = cell && plot.data.find((trace) => trace.type === 'heatmap').z[0]?.length;
    if (columns && box.width > cell.width / columns) found.push(`wider than its cell: ${words}`);
    if (px < 11 && !e.closest('.textpoint')) found.push(`small, ${px} px: ${words}`);
    if (/rotate\(-46/.test(e.getAttribute('transform'))) continue; // beside one another, aslant
    if (!e.closest('.textpoint, .heatmap-label, .bars, .shape-label')) boxes.push([box, words]);
  }
  const common = (a, b, from, to) => Math.min(a[to], b[to]) - Math.max(a[from], b[from]);
  const hit = (a, b) => common(a, b, 'left', 'right') > 2 && common(a, b, 'top', 'bottom') > 4;
  boxes.forEach(([a, one], i) => boxes.slice(i + 1).forEach(([b, other]) => {
    if (hit(a, b)) found.push(`overlap: ${one} | ${other}`);
  }));
  if (document.documentElement.scrollWidth > innerWidth) found.push('the page is wider than its window');
  return found; }"""
CUT = """() => [...document.querySelectorAll('main :is(h1, p, td, th, dt, dd, summary)')]
  .filter((e) => e.checkVisibility())
  .filter((e) => e.scrollWidth > e.clientWidth + 1 || e.getBoundingClientRect().right > innerWidth)
  .map((e) => e.textContent)"""
GROUNDS = """() => [document.body, ...document.querySelectorAll('.main-svg:first-child')]
  .map((e) => getComputedStyle(e).backgroundColor)"""
# where the whole legend is: beside the axes, below them with their numbers, or elsewhere
LEGEND = """() => {
  const box = (part) => document.querySelector(`.js-plotly-plot ${part}`)?.getBoundingClientRect();
  const legend = box('.legend'), axes = box('.nsewdrag'), ticks = box('.xaxislayer-above'), title = box('.g-xtitle');
  if (!legend?.width || legend.left < 0 || legend.right > innerWidth) return 'elsewhere';
  if (legend.top >= Math.max(axes.bottom, ticks?.bottom ?? 0, title?.bottom ?? 0) - 1) return 'below';
  return legend.left >= axes.right ? 'beside' : 'elsewhere'; }"""
# figures without a mark inside their axes, or with text beyond the window
NOT_DRAWN = """() => [...document.querySelectorAll('main .wb-plot')].filter((plot) => {
  const marks = [...plot.querySelectorAll('.cartesianlayer .mlayer :is(path, image)')];
  const seen = marks.some((mark) => mark.getBoundingClientRect().width > 1);
  const texts = [...plot.querySelectorAll('.main-svg text')].map((text) => text.getBoundingClientRect());
  return !seen || texts.some((box) => box.left < -1 || box.right > innerWidth + 1);
}).map((plot) => plot.getAttribute('aria-label'))"""
PARETO: dict[str, Any] = {
    "problem_args": {"samples": 120},
    "link": {"latency": 1e-3, "bandwidth": 1e6},
    "delays": {"kind": "pareto"},
}


@cache
def run(scheme: str, workers: int, rounds: int) -> wb.Trace:
    return wb.run(wb.Experiment(scheme=scheme, workers=workers, rounds=rounds, **PARETO))


def swept(folder: Path) -> Path:
    """Run a sweep and return its folder."""
    grid = {"scheme": ["UMW", "GC"], "link.latency": [1e-3, 1e-2]}
    wb.batch.sweep({"base": {"workers": 8, "rounds": 10, **PARETO}, "grid": grid}, folder, progress=False)
    return folder


def sweep() -> Runs:
    rows = {
        "state": "done", "scheme": ["UMW", "CodedReduce of somebody"] * 9, "workers": [4, 8, 12] * 6,
        "delays.rate": np.geomspace(1e-3, 1e5, 18), "time": np.geomspace(1e-3, 1e3, 18),
    }  # fmt: skip
    return Runs(pd.DataFrame(rows), ("scheme", "workers", "delays.rate"))


def decades() -> pd.DataFrame:
    x = [1e-2, 1e1, 1e4]
    rows = {
        "scheme": ["GC"] * 3 + ["CR"] * 3,
        "delays.rate": x * 2,
        "n": 5,
        "never": 0,
        "mean": [1e-3, 2.0, 3e4] * 2,
    }
    table = pd.DataFrame({**rows, "low": [5e-4, 1, 1e4] * 2, "high": [2e-3, 4, 5e4] * 2})
    table.attrs.update(of="time", by=["scheme", "delays.rate"], level=0.95)
    return table


ODD: dict[str, Callable[[Any], go.Figure]] = {
    "asynchronous stream": lambda theme: wb.figures.stream(run("ASGD", 8, 60), theme=theme),
    "asynchronous round": lambda theme: wb.figures.gantt(run("ASGD", 8, 60), 30, theme=theme),
    "large stream": lambda theme: wb.figures.stream(run("SGD", 84, 100), theme=theme),
    "round of three": lambda theme: wb.figures.gantt(run("UMW", 2, 4), 1, theme=theme),
    "decades": lambda theme: wb.figures.bands(decades(), theme=theme),
    "five axes": lambda theme: wb.figures.parallel(sweep(), theme=theme),
    "ties": lambda theme: wb.figures.phase_diagram(
        SchemeGrid(("UMW", "CR"), (Fraction(0),), (0.0, 1e-3), np.ones((1, 2, 2))), theme=theme
    ),
    "many schemes": lambda theme: wb.figures.phase_diagram(
        SchemeGrid(
            ("UMW", "CR stragglers=2", "GC"),
            tuple(Fraction(i, 4) for i in range(4)),
            (0.0, *np.geomspace(1e-5, 1, 11)),
            1.0 + np.arange(144).reshape(4, 12, 3) % 7 % 3,
        ),
        theme=theme,
    ),
    "long title": lambda theme: wb.figures.round_times([run("UMW", 2, 4)], theme=theme).update_layout(
        title_text="A title with more words than are in one line of any page " * 3
    ),
}


@pytest.fixture
def offline(context: BrowserContext) -> Iterator[None]:
    """Take the network away."""
    context.set_offline(True)
    yield
    context.set_offline(False)


LECTURES: dict[str, Callable[[Any], go.Figure]] = {
    f"{name} {part} {'high' if high else 'low'}": partial(drawn.draw, at_end(script, high))
    for name, script in SCRIPTS.items()
    for part, drawn in script.figures.items()
    for high in (False, True)
}
FIGURES = {**EVERY, **ODD, **LECTURES}
SOME = tuple(sorted(FIGURES)[i] for i in sorted(sampled_indices("fitted figures", len(FIGURES), 6)))


@sampled_test("fitted figures", 0, 2, 1)
@pytest.mark.parametrize(
    "names", [SOME, pytest.param(tuple(FIGURES), marks=pytest.mark.slow)], ids=["some", "every"]
)
def test_text_of_a_figure_is_whole_and_alone(
    names: tuple[str, ...], page: Page, screens: Path, noise: Noise
) -> None:
    found = []
    for theme in ("light", "dark"):
        ground = {"light": "#fff", "dark": "#111"}[theme]
        scripts = f"<script>{get_plotlyjs()}</script><script>{page_script()}</script>"
        page.set_content(f"<body style='margin:0;background:{ground}'>{scripts}</body>")
        for name in names:
            words = json.loads(FIGURES[name](theme).to_json())
            for width in WIDTHS:
                page.set_viewport_size({"width": width, "height": 900})
                page.evaluate(DRAW, words)
                page.screenshot(
                    path=screens / f"fitted-{name.replace(' ', '-')}-{width}-{theme}.png", full_page=True
                )
                found += [f"{name}, {width} px, {theme}: {fault}" for fault in page.evaluate(FAULTS)]
    assert not found, "\n".join(found)
    assert noise.errors == []


def test_figure_follows_the_width_of_its_page(page: Page, tmp_path: Path, noise: Noise) -> None:
    """A saved figure is fitted again when its window changes; the legend goes below, and comes back."""
    wb.figures.save(EVERY["code"]("light"), tmp_path / "code.html")
    page.set_viewport_size({"width": 1200, "height": 900})
    page.goto((tmp_path / "code.html").as_uri())
    where = "() => document.querySelector('.js-plotly-plot')._fullLayout.coloraxis.colorbar.orientation"
    page.wait_for_function(f"({where})() === 'v'")
    page.set_viewport_size({"width": 390, "height": 900})
    page.wait_for_function(f"({where})() === 'h'")
    page.set_viewport_size({"width": 1200, "height": 900})
    page.wait_for_function(f"({where})() === 'v'")
    assert noise.errors == []


@pytest.mark.parametrize("name", ["convergence", "bands"])
def test_legend_is_below_its_axes_on_a_phone(name: str, page: Page, tmp_path: Path, noise: Noise) -> None:
    wb.figures.save(EVERY[name]("light"), tmp_path / "saved.html")
    page.set_viewport_size({"width": 1200, "height": 900})
    page.goto((tmp_path / "saved.html").as_uri())
    page.wait_for_function(f"({LEGEND})() === 'beside'")
    page.set_viewport_size({"width": 390, "height": 900})
    page.wait_for_function(f"({LEGEND})() === 'below'")
    assert noise.errors == []


REPORTS: dict[str, Callable[[Path], Any]] = {
    "comparison": lambda _: [run("UMW", 8, 20), run("GC", 8, 20), run("ASGD", 8, 60)],
    "run": lambda _: run("GC", 8, 20),
    "sweep": swept,
    "forecast": lambda folder: wb.explore([run(name, 8, 20).experiment for name in ("UMW", "GC")], folder),
}


@sampled_test("fitted figures", 1, 2, 1)
@pytest.mark.parametrize("kind", sampled_cases("reports", 1, REPORTS))
def test_report_is_whole_on_phones_and_screens(
    kind: str, page: Page, offline: None, tmp_path: Path, noise: Noise, screens: Path
) -> None:
    """A report needs no network; all of its figures are drawn, and nothing is wider than the window."""
    wb.report(REPORTS[kind](tmp_path / "runs"), tmp_path / "report.html")
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url.split(":")[0]))
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 900})
        page.goto((tmp_path / "report.html").as_uri())
        page.locator("body[data-drawn]").wait_for()
        assert f"report of a {kind}" in page.locator("main").inner_text()
        assert page.locator("main .wb-plot").count() == {"run": 4, "forecast": 1}.get(kind, 2)
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)
            page.screenshot(path=screens / f"report-{kind}-{width}-{scheme}.png", full_page=True)
            assert page.evaluate(NOT_DRAWN) == []
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            assert page.evaluate(CUT) == []
            assert len(set(page.evaluate(GROUNDS))) == 1
        page.emulate_media(color_scheme="light")
    assert set(asked) <= {"file", "blob", "data"}
    assert noise.errors == []
