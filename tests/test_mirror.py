"""Every module has a test of its name, or a line in tests/README.md that says what shows it."""

from __future__ import annotations

import re
from fnmatch import fnmatch
from pathlib import Path

TESTS = Path(__file__).resolve().parent
ROOT = TESTS.parent
HOMES = {
    "workbench": ROOT,
    "workbench_book": ROOT / "notebooks/papers",
    "workbench_lectures": ROOT / "notebooks/lecture",
}
FOLDERS = {"workbench": TESTS, "workbench_book": TESTS / "book", "workbench_lectures": TESTS / "lectures"}


def modules() -> list[str]:
    """All modules but those that only say what a folder is, such as `workbench/core/base/text.py`."""
    return [
        str(path.relative_to(home))
        for name, home in HOMES.items()
        for path in sorted((home / name).rglob("*.py"))
        if path.stem not in ("__init__", "__main__")
    ]


def mirrored(module: str) -> bool:
    """Is there a test file of that name, in the folder of that name?"""
    package, *inside, file = Path(module).parts
    return FOLDERS[package].joinpath(*inside, f"test_{file.removeprefix('_')}").is_file()


def lines() -> list[tuple[list[str], list[str]]]:
    """Patterns and tests of the lines in the table."""
    rows = re.findall(
        r"^\| (`workbench[^|]+) \| ([^|]+) \|$", (TESTS / "README.md").read_text(), re.MULTILINE
    )
    return [(re.findall("`([^`]+)`", left), re.findall("`(tests/[^`]+)`", right)) for left, right in rows]


def test_every_module_has_a_test_or_a_line() -> None:
    patterns = [pattern for left, _ in lines() for pattern in left]
    alone = [m for m in modules() if not mirrored(m) and not any(fnmatch(m, p) for p in patterns)]
    assert alone == [], "give them a test of their name, or a line in tests/README.md"


def test_no_line_names_what_is_not_there() -> None:
    found = modules()
    for patterns, tests in lines():
        assert tests, patterns
        assert [p for p in patterns if not any(fnmatch(m, p) for m in found)] == []
        assert [t for t in tests if not (ROOT / t).is_file()] == []
