"""Completion: public namespaces have only names for users, and no imported modules."""

from __future__ import annotations

from inspect import isfunction
from types import ModuleType
from typing import Any

import pytest

import workbench as wb

SPACES = [wb, *(value for name in wb.__all__ if isinstance(value := getattr(wb, name), ModuleType))]


@pytest.mark.parametrize("space", SPACES, ids=lambda space: space.__name__)
def test_a_public_namespace_lists_its_own_names_only(space: Any) -> None:
    offered = [name for name in dir(space) if not name.startswith("__")]
    assert sorted(offered) == sorted(space.__all__)
    for name in offered:
        value = getattr(space, name)
        if isinstance(value, ModuleType):
            assert space is wb
        assert not name.startswith("_")
        if isinstance(value, type) or isfunction(value):
            assert value.__module__.startswith("workbench")


@pytest.mark.parametrize("space", SPACES, ids=lambda space: space.__name__)
@pytest.mark.parametrize("name", ["import_module", "iter_modules", "isfunction"])
def test_functions_that_load_modules_are_not_public(space: Any, name: str) -> None:
    assert not hasattr(space, name)


def test_public_namespaces_are_found() -> None:
    found = {space.__name__.rpartition(".")[2] for space in SPACES}
    assert {"workbench", "batch", "figures", "problems", "schemes", "theory", "recordings"} <= found
