"""Discovery of formulas: adding one file adds a formula."""

from __future__ import annotations

import pydoc
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from workbench.core import theory

FORMULA = '''"""A formula of our own."""

from math import sqrt

from workbench.core.theory._checks import positive

def halved_time(seconds: float) -> float:
    """Half of a time."""
    return sqrt(_squared(positive("seconds", seconds))) / 2

def _squared(x: float) -> float:
    return x * x
'''
LISTED = '__all__ = ["listed_time"]\ndef listed_time(): return 1\ndef helper(): return 2\n'


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """Add a folder to the search path during a test."""
    before = set(vars(theory)), set(sys.modules)
    theory.__path__.append(str(tmp_path))
    yield tmp_path
    theory.__path__.remove(str(tmp_path))
    for name in set(vars(theory)) - before[0]:
        delattr(theory, name)
    for name in set(sys.modules) - before[1]:
        if name.startswith("workbench.core.theory."):
            del sys.modules[name]


def test_theory_finds_a_formula_in_a_new_file(folder: Path) -> None:
    known = set(theory.__all__)
    (folder / "halved.py").write_text(FORMULA)
    (folder / "listed_time.py").write_text(LISTED)
    (folder / "_hidden.py").write_text("def hidden(): return 3\n")
    assert theory.halved_time(3.0) == 1.5
    assert theory.listed_time() == 1  # the function, not the module of that name
    assert set(theory.__all__) - known == {"halved_time", "listed_time"}
    assert set(dir(theory)) == set(theory.__all__)  # the names that tab completion offers
    help_text = pydoc.render_doc(theory, renderer=pydoc.plaintext)
    assert "halved_time(seconds: float) -> float" in help_text
    assert "cr_load(" in help_text
    for name in ("sqrt", "positive", "_squared", "helper", "hidden"):
        with pytest.raises(AttributeError, match=name):
            getattr(theory, name)


def test_theory_formula_with_the_name_of_its_module() -> None:
    """The order of imports has no effect."""
    code = "import workbench.core.theory.necklaces; from workbench import theory; print(theory.necklaces(2))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("(array(")


def test_theory_star_import_has_formulas_only() -> None:
    names: dict[str, object] = {}
    exec("from workbench.core.theory import *", names)
    assert set(theory.__all__) == set(names) - {"__builtins__"}
