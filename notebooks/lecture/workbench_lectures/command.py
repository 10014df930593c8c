"""The command `lectures`: the lecture notebooks as pages without code, on this machine only."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from workbench.core.base.settings import SettingError
from workbench.lab import pages
from workbench.lab.notebooks import shipped
from workbench.mpi.launch.processes import die_with_parent_argv
from workbench_lectures import scripts
from workbench_lectures.assets import style
from workbench_lectures.offline.pages import write
from workbench_lectures.titles import BASIS, info_of

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
        text = die_with_parent_argv("TERM", *command(folder, port or pages.free_port(), browser, token, dark))
        raise SystemExit(subprocess.call(text, env={**os.environ, "JUPYTER_PATH": shared}))


@contextmanager
def templates(folder: Path) -> Iterator[str]:
    """Yield the JUPYTER_PATH for our page templates: lists have titles, and no page uses the internet."""
    every = scripts()
    names = {path.name: info_of(path, every.get(path.stem)).item for path in folder.glob("*.ipynb")}
    sets = {"titles": names, "style": style(), "basis": BASIS}
    text = "".join(f"{{% set {name} = {json.dumps(value)} %}}" for name, value in sets.items())
    with pages.templates("lectures", TEMPLATES, **{"titles.html": text}) as path:
        yield path


def command(folder: Path, port: int, browser: bool, token: bool, dark: bool) -> list[str]:
    """Return the command that starts Voila for a folder of notebooks, with `templates` on its JUPYTER_PATH.

    Every page has its own kernel, which ends with the page. A kernel whose browser disappeared ends after five
    minutes.
    """
    text = pages.voila_command(folder, "lectures", port, browser, token, dark)
    # a plain list of links; the other view needs kernels
    return [*text, "--VoilaConfiguration.classic_tree=True"]
