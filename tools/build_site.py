"""Build the site in dist/site/html: documentation, reference, executed notebooks, reproduction book. No network.

python tools/build_site.py [--quick] [--output FOLDER]
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
from functools import cache
from hashlib import sha256
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import nbformat
from plotly.offline import get_plotlyjs

from tools import atlas
from tools.reference import Section, sections
from workbench.lab.figures.page import Figure
from workbench.lab.notebooks import execute

ROOT = Path(__file__).resolve().parents[1]
SITE = ROOT / "docs" / "site"
PARAMETERS: dict[str, dict[str, Any]] = {  # parameters of notebooks for the pages; the others run unchanged
    "02-explore": {"start": True},
    "07-coding-or-not": {"schemes": "UMW, GC"},
    "08-training": {"cluster": "", "batches": [48, 192], "seeds": 1},
    "04-plan": {"workers": 4, "rounds": 20, "measured_rounds": 10, "schemes": "UMW, GC, SGD"},
    "05-yours": {"workers": 4, "wait": 3, "rounds": 20, "seeds": 1},
}
FIGURE, WIDGET = "application/vnd.plotly.v1+json", "application/vnd.jupyter.widget-view+json"
BOOK = "reproduction.html"
GROUPS = (
    "tutorial",
    "how-to",
    "reference",
    "explanation",
    "evidence",
)  # folders of docs, in the sidebar's order
INTERACTIVE = "<p><em>Interactive: needs a running kernel.</em></p>"


# ---------------------------------------------------------------- sources


def assemble(source: Path, executed: dict[str, Path], book: Path | None) -> None:
    """Collect the input of Sphinx: pages as in the clone, the reference, notebooks."""
    shutil.rmtree(source, ignore_errors=True)
    shutil.copytree(ROOT / "docs", source / "docs", ignore=shutil.ignore_patterns("site"))
    shutil.copytree(SITE / "static", source / "_static")
    for page in (SITE / "pages").iterdir():
        shutil.copy(page, source)
    shutil.copy(SITE / "conf.py", source)
    where = (
        f'<a href="{BOOK}">The book: every figure and table</a>' if book else "Left out of this quick build."
    )
    (source / "book.md").write_text(
        (SITE / "pages" / "book.md").read_text() + f"\n{where}\n", encoding="utf-8"
    )
    (source / "_static" / "plotly.min.js").write_text(get_plotlyjs(), encoding="utf-8")
    (source / "atlas.md").write_text(atlas.page(source / "_static"), encoding="utf-8")
    (source / "changelog.md").write_text((ROOT / "CHANGELOG.md").read_text(), encoding="utf-8")
    (source / "index.md").write_text((ROOT / "README.md").read_text() + contents(source), encoding="utf-8")
    (source / "reference").mkdir()
    for section in sections():
        (source / "reference" / f"{section.file}.rst").write_text(page_of(section), encoding="utf-8")
    for path in (ROOT / "notebooks").rglob("*.ipynb"):
        name = path.relative_to(ROOT).as_posix()
        notebook = nbformat.read(executed.get(name, path), as_version=4)
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        nbformat.write(still(notebook), source / name)


def contents(source: Path) -> str:
    """Return the table of contents: groups of pages by need, in the order in which the hub links the pages."""
    hub = (source / "docs" / "README.md").read_text(encoding="utf-8")
    inside = {group: _in_order_of(hub, source, group) for group in GROUPS}
    parts = {
        "Tutorial": ["docs/README", *inside["tutorial"], "notebooks", "lectures"],
        "How-to": inside["how-to"],
        "Reference": [
            *inside["reference"],
            *(f"reference/{section.file}" for section in sections()),
            "docs/glossary",
            "docs/moving-from-1.0",
            "changelog",
        ],
        "Explanation": ["docs/architecture", *inside["explanation"], "decisions"],
        "Evidence": [*inside["evidence"], "book", "atlas"],
    }
    return "\n" + "\n".join(
        f"```{{toctree}}\n:hidden:\n:caption: {caption}\n\n" + "\n".join(names) + "\n```\n"
        for caption, names in parts.items()
    )


def _in_order_of(hub: str, source: Path, group: str) -> list[str]:
    """Return the pages of a folder of docs, in the order in which the hub links them."""
    paths = sorted(source.glob(f"docs/{group}/*.md"), key=lambda path: hub.find(f"({group}/{path.name})"))
    return [path.relative_to(source).with_suffix("").as_posix() for path in paths]


def page_of(section: Section) -> str:
    """Return one page of the reference, as reStructuredText."""
    lines = [section.title, "=" * len(section.title), ""]
    if section.module:
        lines += [f".. automodule:: {section.module}", "   :no-members:", "   :no-index:", ""]
    for name, thing in section.objects():
        kind = "class" if isinstance(thing, type) else "function" if callable(thing) else "data"
        kind = "exception" if isinstance(thing, type) and issubclass(thing, BaseException) else kind
        lines += [f".. auto{kind}:: {name}"]
        lines += ["   :members:"] if kind == "class" else ["   :no-value:"] if kind == "data" else []
        lines += [""]
    return "\n".join(lines)


# ---------------------------------------------------------------- notebooks


def run_notebooks(cache: Path) -> dict[str, Path]:
    """Execute all notebooks except those of the papers, which the book executes.

    Results are cached until a source changes.
    """
    done = {}
    for path in sorted((ROOT / "notebooks").rglob("*.ipynb")):
        name = path.relative_to(ROOT)
        if "papers" not in name.parts:
            done[name.as_posix()] = run_notebook(path, cache)
    return done


def run_notebook(path: Path, cache: Path) -> Path:
    """Execute one notebook, unless its inputs are unchanged."""
    parameters = PARAMETERS.get(path.stem, {})
    notebook = with_stills(nbformat.read(path, as_version=4))
    texts = [nbformat.writes(notebook), json.dumps(parameters), sources()]
    target = cache / f"{path.stem}-{sha256(chr(0).join(texts).encode()).hexdigest()[:16]}.ipynb"
    if not target.is_file():
        work = cache / "work" / path.stem
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir(parents=True)
        nbformat.write(notebook, work / path.name)
        print(f"executing {path.relative_to(ROOT)}", flush=True)
        execute(work / path.name, work / "out.ipynb", parameters, work)
        (work / "out.ipynb").replace(target)
    return target


@cache
def sources() -> str:
    """Return a hash of other inputs: code of the workbench and of notebooks, and the versions of the libraries."""
    files = [
        ROOT / "requirements.lock",
        *(ROOT / "workbench").rglob("*.py"),
        *(ROOT / "notebooks").rglob("*.py"),
    ]
    digest = sha256()
    for path in sorted(path for path in files if path.is_file()):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def with_stills(notebook: Any) -> Any:
    """Insert a static figure after each cell that shows a figure of a lecture, or runs the explorer."""
    cells = []
    for cell in notebook.cells:
        cells.append(cell)
        source = cell.source
        if source.startswith('lecture.show("'):
            name = source.split('"')[1]
            cells.append(hidden(f'lecture.script.figures["{name}"].draw(lecture.desk.knobs, "light")'))
        elif "explorer.run()" in source:
            cells.append(hidden("wb.figures.convergence(explorer.traces)"))
    notebook.cells = cells
    return notebook


def hidden(source: str) -> Any:
    """Return a cell whose page shows only its output."""
    cell = nbformat.v4.new_code_cell(source, metadata={"tags": ["remove-input"]})
    cell.id = f"still-{sha256(source.encode()).hexdigest()[:8]}"
    return cell


def still(notebook: Any) -> Any:
    """Return the notebook for a page: figures without a kernel, and no widget, progress bar or warning."""
    notebook.metadata.pop("widgets", None)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs = [as_html(each) for each in cell.outputs if wanted(each, cell.source)]
    return notebook


def wanted(output: Any, source: str) -> bool:
    """Return whether an output is kept. Messages, progress bars and widgets with a static copy are left out."""
    data = output.get("data", {})
    bar = "%|" in data.get("text/plain", "")
    replaced = source.startswith('lecture.show("') or source.endswith("\nlecture")
    return output.get("name") != "stderr" and not (WIDGET in data and (bar or replaced))


def as_html(output: Any) -> Any:
    """Return the output with a figure as HTML, for a page with plotly.js, or with a note in place of a widget."""
    data = output.get("data", {})
    if FIGURE in data:
        figure = Figure(data[FIGURE]["data"], data[FIGURE]["layout"], skip_invalid=True)
        output["data"] = {"text/html": figure.to_html(full_html=False, include_plotlyjs=False)}
    elif WIDGET in data:
        output["data"] = {"text/html": INTERACTIVE}
    return output


# ---------------------------------------------------------------- book, build, links


def run_book(folder: Path) -> dict[str, Path]:
    """Compute the quick form of the book: its page, and the papers' notebooks. Finished entries are cached."""
    texts = [sys.executable, "-m", "workbench", "reproduce", "all", "--quick", "-o", str(folder)]
    subprocess.run(texts, cwd=ROOT, check=True)
    return {f"notebooks/papers/{path.name}": path for path in (folder / "papers").glob("*.ipynb")}


def sphinx(source: Path, html: Path) -> None:
    """Run Sphinx with every warning as an error."""
    shutil.rmtree(html, ignore_errors=True)
    texts = ["-W", "--keep-going", "-q", "-j", "auto", "-d", str(html.parent / "doctrees")]
    subprocess.run([sys.executable, "-m", "sphinx", *texts, str(source), str(html)], check=True)


class Links(HTMLParser):
    """Anchors and links of a page."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.names: set[str] = set()
        self.used: list[str] = []
        self.feed(page.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for key, value in attrs:
            if key in ("id", "name") and value:
                self.names.add(value)
            elif key in ("href", "src") and value is not None:
                self.used.append(value)


def broken(html: Path) -> list[str]:
    """Return broken internal links as `page: link`. Links to other hosts are not checked."""
    pages = {path.resolve(): Links(path) for path in html.rglob("*.html") if "_static" not in path.parts}
    wrong = []
    for page, links in pages.items():
        for link in dict.fromkeys(links.used):
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (page.parent / unquote(parts.path)).resolve() if parts.path else page
            known = (
                target not in pages or not parts.fragment or unquote(parts.fragment) in pages[target].names
            )
            if not (target.exists() and known):
                wrong.append(f"{page.relative_to(html.resolve())}: {link}")
    return wrong


def build(output: Path, quick: bool) -> Path:
    """Build the site in a folder. Return the subfolder with the pages."""
    executed = {} if quick else run_notebooks(output / "executed")
    book = output / "book"
    if not quick:
        executed |= run_book(book)
    source, html = output / "source", output / "html"
    assemble(source, executed, None if quick else book)
    sphinx(source, html)
    # Sphinx does not copy the README's light and dark images, because they are in HTML
    pictures = Path("docs", "images")
    shutil.copytree(ROOT / pictures, html / pictures, dirs_exist_ok=True)
    if not quick:
        shutil.copy(book / BOOK, html)
    if wrong := broken(html):
        sys.exit("links that lead nowhere:\n" + "\n".join(wrong))
    return html


def main() -> None:
    """Build, and print where the pages are."""
    text = argparse.ArgumentParser(description=__doc__)
    text.add_argument("--quick", action="store_true", help="do not execute notebooks, and leave out the book")
    text.add_argument("--output", type=Path, default=ROOT / "dist" / "site")
    given = text.parse_args()
    print(f"open {build(given.output.resolve(), given.quick) / 'index.html'}")


if __name__ == "__main__":
    main()
