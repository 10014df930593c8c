"""Configuration of Sphinx. `tools/build_site.py` collects the sources and calls it."""

from __future__ import annotations

import inspect
import re
from typing import Any, get_args

from docutils import nodes
from pydantic import BaseModel
from sphinx.addnodes import toctree

from workbench import __version__
from workbench.lab.notebooks import grammar_put_off

with grammar_put_off():  # before myst_nb imports it
    import nbformat  # noqa: F401

project, author, release = "Straggler workbench", "The workbench authors", __version__
copyright = author
extensions = ["sphinx.ext.autodoc", "sphinx.ext.napoleon", "myst_nb"]
exclude_patterns = ["_*", "docs/site/**"]

# What is in single backticks is a name; those that the reference has become links.
default_role = "py:obj"
napoleon_google_docstring = False
napoleon_use_rtype = False
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_type_aliases = {"Array": "Array"}
autodoc_default_options = {"exclude-members": "model_config"}
autodoc_member_order = "bysource"
autodoc_preserve_defaults = False  # options of engines are in the signature, and in no source
napoleon_custom_sections = [(f'Options of engine = "{name}"', "params_style") for name in ("sim", "mpi")]
python_maximum_signature_line_length = 88
toc_object_entries_show_parents = "hide"

# Notebooks arrive executed. Their figures are HTML that draws itself with the script beside the pages.
nb_execution_mode = "off"
nb_merge_streams = True
myst_heading_anchors = 3
myst_enable_extensions = ["colon_fence", "deflist"]
suppress_warnings = ["mystnb.mime_priority", "myst.strikethrough"]

html_theme = "furo"
html_title = f"Straggler workbench {release}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_js_files = ["theme.js"]
html_copy_source = False
html_show_sphinx = False
html_theme_options = {"navigation_with_keys": True}


def fields_as_parameters(
    app: Any, kind: str, name: str, thing: object, options: object, lines: list[str]
) -> None:
    """Make a section of parameters from the metadata of the fields of settings."""
    if kind != "class" or not (inspect.isclass(thing) and issubclass(thing, BaseModel)):
        return
    if any(line.strip() == "Parameters" for line in lines):
        return
    told = [row for field, spec in thing.model_fields.items() for row in _field(field, spec)]
    if told:
        where = next((i for i, line in enumerate(lines) if line.startswith(("Examples", ">>>"))), len(lines))
        head = ["Examples", "--------"] if lines[where:] and lines[where].startswith(">>>") else []
        lines[where:where] = ["", "Parameters", "----------", *told, "", *head]


def _field(name: str, spec: Any) -> list[str]:
    extra = spec.json_schema_extra if isinstance(spec.json_schema_extra, dict) else {}
    limits = [
        f"{sign} {getattr(m, key)}" for m in spec.metadata for key, sign in _SIGNS.items() if hasattr(m, key)
    ]
    notes = ", ".join(note for note in [str(extra.get("unit", "")), *limits] if note)
    kind = re.sub(r"\b(?:\w+\.)+", "", inspect.formatannotation(spec.annotation))
    default = (
        ""
        if spec.is_required()
        else f"; default {_literal(repr(spec.get_default(call_default_factory=True)))}"
    )
    text = " ".join(filter(None, [spec.description, notes and f"[{notes}]"])) or _without_words(spec)
    return [f"{name} : {_literal(kind)}{default}", f"    {text}"]


def _without_words(spec: Any) -> str:
    return "always this" if len(get_args(spec.annotation)) == 1 else "see above"


def _literal(text: str, longest: int = 60) -> str:
    return f"``{text if len(text) <= longest else text[: longest - 2].rstrip() + ' …'}``"


_SIGNS = {"ge": ">=", "gt": ">", "le": "<=", "lt": "<"}


def short_signature(
    app: Any, kind: str, name: str, thing: object, options: object, signature: str | None, returns: str | None
) -> tuple[str | None, str | None] | None:
    """Shorten signatures: the fields of settings are listed below, and types are as short as in the source."""
    if kind == "class" and inspect.isclass(thing) and issubclass(thing, BaseModel):
        return "(**settings)", None
    return _shortened(signature), _shortened(returns)


def _shortened(text: str | None) -> str | None:
    for long, short in _TYPES.items():
        text = text and re.sub(long, short, text)
    return text


_TYPES = {
    r"TypeAliasForwardRef\('(\w+)'\)": r"\1",
    r"[~\w.]*\bndarray\[tuple\[[~\w.]*Any, \.\.\.\], [~\w.]*\bdtype\[([~\w.]+)\]\]": r"NDArray[\1]",
    r"[~\w.]*\bAnnotated\[(.*), [~\w.]*FieldInfo\(.*\)\]": r"\1",
}


def script_where_figures_are(
    app: Any, page: str, template: str, context: dict[str, Any], doctree: object
) -> None:
    """Load plotly.js, 5 MB, only on pages with figures."""
    if "Plotly.newPlot" in context.get("body", ""):
        script = context["pathto"]("_static/plotly.min.js", resource=True)
        context["body"] = f'<script src="{script}"></script>{context["body"]}'


def _heads(toc: Any) -> Any:
    """Return only the title of a page's contents, unless the page has subpages."""
    if not len(toc) or any(toc.findall(toctree)):
        return toc
    return nodes.bullet_list("", nodes.list_item("", toc[0][0].deepcopy()))


def titles_only(app: Any, page: str, *_: Any) -> None:
    """Reduce the tables of contents to titles: Sphinx copies all of them for each page, a third of the build."""
    app.env.whole_tocs = app.env.tocs
    if not hasattr(app.env, "heads"):
        app.env.heads = {name: _heads(toc) for name, toc in app.env.tocs.items()}
    app.env.tocs = app.env.heads | {name: toc for name, toc in app.env.tocs.items() if name == page}


def whole(app: Any, *_: Any) -> None:
    """Restore the tables of contents."""
    app.env.tocs = app.env.whole_tocs


def setup(app: Any) -> None:
    """Connect these functions to Sphinx, which calls this one."""
    app.connect("autodoc-process-docstring", fields_as_parameters, priority=100)  # before napoleon
    app.connect("autodoc-process-signature", short_signature)
    app.connect("html-page-context", script_where_figures_are)
    app.connect("html-page-context", titles_only, priority=400)
    app.connect("html-page-context", whole, priority=600)  # after the theme
