"""Doctests of the data modules."""

import doctest
import importlib
import pkgutil

import pytest

from workbench.core.problems import data

MODULES = ["workbench.core.base.files", data.__name__] + [
    f"{data.__name__}.{module.name}" for module in pkgutil.iter_modules(data.__path__)
]


@pytest.mark.parametrize("name", MODULES)
def test_data_doctests(name: str) -> None:
    module = importlib.import_module(name)
    assert doctest.testmod(module).failed == 0
