"""Classes of a cell or a user file, sent by value to another process. Errors name the part that cannot be sent."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.user_modules import FILE, module_of
from workbench.core.base import by_value
from workbench.core.base.by_value import received, sent
from workbench.core.base.settings import SettingError


def test_sent_file_is_received_in_another_process(tmp_path: Path) -> None:
    half = module_of(tmp_path / "mine.py").Half
    (tmp_path / "mine.py").unlink()  # the receiver cannot import the file
    program = (
        "import sys; from workbench.core.base.by_value import received;"
        "cls, = received(sys.stdin.read()); print(cls(share=0.25).waits_for(12), cls.__name__)\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", program], input=sent([half]), capture_output=True, text=True, cwd=tmp_path
    )
    assert result.stdout.split() == ["9", "Half"], result.stderr


def test_sent_names_what_cannot_be_sent(tmp_path: Path) -> None:
    text = FILE.replace("LATE = 3", "import threading\nLOCK = threading.Lock()\nLATE = 3")
    text = text.replace("return max(", "LOCK.acquire(); return max(")
    with pytest.raises(SettingError, match=r"Half: cannot be sent .* variable 'LOCK' of waits holds a lock"):
        sent([module_of(tmp_path / "locked.py", text).Half])


def test_sent_names_what_is_too_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(by_value, "MAX_DEFINITION_BYTES", 2**20)
    text = FILE.replace("LATE = 3", "LATE = np.ones(300_000)").replace(
        "workers - LATE", "workers - len(LATE)"
    )
    with pytest.raises(SettingError, match=r"Half: holds 2 MB .* variable 'LATE' of waits holds a ndarray"):
        sent([module_of(tmp_path / "large.py", text).Half])


def test_sent_and_received_in_the_same_process(tmp_path: Path) -> None:
    half = module_of(tmp_path / "mine.py").Half
    (again,) = received(sent([half]))
    assert again is not half or again.__name__ == "Half"
    assert again(share=0.25).share == 0.25
