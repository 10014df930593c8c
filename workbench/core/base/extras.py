"""Extras of the package, and the modules that need them."""

from traceback import walk_tb
from types import TracebackType

from workbench.core.base.errors import MissingLayer

EXTRAS = {  # prefix of a module's name -> extra; the longest prefix counts
    "workbench.analysis.recordings.croissant": "metadata",
    "workbench.analysis.tables.crate": "metadata",
    "workbench.analysis.tables.mlflow_database": "mlflow",
    "workbench.cli": "lab",
    "workbench.core.checking": "check",
    "workbench.ddp": "torch",
    "workbench.lab": "lab",
    "workbench.lab.batch.searches": "search",
    "workbench.mpi": "mpi",
    "workbench.mpi.clusters.ec2": "ec2",
    "workbench.mpi.running.ipyparallel": "lab",
}


def not_installed(what: str, error: ImportError) -> ImportError:
    """Return the error to raise if a package that `what` needs cannot be imported.

    For a package of an extra this is a `MissingLayer` with the pip command; otherwise it is `error` itself.

    >>> not_installed("wb.watch", ModuleNotFoundError("No module named 'six'", name="six"))
    ModuleNotFoundError("No module named 'six'")
    """
    missing = (error.name or "").partition(".")[0]
    importer = _importer(error.__traceback__)
    known = [name for name in EXTRAS if f"{importer}.".startswith(f"{name}.")]
    if not known or not missing or missing.startswith("workbench"):
        return error
    return MissingLayer(needs(what, missing, EXTRAS[max(known, key=len)]))


def needs(what: str, package: str, extra: str) -> str:
    """Return the sentence about a missing package, with the extra that installs it.

    >>> needs("wb.watch", "six", "lab")
    "wb.watch: needs six, which is not installed; pip install 'straggler-workbench[lab]'"
    """
    return f"{what}: needs {package}, which is not installed; pip install 'straggler-workbench[{extra}]'"


def _importer(trace: TracebackType | None) -> str:
    """Return the name of the innermost workbench module in a traceback, or ""."""
    name = ""
    for frame, _ in walk_tb(trace):
        module = str(frame.f_globals.get("__name__", ""))
        name = module if module.partition(".")[0].partition("_")[0] == "workbench" else name
    return name
