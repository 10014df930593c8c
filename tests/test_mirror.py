"""Every module has a test of its name, or a line in tests/README.md. Support code is in tests/support/."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parent
ROOT = TESTS.parent
HOMES = {
    "workbench": ROOT,
    "workbench_book": ROOT / "notebooks/papers",
    "workbench_lectures": ROOT / "notebooks/lecture",
}
WRITTEN_BY_1_0 = ("corpus", "core/trace/old")  # sources in saved run folders, which are data of tests
SOURCES = [
    path
    for path in sorted(TESTS.rglob("*.py"))
    if not any(path.is_relative_to(TESTS / folder) for folder in WRITTEN_BY_1_0)
]
FOLDERS = {"workbench": TESTS, "workbench_book": TESTS / "book", "workbench_lectures": TESTS / "lectures"}


def modules() -> list[str]:
    """Return the paths of all modules, such as `workbench/core/base/text.py`, without `__init__` and `__main__`."""
    return [
        str(path.relative_to(home))
        for name, home in HOMES.items()
        for path in sorted((home / name).rglob("*.py"))
        if path.stem not in ("__init__", "__main__")
    ]


def mirrored(module: str) -> bool:
    """Return whether there is a test file of that name in the matching folder."""
    package, *inside, file = Path(module).parts
    return FOLDERS[package].joinpath(*inside, f"test_{file.removeprefix('_')}").is_file()


def lines() -> list[tuple[list[str], list[str]]]:
    """Return patterns and tests from the table's lines."""
    rows = re.findall(
        r"^\| (`workbench[^|]+) \| ([^|]+) \|$", (TESTS / "README.md").read_text(), re.MULTILINE
    )
    return [(re.findall("`([^`]+)`", left), re.findall("`(tests/[^`]+)`", right)) for left, right in rows]


def test_every_module_has_a_test_or_a_readme_line() -> None:
    patterns = [pattern for left, _ in lines() for pattern in left]
    alone = [m for m in modules() if not mirrored(m) and not any(fnmatch(m, p) for p in patterns)]
    assert alone == [], "give them a test of their name, or a line in tests/README.md"


def test_readme_lines_name_existing_files() -> None:
    found = modules()
    for patterns, tests in lines():
        assert tests, patterns
        assert [p for p in patterns if not any(fnmatch(m, p) for m in found)] == []
        assert [t for t in tests if not (ROOT / t).is_file()] == []


def imported(text: str) -> Iterator[str]:
    """Return the dotted names that a source imports, or names in a string: `from a import b` gives `a.b`."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{'.' * node.level}{node.module or ''}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Constant) and re.fullmatch(r"(tests|benchmarks)(\.\w+)+", str(node.value)):
            yield str(node.value)


def of_a_test(name: str) -> bool:
    """Return whether a dotted name is in a test module, a conftest or a benchmark."""
    first, *rest = name.split(".")
    if first not in ("tests", ""):
        return first in ("benchmarks", "conftest") or first.startswith("test_")
    return any(part == "conftest" or part.startswith("test_") for part in rest)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("from tests.core.test_own import CELL", "tests.core.test_own.CELL"),
        ("from tests.core import test_own", "tests.core.test_own"),
        ("from . import test_own", "..test_own"),
        ("import tests.browser.conftest", "tests.browser.conftest"),
        ("def f():\n    from benchmarks import ui", "benchmarks.ui"),
        ("pytest_plugins = ['tests.browser.conftest']", "tests.browser.conftest"),
        ("import_module('benchmarks.faults')", "benchmarks.faults"),
    ],
)
def test_imports_of_tests_and_benchmarks_are_recognised(text: str, name: str) -> None:
    assert [each for each in imported(text) if of_a_test(each)] == [name]


@pytest.mark.parametrize(
    "path",
    [path for path in SOURCES if path != Path(__file__).resolve()],
    ids=lambda path: str(path.relative_to(TESTS)),
)
def test_no_test_imports_another_a_conftest_or_a_benchmark(path: Path) -> None:
    found = [name for name in imported(path.read_text(encoding="utf-8")) if of_a_test(name)]
    assert found == [], "move what is shared into tests/support/"


def test_support_code_is_in_tests_support() -> None:
    """Each file outside of `tests/support/` is a test, a conftest or an empty `__init__.py`."""
    outside = [path for path in SOURCES if not path.is_relative_to(TESTS / "support")]
    others = [
        str(path.relative_to(TESTS))
        for path in outside
        if not path.name.startswith("test_") and path.name not in ("conftest.py", "__init__.py")
    ]
    assert others == []
