"""The command `lectures`: the lecture notebooks as pages without code, on this machine only."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import click

from workbench.core.base.settings import SettingError
from workbench.lab.notebooks import shipped
from workbench.mpi.launch.processes import die_with_parent_argv
from workbench_lectures import scripts
from workbench_lectures.assets import style
from workbench_lectures.offline.pages import write
from workbench_lectures.titles import told

TEMPLATES = Path(__file__).parent / "voila"


@click.command()
@click.option(
    "--port", type=click.IntRange(0, 65535), default=8866, show_default=True, help="0: any free one."
)
@click.option(
    "--browser/--no-browser", default=True, help="Open the list of lectures in a browser (default)."
)
@click.option(
    "--token/--no-token", default=True, help="Ask for a token, which is in the address printed (default)."
)
@click.option("--dark", is_flag=True, help="Light letters on a dark background, whatever the system has.")
@click.option(
    "--static",
    "static",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Serve nothing: write pages to this folder that need no server, and end.",
)
def lectures(port: int, browser: bool, token: bool, dark: bool, static: Path | None) -> None:
    """Serve the lectures to browsers on this machine: figures, runs and exercises, no code.

    Without a token, other users of this machine can open them too.
    """
    folder = shipped("notebooks/lecture")
    if not folder.is_dir():
        raise SettingError(
            f"{folder}: no such folder; install the whole wheel, or run this from a clone of the repository"
        )
    if static is not None:
        write(static, folder, scripts(), click.echo)
        click.echo(f"open {static / 'index.html'}")
        return
    with templates(folder) as shared:
        text = die_with_parent_argv("TERM", *command(folder, port or _free_port(), browser, token, dark))
        raise SystemExit(subprocess.call(text, env={**os.environ, "JUPYTER_PATH": shared}))


def _free_port() -> int:
    """Return a port that is free now; Voila would print 0 for a port that it chose itself."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


@contextmanager
def templates(folder: Path) -> Iterator[str]:
    """Return the JUPYTER_PATH for our page templates: lists have titles, and no page uses the internet."""
    with TemporaryDirectory() as shared:
        ours = Path(shared) / "voila" / "templates" / "lectures"
        shutil.copytree(TEMPLATES, ours)
        (ours / "conf.json").write_text(json.dumps({"base_template": "lab"}))
        names = {path.name: list(told(path)) for path in folder.glob("*.ipynb")}
        sets = {"titles": names, "style": style()}
        text = "".join(f"{{% set {name} = {json.dumps(value)} %}}" for name, value in sets.items())
        (ours / "titles.html").write_text(text, encoding="utf-8")
        yield os.pathsep.join(filter(None, [shared, os.environ.get("JUPYTER_PATH")]))


def command(folder: Path, port: int, browser: bool, token: bool, dark: bool) -> list[str]:
    """Return the command that starts Voila for a folder of notebooks, with `templates` on its JUPYTER_PATH.

    Every page has its own kernel, which ends with the page. A kernel whose browser disappeared ends after five
    minutes.
    """
    return [
        sys.executable, "-m", "voila", str(folder), "--Voila.ip=127.0.0.1", f"--port={port}",
        f"--theme={'dark' if dark else 'light'}", "--template=lectures",
        "--VoilaConfiguration.classic_tree=True",  # a list of links; the other view needs kernels
        "--VoilaConfiguration.file_denylist=.*",  # pages, without the files beside them
        "--VoilaConfiguration.extension_denylist=ipyparallel-labextension",  # it needs JupyterLab
        "--MappingKernelManager.cull_idle_timeout=300", "--MappingKernelManager.cull_interval=60",
        *(["--token"] if token else []), *([] if browser else ["--no-browser"]),
    ]  # fmt: skip
