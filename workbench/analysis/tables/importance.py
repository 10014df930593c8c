"""Importance of settings for a result over many runs: the share of its variance that each explains alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from workbench.analysis.tables.table import Runs
from workbench.core.base.results import results
from workbench.core.base.settings import SettingError

if TYPE_CHECKING:
    import pandas as pd

EQUAL_SHARE = 1e-9  # a result with a smaller relative range counts as the same in all runs
MAX_GROUPS = 10  # if a setting has more values, its runs are divided into this many groups of equal size


def importance(runs: Runs, of: str = "time") -> pd.DataFrame:
    """Return the share of a result's variance that each setting explains alone, the largest first.

    It estimates the first-order Sobol index Var(E[Y | X]) / Var(Y). (Sobol', Mathematical Modelling and Computational
    Experiments 1, 1993; Saltelli et al., Computer Physics Communications 181, 2010.) Groups are the runs of each value,
    or ten groups of neighbouring values. The estimate is the correlation ratio, less the share that small groups
    explain by chance (epsilon squared, Kelley, PNAS 21, 1935). The rest is due to interactions of settings, and to
    seeds. Settings must be drawn or combined independently of each other: settings that change together share what they
    explain.

    `runs`: a table with finished runs. `of`: the result. Columns: setting, share (0 to 1), groups, n (runs).

    A result that is the same in all runs gives an empty table.

    Raises `SettingError` if fewer than three runs have that result, or the column does not exist.

    >>> import tempfile, workbench as wb
    >>> folder = tempfile.mkdtemp()
    >>> for seed, scheme in enumerate(["UMW", "GC"] * 3):
    ...     _ = wb.run(wb.Experiment(scheme=scheme, rounds=5, seed=seed // 2)).save(f"{folder}/{seed}")
    >>> importance(wb.runs(folder))["setting"].tolist()
    ['scheme']
    """
    import pandas as pd

    done = runs.done
    if of not in done or not pd.api.types.is_numeric_dtype(done[of]):
        raise SettingError(f"of = {of!r}: is not a column of numbers of finished runs")
    done = done[np.isfinite(done[of].to_numpy(float))]
    if len(done) < 3:
        raise SettingError(f"of = {of!r}: {len(done)} runs have it, and three are needed to compare settings")
    values = done[of].to_numpy(float)
    rows: list[dict[str, Any]] = []
    for name in [] if is_constant(values) else runs.differing:
        groups = _groups(done[name])
        if name != "seed" and (count := len(np.unique(groups))) > 1:
            share = _explained(values, groups)
            rows.append({"setting": name, "share": share, "groups": count, "n": len(values)})
    found = results(rows, columns=["setting", "share", "groups", "n"])
    return found.sort_values("share", ascending=False, kind="stable", ignore_index=True)


def is_constant(values: np.ndarray[Any, Any]) -> bool:
    """Return whether all values are equal, but for rounding."""
    return bool(np.ptp(values) <= EQUAL_SHARE * float(np.abs(values).max()))


def _groups(column: pd.Series[Any]) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return the number of each run's group. Runs without the setting form a separate group."""
    import pandas as pd

    if pd.api.types.is_numeric_dtype(column) and column.nunique() > MAX_GROUPS:
        cut = pd.qcut(column.astype(float), MAX_GROUPS, labels=False, duplicates="drop")
        return np.asarray(cut.fillna(-1), dtype=np.int64)
    return np.asarray(pd.factorize(column, use_na_sentinel=False)[0], dtype=np.int64)


def _explained(values: np.ndarray[Any, Any], groups: np.ndarray[Any, Any]) -> float:
    total = float(((values - values.mean()) ** 2).sum())
    if total <= 0:
        return 0.0
    names, n = np.unique(groups), len(values)
    within = sum(float(((v := values[groups == g]) - v.mean()).__pow__(2).sum()) for g in names)
    if n <= len(names):
        return float("nan")  # with one run per group, the share by chance cannot be estimated
    return float(max(0.0, 1 - (within / (n - len(names))) / (total / (n - 1))))
