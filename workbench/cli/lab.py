"""Command `lab`: copy the notebooks to a folder, and open them in JupyterLab on this machine only."""

import os
import subprocess
import sys
from pathlib import Path

import click

from workbench.core.base.settings import check_writable
from workbench.lab.notebooks import copy_notebooks
from workbench.mpi.launch.processes import die_with_parent_argv

FIRST_NOTEBOOK = "01-quickstart.ipynb"
_PORT = click.IntRange(1, 65535)


@click.command()
@click.argument("folder", type=click.Path(path_type=Path), default=Path("workbench-notebooks"))
@click.option(
    "--port",
    type=_PORT,
    default=8888,
    show_default=True,
    help="Port of JupyterLab; if it is taken, the next free one.",
)
@click.option("--browser/--no-browser", default=True, help="Open a browser (default).")
def lab(folder: Path, port: int, browser: bool) -> None:
    """Copy the notebooks to FOLDER (default: workbench-notebooks) and open them in JupyterLab, on this machine only.

    Files that you changed in FOLDER are kept, and all others are updated.
    """
    check_writable(folder, "folder", folder)
    folder.mkdir(parents=True, exist_ok=True)
    written, unchanged = copy_notebooks(folder)
    click.echo(f"{folder}: {len(written)} files copied" if written else f"{folder}: nothing new to copy")
    for name in unchanged:
        click.echo(f"  kept {name}: it was changed after it was copied; rename it to get the new one")
    raise SystemExit(subprocess.call(die_with_parent_argv("TERM", *command(port, browser)), cwd=folder))


def command(port: int, browser: bool) -> list[str]:
    """Return the command that starts JupyterLab in the current folder.

    Jupyter refuses to run as root, the usual user of a container, without --allow-root. The server listens only on the
    loopback address.
    """
    root = hasattr(os, "geteuid") and os.geteuid() == 0
    return [
        sys.executable, "-m", "jupyterlab", "--ServerApp.ip=127.0.0.1", f"--ServerApp.port={port}",
        f"--LabApp.default_url=/lab/tree/{FIRST_NOTEBOOK}",
        *(["--allow-root"] if root else []), *([] if browser else ["--no-browser"]),
    ]  # fmt: skip
