"""The site: every public name has a description, pages load nothing from a network, and links exist."""

from __future__ import annotations

import inspect
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import nbformat
import pytest
from playwright.sync_api import sync_playwright
from pydantic import BaseModel

from tests.support.browser.jupyterlab import CHROMIUM, FLAGS
from tools import atlas, build_site
from tools.reference import everything, sections
from workbench.core.contract.scheme import Scheme
from workbench.core.problems.base import ProblemArgs

PUBLIC = dict(everything())
NO_EXAMPLE = {
    "workbench.lab.batch.quickstart.keep": "draws pictures in a browser",
    "workbench.lab.batch.quickstart.main": "executes a notebook",
}


def arguments(thing: Any) -> Iterator[str]:
    """Return the arguments that a docstring must mention.

    Fields of a settings class may have their own descriptions.
    """
    if isinstance(thing, type) and issubclass(thing, BaseModel):
        for name, field in thing.model_fields.items():
            if not field.description and len(get_args(field.annotation)) != 1:  # kind: Literal["constant"]
                yield name
    elif callable(thing) and not (isinstance(thing, type) and issubclass(thing, Warning)):
        try:
            names = inspect.signature(thing).parameters
        except ValueError:
            return
        yield from (name for name in names if name not in ("args", "kwargs"))


def of_a_family(thing: Any) -> bool:
    """Return whether an object is a scheme or a problem. They are all used alike, as the examples of `get` show."""
    return isinstance(thing, type) and issubclass(thing, Scheme | ProblemArgs)


@pytest.mark.parametrize("name", PUBLIC)
def test_public_name_is_described(name: str) -> None:
    thing = PUBLIC[name]
    text = inspect.cleandoc(thing.__doc__ or "")
    assert text and text.splitlines()[0].strip(), "no summary"  # noqa: PT018
    assert ">>> " in text or name in NO_EXAMPLE or of_a_family(thing), "no example that runs"
    untold = [each for each in arguments(thing) if not re.search(rf"\b{each}\b", text)]
    assert not untold, f"the docstring does not mention {untold}"


def test_site_reference_pages_have_names() -> None:
    assert len(PUBLIC) > 150
    assert all(section.names for section in sections())
    assert not set(NO_EXAMPLE) - set(PUBLIC)


# ---------------------------------------------------------------- recordings as cards


def test_site_recordings_have_a_card(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = "\n".join(f"{w},{t},{100 + 50 * (w == 2) + t % 3}" for t in range(30) for w in range(4))
    (tmp_path / "alibaba_job_9.csv").write_text(f"worker,time,batch_time_norm\n{rows}\n")
    monkeypatch.setenv("WORKBENCH_RECORDINGS", str(tmp_path))
    page = atlas.page(tmp_path)
    assert "## made-here" in page
    assert "## alibaba_job_9" in page
    assert "worker 2 is late in most steps" in page
    assert "alibaba/clusterdata" in page  # the source of other recordings
    described = json.loads((tmp_path / "alibaba_job_9.croissant.json").read_text())
    assert described["isBasedOn"].startswith("public repository alibaba")


# ---------------------------------------------------------------- notebooks as pages


def test_site_figures_are_html_and_widgets_a_note() -> None:
    figure = {"data": [{"type": "scatter", "y": [1, 2]}], "layout": {"title": {"text": "</script>"}}}
    outputs = [
        nbformat.v4.new_output("display_data", {build_site.FIGURE: figure, "text/plain": "Figure"}),
        nbformat.v4.new_output(
            "display_data", {build_site.WIDGET: {"model_id": "1"}, "text/plain": "VBox()"}
        ),
        nbformat.v4.new_output("stream", name="stderr", text="a bar"),
        nbformat.v4.new_output("stream", name="stdout", text="a word"),
    ]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("x", outputs=outputs)])
    drawn, note, word = build_site.still(notebook).cells[0].outputs
    assert "Plotly.newPlot" in drawn["data"]["text/html"]
    assert "</script>" not in re.sub(r"</script>\s*</div>\s*$", "", drawn["data"]["text/html"])
    assert note["data"] == {"text/html": build_site.INTERACTIVE}
    assert word["text"] == "a word"


def test_site_executes_a_notebook_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[Path] = []

    def execute(notebook: Path, output: Path, *_: object) -> None:
        ran.append(notebook)
        output.write_bytes(notebook.read_bytes())

    monkeypatch.setattr(build_site, "execute", execute)
    monkeypatch.setattr(build_site, "ROOT", tmp_path)
    path = tmp_path / "one.ipynb"
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("1", id="a")])
    nbformat.write(notebook, path)
    first = build_site.run_notebook(path, tmp_path / "cache")
    assert build_site.run_notebook(path, tmp_path / "cache") == first
    assert len(ran) == 1
    notebook.cells[0].source = "2"
    nbformat.write(notebook, path)
    assert build_site.run_notebook(path, tmp_path / "cache") != first
    assert len(ran) == 2


def test_site_finds_a_broken_link(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text(
        '<a href="b.html#here">x</a><a href="b.html#there">x</a><img src="no.png">'
    )
    (tmp_path / "b.html").write_text('<p id="here"><a href="https://example.invalid/">x</a><a href="#">x</a>')
    assert build_site.broken(tmp_path) == ["a.html: b.html#there", "a.html: no.png"]


# ---------------------------------------------------------------- the whole site


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the site without slow parts. Sphinx runs fully, so each warning and each broken link is an error."""
    return build_site.build(tmp_path_factory.mktemp("site"), quick=True)


@pytest.mark.xdist_group("site")
def test_quick_site_has_every_page(quick: Path) -> None:
    for section in sections():
        text = (quick / "reference" / f"{section.file}.html").read_text()
        assert all(f'id="{name}"' in text for name, _ in section.objects()), section.file
    for path in (build_site.ROOT / "docs").rglob("*.md"):
        if "site" not in path.parts:
            assert (quick / path.relative_to(build_site.ROOT).with_suffix(".html")).is_file()
    for path in (build_site.ROOT / "notebooks").rglob("*.ipynb"):
        assert (quick / path.relative_to(build_site.ROOT).with_suffix(".html")).is_file()
    delays = (quick / "reference" / "delays.html").read_text()
    assert "samples/s" in delays  # units of fields
    assert "model_config" not in delays and "TypeAlias" not in delays  # noqa: PT018
    assert "<strong>&gt;" not in delays and "<strong>model" not in delays  # no example among the fields  # noqa: PT018
    assert (quick / "searchindex.js").is_file()


@pytest.mark.xdist_group("site")
def test_site_sidebar_has_five_groups(quick: Path) -> None:
    text = (quick / "docs" / "README.html").read_text()
    captions = re.findall(r'<p class="caption"[^>]*><span class="caption-text">([^<]+)</span>', text)
    assert captions == ["Tutorial", "How-to", "Reference", "Explanation", "Evidence"]


LOADED = re.compile(r"""<(?:script|link|img|iframe)\b[^>]*(?:src|href)=["']?(?:https?:)?//""")


def asked_of_a_network(html: Path) -> list[str]:
    """Return pages and styles that load something from another host."""
    found = [page.name for page in html.rglob("*.html") if LOADED.search(page.read_text(encoding="utf-8"))]
    styles = [
        css.name for css in html.rglob("*.css") if re.search(r"url\(['\"]?(?:https?:)?//", css.read_text())
    ]
    return found + styles


@pytest.mark.xdist_group("site")
def test_site_loads_nothing_external(quick: Path) -> None:
    assert asked_of_a_network(quick) == []


SAMPLE = (
    "index",
    "docs/reference/schemes",
    "reference/theory",
    "reference/delays",
    "notebooks/01-quickstart",
    "search",
)


@pytest.mark.browser
@pytest.mark.skipif(not CHROMIUM, reason="needs Chromium")
@pytest.mark.xdist_group("site")
def test_site_pages_open_offline_light_and_dark(quick: Path, tmp_path: Path) -> None:
    assert seen(quick, {"light": SAMPLE, "dark": SAMPLE[3:5]}, screens(tmp_path)) == []


def screens(otherwise: Path) -> Path:
    """Return the folder for screenshots."""
    return Path(os.environ.get("WORKBENCH_SCREENS", otherwise))


def seen(html: Path, pages: dict[str, tuple[str, ...]], pictures: Path) -> list[str]:
    """Open pages in Chromium, light or dark. Return requests to other hosts, errors, and pages that are too wide."""
    pictures.mkdir(parents=True, exist_ok=True)
    wrong: list[str] = []
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        context = browser.new_context(viewport={"width": 1280, "height": 900}, offline=True)
        page = context.new_page()
        page.on("request", lambda request: note(wrong, request.url))
        page.on("pageerror", lambda error: wrong.append(str(error)))
        for scheme, name in [(scheme, name) for scheme, names in pages.items() for name in names]:
            page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
            page.goto((html / f"{name}.html").as_uri())
            page.wait_for_load_state("load")
            for drawn in page.query_selector_all(".js-plotly-plot"):
                assert drawn.query_selector(".main-svg"), name
            if page.evaluate("document.documentElement.scrollWidth > innerWidth"):
                wrong.append(f"{name} is wider than the window")
            page.screenshot(path=pictures / f"site-{name.replace('/', '-')}-{scheme}.png")
        browser.close()
    return wrong


def note(wrong: list[str], address: str) -> None:
    """Record requests except those of files and embedded data."""
    if not address.startswith(("file:", "data:", "blob:")):
        wrong.append(address)


@pytest.mark.slow
@pytest.mark.browser
@pytest.mark.xdist_group("site")
def test_whole_site_is_built(tmp_path: Path) -> None:
    texts = [sys.executable, "-m", "tools.build_site", "--output", str(tmp_path)]
    subprocess.run(texts, cwd=build_site.ROOT, check=True)
    html = tmp_path / "html"
    assert asked_of_a_network(html) == []
    first = (html / "notebooks" / "01-quickstart.html").read_text()
    assert "Plotly.newPlot" in first and "plotly.min.js" in first  # noqa: PT018
    assert "Plotly.newPlot" in (html / "notebooks" / "lecture" / "1-stragglers.html").read_text()
    pages = tuple(page.relative_to(html).with_suffix("").as_posix() for page in html.rglob("*.html"))
    assert {
        *SAMPLE,
        "notebooks/lecture/1-stragglers",
        "notebooks/papers/1-codedreduce",
        "reproduction",
    } <= set(pages)
    assert seen(html, {"light": pages, "dark": pages}, screens(tmp_path)) == []
