"""The command `report`: a report of runs as one HTML file."""

from pathlib import Path

import click
from click import option

from workbench.lab.batch.report_page import report as write_report

_PATH = click.Path(path_type=Path)


@click.command()
@click.argument("source", metavar="FOLDER...", type=_PATH, nargs=-1, required=True)
@option("-o", "--output", type=_PATH, default=Path("report.html"), show_default=True, help="File to write.")
@option("--target", type=float, help="Value of the metric to compare runs by.  [default: what all reach]")
@option("--metric", default="loss", show_default=True, help="Metric of the target.")
@option("--trust", is_flag=True, help="Load code that the runs name, such as mine.py:Half.")
def report(source: tuple[Path, ...], output: Path, target: float | None, metric: str, trust: bool) -> None:
    """Write a page of a run, of several runs, or of a sweep, from their FOLDERs.

    SWEEP/RUN of a sweep with `notebooks: false` is executed again. The page is one file and needs no network. It has
    settings, tables, figures, versions, and commands that repeat the runs.
    """
    given = source[0] if len(source) == 1 else list(source)
    click.echo(write_report(given, output, target=target, metric=metric, trust=trust))
