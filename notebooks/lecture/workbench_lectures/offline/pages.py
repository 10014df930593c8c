"""Static site: a page for each lecture and an index, for any file server or a local folder."""

from __future__ import annotations

import ast
import json
import re
from base64 import b64encode
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from html import escape
from pathlib import Path
from typing import Any

from workbench.core.base.files import atomic_write
from workbench.lab.notebooks import grammar_put_off
from workbench.lab.widgets import assets
from workbench_lectures.assets import script as ours
from workbench_lectures.assets import style
from workbench_lectures.lecture import Script
from workbench_lectures.offline.engine import engine
from workbench_lectures.offline.natives import source
from workbench_lectures.offline.tables import packed, places, race, table
from workbench_lectures.titles import BASIS, LectureInfo, info_of

with grammar_put_off():
    import nbformat
    from nbconvert.filters.markdown import markdown2html

WIDGETS = {
    "FORM": assets.script("form"),
    "PLOT": assets.script("plot", "plot_main"),
    "LIVE": assets.script("live"),
}
POLICY = (
    "default-src 'none'; script-src 'unsafe-inline' 'unsafe-eval' 'self' file: blob:;"
    " style-src 'unsafe-inline'; img-src data: blob:"
)
HEAD = """<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>
<meta name="viewport" content="width=device-width"><meta http-equiv="Content-Security-Policy" content="{policy}">
<link rel="icon" href="data:;base64,="><style>{style}</style></head>"""


def write(
    folder: Path, notebooks: Path, scripts: Mapping[str, Script[Any]], say: Any = lambda _: None
) -> list[Path]:
    """Write a site of the lectures whose notebooks are in a folder. Return the pages. `say` is called for each page."""
    folder.mkdir(parents=True, exist_ok=True)
    library = json.dumps(b64encode(assets.library()).decode())
    _put(folder / "plotly.js", f"globalThis.WORKBENCH_PLOTLY = {library};")
    infos = {name: info_of(notebooks / f"{name}.ipynb", script) for name, script in scripts.items()}
    written = [folder / "index.html"]
    _put(written[0], index(infos))
    for name, script in scripts.items():
        written.append(folder / f"{name}.html")
        text = (notebooks / f"{name}.ipynb").read_text(encoding="utf-8")
        cells = nbformat.reads(text, as_version=4).cells  # type: ignore[no-untyped-call]
        _put(written[-1], page(script, cells, infos[name].title))
        say(f"{written[-1].name}: {written[-1].stat().st_size / 1e6:.2f} MB")
    return written


def _put(path: Path, text: str) -> None:
    with atomic_write(path) as out:
        out.write(text.encode())


def index(found: Mapping[str, LectureInfo]) -> str:
    """Return the list of lectures."""
    lines = (f"<li>{each.item.replace('HREF', f'{escape(name)}.html')}</li>" for name, each in found.items())
    head = HEAD.format(title="Lectures", policy=POLICY, style=style())
    body = (
        '<body data-voila="page" data-jp-theme-light="true">'
        f'<main class="wb-index"><h1>Lectures</h1><ol>{"".join(lines)}</ol><p>{escape(BASIS)}</p></main>'
    )
    script = f"{_module('MEMORY', ours('present', 'memory'))}\nMEMORY.follow();"
    return f"{head}{body}<script>{script}</script></body></html>"


def page(script: Script[Any], cells: Iterable[Any], title: str) -> str:
    """Return the page of a lecture: the text of its notebook, its figures, a recorded run, its exercises."""
    made = engine(script)
    body = "".join(f'<div class="wb-cell">{_cell(cell)}</div>' for cell in cells if _cell(cell))
    parts: dict[str, Any] = {}
    for name, part in script.figures.items():
        beforehand = packed(table(script, part)) if name in made.missing else ""
        parts[name] = {"names": list(part.names), "table": beforehand}
    gridded = {each for name, part in script.figures.items() if name in made.missing for each in part.names}
    fields = [asdict(line) for line in script.knobs.entries()]
    reals = {field["name"] for field in fields if field["kind"] == "number"}
    about = {
        "fields": fields,
        "first": script.knobs().fit().model_dump(mode="json"),
        "parts": parts,
        "places": {
            name: list(found)
            for name, found in places(script, sorted(gridded)).items()
            if name in script.places or name in reals
        },
        "race": race(script),
    }
    widgets = [_module(name, text) for name, text in WIDGETS.items()]
    widgets += [_module("QUESTION", ours("question")), _module("MEMORY", ours("present", "memory"))]
    here = json.dumps(about, ensure_ascii=False, separators=(",", ":"))
    scripts = [assets.script(), f"const HERE = {here};", *widgets, made.code, source("desk")]
    text = "\n".join(scripts).replace("</script", "<\\/script")
    return (
        HEAD.format(title=escape(title), policy=POLICY, style=style())
        + '<body class="jp-Notebook" data-voila="page" data-jp-theme-light="true">'
        + f'<div id="rendered_cells"><div>{body}</div></div>'
        + f'<script src="plotly.js"></script><script>"use strict";{{\n{text}\n}}</script></body></html>'
    )


def _module(name: str, text: str) -> str:
    """Return the module of a widget as an expression, since pages from a folder cannot import from each other."""
    return f"const {name} = (() => {{\n{re.sub(r'^export default ', 'return ', text, flags=re.M)}\n}})();"


def _cell(cell: Any) -> str:
    """Return a notebook's cell as HTML: text, or a placeholder for the output of its call."""
    if cell.cell_type == "markdown":
        return f'<div class="jp-RenderedMarkdown jp-RenderedHTMLCommon">{markdown2html(cell.source)}</div>'
    last = ast.parse(cell.source).body[-1:]
    shown = ast.unparse(last[0]) if last else ""
    if found := re.fullmatch(r"lecture\.show\('(\w+)'\)", shown):
        return f'<div data-figure="{found[1]}"></div>'
    return {"lecture.race": "<div data-race></div>", "lecture.quiz": "<div data-quiz></div>"}.get(shown, "")
