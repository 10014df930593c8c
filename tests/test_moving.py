"""docs/moving-from-1.0.md: "before" has every public name, field and command of version 1.0 that has gone.

Every name in "now" exists in the code, in the module and the class that the page gives.
"""

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
from tests.support.definitions import classes, is_defined, member, tree_of
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


API_TABLE, LABELS = "Functions and classes", "Labels of the pages"
CODE_TABLES = ("Names for authors of schemes and delay models", "All other names")
NOW = {before: now for title in (API_TABLE, *CODE_TABLES) for before, now in rows(title)}
NOT_NAMES = {"Fault.how", "Mark all found"}  # whose "now" is a sentence


def module_now(name: str) -> str:
    """Return the current path of a module of version 1.0.

    >>> module_now("core.odds"), module_now("trace.table"), module_now("cli.run")
    ('workbench.core.contract.round_times', 'workbench.analysis.tables.table', 'workbench.cli.run')
    """
    head, tail = name, ""
    while head and head not in MOVED:
        head, _, last = head.rpartition(".")
        tail = f".{last}{tail}"
    return MOVED.get(head, "workbench") + tail


def path_now(name: str) -> str:
    """Return the current path of a name in a module of version 1.0, as the tables have it.

    >>> path_now("core.odds.Draws.carry"), path_now("engines.real.rank.SLACK")
    ('workbench.core.contract.round_times.SampledTimes.state', 'workbench.mpi.engine.setup.NodeClock.slack')
    """
    parts = name.split(".")
    heads = [".".join(parts[:end]) for end in range(1, len(parts) + 1)]
    first = max(i for i, head in enumerate(heads[:-1]) if tree_of(module_now(head)) is not None)
    path = module_now(heads[first])
    for head, part in zip(heads[first + 1 :], parts[first + 1 :], strict=True):
        now = NOW.get(head, part)
        path = f"workbench.{now}" if "." in now else f"{path}.{now}"
    return path


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


def current(name: str) -> Any:
    """Return what has a public name of version 1.0 now, under the name that the tables give; None if it has gone."""
    module, _, what = name.rpartition(":")
    if module:
        path = path_now(f"{module.removeprefix('workbench.')}.{what}")
        owner, what = import_module(path.rpartition(".")[0]), path.rpartition(".")[2]
        return getattr(owner, what, None)
    path, owner = name.removeprefix("wb."), wb
    heads = [path[: match.start()] for match in re.finditer(r"\.|$", path)]
    for head in heads:
        now = NOW.get(head, head.rpartition(".")[2])
        if now.startswith("wb."):
            owner, now = wb, now.removeprefix("wb.")
        for part in now.split("."):
            owner = getattr(owner, part, None)
    return owner


def moved(name: str, member: str) -> bool:
    """Return whether "before" has a member or a parameter of this class or function, not of another one."""
    short = re.split("[.:]", name)[-1]
    ends = (f"{short}.{member}", f"{short}({member})", f"{short}.{member}()")
    return any(f".{row}".endswith(tuple(f".{end}" for end in ends)) for row in BEFORE)


def command_of(name: str) -> click.Command | None:
    """Return the command of a name such as "workbench cluster check", or None."""
    command: click.Command | None = cli
    for word in name.split()[1:]:
        context = click.Context(cli)
        command = command.get_command(context, word) if isinstance(command, click.Group) else None
    return command


@pytest.mark.parametrize("title", ["Packages", "Modules"])
def test_moving_page_lists_existing_modules(title: str) -> None:
    for before, now in rows(title):
        assert import_module(now).__name__ == now, before


@pytest.mark.parametrize("title", CODE_TABLES)
def test_moving_page_lists_names_that_exist(title: str) -> None:
    assert not {before: now for before, now in rows(title) if not is_defined(path_now(before))}


def test_moving_page_lists_functions_and_classes_that_exist() -> None:
    for before, now in rows(API_TABLE):
        if before not in NOT_NAMES:
            owner, _, path = now.partition(".")
            whole = wb if owner == "wb" else None
            found = member_of(whole, path) if whole else all(member(each, path) for each in classes()[owner])
            assert found, (before, now)


def test_moving_page_lists_fields_that_exist() -> None:
    for where, _, now in rows("Fields"):
        family, _, kind = where.removesuffix("`").replace(" of kind ", " of ").partition(" of ")
        owners = [wb.schemes.get(name) for name in wb.schemes.names()]
        if kind:
            owners = [KINDS["problem" if family == "problem_args" else family](kind)]
        assert any(now in owner.model_fields for owner in owners), (where, now)


def test_moving_page_lists_labels_that_exist() -> None:
    texts = [path.read_text() for path in sorted((ROOT / "workbench" / "lab").rglob("*.[pj][ys]"))]
    for before, now in rows(LABELS):
        for label in [] if before in NOT_NAMES else now.replace("*", "").split(", in "):
            assert any(f'"{label}"' in text for text in texts), (before, label)


def test_moving_page_lists_commands_that_exist() -> None:
    for before, now in rows("Commands"):
        assert command_of(" ".join(word for word in now.split() if word.islower())) is not None, before


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
    if (command := command_of(name)) is None:
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


@pytest.mark.parametrize("name", NAMES["members"])
def test_moving_page_has_every_member(name: str) -> None:
    owner = current(name)
    assert owner is not None or listed(name.removeprefix("wb."))
    gone = {each for each in NAMES["members"][name] if owner is not None and not member_of(owner, each)}
    assert not {each for each in gone if not moved(name, each)}


@pytest.mark.parametrize("name", [name for name, parameters in NAMES["parameters"].items() if parameters])
def test_moving_page_has_every_parameter(name: str) -> None:
    owner = current(name)
    assert owner is not None
    there = {*inspect.signature(owner).parameters, *getattr(owner, "__annotations__", {})}
    assert not {each for each in NAMES["parameters"][name] if each not in there and not moved(name, each)}
