"""Every public name, field and command of version 1.0 is still there, or docs/moving-from-1.0.md has it in "before"."""

from __future__ import annotations

import inspect
import json
import re
from importlib import import_module
from pathlib import Path
from typing import Any

import click
import pytest

import workbench as wb
from workbench.analysis.planning import measurements
from workbench.analysis.planning.delay_fits import FittedModel
from workbench.cli.main import cli
from workbench.core.contract.delays import delay_models
from workbench.core.contract.links import Link
from workbench.core.contract.optimisers import optimiser_class
from workbench.mpi.clusters.base import Cluster

ROOT = Path(__file__).resolve().parents[1]
NAMES = json.loads((ROOT / "tests" / "corpus" / "names.json").read_text())
PAGE = (ROOT / "docs" / "moving-from-1.0.md").read_text()


def rows(title: str) -> list[list[str]]:
    """Return the cells of the table below a title, without backticks."""
    section = PAGE.split(f"\n## {title}\n")[1].split("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("| ")][2:]
    return [[cell.strip().strip("`") for cell in line.strip("|").split("|")] for line in lines]


TITLES = re.findall(r"^## (.+)$", PAGE, re.MULTILINE)[1:]
BEFORE = [row[-2] for title in TITLES if title not in ("Packages", "Modules") for row in rows(title)]
MOVED = {before: now for title in ("Packages", "Modules") for before, now in rows(title)}


def module_now(name: str) -> str:
    """Return the current path of a module of version 1.0.

    >>> module_now("core.odds"), module_now("trace.table"), module_now("core.delays.base")
    ('workbench.core.contract.round_times', 'workbench.analysis.tables.table', 'workbench.core.contract.delays.base')
    """
    head, tail = name, ""
    while head not in MOVED:
        head, _, last = head.rpartition(".")
        tail = f".{last}{tail}"
    return MOVED[head] + tail


def member_of(owner: Any, path: str) -> bool:
    """Return whether an object has an attribute or a field, however deep."""
    for part in path.split("."):
        if part in getattr(owner, "model_fields", {}) or part in getattr(owner, "__annotations__", {}):
            return True
        if not hasattr(owner, part):
            return False
        owner = getattr(owner, part)
    return True


def listed(name: str) -> bool:
    """Return whether the column "before" of the page has the name of version 1.0, or of its module or class."""
    parts = name.split(".")
    return any(".".join(parts[:end]) in BEFORE for end in range(1, len(parts) + 1))


@pytest.mark.parametrize("title", ["Packages", "Modules"])
def test_moving_page_lists_existing_modules(title: str) -> None:
    for before, now in rows(title):
        assert import_module(now).__name__ == now, before


@pytest.mark.parametrize("name", NAMES["api"])
def test_moving_page_has_every_public_name(name: str) -> None:
    if name.startswith("wb."):
        path = name.removeprefix("wb.")
        short = path.removeprefix("figures.").removeprefix("batch.")
        assert member_of(wb, path) or listed(path) or listed(short)
    else:
        module, _, what = name.removeprefix("workbench.").partition(":")
        short = f"{module}.{what}"
        deep = [row for row in BEFORE if row.startswith(f"{module}.") and row.endswith(f".{what}")]
        assert member_of(import_module(module_now(module)), what) or listed(short) or deep


@pytest.mark.parametrize("name", NAMES["commands"])
def test_moving_page_has_every_command(name: str) -> None:
    command: click.Command | None = cli
    for word in name.split()[1:]:
        context = click.Context(cli)
        command = command.get_command(context, word) if isinstance(command, click.Group) else None
    if command is None:
        assert any(row.startswith(f"{name} ") for row in BEFORE)
    else:
        params = [each for each in command.params if not getattr(each, "hidden", False)]
        options = {word for each in params for word in (*each.opts, *each.secondary_opts)}
        assert {word for word in NAMES["commands"][name] if word.startswith("-")} <= options


KINDS = {
    "delays": lambda kind: delay_models()[kind],
    "scheme": wb.schemes.get,
    "problem": wb.problems.get,
    "optimiser": optimiser_class,
    "cluster": Cluster.catalogue.get_class,
    "ClusterProfile": {"Law": FittedModel, **vars(measurements)}.__getitem__,
}
CLASSES = [  # classes with the same name as before; test_moving_page_has_every_public_name checks the others
    name for name in NAMES["members"] if name.startswith("wb.") and member_of(wb, name.removeprefix("wb."))
]


@pytest.mark.parametrize("name", NAMES["fields"])
def test_moving_page_has_every_field(name: str) -> None:
    family, _, choice = name.partition(".")
    top = {
        "Link": Link,
        **{each: getattr(wb.batch, each) for each in ("Crossing", "Optimum", "Sample", "Sweep")},
    }
    owner = KINDS[family](choice) if choice else top.get(family) or getattr(wb, family)
    renamed = {(row[0], row[1]) for row in rows("Fields")}
    kind = {"kind"} if getattr(owner, "kind", "") else set()  # a key besides the fields
    for field in set(NAMES["fields"][name]) - set(owner.model_fields) - kind:
        if ("scheme_args" if family == "scheme" else f"problem_args of {choice}", field) in renamed:
            continue
        assert (f"delays of kind {choice}", field) in renamed or {f"{name}.{field}", f"{family}.{field}"} & {
            *BEFORE
        }


@pytest.mark.parametrize("name", CLASSES)
def test_moving_page_has_every_member(name: str) -> None:
    path = name.removeprefix("wb.")
    for member in NAMES["members"][name]:
        assert member_of(wb, f"{path}.{member}") or any(
            re.search(rf"(^|\.){re.escape(member)}(\(\))?$", row) for row in BEFORE
        ), member


def owner_of(name: str) -> Any:
    """Return the current object of a name of version 1.0, or None if it has another name."""
    head, _, path = name.partition(":") if ":" in name else ("", "", name.removeprefix("wb."))
    owner: Any = import_module(module_now(head.removeprefix("workbench."))) if head else wb
    for part in path.split("."):
        if (owner := getattr(owner, part, None)) is None:
            return None
    return owner


@pytest.mark.parametrize("name", [name for name, parameters in NAMES["parameters"].items() if parameters])
def test_moving_page_has_every_parameter(name: str) -> None:
    owner = owner_of(name)
    short = re.split("[.:]", name)[-1]
    for parameter in NAMES["parameters"][name] if owner is not None else ():  # for other names, see above
        there = (
            parameter in getattr(owner, "__annotations__", {})
            or parameter in inspect.signature(owner).parameters
        )
        assert there or f"{short}({parameter})" in BEFORE or f"{short}.{parameter}" in BEFORE, parameter
