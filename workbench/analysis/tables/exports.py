"""Tables of runs for other programs: CSV and Parquet, MLflow's database, RO-Crate."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.core.base.extras import not_installed
from workbench.core.base.files import atomic_folder, write_file
from workbench.core.base.formulas import to_csv
from workbench.core.base.settings import SettingError, check_writable, path_of

if TYPE_CHECKING:
    import pandas as pd

_FOLDERS = {  # form -> module that writes it; imported at first use, because it needs an extra
    "mlflow": "workbench.analysis.tables.mlflow_database",
    "ro-crate": "workbench.analysis.tables.crate",
}


def export(table: pd.DataFrame, path: str | Path, form: str = "", settings: Sequence[str] = ()) -> Path:
    """Write a table atomically. `settings`: columns that are settings, not measurements.

    Raises `SettingError` for an unknown form, or an existing folder.
    """
    target = path_of(path, "path")
    if (ending := form or target.suffix.removeprefix(".")) in ("csv", "parquet"):
        check_writable(target, "path")
        write_file(target, to_csv(table) if ending == "csv" else table.to_parquet(index=False))
        return target
    if form not in _FOLDERS:
        why = f"end it in .csv or .parquet, or say {' or '.join(_FOLDERS)}"
        raise SettingError(f"path = {str(path)!r}: no format for {form or target.suffix!r}; {why}")
    if target.exists():
        raise SettingError(f"path = {str(path)!r}: exists already; choose a new name")
    check_writable(target, "path", target.parent)
    target.parent.mkdir(parents=True, exist_ok=True)
    with atomic_folder(target, new=True) as folder:
        try:
            import_module(_FOLDERS[form]).write(folder, target, list(_rows(table)), settings)
        except ImportError as error:
            raise not_installed(f"export to {form}", error) from None
    return target


def _rows(table: pd.DataFrame) -> Iterator[dict[str, Any]]:
    for row in table.astype(object).to_dict("records"):
        empty = {n for n, v in row.items() if v is None or v == "" or v != v or type(v).__name__ == "NAType"}
        yield {str(name): value for name, value in row.items() if name not in empty}


def is_number(value: Any) -> bool:
    """Return whether a value of the table is a finite number."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
