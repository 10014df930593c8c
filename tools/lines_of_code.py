"""Count lines of code by package, and list the functions, classes and files that are too long.

A line of code is neither blank nor a docstring, a comment or an import. `python tools/lines_of_code.py` prints the
table of the two upper levels of packages, and the medians of functions. Its exit status is 1 if something is too long.
"""

from __future__ import annotations

import ast
import io
import sys
import textwrap
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from statistics import median

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("workbench",)
MAX_FUNCTION_LINES, MAX_CLASS_LINES, MAX_FILE_LINES = 60, 250, 500
_NOT_CODE = (
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
)
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def code_lines(text: str) -> int:
    """Return the number of lines of code in a source text."""
    dropped: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import | ast.ImportFrom):
            dropped.update(range(node.lineno, (node.end_lineno or 0) + 1))
        elif (
            isinstance(node, (ast.Module, *_DEFINITIONS)) and ast.get_docstring(node, clean=False) is not None
        ):
            dropped.update(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    found: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in _NOT_CODE:
            found.update(range(token.start[0], token.end[0] + 1))
    return len(found - dropped)


def sources() -> Iterator[Path]:
    """Yield all Python files of the package."""
    for package in PACKAGES:
        yield from sorted((ROOT / package).rglob("*.py"))


def by_package() -> Counter[str]:
    """Return the lines of code of each package of the two upper levels."""
    found: Counter[str] = Counter()
    for path in sources():
        found[".".join(path.relative_to(ROOT).parent.parts[:3])] += code_lines(
            path.read_text(encoding="utf-8")
        )
    return found


def too_long() -> list[tuple[str, str, int, int]]:
    """Return place, name, number of lines and max number of each function, class and file that is too long."""
    found = []
    for path in sources():
        text = path.read_text(encoding="utf-8")
        place = path.relative_to(ROOT).as_posix()
        sizes = [(place, path.name, text.count("\n"), MAX_FILE_LINES)]
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, _DEFINITIONS):
                most = MAX_CLASS_LINES if isinstance(node, ast.ClassDef) else MAX_FUNCTION_LINES
                lines = (node.end_lineno or 0) - node.lineno + 1
                sizes.append((f"{place}:{node.lineno}", node.name, lines, most))
        found += [size for size in sizes if size[2] > size[3]]
    return found


def medians() -> tuple[float, float]:
    """Return the medians of the functions' lengths: from `def` to the last line, and in lines of code."""
    whole, code = [], []
    for path in sources():
        text = path.read_text(encoding="utf-8")
        lines = text.splitlines(keepends=True)
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                whole.append((node.end_lineno or 0) - node.lineno + 1)
                body = textwrap.dedent("".join(lines[node.lineno - 1 : node.end_lineno]))
                code.append(code_lines(body))
    return median(whole), median(code)


def main() -> int:
    """Print the table and everything that is too long. Return the exit status."""
    counts = by_package()
    for layer in sorted({name.split(".")[1] for name in counts if "." in name}):
        inner = {name: n for name, n in counts.items() if name.split(".")[1:2] == [layer]}
        print(f"{sum(inner.values()):7,}  workbench.{layer}")
        for name, n in sorted(inner.items()):
            print(f"{n:7,}      {name.partition(f'{layer}.')[2] or '__init__'}")
    print(f"{sum(counts.values()):7,}  all")
    print("median function: {:g} lines, {:g} lines of code".format(*medians()))
    for place, name, lines, most in (long := too_long()):
        print(f"{place}: {name} has {lines} lines, at most {most} are allowed")
    return bool(long)


if __name__ == "__main__":
    sys.exit(main())
