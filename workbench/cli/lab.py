"""`workbench lab`: the notebooks."""

from __future__ import annotations

import subprocess
import sys

import click

from workbench.straightline import NOTEBOOK, ROOT


@click.command()
def lab() -> None:
    """Open JupyterLab at the first notebook, on this machine only."""
    where = f"--LabApp.default_url=/lab/tree/{NOTEBOOK.relative_to(ROOT)}"
    command = [sys.executable, "-m", "jupyterlab", "--ServerApp.ip=127.0.0.1", where]
    raise SystemExit(subprocess.call(command, cwd=ROOT))
