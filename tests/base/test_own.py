"""Classes of a cell or a loose file: their source, and themselves by value in another process."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from workbench.base import own
from workbench.base.own import came, digest_in, is_own, name_of, received, sent, source_of, thing_of
from workbench.base.settings import SettingError

pytestmark = pytest.mark.usefixtures("forgetful")

FILE = '''
"""A user's file."""
import numpy as np
from workbench.base.settings import setting
from workbench.schemes.uncoded import UMW

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
    spec = importlib.util.spec_from_file_location(f"{own.LOOSE}{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_who_is_ones_own(tmp_path: Path) -> None:
    assert is_own(module_of(tmp_path / "mine.py").Half)
    assert not is_own(np.ndarray)
    assert not is_own(own.Source)


def test_a_file_by_value_in_another_process(tmp_path: Path) -> None:
    half = module_of(tmp_path / "mine.py").Half
    (tmp_path / "mine.py").unlink()  # nothing is left that could be imported
    program = (
        "import sys; from workbench.base.own import received;"
        "cls, = received(sys.stdin.read()); print(cls(share=0.25).waits_for(12), cls.__name__)\n"
    )
    told = subprocess.run(
        [sys.executable, "-c", program], input=sent([half]), capture_output=True, text=True, cwd=tmp_path
    )
    assert told.stdout.split() == ["9", "Half"], told.stderr


def test_the_source_is_the_whole_file_and_the_hash_the_class_alone(tmp_path: Path) -> None:
    one = source_of(module_of(tmp_path / "a.py").Half)
    assert one.text == FILE
    assert one.name == "Half"
    assert (
        source_of(module_of(tmp_path / "b.py", FILE.replace("  # a comment", "")).Half).digest == one.digest
    )
    assert source_of(module_of(tmp_path / "c.py", FILE.replace("0.5", "0.6")).Half).digest != one.digest


def test_a_class_without_text_says_so() -> None:
    space: dict[str, type] = {}
    exec("class Lost:\n    def program(self):\n        pass\n", space)
    with pytest.raises(SettingError, match="Lost: its source is not to be had"):
        source_of(space["Lost"])


def test_what_cannot_be_sent_is_named(tmp_path: Path) -> None:
    text = FILE.replace("LATE = 3", "import threading\nLOCK = threading.Lock()\nLATE = 3")
    text = text.replace("return max(", "LOCK.acquire(); return max(")
    with pytest.raises(SettingError, match=r"Half: cannot be sent .* variable 'LOCK' of waits holds a lock"):
        sent([module_of(tmp_path / "locked.py", text).Half])


def test_what_is_too_large_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own, "MOST", 2**20)
    text = FILE.replace("LATE = 3", "LATE = np.ones(300_000)").replace(
        "workers - LATE", "workers - len(LATE)"
    )
    with pytest.raises(SettingError, match=r"Half: holds 2 MB .* variable 'LATE' of waits holds a ndarray"):
        sent([module_of(tmp_path / "large.py", text).Half])


def test_what_is_sent_comes_back_here_too(tmp_path: Path) -> None:
    half = module_of(tmp_path / "mine.py").Half
    (again,) = received(sent([half]))
    assert again is not half or again.__name__ == "Half"
    assert again(share=0.25).share == 0.25


MAKERS = """
def width():
    return 3

class Net:
    size = 1

def make():
    return Net(), width()

def other():
    return 1
"""


def test_a_function_is_found_again_by_its_name(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(MAKERS)
    name = f"{tmp_path}/mine.py:make"
    make = thing_of(name, "module")
    assert name_of(make, "module") == name
    assert name_of(name, "module") == name
    assert thing_of(name_of(is_own, "module"), "module") is is_own
    assert name_of(is_own, "module") == "workbench.base.own:is_own"

    def local() -> None:
        pass

    first = local
    assert thing_of(name_of(first, "module"), "module") is first

    def local() -> None:  # type: ignore[no-redef]  # as a cell that is run again
        pass

    assert thing_of(name_of(local, "module"), "module") is local
    for wrong, says in [
        (lambda: None, "module = <function .* has no name to be found by"),
        (3, "module = 3: has no name"),
    ]:
        with pytest.raises(SettingError, match=says):
            name_of(wrong, "module")
    with pytest.raises(SettingError, match="defines no function or class 'nothing'"):
        thing_of(f"{tmp_path}/mine.py:nothing", "module")


def test_what_a_task_brings_comes_before_what_a_rank_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own, "_came", {})
    monkeypatch.setitem(vars(sys.modules["__main__"]), "net", len)
    assert thing_of("net", "module") is len
    came({"net": max})
    assert thing_of("net", "module") is max


def test_the_hash_of_a_function_is_also_of_what_it_names(tmp_path: Path) -> None:
    before = digest_in(MAKERS, "make")
    (tmp_path / "mine.py").write_text(MAKERS)
    assert source_of(thing_of(f"{tmp_path}/mine.py:make", "module")).digest == before
    for changed, same in {"return 1": True, "size = 1": False, "return 3": False, "def other": True}.items():
        text = MAKERS.replace(
            changed, changed.replace("1", "2").replace("3", "4").replace("other", "another")
        )
        assert (digest_in(text, "make") == before) == same


def test_two_definitions_of_one_name_are_not_sent() -> None:
    def one() -> None:
        pass

    two = type("one", (), {})
    with pytest.raises(SettingError, match="one: two definitions of this run have that name"):
        sent([one, two])
