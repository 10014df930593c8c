"""A file beside a script that hides a module of the same name: one sentence names the file."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = "import workbench as wb\nprint(len(wb.run(wb.Experiment(scheme='UMW', workers=3, rounds=3){engine}).rounds))"


def last_line(*command: str, folder: Path) -> str:
    """Return the last line of a process's output."""
    env = {**os.environ, "XDG_CACHE_HOME": str(folder / "cache")}
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=300)
    return (done.stdout + done.stderr).strip().splitlines()[-1]


@pytest.mark.parametrize("name", ["numpy", "yaml", "random", "struct", "pydantic"])
def test_shadowed_module_is_named(tmp_path: Path, name: str) -> None:
    (tmp_path / f"{name}.py").write_text("mine = 1\n")
    (tmp_path / "script.py").write_text(SCRIPT.format(engine=""))
    text = last_line(sys.executable, "script.py", folder=tmp_path)
    assert text.startswith("ImportError: ")
    assert f"{tmp_path / name}.py: has the name of a module that is needed" in text


@pytest.mark.mpi
@pytest.mark.xdist_group("mpi")
def test_shadowed_module_imported_during_a_run_is_named(tmp_path: Path) -> None:
    (tmp_path / "psutil.py").write_text("mine = 1\n")
    (tmp_path / "script.py").write_text(
        SCRIPT.format(engine="), engine='mpi'").replace("rounds=3)", "rounds=3", 1)
    )
    assert f"{tmp_path}/psutil.py: has the name" in last_line(sys.executable, "script.py", folder=tmp_path)


def test_shadowing_files_do_not_affect_the_command_line(tmp_path: Path) -> None:
    for name in ("numpy", "yaml", "random", "json"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('the wrong file')\n")
    text = ("-m", "workbench", "run", "--scheme", "UMW", "--workers", "3", "--rounds", "3")
    assert last_line(sys.executable, *text, folder=tmp_path).startswith("UMW: 3 rounds")


def test_shadows_keep_other_import_errors(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text("import workbench as wb\nwb.nothing")
    assert last_line(sys.executable, "script.py", folder=tmp_path) == (
        "AttributeError: module 'workbench' has no attribute 'nothing'"
    )
