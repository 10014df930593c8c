"""HTML pages of notebooks with any output, which need no network."""

from __future__ import annotations

import json
from pathlib import Path
from shutil import which
from typing import Any

import nbformat
import plotly.graph_objects as go
import pytest

from tests.support.browser.jupyterlab import CHROMIUM
from tests.support.sampled_cases import rotated
from workbench.core.trace.layout import STOP
from workbench.lab.batch import sweep
from workbench.lab.batch.page import FIGURE, PNG, SCRIPT, TEMPLATE, add_pictures, write_page, write_script

NASTY = "</script><script>document.title = 'broken'</script> & \"odd\" ✓"


@pytest.fixture
def page(tmp_path: Path) -> Path:
    figures = [
        json.loads(
            go.Figure(go.Scatter(x=[1, 2], y=[2, 1], name=NASTY), {"title": {"text": NASTY}}).to_json()
        ),
        json.loads(go.Figure(go.Bar(y=[1, 2]), {"height": 333}).to_json()),
    ]
    outputs = [
        nbformat.v4.new_output("display_data", {"application/vnd.plotly.v1+json": figure})
        for figure in figures
    ]
    cell = nbformat.v4.new_code_cell("figures", outputs=outputs)
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_markdown_cell(r"# One $x^2$"), cell])
    folder = tmp_path / "run"
    folder.mkdir()
    nbformat.write(notebook, folder / "run.ipynb")
    write_script(tmp_path)
    write_page(folder / "run.ipynb", folder / "run.html")
    return folder / "run.html"


def test_page_has_figures_in_their_heights_and_one_script(page: Path) -> None:
    text = page.read_text()
    assert text.count("Plotly.newPlot(") == 2
    assert "height:333px" in text
    assert text.count("<script") == 3
    assert text.count('src="') == text.count(f'src="../{SCRIPT}"') == 1
    assert "<title>run</title>" in text


def test_write_script_writes_once(page: Path) -> None:
    script = page.parents[1] / SCRIPT
    before = script.stat().st_mtime_ns
    write_script(script.parent)
    assert script.stat().st_mtime_ns == before
    script.write_text("half")
    write_script(script.parent)
    assert script.stat().st_size > 1e6


def test_write_page_equals_nbconvert(tmp_path: Path) -> None:
    """The fast writer skips styles and code in nbconvert's parser, and caches highlighted code.

    The result is the same.
    """
    from bs4 import BeautifulSoup
    from nbconvert import HTMLExporter

    new = nbformat.v4.new_output
    outputs = [
        new("display_data", {"image/png": "iVBORw0KGgo="}),
        new("display_data", {"text/html": '<b class="x">bold</b><img src="a.png"><img alt="b" src="b.png">'}),
        new(
            "display_data",
            {"application/vnd.jupyter.widget-view+json": {"model_id": "1"}, "text/plain": "bar"},
        ),
        new("display_data", {"text/html": "<script>var a = \"<img src='x'>\"</script><b>open"}),
        new("stream", name="stdout", text="<img src=1> & more"),
        new("error", ename="E", evalue="<b>", traceback=["<b> \x1b[31mred\x1b[0m"]),
    ]
    cells = [
        nbformat.v4.new_code_cell(f'x = "{NASTY}"  # <b>', outputs=outputs),
        nbformat.v4.new_code_cell("%%bash\nls <a>", metadata={"magics_language": "bash"}),
        nbformat.v4.new_code_cell(""),
        nbformat.v4.new_markdown_cell("# One\n\n`<b>` ![](data:image/png;base64,iVBORw0KGgo=)"),
    ]
    kernel = {"language_info": {"name": "python", "pygments_lexer": "ipython3"}}
    notebook = nbformat.v4.new_notebook(cells=cells, metadata=kernel)
    (tmp_path / "run").mkdir()
    nbformat.write(notebook, tmp_path / "run" / "run.ipynb")
    write_page(tmp_path / "run" / "run.ipynb", tmp_path / "run" / "run.html")
    usual, _ = HTMLExporter(raw_template=TEMPLATE).from_notebook_node(notebook, {"metadata": {"name": "run"}})
    ours = (tmp_path / "run" / "run.html").read_text()
    assert _parsed(BeautifulSoup(ours, "html.parser")) == _parsed(BeautifulSoup(usual, "html.parser"))
    assert ours.count("No description") == 2
    assert "var a = \"<img src='x'>\"" in ours


@pytest.mark.parametrize(
    "broken", ["<script>var a = 1", "<script>", "rank &# 3", "<!-- open", '<div class="x']
)
def test_write_page_closes_tags_at_the_next_figure(broken: str, tmp_path: Path) -> None:
    new, figure = nbformat.v4.new_output, json.loads(go.Figure(go.Bar(y=[1, 2])).to_json())
    drawn = new("display_data", {"application/vnd.plotly.v1+json": figure})
    cells = [
        nbformat.v4.new_code_cell("a", outputs=[new("display_data", {"text/html": broken}), drawn]),
        nbformat.v4.new_code_cell("b", outputs=[drawn]),
        nbformat.v4.new_markdown_cell("## Conclusion"),
    ]
    (tmp_path / "run").mkdir()
    nbformat.write(nbformat.v4.new_notebook(cells=cells), tmp_path / "run" / "run.ipynb")
    write_page(tmp_path / "run" / "run.ipynb", tmp_path / "run" / "run.html")
    page = (tmp_path / "run" / "run.html").read_text()
    assert page.count("Plotly.newPlot(") == 2
    assert "Conclusion</h2>" in page or "Conclusion<a" in page
    assert "aside-" not in page


def _parsed(soup: Any) -> list[Any]:
    """Return every element with its attributes, in order, and every text."""
    elements = [(tag.name, {**tag.attrs, "id": ""}) for tag in soup.find_all(True)]
    return [elements, " ".join(soup.get_text().split())]


@pytest.mark.browser
@pytest.mark.skipif(which("chromium") is None, reason="needs Chromium")
def test_page_is_drawn_offline_in_a_browser(page: Path) -> None:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=which("chromium"), args=["--no-sandbox"])
        tab = browser.new_context(offline=True).new_page()
        wrong: list[str] = []
        asked: list[str] = []
        tab.on("pageerror", lambda error: wrong.append(str(error)))
        tab.on("request", lambda request: asked.append(request.url))
        tab.goto(page.as_uri())
        tab.wait_for_selector("#figure-1 .main-svg")
        assert "document.title" in (tab.text_content("#figure-0 .gtitle") or "")
        assert tab.title() == "run"
        assert sorted(url.rsplit("/", 1)[-1] for url in asked) == [SCRIPT, "run.html"]
        assert wrong == []
        browser.close()


DRAWN = {"data": [{"type": "scatter", "y": [1, 3, 2]}], "layout": {"height": 200}}


def notebook(path: Path, figures: int) -> Path:
    path.parent.mkdir(parents=True)
    outputs = [
        {"output_type": "display_data", "data": {FIGURE: DRAWN}, "metadata": {}} for _ in range(figures)
    ]
    text = {"output_type": "stream", "name": "stdout", "text": "no figure"}
    cells = [
        {"cell_type": "code", "source": "", "outputs": [text, *outputs]},
        {"cell_type": "markdown", "source": "é"},
    ]
    path.write_text(json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}))
    return path


def pictures(path: Path) -> list[str]:
    cells = json.loads(path.read_text())["cells"]
    return [
        out["data"][PNG] for cell in cells for out in cell.get("outputs", ()) if PNG in out.get("data", {})
    ]


def test_add_pictures_adds_one_for_each_figure(tmp_path: Path) -> None:
    files = [notebook(tmp_path / f"{i}" / "run.ipynb", i) for i in range(4)]
    drawn: list[dict[str, Any]] = []

    def draw(figure: dict[str, Any]) -> bytes:
        drawn.append(figure)
        if len(drawn) == 3:
            (tmp_path / STOP).touch()
        return b"png"

    assert add_pictures(files, draw) == 3  # figures of the first three notebooks
    (tmp_path / STOP).unlink()
    assert add_pictures(files, draw) == 3
    assert [len(pictures(file)) for file in files] == [0, 1, 2, 3]
    assert add_pictures(files, draw) == 0
    assert all(figure == DRAWN for figure in drawn)


@rotated
@pytest.mark.skipif(not CHROMIUM, reason="no Chromium to draw with")
def test_sweep_notebooks_have_pictures(tmp_path: Path) -> None:
    """In a whole sweep, each executed notebook has a PNG beside each of its figures."""
    plan = {"base": {"scheme": "UMW", "workers": 4, "rounds": 5}}
    assert sweep(plan, tmp_path / "sweep", pictures=True, progress=False).found == ""
    (file,) = tmp_path.glob("sweep/*/run.ipynb")
    found = pictures(file)
    assert len(found) == file.read_text().count(f'"{FIGURE}"') == 3
    assert all(picture.startswith("iVBORw0KGgo") for picture in found)
