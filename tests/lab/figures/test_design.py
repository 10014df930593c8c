"""One style sheet: colours and variables of widgets, pages, lectures and reports are in design.css alone."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from workbench.lab.figures.design import style_sheet

ROOT = Path(__file__).resolve().parents[3]
FOLDERS = ("workbench/lab", "workbench/analysis", "notebooks/lecture")
SHEET = "workbench/lab/figures/js/design.css"
ALLOWED = {  # file -> why it has colours of its own
    SHEET: "the one style sheet",
    "workbench/lab/figures/style.py": "colours of schemes and activities in figures, for the page and for files",
    "workbench/lab/figures/page.py": "the two palettes of figures: plotly draws files without a style sheet",
    "workbench/analysis/planning/advice.py": "output of a notebook, on pages that have no style sheet of ours",
}
# CSS names of colours; `transparent` and `currentColor` are none of their own
NAMES = (
    "aqua beige black blue brown coral crimson cyan firebrick fuchsia gold gray grey green indigo ivory "
    "khaki lavender lime magenta maroon navy olive orange orchid pink plum purple red salmon sienna "
    "silver steelblue tan teal tomato turquoise violet white yellow darkblue darkgray darkgreen darkgrey "
    "darkred lightblue lightgray lightgreen lightgrey "
)
HEX = r"#(?:[0-9a-fA-F]{3,4}|[0-9a-fA-F]{6}|[0-9a-fA-F]{8})\b"
FUNCTION = r"\b(?:rgb|hsl|hwb|lab|lch|oklab|oklch)a?\(\s*[\d.]"
LITERAL = re.compile(f"{HEX}|{FUNCTION}", re.IGNORECASE)
NAMED = re.compile(rf"(?<![\w$.#-])(?:{'|'.join(NAMES.split())})(?![\w(-])")
VARIABLE = re.compile(r"--wb-[\w-]+\s*:")
BARE = re.compile(r"var\(\s*--jp-[\w-]+\s*\)")


def files(*endings: str) -> Iterator[tuple[str, str]]:
    """Yield the path in the repository and the text of every file with one of the endings."""
    for path in sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*")):
        if path.suffix in endings and "__pycache__" not in path.parts:
            yield path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")


def uncommented(text: str) -> str:
    return re.sub(r"/\*.*?\*/|^\s*//[^\n]*|\{#.*?#\}", "", text, flags=re.DOTALL | re.MULTILINE)


def strings(text: str) -> Iterator[str]:
    """Yield the texts of a Python file, without its docstrings."""
    tree = ast.parse(text)
    prose = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in prose:
            yield node.value


def named(path: str, text: str) -> list[str]:
    """Return the names of colours in a file: values of declarations, or whole strings of a program."""
    if path.endswith(".css"):
        values = re.findall(r":\s*([^;{}]*)[;}]", text)
    else:
        values = re.findall(r"[\"'`]([a-z]+)[\"'`]", text) + re.findall(
            r"(?:color|background|fill|stroke)\s*:\s*([^;\"'}]*)", text
        )
    return [name for value in values for name in NAMED.findall(value)]


def found(path: str, text: str) -> list[str]:
    if path.endswith(".py"):
        inside = list(strings(text))
        literals = [hit for each in inside for hit in LITERAL.findall(each)]
        return literals + [each for each in inside if NAMED.fullmatch(each)]
    return LITERAL.findall(text) + named(path, text)


TEXTS = dict(files(".css", ".js", ".j2", ".html"))
EVERY = {**{path: uncommented(text) for path, text in TEXTS.items()}, **dict(files(".py"))}


def test_colours_are_in_the_style_sheet_alone() -> None:
    assert len(EVERY) > 150
    assert set(ALLOWED) <= set(EVERY)
    colours = {
        path: hits for path, text in EVERY.items() if path not in ALLOWED and (hits := found(path, text))
    }
    assert colours == {}


def test_each_exception_still_has_colours() -> None:
    assert [path for path in ALLOWED if not found(path, EVERY[path])] == []


def test_variables_are_defined_in_the_style_sheet_alone() -> None:
    own = {path: hits for path, text in EVERY.items() if path != SHEET and (hits := VARIABLE.findall(text))}
    assert own == {}


def test_variables_of_jupyterlab_have_a_fallback() -> None:
    bare = {path: hits for path, text in EVERY.items() if (hits := BARE.findall(text))}
    assert bare == {}


def test_used_variables_are_defined() -> None:
    """Variables that JavaScript sets, such as the space below a menu, have a fallback where they are used."""
    defined = set(re.findall(r"(--wb-[\w-]+)\s*:", EVERY[SHEET]))
    used = {name for text in EVERY.values() for name in re.findall(r"var\(\s*(--wb-[\w-]+)\s*\)", text)}
    assert used - defined == set()
    assert "--wb-ground" in style_sheet()


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("a.css", ".a { color: #fff; }"),
        ("a.css", ".a { border: 1px solid red; }"),
        ("a.css", ".a { background: rgb(1 2 3 / 0.5) }"),
        ("a.js", 'const look = { color: "white" };'),
        ("a.js", "const look = `color: tomato`;"),
        ("a.py", 'look = {"color": "white"}'),
        ("a.py", "look = f\"<b style='color: #aabbcc'>{x}</b>\""),
    ],
)
def test_colours_would_be_found(path: str, text: str) -> None:
    assert found(path, text)


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("a.css", ".a { white-space: nowrap; color: var(--wb-ink); background: transparent; }"),
        ("a.css", "#settings { width: 1px; }"),
        ("a.js", "const [red, green] = rgb(colors.late);"),
        ("a.py", 'why = "fix the fields in red"'),
    ],
)
def test_what_is_no_colour_is_not_found(path: str, text: str) -> None:
    assert not found(path, text)
