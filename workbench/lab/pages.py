"""Pages without code, served by Voila on this machine only."""

from __future__ import annotations

import json
import os
import shutil
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from workbench.core.base.errors import MissingLayer
from workbench.core.base.extras import needs

TEMPLATE = Path(__file__).parent / "voila"
CULL_S = 300  # s after which a kernel ends if no page is connected to it


def check_voila(command: str) -> None:
    """Raise `MissingLayer` if Voila is not installed."""
    if find_spec("voila") is None:
        raise MissingLayer(needs(command, "voila", "lectures"))


def free_port() -> int:
    """Return a free port. If Voila chose the port itself, it would print 0."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def voila_command(
    path: Path, template: str, port: int, browser: bool = True, token: bool = True, dark: bool = False
) -> list[str]:
    """Return the command that serves a notebook, or a folder of notebooks, as pages.

    `template`: name of a template on JUPYTER_PATH. Each page has its own kernel, which ends with the page, or some
    minutes after its browser was lost.
    """
    return [
        sys.executable, "-m", "voila", str(path), "--Voila.ip=127.0.0.1", f"--port={port}",
        f"--theme={'dark' if dark else 'light'}", f"--template={template}",
        "--VoilaConfiguration.file_denylist=.*",  # serves pages, and no files beside them
        "--VoilaConfiguration.extension_denylist=ipyparallel-labextension",  # this extension needs JupyterLab
        f"--MappingKernelManager.cull_idle_timeout={CULL_S}", "--MappingKernelManager.cull_interval=60",
        *(["--token"] if token else []), *([] if browser else ["--no-browser"]),
    ]  # fmt: skip


@contextmanager
def templates(name: str, source: Path, **files: str) -> Iterator[str]:
    """Yield a JUPYTER_PATH with a template of this name. `files`: name -> text of its further files."""
    with TemporaryDirectory() as shared:
        ours = Path(shared) / "voila" / "templates" / name
        shutil.copytree(source, ours)
        (ours / "conf.json").write_text(json.dumps({"base_template": "lab"}))
        for file, text in files.items():
            (ours / file).write_text(text, encoding="utf-8")
        yield os.pathsep.join(filter(None, [shared, os.environ.get("JUPYTER_PATH")]))


@contextmanager
def explorer_page(setting: str, folder: Path, here: Path) -> Iterator[Path]:
    """Yield the path of a notebook that opens the explorer, as if it were in the folder `here`.

    `setting`: name of a preset, YAML file of an experiment, or "".
    """
    argument = (
        f"wb.Experiment.read({setting!r})" if Path(setting).suffix in (".yaml", ".yml") else f"{setting!r}"
    )
    lines = [
        "import os",
        f"os.chdir({str(here)!r})",
        "import workbench as wb",
        f"wb.explore({argument}, {str(folder)!r})",
    ]
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    empty: dict[str, Any] = {"id": "explorer", "metadata": {}, "outputs": [], "execution_count": None}
    cell = {"cell_type": "code", "source": "\n".join(lines), **empty}
    made = {"cells": [cell], "metadata": kernel, "nbformat": 4, "nbformat_minor": 5}
    with TemporaryDirectory() as private:
        path = Path(private) / "explorer.ipynb"
        path.write_text(json.dumps(made), encoding="utf-8")
        yield path
