"""Folders of pools that have ended do not stay."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from workbench.launch import pools
from workbench.launch.places import here
from workbench.launch.supervisor import GONE


@pytest.fixture
def dead() -> int:
    """Number of a process that has ended."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


@pytest.mark.parametrize(
    ("owner_lives", "gone", "ranks", "host", "stays"),
    [
        (False, True, None, None, False),
        (False, False, "dead", "here", False),  # its supervisor was killed, too
        (False, False, "alive", "here", True),
        (False, False, "dead", "elsewhere", True),  # nothing is known of other hosts' processes
        (False, False, None, None, True),  # it is only starting
        (True, True, "dead", "here", True),  # its owner may still ask why it ended
    ],
)
def test_only_what_is_over_is_swept_away(
    owner_lives: bool,
    gone: bool,
    ranks: str | None,
    host: str | None,
    stays: bool,
    dead: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pools, "pools_folder", lambda: tmp_path)
    folder = tmp_path / f"{os.getpid() if owner_lives else dead}-abc"
    folder.mkdir()
    if gone:
        (folder / GONE).write_text("{}")
    if ranks is not None:
        pid = os.getpid() if ranks == "alive" else dead
        place = [pid, here().host if host == "here" else "another-host"]
        (folder / pools.READY).write_text(json.dumps({"places": [place, place]}))
    pools.sweep()
    assert folder.exists() == stays
