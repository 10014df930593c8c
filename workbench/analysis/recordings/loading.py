"""Loading of recordings: detect the kind of a file, read it, and name the origin of public ones."""

import os
from fnmatch import fnmatch
from functools import cache
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

import pandas as pd

from workbench.analysis.recordings import sources
from workbench.analysis.recordings.averages import AVERAGED
from workbench.analysis.recordings.hangs import dumps
from workbench.analysis.recordings.recording import Recording
from workbench.analysis.recordings.sources import Source, runs
from workbench.core.base.settings import SettingError, path_of, unknown_name
from workbench.core.base.tables import TableError
from workbench.core.contract.recorded import COLUMNS
from workbench.core.problems.data.cache import root
from workbench.core.trace.trace import Trace

NOTES = ("left_out", "cores", "messages", "overlap", "last", "unit", AVERAGED)
ONE_STEP = "a test against chance, which needs several steps"


@cache
def known() -> dict[str, Source]:
    """Return all sources by name. The last one reads any table.

    >>> sorted(known())[:3]
    ['alibaba', 'bytedance', 'ddp']
    """
    modules = (import_module(f"{sources.__name__}.{found.name}") for found in iter_modules(sources.__path__))
    found = sorted((module.SOURCE for module in modules), key=lambda source: source.name == "table")
    return {source.name: source for source in found}


def home() -> Path:
    """Return the folder of public recordings, in which `load` finds them by name."""
    return root() / "recordings"


def folders() -> list[Path]:
    """Return the folders of recordings: `home()`, and one or several in WORKBENCH_RECORDINGS."""
    named = os.environ.get("WORKBENCH_RECORDINGS", "")
    return [home(), *(Path(each).expanduser() for each in named.split(os.pathsep) if each)]


def at_hand() -> dict[str, Path]:
    """Return the public recordings in the `folders`, by file name.

    >>> all(path.name == name for name, path in at_hand().items())
    True
    """
    patterns = [pattern for source in known().values() for pattern in source.files]
    found = (file for folder in folders() for pattern in patterns for file in sorted(folder.glob(pattern)))
    return {file.name: file for file in found}


def load(
    path: str | Path | Trace, source: str | None = None, unit: str | None = None, **columns: str
) -> Recording:
    r"""Read recorded stragglers.

    Parameters
    ----------
    path
        A file or folder, a run, or the name of a public recording in one of the `folders`.
    source
        Kind of the file (see `known`), if it cannot be detected.
    unit
        Unit of the times in a table: "s", "ms", "us", "ns", "min" or "h". Default: the unit in the name of their
        column (`took_ms`), else seconds.
    columns
        Names of a table's columns for worker, step, seconds, host, phase, recording, samples, tokens, squares,
        processor_seconds.

    Raises
    ------
    SettingError
        The path does not exist (the message has the origin of a public file) or cannot be read, or a time is invalid.

    Examples
    --------
    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "mine.csv"
    >>> _ = file.write_text("who,when,took\na,0,0.5\nb,0,0.7\n")
    >>> load(file, worker="who", step="when", seconds="took")
    Recording(mine: 2 workers, 1 steps)
    """
    if isinstance(path, Trace):
        return Recording.of_rows(runs.of_trace(path), path.label, title="a run", unit="s")
    if wrong := sorted(set(columns) - set(COLUMNS)):
        raise SettingError(f"{wrong[0]} = {columns[wrong[0]]!r}: columns are {', '.join(COLUMNS)}")
    file = _found(path_of(path, "path"))
    kind = None
    try:
        kind = _kind(file, source)
        if kind.takes_columns:
            rows = kind.read(file, unit, **columns)
        else:
            rows = _renamed(kind.read(file), columns)
            if unit is not None:
                raise SettingError(f"unit = {unit!r}: {kind.title} has its own unit; leave it out")
    except TableError as error:
        by_name = "; name those that mean them, e.g. seconds='took', unit='ms'"
        more = by_name if error.why.startswith("lacks columns [") else ""
        raise SettingError(error.of(f"path = {str(file)!r}") + more) from None
    except (ValueError, OSError, KeyError) as error:  # Arrow raises subclasses of these
        if isinstance(error, SettingError):
            raise
        read = f"cannot be read{f' as {kind.title}' if kind else ''} ({error})"
        raise SettingError(f"path = {str(file)!r}: {read}") from None
    facts = {"title": kind.title, "file": str(file)}
    if kind.name != "table" or _place(file.name, kind):  # other tables are files of the user
        facts |= {"where": kind.where, "licence": kind.licence}
    facts |= _notes(rows, unit or ("" if kind.takes_columns else kind.units))
    name = (file.name or file.resolve().name).split(".")[0]  # name of the folder, if the path is "."
    return Recording.of_rows(rows, name, kind.units, **facts)


def _notes(rows: pd.DataFrame, unit: str) -> dict[str, str]:
    """Return notes about the rows for the recording's source, such as what was left out. `unit`: "" if not stated."""
    known = {**rows.attrs, "unit": unit} if unit else rows.attrs
    notes = {name: str(known[name]) for name in NOTES if name in known}
    if AVERAGED not in notes and rows["step"].nunique() == 1:
        notes["left_out"] = "; ".join(filter(None, [notes.get("left_out"), ONE_STEP]))
    return notes


def _renamed(rows: pd.DataFrame, columns: dict[str, str]) -> pd.DataFrame:
    if absent := sorted(set(columns.values()) - set(rows.columns)):
        raise TableError(f"lacks columns {absent}; it has {list(rows.columns)}")
    others = [name for name in columns if name in rows and columns[name] != name]
    return rows.drop(columns=others).rename(columns={theirs: ours for ours, theirs in columns.items()})


def _found(file: Path) -> Path:
    here = (place for each in folders() for place in (each / file.name, *each.glob(f"{file.name}.*")))
    for there in (file, *here):
        if there.exists():
            return there
    for source in known().values():
        if source.files and (put := _place(file.name, source)) is not None:
            published = f" (published as {source.published})" if source.published else ""
            what = f"{source.files[0]}{published} from {source.where} (licence: {source.licence})"
            how = source.how or f"put it at {put}"
            raise SettingError(f"path = {str(file)!r}: is not here; get {what} and {how}")
    raise SettingError(f"path = {str(file)!r}: there is no such file or folder")


def _place(name: str, source: Source) -> Path | None:
    """Return the path where a public file of this name (with or without ending) belongs, or None for other names."""
    if name == source.name:
        return home()
    for pattern in source.files:
        ending = Path(pattern).suffix
        for whole in (name, name + ending):
            if fnmatch(whole, pattern):
                return home() / whole
    return None


def _kind(file: Path, name: str | None) -> Source:
    if name is not None and name not in known():
        raise unknown_name("source", name, known())
    if name is None and dumps.tells(file):
        why = "is of PyTorch's flight recorder, which has no times of steps; wb.diagnose returns which ranks hang"
        raise SettingError(f"path = {str(file)!r}: {why}")
    kinds = [known()[name]] if name is not None else [each for each in known().values() if each.tells(file)]
    if not kinds:
        why = f"is not of a known kind; give it as source = {' | '.join(known())}"
        raise SettingError(f"path = {str(file)!r}: {why}")
    return kinds[0]
