"""Command group `workbench cluster`: list, check, start and end clusters, and show the ranks on them."""

from collections.abc import Callable
from typing import TypeVar

import click

from workbench.core.base.bar import Bar
from workbench.core.base.errors import ClusterError
from workbench.core.base.settings import SettingError
from workbench.mpi import clusters
from workbench.mpi.clusters import Status
from workbench.mpi.launch.reports import ProgressCallback, aligned, table

T = TypeVar("T")
_NAME = click.argument("name")
_CODE = (
    "a cluster's file is code: the workbench starts what it names (programs, options of sbatch, ssh's configuration);"
    " use only files that you trust"
)


@click.group()
def cluster() -> None:
    """Manage the clusters of real runs: files clusters/NAME.yaml. `local` is this machine."""


@cluster.command("list")
def list_() -> None:
    """List the clusters with name, kind and file. A file that is wrong is listed with its error."""
    files = {name: clusters.file_of(name) for name in clusters.names()}
    for name, file in files.items():
        try:
            found = clusters.load(name)
        except SettingError as error:
            click.echo(f"{name:16} cannot be used: {error}")
            continue
        config = f", with ssh's configuration {given}" if (given := getattr(found, "config", None)) else ""
        click.echo(f"{name:16} {found.kind:6} {file or ''}{config}".rstrip())
    if any(files.values()):
        click.echo(_CODE, err=True)


@cluster.command()
@_NAME
def check(name: str) -> None:
    """Check all hosts of a cluster, and print a table of problems by host.

    Exit status: 0 no problem, 1 problems, 2 the cluster cannot be checked.
    """
    chosen = clusters.load(name)
    if findings := _shown(f"checking {chosen.name}", chosen.check, status=2):
        click.echo(table(findings))
        raise SystemExit(1)
    click.echo(f"{chosen.name}: nothing is wrong")


@cluster.command()
@_NAME
def up(name: str) -> None:
    """Prepare a cluster for runs, unless it is prepared already. Ctrl-C leaves nothing behind."""
    chosen = clusters.load(name)
    _shown(f"{chosen.name}: up", chosen.up)
    click.echo(f"{chosen.name}: is up; workbench cluster down {name} ends it")


@cluster.command()
@_NAME
def status(name: str) -> None:
    """Show hosts, ranks on them, and cost so far."""
    chosen = clusters.load(name)
    for line in lines(_shown(f"asking {chosen.name}", chosen.status)):
        click.echo(line)


@cluster.command()
@_NAME
def down(name: str) -> None:
    """End all runs and ranks of the workbench on the hosts, and remove what `up` made there."""
    chosen = clusters.load(name)
    _shown(f"{chosen.name}: down", chosen.down)
    click.echo(f"{chosen.name}: is down")


@cluster.command(context_settings={"ignore_unknown_options": True})
@_NAME
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def run(name: str, command: tuple[str, ...]) -> None:
    """Run a COMMAND (after --) on every host at the same time, and print the output of each.

    Exit status: the first nonzero one, else 0.
    """
    chosen = clusters.load(name)
    found = _shown(f"running on {chosen.name}", lambda progress: chosen.run(list(command), progress))
    for host, (_, output) in found.items():
        for line in output.splitlines():
            click.echo(f"{host}: {line}" if len(found) > 1 else line)
    raise SystemExit(next((code for code, _ in found.values() if code), 0))


def lines(status: Status) -> list[str]:
    """Return the lines that `workbench cluster status` prints.

    >>> from workbench.mpi.clusters import HostState, Status
    >>> for line in lines(Status((HostState("node1", "up", 3, 8, 12.0),), hours=2.0, cost=0.5)):
    ...     print(line)
    host   state  ranks  cores  GiB free
    node1  up         3      8      12.0
    1 host, 3 ranks, 2.00 host-hours, 0.50 $ so far
    """
    rows = [("host", "state", "ranks", "cores", "GiB free", "")]
    for h in status.hosts:
        free = "" if h.free is None else f"{h.free:.1f}"
        rows.append((h.host, h.state, str(h.ranks), "" if h.cores is None else str(h.cores), free, h.note))
    count = len(status.hosts)
    texts = [f"{count} host{'s' * (count != 1)}", f"{status.ranks} rank{'s' * (status.ranks != 1)}"]
    if status.hours is not None:
        texts.append(f"{status.hours:.2f} host-hours")
    if status.cost is not None:
        texts.append(f"{status.cost:.2f} $ so far")
    return [*aligned(rows, "<<>>><"), ", ".join(texts), *([status.note] if status.note else [])]


def _shown(what: str, work: Callable[[ProgressCallback], T], status: int = 1) -> T:
    """Do some work with a progress bar, which appears after a second.

    A `ClusterError`, which may be a table, is printed unchanged and ends the command with exit status `status`.
    """
    try:
        with Bar(what, "", 0, True) as bar:

            def progress(doing: str, done: int, total: int) -> None:
                bar.bar.total = total or None
                bar.note(doing)
                bar.update(done)

            return work(progress)
    except ClusterError as error:
        click.echo(f"workbench: {error}", err=True)
        raise SystemExit(status) from None
