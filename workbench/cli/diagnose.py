"""Command that attributes long steps of a run or a recording to workers, hosts and links."""

from pathlib import Path

import click
from click import option

from workbench.analysis.recordings.diagnosis import diagnose as examine
from workbench.analysis.recordings.hangs import dumps
from workbench.analysis.recordings.loading import load
from workbench.analysis.recordings.sources import runs
from workbench.analysis.recordings.verdict import Diagnosis
from workbench.core.base.settings import SettingError


@click.command()
@click.argument("path", type=click.Path(path_type=Path))
@option("--job", help="Name of the job, where a file has several.")
@option(
    "--unit",
    help="Unit of the times in a table: s, ms, us, ns, min or h.  [default: as their column says, else s]",
)
@option(
    "--card", is_flag=True, help="Print first a summary: spread, bursts, changes, and delay models that fit."
)
@option("--picture", type=click.Path(path_type=Path), help="Draw the costs: .html, .png, .svg or .pdf.")
@option("--trust", is_flag=True, help="Run code of others that a run folder names; needed once.")
def diagnose(
    path: Path, job: str | None, unit: str | None, card: bool, picture: Path | None, trust: bool
) -> None:
    """Print which workers, hosts and links make the steps of PATH long, and by how much.

    PATH: a run folder, a recording, or a folder of flight recorder dumps. For dumps, it prints which ranks hang.
    """
    whole = job is None and runs.SOURCE.tells(path)
    hangs = not whole and dumps.tells(path)
    recording = load(path, unit=unit) if not hangs and (card or unit is not None or not whole) else None
    if card and recording is not None:
        click.echo(f"{recording.job(job).card()}\n")
    found = examine(path if recording is None or whole else recording.job(job), trust=trust)
    click.echo(str(found))
    if picture is not None:
        if not isinstance(found, Diagnosis):
            raise SettingError(f"picture = {str(picture)!r}: there are no costs to draw; leave it out")
        from workbench.lab.figures.save import save  # imports plotly

        save(found.figure(), picture)
        click.echo(f"drawn to {picture}")
