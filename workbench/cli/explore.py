"""Command `explore`: the explorer as a page of its own, on this machine only."""

import os
import subprocess
from pathlib import Path

import click

from workbench.core.base.settings import check_writable
from workbench.core.experiment import Experiment
from workbench.lab.figures.design import style_sheet
from workbench.lab.pages import TEMPLATE, check_voila, explorer_page, free_port, templates, voila_command
from workbench.lab.widgets.forms.controls import preset_of
from workbench.mpi.launch.processes import die_with_parent_argv


@click.command()
@click.argument("setting", default="")
@click.option(
    "--folder",
    type=click.Path(path_type=Path),
    default=Path("runs"),
    show_default=True,
    help="Folder of saved runs and exports.",
)
@click.option("--port", type=click.IntRange(0, 65535), default=0, show_default=True, help="0: a free port.")
@click.option("--browser/--no-browser", default=True, help="Open a browser (default).")
@click.option(
    "--token/--no-token", default=True, help="Ask for a token, which is in the address printed (default)."
)
@click.option("--dark", is_flag=True, help="Light letters on a dark background, whatever the system has.")
def explore(setting: str, folder: Path, port: int, browser: bool, token: bool, dark: bool) -> None:
    """Open the explorer as a page of its own, on this machine only.

    SETTING: name of a preset (workbench presets), or a YAML file of an experiment.

    Without a token, other users of this machine can open the page, too.
    """
    check_voila("workbench explore")
    check_writable(folder, "folder", folder)
    if Path(setting).suffix in (".yaml", ".yml"):
        Experiment.read(setting)
    elif setting:
        preset_of(setting)
    with (
        explorer_page(setting, folder.absolute(), Path.cwd()) as path,
        templates("explorer", TEMPLATE, **{"design.css": style_sheet()}) as shared,
    ):
        text = die_with_parent_argv(
            "TERM", *voila_command(path, "explorer", port or free_port(), browser, token, dark)
        )
        raise SystemExit(subprocess.call(text, env={**os.environ, "JUPYTER_PATH": shared}))
