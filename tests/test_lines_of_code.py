"""Lengths: functions, classes and files are short, and the package does not grow unnoticed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools import lines_of_code

MAX_LINES = 41_870  # max lines of code of the package
MAX_CORE_LINES = 16_150
MAX_MEDIAN_LINES = 7  # of functions, from `def` to the last line; version 1.0: 6
MAX_MEDIAN_CODE_LINES = 5  # of functions, in lines of code; version 1.0: 5


def test_functions_classes_and_files_are_short() -> None:
    assert not lines_of_code.too_long()


def test_package_is_within_its_lines_of_code() -> None:
    found = lines_of_code.by_package()
    assert sum(found.values()) <= MAX_LINES
    assert sum(n for name, n in found.items() if name.startswith("workbench.core")) <= MAX_CORE_LINES


def test_functions_do_not_grow() -> None:
    whole, code = lines_of_code.medians()
    assert whole <= MAX_MEDIAN_LINES
    assert code <= MAX_MEDIAN_CODE_LINES


def test_medians_count_functions_with_and_without_docstrings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bodies = [
        "    return 1\n",
        '    """Return 1."""\n\n    return 1\n',
        "    x = 1\n    # one\n    y = x\n    return y\n",
    ]
    (tmp_path / "a.py").write_text("class A:\n    @property\n    def f(self):\n        return 1\n")
    (tmp_path / "b.py").write_text("\n".join(f"def f():\n{body}" for body in bodies))
    monkeypatch.setattr(lines_of_code, "sources", lambda: iter(sorted(tmp_path.glob("*.py"))))
    assert lines_of_code.medians() == (3.0, 2.0)


def test_lines_of_code_omit_docstrings_comments_and_imports() -> None:
    text = '''"""Module."""

import os
from sys import (
    argv,
)


def f(x):  # a comment
    """Two
    lines."""
    # another
    "text that is not a docstring"
    return [
        x,
        os,

        argv,
    ]
'''
    assert lines_of_code.code_lines(text) == 7
