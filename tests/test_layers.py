"""Limits of the architecture: few packages, few late imports, file names defined in one place."""

from __future__ import annotations

import ast
import re
import shlex
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import workbench
from workbench.core.base import files
from workbench.core.trace import layout
from workbench.mpi.launch import poolfolder

PACKAGE = Path(workbench.__file__).parent
ROOT = Path(__file__).parents[1]
FILES = sorted(path for path in PACKAGE.rglob("*.py") if "shipped" not in path.parts)
MAX_PACKAGE_FILES, MAX_LOOSE_FILES, MAX_LATE_IMPORTS, MAX_TYPE_IMPORTS = 20, 4, 21, 10


@cache
def tree_of(path: Path) -> ast.Module:
    """Return the parsed source of a file, cached for the tests of one worker."""
    return ast.parse(path.read_text(encoding="utf-8"))


def within(tree: ast.AST, kinds: tuple[type[ast.AST], ...]) -> Iterator[ast.AST]:
    """Return the imports of the package that are inside nodes of these kinds."""
    for outer in ast.walk(tree):
        if isinstance(outer, kinds):
            if isinstance(outer, ast.If) and "TYPE_CHECKING" not in ast.unparse(outer.test):
                continue
            for node in ast.walk(outer):
                if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "workbench":
                    yield node


def test_package_has_few_subpackages() -> None:
    packages = [path for path in PACKAGE.iterdir() if (path / "__init__.py").is_file()]
    loose = [path.name for path in PACKAGE.glob("*.py")]
    assert len(packages) + len(loose) - 2 <= MAX_PACKAGE_FILES  # `__init__` and `__main__` are not counted
    assert len(loose) <= MAX_LOOSE_FILES, loose


def test_imports_are_at_the_top() -> None:
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    late = {(path, node) for path in FILES for node in within(tree_of(path), functions)}
    types = {(path, node) for path in FILES for node in within(tree_of(path), (ast.If,))}
    assert len(late) <= MAX_LATE_IMPORTS
    assert len(types) <= MAX_TYPE_IMPORTS


def names_of(module: object) -> set[str]:
    """Return the constants of a module that are names of data files. Names without a suffix are ordinary words."""
    texts = (v for v in vars(module).values() if isinstance(v, str) and not v.startswith("_"))
    return {text for text in texts if Path(text).suffix in (".json", ".npz", ".npy", ".f64", ".parquet")}


FACADE = {  # line of code -> whether `make lint` refuses it inside the package, because it uses the public names
    "import workbench": True,
    "import workbench as wb": True,
    "    import workbench as wb": True,
    "import os, workbench": True,
    "import workbench, os": True,
    "from workbench import run": True,
    "from workbench.core.base import files": False,
    "import workbench.core.base.files": False,
    "import workbench_book": False,
    ">>> import workbench as wb": False,
}


@pytest.mark.parametrize("line", FACADE)
def test_lint_refuses_the_public_names_inside_the_package(line: str, tmp_path: Path) -> None:
    rules = re.findall(r"^\t! (grep .*) workbench #", (ROOT / "Makefile").read_text(), re.MULTILINE)
    command = shlex.split(rules[0].replace("$$", "$"))
    (tmp_path / "workbench" / "core").mkdir(parents=True)
    (tmp_path / "workbench" / "core" / "a.py").write_text(f"x = 1\n{line}\n")
    found = subprocess.run([*command, "workbench"], cwd=tmp_path, capture_output=True, text=True)
    assert (found.returncode, found.stderr) == (0 if FACADE[line] else 1, "")
    assert bool(found.stdout) == FACADE[line]


@pytest.mark.parametrize("home", [layout, poolfolder], ids=["run folder", "pool folder"])
def test_file_names_are_defined_in_one_module(home: object) -> None:
    names = names_of(home)
    assert names
    here = Path(str(getattr(home, "__file__", "")))
    found = [
        (str(path.relative_to(PACKAGE)), node.value)
        for path in FILES
        for node in ast.walk(tree_of(path))
        if path not in (here, Path(files.__file__)) and isinstance(node, ast.Constant) and node.value in names
    ]
    assert not found


def annotated_names(tree: ast.AST) -> Iterator[str]:
    """Yield the values of `name` and `kind` that classes set with the annotation `ClassVar`."""
    for node in ast.walk(tree):
        for each in node.body if isinstance(node, ast.ClassDef) else []:
            if not isinstance(each, ast.AnnAssign) or "ClassVar" not in ast.unparse(each.annotation):
                continue
            if ast.unparse(each.target) in ("name", "kind") and getattr(each.value, "value", ""):
                yield ast.unparse(each)


def test_classes_are_registered_by_plain_attributes() -> None:
    code = 'class A:\n    name: ClassVar[str] = "A"\n    kind = "b"\n    size: int = 1'
    assert list(annotated_names(ast.parse(code))) == ["name: ClassVar[str] = 'A'"]
    assert not [name for path in FILES for name in annotated_names(tree_of(path))]
