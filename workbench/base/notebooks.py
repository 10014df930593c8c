"""Notebooks executed with parameters, each in a kernel that listens on no network port."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from traitlets.config import Config

from workbench.base.settings import SettingError

if TYPE_CHECKING:
    import nbformat

ROOT = Path(__file__).resolve().parents[2]  # of a clone, where the notebooks are
FIRST = ROOT / "notebooks" / "01-straight-line.ipynb"
SOCKET = 103  # bytes that the path of a socket may have: 107 on Linux, fewer on macOS
NAMES = 24  # of them for the sockets' own names


def socket_folder(prefix: str) -> Path:
    """Make a folder for sockets that only we may enter: where temporary files go, if that path is short enough.

    Raises `SettingError` where nothing short can be written.
    """
    usual = tempfile.gettempdir()
    for place in (usual, os.environ.get("XDG_RUNTIME_DIR", ""), "/tmp", "/var/tmp"):
        short = len(os.fsencode(Path(place, f"{prefix}12345678"))) + NAMES <= SOCKET
        if place and short and os.access(place, os.W_OK | os.X_OK):
            return Path(tempfile.mkdtemp(prefix=prefix, dir=place))
    most = SOCKET - NAMES - len(f"/{prefix}12345678")
    raise SettingError(
        f"TMPDIR = {usual!r}: has {len(os.fsencode(usual))} bytes, and sockets need a folder that can be written with"
        f" a path of {most} at most; set TMPDIR to such a one"
    )


def execute(
    notebook: Path, output: Path, parameters: Mapping[str, Any], cwd: Path, progress: bool = False
) -> nbformat.NotebookNode:
    """Run a notebook top to bottom; what came of it stands in `output`.

    Raises papermill's `PapermillExecutionError` where a cell fails.
    """
    import papermill

    folder = socket_folder("kernel-")
    try:
        return papermill.execute_notebook(
            str(notebook),
            str(output),
            parameters=dict(parameters),
            cwd=str(cwd),
            log_output=False,
            progress_bar=progress,
            config=_private(folder),
        )
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _private(folder: Path) -> Config:
    """A kernel whose sockets are files of its own: in Jupyter's default place, two of them take each other's."""
    if os.name != "posix":
        return Config()
    return Config({"KernelManager": {"transport": "ipc", "ip": f"{folder}/socket"}})
