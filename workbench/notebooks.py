"""Notebooks executed with parameters, each in a kernel that listens on no network port."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from traitlets.config import Config

if TYPE_CHECKING:
    import nbformat


def execute(
    notebook: Path, output: Path, parameters: Mapping[str, Any], cwd: Path, progress: bool = False
) -> nbformat.NotebookNode:
    """Run a notebook top to bottom; what came of it stands in `output`.

    Raises papermill's `PapermillExecutionError` where a cell fails.
    """
    import papermill

    with tempfile.TemporaryDirectory(prefix="kernel-") as folder:
        return papermill.execute_notebook(
            str(notebook),
            str(output),
            parameters=dict(parameters),
            cwd=str(cwd),
            log_output=False,
            progress_bar=progress,
            config=_private(folder),
        )


def _private(folder: str) -> Config:
    """A kernel whose sockets are files of its own: in Jupyter's default place, two of them take each other's."""
    if os.name != "posix":
        return Config()
    return Config({"KernelManager": {"transport": "ipc", "ip": f"{folder}/socket"}})
