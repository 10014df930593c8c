"""Figures on all kinds of pages: no upload, and dark colours on a dark page of a notebook."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
import plotly.graph_objects as go
import plotly.io as pio
import pytest
import workbench_book
import workbench_lectures
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output
from workbench_book import Outcome, Result, Setting, drawing, get
from workbench_book import notebook as book_notebook
from workbench_book.page import html
from workbench_lectures import assets as lectures

import workbench as wb
from tests.support.every_figure import EVERY
from workbench.core.base.page import CONFIG
from workbench.lab.batch.page import write_page
from workbench.lab.figures.page import Figure, dark_style
from workbench.lab.widgets.assets import script

FIGURE = "application/vnd.plotly.v1+json"
SOURCES = [Path(module.__file__ or "").parent for module in (wb, workbench_book, workbench_lectures)]


def config_of(page: str) -> dict[str, Any]:
    """Return the configuration of plotly.js on a page, without the address that `pio.to_html` sets."""
    assert "_context.plotlyServerURL = ''" in page
    settings = page[page.index('{"displaylogo"') :]
    found: dict[str, Any] = json.JSONDecoder().raw_decode(settings)[0]
    return found


@pytest.fixture
def figure() -> go.Figure:
    return EVERY["gantt"]("light")


@pytest.fixture
def shell(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Start IPython, with plotly's renderer for notebooks."""
    monkeypatch.setattr(pio.renderers, "default", "plotly_mimetype")
    InteractiveShell.instance()
    yield
    InteractiveShell.clear_instance()


def test_figures_are_of_the_packages_class() -> None:
    drawn = {name.split(" ")[0] for name in EVERY}
    callables = {
        name for name in wb.figures.__all__ if callable(getattr(wb.figures, name)) and name.islower()
    }
    assert drawn == callables - {"moments", "names", "register", "save", "scheme_style", "speedups"}
    for name, draw in EVERY.items():
        assert isinstance(draw("light"), Figure), name
    assert isinstance(book_notebook.figure(drawing.curves({"CR": ([0, 1], [1, 2])}, "", "", "", "")), Figure)


def test_figure_saved_as_html_has_no_upload_button(figure: go.Figure, tmp_path: Path) -> None:
    expected = {"displaylogo": False, "showSendToCloud": False}
    assert expected.items() <= config_of(figure.to_html(include_plotlyjs=False)).items()
    figure.write_html(tmp_path / "written.html", include_plotlyjs=False)
    assert expected.items() <= config_of((tmp_path / "written.html").read_text(encoding="utf-8")).items()
    for each in (figure, go.Figure(go.Bar(y=[1]))):  # figures of any function
        page = wb.figures.save(each, tmp_path / "saved.html").read_text(encoding="utf-8")
        assert expected.items() <= config_of(page).items()


def test_figure_config_of_the_user_has_priority(figure: go.Figure) -> None:
    page = figure.to_html({"displaylogo": True}, include_plotlyjs=False, post_script="1 + 1;")
    assert (
        config_of(page.replace('{"displaylogo": true', '{"displaylogo": false'))["showSendToCloud"] is False
    )
    assert '"displaylogo": true' in page
    assert "1 + 1;" in page


def test_figure_in_a_cell_gets_config_and_dark_style(figure: go.Figure, shell: None) -> None:
    assert figure._repr_mimebundle_()[FIGURE]["config"] == CONFIG
    for show in (figure._ipython_display_, figure.show, lambda: figure.show("jupyterlab")):
        with capture_output() as captured:
            show()
        style, drawn = (output.data for output in captured.outputs)
        assert style["text/html"] == dark_style()
        assert drawn[FIGURE]["config"] == CONFIG


def test_figure_with_a_dark_theme_is_unchanged(shell: None) -> None:
    with capture_output() as captured:
        EVERY["gantt"]("dark").show()
    assert len(captured.outputs) == 1  # no style, which would make the static image bright in JupyterLab


def test_plotly_renderers_are_unchanged(shell: None) -> None:
    assert "config" not in go.Figure(go.Bar(y=[1]))._repr_mimebundle_()[FIGURE]
    with capture_output() as captured:
        go.Figure(go.Bar(y=[1])).show()
    assert len(captured.outputs) == 1


def test_figure_config_in_widgets() -> None:
    line = f"const PLOTLY_CONFIG = {json.dumps(CONFIG)};"
    for text in (
        script("plot", "plot_main"),
        script("live"),
        script("plot", "player"),
        lectures.script("question"),
    ):
        assert text.startswith(line)
        assert "CONFIG = { ...PLOTLY_CONFIG," in text


def test_figure_config_in_pages_of_sweep_and_book(figure: go.Figure, tmp_path: Path) -> None:
    output = nbformat.v4.new_output("display_data", {FIGURE: json.loads(figure.to_json())})
    cell = nbformat.v4.new_code_cell("figure", outputs=[output])
    nbformat.write(nbformat.v4.new_notebook(cells=[cell]), tmp_path / "run.ipynb")
    write_page(tmp_path / "run.ipynb", tmp_path / "run.html")
    assert json.dumps(CONFIG)[1:] in (tmp_path / "run.html").read_text(encoding="utf-8")
    page = html([Outcome(get("fig8"), Result(pictures=[]))], Setting())
    settings = re.search('id="settings">(.*)</script>', page)
    assert settings
    assert json.loads(settings[1])["config"] == CONFIG


def test_figure_config_is_used_by_every_source() -> None:
    """Each call of plotly.js uses the configuration of one module."""
    calls = re.compile(r"Plotly\.(?:react|newPlot)\((.*)")
    found = [
        (path.name, call)
        for kind in ("py", "js")
        for room in SOURCES
        for path in room.rglob(f"*.{kind}")
        for call in calls.findall(path.read_text(encoding="utf-8"))
    ]
    assert {name for name, _ in found} == {"page.js", "page.py", "fit.js", "live.js", "report.js"}
    assert all(re.search("CONFIG|config|{drawn}", call) for _, call in found)
    own = [
        path.name
        for room in SOURCES
        for path in room.rglob("*.*")
        if path.suffix in (".py", ".js") and "displaylogo" in path.read_text()
    ]
    assert own == ["page.py"]
