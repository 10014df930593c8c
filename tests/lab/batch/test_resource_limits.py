"""Sweeps with few resources: few open files, or paths that are too long for sockets."""

from __future__ import annotations

import resource
import tempfile
from pathlib import Path

import pytest

from workbench.core.base.settings import SettingError
from workbench.lab import notebooks
from workbench.lab.batch import sweep
from workbench.lab.batch.run import FILES_PER_RUN, SPARE_FILES, room
from workbench.lab.notebooks import MAX_SOCKET_PATH_BYTES, SOCKET_NAME_BYTES, socket_folder

PLAN = {"base": {"rounds": 2, "problem": "unit"}, "seeds": 2}


@pytest.fixture
def deep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Set a folder of temporary files whose path is too long for a socket."""
    folder = tmp_path / ("d" * MAX_SOCKET_PATH_BYTES)
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return folder


def allow(monkeypatch: pytest.MonkeyPatch, files: int) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda which: (files, files))


def test_sweep_with_a_long_temporary_path(deep: Path, tmp_path: Path) -> None:
    assert len(sweep(PLAN, tmp_path / "runs", progress=False).named("done")) == 2


def test_socket_folder_has_a_short_path(deep: Path) -> None:
    folder = socket_folder("wb-")
    try:
        assert len(str(folder)) + SOCKET_NAME_BYTES <= MAX_SOCKET_PATH_BYTES
        assert folder.stat().st_mode & 0o777 == 0o700
        assert deep not in folder.parents
    finally:
        folder.rmdir()


def test_sweep_without_a_short_folder_names_tmpdir(deep: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    monkeypatch.setattr(notebooks.os, "access", lambda path, mode: Path(path) == deep)
    with pytest.raises(
        SettingError, match=rf"^TMPDIR = '{deep}': has \d+ bytes, .* set TMPDIR to such a one$"
    ):
        sweep(PLAN, deep / "runs", progress=False)


def test_sweep_reports_a_low_limit_of_open_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    allow(monkeypatch, 40)
    with pytest.raises(
        SettingError, match=r"^jobs = 1: needs \d+ open files and 40 are allowed; raise it: ulimit -n"
    ):
        sweep(PLAN, tmp_path / "runs", progress=False)
    assert not (tmp_path / "runs").exists()


def test_room_of_open_files_grows_with_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    allow(monkeypatch, resource.RLIM_INFINITY)
    assert [room(jobs) for jobs in (1, 3)] == [2, 6]
    allow(monkeypatch, 2 * FILES_PER_RUN + SPARE_FILES + 500)
    assert room(1) == 2
    allow(monkeypatch, 10**6)
    assert room(7) == 14
    with pytest.raises(SettingError, match=r"jobs = 100000: needs \d+ .* take jobs = \d+, or raise it"):
        room(10**5)
