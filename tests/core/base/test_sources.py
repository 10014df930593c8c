"""The source of a class: it includes the user's code that the class uses, and its hash changes with that code."""

from __future__ import annotations

import linecache
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.support.user_modules import module_of
from workbench.core.base.by_value import received, sent
from workbench.core.base.settings import SettingError
from workbench.core.base.sources import USED_DEFINITIONS_HEADING, digest_in, source_of

FILE = '''"""A user's file."""
import functools
import numpy as np
from math import floor

LATE = 3  # of a kind
OTHER = 5
ROWS = np.arange(6.0).reshape(2, 3)
COUNT = 0
SEEN = [0]
WIDTHS = [8, (8, {4})]
RATES = {"first": ROWS * 1.0, "other": [None]}
WHO = {"helper": object(), "n": 1}

def base(workers):
    return workers - LATE

@functools.lru_cache
def waits(workers):
    return max(1, base(workers))

def unused(workers):
    return OTHER

class Base:
    def least(self):
        return 1

class Half(Base):
    """Half of them."""

    def waits_for(self, workers):  # a comment
        global COUNT
        COUNT += 1
        SEEN.append(workers)
        return floor(waits(workers)) + self.least() + ROWS.sum() + len(WIDTHS) + len(RATES) + len(WHO)
'''

CHANGES = {  # text of the file -> its replacement, and whether the definition then counts as another one
    "  # a comment": ("", False),
    "return OTHER": ("return OTHER + 1", False),
    "OTHER = 5": ("OTHER = 6", False),
    "COUNT = 0": ("COUNT = 0  # counts", False),
    "SEEN = [0]": ("SEEN = [*range(1)]", True),
    "LATE = 3": ("LATE = 4", True),
    "(8, {4})": ("(8, {4, 5})", True),
    "ROWS * 1.0": ("ROWS * 2.0", True),
    "workers - LATE": ("workers + LATE", True),
    "max(1, ": ("max(2, ", True),
    "@functools.lru_cache\n": ("", True),
    "return 1\n": ("return 2\n", True),
    "reshape(2, 3)": ("reshape(3, 2)", True),
    "arange(6.0)": ("ones(6)", True),
    "from math import floor": ("from math import ceil as floor", True),
}


@pytest.mark.parametrize("old", CHANGES)
def test_digest_in_changes_with_what_the_class_uses(tmp_path: Path, old: str) -> None:
    new, other = CHANGES[old]
    before = source_of(module_of(tmp_path / "a.py", FILE).Half)
    after = source_of(module_of(tmp_path / "b.py", FILE.replace(old, new)).Half)
    assert before.text.startswith(FILE)
    assert (before.digest != after.digest) == other
    assert before.digest == digest_in(before.text, "Half")


@pytest.mark.parametrize(
    ("change", "other"),
    [
        (lambda m: m.WIDTHS.append(1), True),
        (lambda m: m.RATES.update(other=[1]), True),
        (lambda m: m.RATES["first"].fill(0), True),
        (lambda m: m.SEEN.append(1), False),  # changed by the program itself during a run
        (lambda m: m.WHO.update(n=2), False),
    ],
)
def test_source_of_includes_contents_of_lists_and_dicts(
    tmp_path: Path, change: Callable[[Any], Any], other: bool
) -> None:
    """The contents of lists and dicts may differ from the source text, for example after a later cell."""
    module = module_of(tmp_path / "a.py", FILE)
    before = source_of(module.Half)
    assert "SEEN is changed as it runs, and not compared" in before.text
    assert "WHO is a dict whose values are not compared" in before.text
    change(module)
    assert (source_of(module.Half).digest != before.digest) == other


def test_source_of_ignores_running_counters(tmp_path: Path) -> None:
    module = module_of(tmp_path / "a.py", FILE)
    before = source_of(module.Half)
    module.Half().waits_for(8)
    assert module.COUNT == 1
    assert source_of(module.Half) == before


Cells = Callable[[str], ModuleType]


@pytest.fixture
def cells(monkeypatch: pytest.MonkeyPatch) -> Cells:
    """Return a function that runs a cell as a notebook does: in one module, with a separate file name per cell."""
    module = ModuleType("own_notebook")
    monkeypatch.setitem(sys.modules, "own_notebook", module)
    vars(module)["In"] = []

    def run(text: str) -> ModuleType:
        name = f"<cell {len(module.In)}>"
        module.In.append(text)
        linecache.cache[name] = (len(text), None, text.splitlines(True), name)
        exec(compile(text, name, "exec"), vars(module))
        return module

    return run


HALF = "class Half:\n    def waits_for(self, workers):\n        return waits(workers) * TIMES\n"


@pytest.mark.parametrize(
    ("cell", "other"),
    [
        ("TIMES = 3", True),
        ("TIMES = 1 + 1", False),
        ("OTHER = 3", False),
        ("def waits(workers):\n    return workers - 1", True),
        ("def late(workers):\n    return 2", True),
        ("# nothing new\ndef waits(workers):\n    return workers - late(workers)  # as it was", False),
    ],
)
def test_source_of_includes_definitions_of_other_cells(cells: Cells, cell: str, other: bool) -> None:
    cells("TIMES = 2\ndef late(workers):\n    return 1")
    cells("def waits(workers):\n    return workers - late(workers)")
    module = cells(HALF)
    before = source_of(module.Half)
    top, below = before.text.split(USED_DEFINITIONS_HEADING)
    assert top == HALF
    assert "TIMES = 2" in below
    assert "return workers - late(workers)" in below
    again: dict[str, Any] = {}
    exec(before.text, again)  # the text can be executed unchanged
    assert again["Half"]().waits_for(4) == module.Half().waits_for(4) == 6
    cells(cell)
    assert (source_of(module.Half).digest != before.digest) == other


def test_source_of_includes_base_classes_closures_and_modules(
    cells: Cells, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "helping.py").write_text("def least():\n    return 1\ndef unused():\n    return 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    cells(
        "import helping, functools\nRULE = functools.partial(lambda a, b: a + b, 1)\nclass Base:\n    SHARE = 2"
    )
    module = cells("class Rule:\n    times = 1\n    def of(self):\n        return self.times\nrule = Rule()")
    text = "        def waits(self):\n            return n + helping.least() + RULE(1) + rule.of()"
    module = cells(f"def make(n):\n    class Half(Base):\n{text}\n    return Half\nHalf = make(3)")
    whole = source_of(module.Half).text
    assert "SHARE = 2" in whole
    assert "n = 3" in whole
    assert "def least" in whole
    assert "def unused" not in whole
    assert "lambda a, b: a + b" in whole
    assert "class Rule:" in whole
    before = source_of(module.Half).digest
    assert source_of(module.make(4)).digest != before
    assert source_of(module.make(3)).digest == before


def test_source_of_a_class_is_from_the_newest_cell(cells: Cells) -> None:
    cells("class Half:\n    share = 1")
    module = cells("class Half:\n    share = 2")
    assert "share = 2" in source_of(module.Half).text


def test_source_of_what_was_sent_by_value(cells: Cells) -> None:
    cells(
        "DEFAULT = 0.5\nfrom workbench.core.base.settings import setting\n"
        "from workbench.core.schemes.uncoded import UMW"
    )
    module = cells("class Half(UMW):\n    name = 'Half'\n    share: float = setting(DEFAULT, 'share', gt=0)")
    own_source = source_of(module.Half)
    assert "DEFAULT = 0.5" in own_source.text
    linecache.clearcache()
    (came,) = received(sent([module.Half]))
    assert source_of(came) == own_source


def test_source_of_refuses_a_class_without_text() -> None:
    space: dict[str, type] = {}
    exec("class Lost:\n    def program(self):\n        pass\n", space)
    with pytest.raises(SettingError, match="Lost: its source is not to be had"):
        source_of(space["Lost"])
