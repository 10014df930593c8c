"""User-defined code: classes of a cell, a script or a user file, in contrast to importable ones."""

from __future__ import annotations

import functools
from pathlib import Path

import numpy as np
import pytest

from tests.support.user_modules import module_of
from workbench.core.base import user_code
from workbench.core.base.user_code import is_own


def test_is_own_recognises_user_defined_objects(tmp_path: Path) -> None:
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
