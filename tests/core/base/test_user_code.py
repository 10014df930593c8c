"""Whose a class is: one of a cell, a script or a loose file, or one that other processes can import."""

from __future__ import annotations

import functools
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from workbench.core.base import user_code
from workbench.core.base.user_code import is_own

FILE = '''
"""A user's file."""
import numpy as np
from workbench.core.base.settings import setting
from workbench.core.schemes.uncoded import UMW

LATE = 3  # of a kind

def waits(workers):
    return max(1, workers - LATE)

class Half(UMW):
    """Half of them."""
    name = "Half of a test"
    share: float = setting(0.5, "share", gt=0, le=1)

    def waits_for(self, workers):  # a comment
        return waits(workers)
'''


def module_of(path: Path, text: str = FILE) -> ModuleType:
    path.write_text(text)
    spec = importlib.util.spec_from_file_location(f"{user_code.LOOSE}{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_who_is_ones_own(tmp_path: Path) -> None:
    assert is_own(module_of(tmp_path / "mine.py").Half)
    assert not is_own(np.ndarray)
    assert is_own(module_of(tmp_path / "more.py"))
    assert is_own(module_of(tmp_path / "further.py").waits)
    for known in (
        user_code.is_own,
        user_code,
        int,
        len,
        np,
        np.linalg.norm,
        functools.partial,
        pytest.raises,
    ):
        assert not is_own(known), known
