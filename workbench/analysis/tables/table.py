"""Table of all runs, read from their folders without a server, and cached: see `index`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from workbench.analysis.tables.exports import export
from workbench.analysis.tables.index import rows
from workbench.analysis.tables.rows import Place, has_rounds, places
from workbench.analysis.tables.shards import frame, trace_of
from workbench.core.base.bar import Bar
from workbench.core.base.intervals import band
from workbench.core.base.plugins import registered
from workbench.core.base.results import DIGITS, latex, results
from workbench.core.base.settings import SettingError, check_kind, path_of, unknown_name
from workbench.core.trace.trace import Trace

if TYPE_CHECKING:
    import pandas as pd

_FIRST_COLUMNS = ("run", "state", "error", "engine", "cluster", "scheme", "workers", "rounds", "seed")
_SHOWN_COLUMNS = ("time", "loss")
_NOTE_COLUMNS = ("name", "tags", "note", "when", "archived")
_MAX_PRINTED_ROWS = 60  # max number of rows without a widget
# settings whose values have settings of their own
_KIND_COLUMNS = ("engine", "scheme", "problem", "optimiser", "delays.kind")


@dataclass(frozen=True, eq=False)
class Runs:
    """Table of runs: one row per run, one column per setting (dotted names), and columns of results.

    Results: time (s, of the whole run), round_time (s), loss and other metrics (after the last round), messages, bytes,
    downloads, samples, started, stale (sums over the rounds), residual (mean), rounds_done. A target adds time_to and
    rounds_to (empty: never). Derived from the settings: straggler_fraction (share of workers that may be late) and load
    (largest share of the data that one worker computes). Notes of the user: name, tags, note, when, archived.
    Unfinished runs have a state, an error and their settings, but no results.

    A notebook shows it as a widget, with `wb.RunsTable`.
    """

    table: pd.DataFrame
    settings: tuple[str, ...]  # columns that are settings, not measurements
    root: Path | None = None  # folder from which the runs were read
    target: float | None = None
    metric: str = "loss"

    def __len__(self) -> int:
        """Return the number of runs."""
        return len(self.table)

    @cached_property
    def done(self) -> pd.DataFrame:
        """Rows of the runs that ran to their end."""
        return self.table[self.table["state"] == "done"]

    @cached_property
    def differing(self) -> list[str]:
        """Settings in which the runs differ, without those that belong to a scheme, a problem or the like."""
        return self._differing(self.table)

    def where(self, fields: Mapping[str, Any] | None = None, /, **more: Any) -> Runs:
        """Return the runs whose columns have these values: a value, a list of values, or a predicate.

        `where(scheme="CR")`, `where({"delays.rate": [1e3, 1e4]})`, `where(loss=lambda loss: loss < 0.1)`. A missing
        value equals None; a predicate gets NaN for it.
        """
        table = self.table
        for name, wanted in {**(fields or {}), **more}.items():
            if (simple := _equal(self._column(name, table), wanted)) is not None:
                table = table[simple]
                continue
            values = self._column(name, table).astype(object)
            missing = np.nan if callable(wanted) else None
            table = table[[_matches(value, wanted) for value in values.where(values.notna(), missing)]]
        return replace(self, table=table.reset_index(drop=True))

    def again(self) -> Runs:
        """Read all runs below the folder again, and return the new table."""
        return self if self.root is None else runs(self.root, target=self.target, metric=self.metric)

    def diff(self, one: str | int, other: str | int) -> pd.DataFrame:
        """Return the differences of two runs, settings first: one row per column of the table, one column per run.

        one, other: value of the column `run`, or number of the row. Raises `SettingError` if the run does not exist.
        """
        import pandas as pd

        both = self.table.iloc[[self._row(one), self._row(other)]].astype(object)
        both = both.where(both.notna(), None)
        names = [*self.settings, *(n for n in both if n not in (*self.settings, "run", "folder"))]
        found = {name: pair for name in names if (pair := both[name].tolist())[0] != pair[1]}
        return pd.DataFrame.from_dict(found, orient="index", columns=both["run"].tolist(), dtype=object)

    def _row(self, which: str | int) -> int:
        known = self.table["run"].tolist()
        if isinstance(which, int) and not isinstance(which, bool) and -len(known) <= which < len(known):
            return which
        if which in known:
            return known.index(which)
        raise unknown_name("run", str(which), [str(name) for name in known])

    def mean(
        self, of: str = "time", by: str | Sequence[str] | None = None, level: float = 0.95
    ) -> pd.DataFrame:
        """Return the mean of a result and its confidence band over the runs of each group, usually seeds.

        by: columns that define the groups; default: every setting that differs, except the seed. Columns: those of
        `by`, n (number of runs), never (number of runs without a value, which n excludes), mean, low, high, std. A
        single run has no band. `attrs["pooled"]` lists the settings, other than the seed, in which runs of one group
        may differ. Raises `SettingError` for an unknown column.
        """
        import pandas as pd

        done = self.done
        differing = [name for name in self._differing(done) if name != "seed"]
        names = [by] if isinstance(by, str) else list(by if by is not None else differing)
        rows = []
        if len(done):
            columns = [self._column(name, done) for name in [of, *names]]
            if not pd.api.types.is_numeric_dtype(columns[0]):
                known = ", ".join(_SHOWN_COLUMNS)
                raise SettingError(f"of = {of!r}: is not a column of numbers; take one such as {known}")
            groups = done.groupby(names, dropna=False, sort=False)[of] if names else [((), columns[0])]
            rows = [dict(zip(names, key, strict=True)) | _statistics(group, level) for key, group in groups]
        found = results(rows, columns=[*names, "n", "never", "mean", "low", "high", "std"])
        pooled = [name for name in differing if name not in names]
        found.attrs.update(of=of, by=names, level=level, pooled=pooled)
        return found.sort_values(names, kind="stable", ignore_index=True, key=_sortable) if names else found

    def traces(self) -> list[Trace]:
        """Load the runs that have rounds, for figures. Runs in shards have no events and no model."""
        rows = self.table.to_dict("records")
        folders = [Path(row["folder"]) for row in rows if has_rounds(row)]
        return [Trace.load(at) if at.is_dir() else trace_of(at.parent, at.name) for at in folders]

    def export(self, path: str | Path, form: str = "") -> Path:
        """Write the table, or the table together with the runs.

        form: "csv" or "parquet" is a file; the default follows from its ending. "mlflow" is a folder with a database,
        which `mlflow ui --backend-store-uri sqlite:///FOLDER/mlflow.db` shows. "ro-crate" is a folder with copies of
        the run folders and their description in JSON-LD. The last two need the extras `mlflow` and `metadata`.
        """
        return export(self.table, path, form, self.settings)

    def short(self) -> pd.DataFrame:
        """Return a short table: differing settings, state, time and loss."""
        columns = dict.fromkeys(("run", "state", *self.differing, *_SHOWN_COLUMNS, "time_to"))
        return self.table[[name for name in columns if name in self.table]]

    def latex(self, digits: int = DIGITS, caption: str = "", label: str = "") -> str:
        """Return the short table as LaTeX, with units and significant digits; see `wb.runs(folder).mean()` for means.

        `digits`: significant digits. `caption`, `label`: caption and label of a floating table. LaTeX needs
        the package booktabs.
        """
        return latex(self.short(), digits, caption, label)

    def __repr__(self) -> str:
        """Return the short table as text."""
        return self.short().to_string(**self._printed) if len(self) else "no runs"

    def _repr_html_(self) -> str:
        """Return the short table as HTML, for readers without a kernel."""
        return str(self.short().to_html(**self._printed))

    @property
    def _printed(self) -> dict[str, Any]:
        more = {"max_rows": _MAX_PRINTED_ROWS, "show_dimensions": len(self) > _MAX_PRINTED_ROWS, "na_rep": ""}
        return {"index": False, "float_format": lambda x: f"{x:.5g}", **more}

    def _repr_mimebundle_(self, **options: Any) -> dict[str, Any]:
        """Return a widget for a notebook, with the short table for the notebook's file."""
        text = {"text/plain": repr(self), "text/html": self._repr_html_()}
        shown = (
            registered("workbench.displays", "Runs")(self)._repr_mimebundle_(**options) if len(self) else {}
        )
        return {**(shown or {}), **text}

    def _differing(self, table: pd.DataFrame) -> list[str]:
        if "scheme" in table:  # damaged runs have none
            table = table[table["scheme"].notna()]
        kinds = [name for name in _KIND_COLUMNS if name in table]
        groups = [group for _, group in table.groupby(kinds, dropna=False)] if kinds else [table]

        def values(group: pd.DataFrame, name: str) -> int:
            return int(group[name].astype(object).nunique(dropna=False))

        parts = {name: groups if name not in kinds else [table] for name in self.settings}
        return [name for name, among in parts.items() if any(values(part, name) > 1 for part in among)]

    def _column(self, name: str, table: pd.DataFrame) -> pd.Series[Any]:
        if name not in table:
            raise unknown_name("column", name, [str(column) for column in self.table])
        return table[name]


def runs(
    folder: str | Path = "runs", *, target: float | None = None, metric: str = "loss", progress: bool = True
) -> Runs:
    """Read the table of all runs below a folder: runs of sweeps and real runs, finished or not, and saved traces.

    Incomplete or unreadable runs have a row with an error.

    Parameters
    ----------
    folder
        Folder of a sweep, or one above several.
    target, metric
        Add the columns time_to (s) and rounds_to: when the metric first was at the target, as in `Trace.time_to`.
    progress
        Show a bar with the remaining time if reading takes over a second, in a notebook or a terminal.

    Raises
    ------
    SettingError
        The folder does not exist, or no run has the metric.

    Examples
    --------
    >>> import tempfile, workbench as wb
    >>> folder = tempfile.mkdtemp()
    >>> for seed in range(3):
    ...     _ = wb.run(wb.Experiment(rounds=5, seed=seed)).save(f"{folder}/{seed}")
    >>> table = runs(folder)
    >>> len(table), table.differing, table.mean("time")["n"].tolist()
    (3, ['seed'], [3])
    """
    check_kind("progress", progress, bool)
    reading = LazyRuns(folder, target, metric)
    with Bar("runs", " runs", len(reading), None if progress else False, leave=False) as bar:
        for count in reading:
            bar.update(count)
    return reading.runs()


class LazyRuns:
    """Table that is read run by run, by iteration. `runs` returns the table of the runs read so far.

    Parameters and errors are those of `runs`.

    >>> import tempfile, workbench as wb
    >>> folder = tempfile.mkdtemp()
    >>> for seed in range(3):
    ...     _ = wb.run(wb.Experiment(rounds=5, seed=seed)).save(f"{folder}/{seed}")
    >>> reading = LazyRuns(folder)
    >>> [len(reading.runs()) for _ in reading], len(reading)
    ([1, 2, 3], 3)
    """

    def __init__(self, folder: str | Path, target: float | None = None, metric: str = "loss") -> None:
        self.root, self.target, self.metric = path_of(folder, "folder"), target, metric
        if target is not None:
            check_kind("target", target, float)
        if not self.root.is_dir():
            raise SettingError(f"folder = {str(folder)!r}: no such folder; give one in which runs were saved")
        self._rows: list[dict[str, Any]] = []
        self._settings = dict.fromkeys(_FIRST_COLUMNS[3:])

    @cached_property
    def _places(self) -> list[Place]:
        self._shards: list[Path] = []
        return list(places(self.root, self._shards))

    def __len__(self) -> int:
        """Return the number of runs, read or not."""
        return len(self._places)

    def __iter__(self) -> Iterator[int]:
        for place, row in rows(self.root, self.target, self.metric, self._places):
            self._settings.update(dict.fromkeys(row.chosen))
            head = {"run": place.name, "state": row.state, "error": row.error}
            # results come last, because columns of a rounds file may have any name
            row_fields = {**head, **row.chosen, **row.notes, "folder": str(place.folder)}
            row_fields = {
                **row_fields,
                **{name: value for name, value in row.results.items() if name not in row_fields},
            }
            self._rows.append(row_fields)
            yield len(self._rows)

    def runs(self) -> Runs:
        """Return the table of the runs read so far."""
        rows, target, metric = self._rows, self.target, self.metric
        table = results(rows, columns=None if rows else [*_FIRST_COLUMNS, "folder"])
        for name in [name for name in self._settings if name in table]:
            table[name] = _whole(table[name], [row.get(name) for row in rows])
        table = self._with_shards(table)
        known = target is None or "time" not in table or metric in table
        if not known and len(rows) == len(self):
            raise unknown_name("metric", metric, [str(name) for name in table.select_dtypes("number")])
        found = [name for name in self._settings if name in table]
        noted = [name for name in table if name in (*_NOTE_COLUMNS, "folder")]
        last = [name for name in table if name not in (*_FIRST_COLUMNS, *found, *noted)]
        first = [name for name in _FIRST_COLUMNS if name in table]
        shown = table[[*first, *(n for n in found if n not in first), *last, *noted]]
        return Runs(shown, tuple(found), self.root, target, metric)

    def _with_shards(self, table: pd.DataFrame) -> pd.DataFrame:
        """Add the runs in shards to the table, except runs with their own folders, which are in the table already."""
        import pandas as pd

        names = [place.name for place in self._places]  # this iteration also finds the shards
        for folder in self._shards:
            found, settings = frame(folder, self.root, set(names), self.target, self.metric)
            self._settings.update(dict.fromkeys(settings))
            table = pd.concat([table, found], ignore_index=True) if len(table) else found
        return table


def _whole(column: pd.Series[Any], values: Sequence[Any]) -> pd.Series[Any]:
    """Convert values to whole numbers, exact to the last digit, although some runs lack the setting."""
    import pandas as pd

    known = [value for value in values if value is not None]
    if len(known) in (0, len(values)) or not all(type(value) is int for value in known):
        return column
    short = all(-(2**63) <= value < 2**63 for value in known)
    return pd.Series(list(values), index=column.index, dtype="Int64" if short else object)


def _equal(column: pd.Series[Any], wanted: Any) -> pd.Series[bool] | None:
    """Return which values match: text in a column of text, or a number in a column of numbers. None for other cases."""
    import pandas as pd

    texts = isinstance(wanted, str) and isinstance(column.dtype, pd.StringDtype)
    number = isinstance(wanted, int | float) and not isinstance(wanted, bool)
    numbers = number and pd.api.types.is_numeric_dtype(column) and not pd.api.types.is_bool_dtype(column)
    return column.eq(wanted).fillna(False).astype(bool) if texts or numbers else None


def _matches(value: Any, wanted: Any) -> bool:
    if callable(wanted):
        return bool(wanted(value))
    options = wanted if isinstance(wanted, list | tuple | set | range) else [wanted]
    return any(value == option or str(value) == str(option) for option in options)


def _statistics(values: pd.Series[Any], level: float) -> dict[str, Any]:
    known = values.dropna().to_numpy(float)
    counts = {"n": len(known), "never": len(values) - len(known)}
    if not len(known):
        return {**counts, **dict.fromkeys(("mean", "low", "high", "std"), np.nan)}
    mean, low, high = (float(x) for x in band(known, level))
    std = float(known.std(ddof=1)) if len(known) > 1 else np.nan
    return {**counts, "mean": mean, "low": low, "high": high, "std": std}


def _sortable(column: pd.Series[Any]) -> pd.Series[Any]:
    """Return a sort key: numbers by size; a column with missing values or text, as text."""
    import pandas as pd

    return column if pd.api.types.is_numeric_dtype(column) else column.astype(str)
