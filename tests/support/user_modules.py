"""Source text of a user file, and a function that imports it."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

from workbench.core.base import user_code

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
    spec = importlib.util.spec_from_file_location(f"{user_code.LOOSE_MODULE_PREFIX}{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module
