"""Names that the source of the package defines, found without importing it: members, parameters, attributes of self."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
Function = ast.FunctionDef | ast.AsyncFunctionDef


@cache
def tree_of(module: str) -> ast.Module | None:
    """Return the syntax tree of a module or package of the repository, or None if there is none."""
    path = ROOT.joinpath(*module.split("."))
    file = path.with_suffix(".py") if path.with_suffix(".py").is_file() else path / "__init__.py"
    return ast.parse(file.read_text(encoding="utf-8")) if file.is_file() else None


@cache
def classes() -> dict[str, list[ast.ClassDef]]:
    """Return all classes of the package by their name without the module."""
    found: dict[str, list[ast.ClassDef]] = {}
    for path in (ROOT / "workbench").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                found.setdefault(node.name, []).append(node)
    return found


def stored(node: ast.AST, owner: str) -> Iterator[str]:
    """Yield the names that a statement assigns, or the attributes of `owner`."""
    for inner in ast.walk(node):
        if not isinstance(getattr(inner, "ctx", None), ast.Store):
            continue
        if isinstance(inner, ast.Name) and not owner:
            yield inner.id
        elif isinstance(inner, ast.Attribute) and ast.unparse(inner.value) == owner:
            yield inner.attr


def statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield the statements of a body, with those in `if` and `try`."""
    for node in body:
        yield node
        if isinstance(node, ast.If | ast.Try):
            yield from statements(node.body)
            yield from statements(node.orelse)


def members(node: ast.AST) -> dict[str, ast.AST]:
    """Return what a module or class defines, or a function's parameters, by name. Imported names are not among them."""
    if isinstance(node, Function):
        args = node.args
        every = [*args.posonlyargs, *args.args, *args.kwonlyargs, args.vararg, args.kwarg]
        return {each.arg: each for each in every if each is not None}
    found: dict[str, ast.AST] = {}
    for each in statements(getattr(node, "body", [])):
        if isinstance(each, Function) and isinstance(node, ast.ClassDef):
            found |= dict.fromkeys(stored(each, "self"), each)
            found |= members(each) if each.name == "__init__" else {}
        if isinstance(each, Function | ast.ClassDef):
            found[each.name] = each
        else:
            found |= {name: each for name in stored(each, "") if name not in found}
    return found


def bases(node: ast.AST) -> Iterator[ast.ClassDef]:
    """Yield the base classes of a class, at any depth. They are found by name, in the whole package."""
    queue, seen = [node], {id(node)}
    while queue:
        for base in getattr(queue.pop(), "bases", []):
            name = ast.unparse(base).partition("[")[0].rpartition(".")[2]
            new = [each for each in classes().get(name, []) if id(each) not in seen]
            seen |= {id(each) for each in new}
            queue += new
            yield from new


def member(node: ast.AST, name: str) -> ast.AST | None:
    """Return what defines a name in a module, class or function, or in a base class; None if nothing does."""
    every = (members(each).get(name) for each in (node, *bases(node)))
    return next((found for found in every if found is not None), None)


def is_defined(path: str) -> bool:
    """Return whether the source defines a full path, such as a member of a class or a parameter of a function.

    >>> is_defined("workbench.core.contract.plan.Plan.workers"), is_defined("workbench.core.contract.plan.Plan.wrkers")
    (True, False)
    """
    parts = path.split(".")
    for end in range(len(parts), 0, -1):
        if (node := tree_of(".".join(parts[:end]))) is not None:
            found: ast.AST | None = node
            for part in parts[end:]:
                found = None if found is None else member(found, part)
            return found is not None
    return False
