"""The command `lectures`: the lecture notebooks as pages without code, on this machine only."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import click

from workbench.base.notebooks import shipped
from workbench.base.settings import SettingError
from workbench.launch.processes import tied


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
@click.option("--dark", is_flag=True, help="Light letters on a dark ground.")
def lectures(port: int, browser: bool, token: bool, dark: bool) -> None:
    """Serve the lectures to browsers on this machine: figures, runs and exercises, no code.

    Without a token, whoever else is logged in on this machine can open them too.
    """
    folder = shipped("notebooks/lecture")
    if not folder.is_dir():
        raise SettingError(
            f"{folder}: no such folder; install the whole wheel, or run this from a clone of the repository"
        )
    chosen = port or _free_port()
    raise SystemExit(subprocess.call(tied("TERM", *command(folder, chosen, browser, token, dark))))


def _free_port() -> int:
    """A port that nobody listens on now; Voila would print 0 for one that it chose itself."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def command(folder: Path, port: int, browser: bool, token: bool, dark: bool) -> list[str]:
    """What starts Voila for a folder of notebooks.

    Every page has a kernel of its own, which ends with the page; one whose browser went away without a word ends
    after five minutes.
    """
    return [
        sys.executable, "-m", "voila", str(folder), "--Voila.ip=127.0.0.1", f"--port={port}",
        f"--theme={'dark' if dark else 'light'}",
        "--VoilaConfiguration.classic_tree=True",  # a list of links; the other one needs kernels
        "--VoilaConfiguration.file_denylist=.*",  # pages, and no files beside them
        "--VoilaConfiguration.extension_denylist=ipyparallel-labextension",  # it needs JupyterLab
        "--MappingKernelManager.cull_idle_timeout=300", "--MappingKernelManager.cull_interval=60",
        *(["--token"] if token else []), *([] if browser else ["--no-browser"]),
    ]  # fmt: skip
