"""Lengths: functions, classes and files are short, and the package does not grow unnoticed."""

from __future__ import annotations

from tools import lines_of_code

MAX_LINES = 41_870  # max lines of code of the package
MAX_CORE_LINES = 16_150


def test_functions_classes_and_files_are_short() -> None:
    assert not lines_of_code.too_long()


def test_package_is_within_its_lines_of_code() -> None:
    found = lines_of_code.by_package()
    assert sum(found.values()) <= MAX_LINES
    assert sum(n for name, n in found.items() if name.startswith("workbench.core")) <= MAX_CORE_LINES


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
