"""The command `reproduce`: every figure and table of the five papers, or one of them."""

from __future__ import annotations

from pathlib import Path

import click

import workbench_book as book
from workbench.core.base.settings import check_writable
from workbench_book import Outcome, Setting, notebook

_HOW = (
    "nothing was started: `workbench reproduce NAME` recomputes one of these, `workbench reproduce all` every one"
    " (up to an hour; with --quick some minutes)"
)


@click.command()
@click.argument("name", required=False)
@click.option("--quick", is_flag=True, help="Fewer rounds and smaller data: minutes, not an hour.")
@click.option("--list", "listed", is_flag=True, help="List the names of all entries.")
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), default=Path("reports"), show_default=True,
    help="Folder for the page, the notebooks and what is kept.",
)  # fmt: skip
@click.option(
    "--traces", type=click.Path(path_type=Path),
    help="Recorded EC2 times (ec2_traces.csv, or its folder); default: WORKBENCH_EC2_TRACES, else the folder data.",
)  # fmt: skip
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Seed of all draws.")
@click.option(
    "--download", is_flag=True, help="Ask OpenML for real data that are not placed by hand (full form)."
)
@click.option(
    "--measure/--no-measure", default=True, help="Make the real runs on this machine (default), or not."
)
@click.option("--notebooks/--no-notebooks", default=True, help="With all: execute the papers' notebooks too.")
@click.option("--fresh", is_flag=True, help="Compute cached entries again.")
def reproduce(
    name: str | None, quick: bool, listed: bool, output: Path, traces: Path | None, seed: int, download: bool,
    measure: bool, notebooks: bool, fresh: bool,
) -> None:  # fmt: skip
    """Recompute NAME (a figure or table such as fig8, table3, gcada-fig2), or all; write a page. No NAME: a list.

    Finished entries are kept, and used again while their code, settings and data are the same. An interrupted run
    therefore continues where it stopped.
    """
    if listed or name is None:
        for entry in book.entries().values():
            click.echo(f"{entry.name:15} {entry.title}")
        if not listed:
            click.echo(_HOW, err=True)
        return
    if name != "all":
        book.get(name)  # raises an error for a wrong name at once
    check_writable(output, "output", output)
    where = book.find_traces(traces)
    setting = book.Setting(quick, seed, where, download, measure)
    if where is None and name in ("all", "agc-fig1", "agc-fig2c", "agc-fig2d", "agc-replay"):
        click.echo("no recorded EC2 times here: see --traces; the entries that need them say so", err=True)
    outcomes = book.reproduce(name, setting, output, fresh, message=click.echo)
    for outcome in outcomes:
        _say(outcome, alone=name != "all")
    if name == "all" and notebooks:
        _notebooks(setting, output)
    failed = [each.entry.name for each in outcomes if each.result is None]
    if failed:
        raise click.ClickException(f"{len(failed)} entries could not be computed: {', '.join(failed)}")


def _say(outcome: Outcome, alone: bool) -> None:
    """Print one line per entry, with its numbers if it is the only one."""
    click.echo(notebook.summary(outcome))
    if alone and outcome.result is not None:
        for line in notebook.numbers(outcome.result):
            click.echo(f"  {line}")


def _notebooks(setting: Setting, output: Path) -> None:
    """Execute the papers' notebooks that exist."""
    for path in notebook.execute_all(setting, output):
        click.echo(f"written to {path}")
