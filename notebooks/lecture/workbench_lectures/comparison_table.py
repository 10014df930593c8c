"""Table of the comparison of lecture 7: the file that has it, intervals over the seeds, and ranks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import t as student

from workbench.core.base.files import atomic_write
from workbench.core.base.types import Array
from workbench.core.contract.scheme import marked

NUMBERS = Path(__file__).with_name("coding_or_not.csv")
OWN = "own optimiser"
CODES = ("exact code", "inexact code")
EQUAL = 1e-6  # max relative difference of seconds that count as equal


def read(path: Path = NUMBERS) -> pd.DataFrame:
    """Read the saved table."""
    return as_table(pd.read_csv(path, dtype={"column": str}, keep_default_na=False))


def as_table(found: pd.DataFrame | Sequence[dict[str, Any]]) -> pd.DataFrame:
    """Return rows as a data frame, with an array of seconds in each row."""
    table = pd.DataFrame(found)
    seconds: Any = [np.array(text.split(), float) for text in table["seconds"]]
    numbers = {
        name: pd.to_numeric(table[name], errors="coerce") for name in ("share", "step", "rounds", "test")
    }
    return table.assign(seconds=seconds, **numbers)


def band(seconds: Array) -> tuple[float, float, float]:
    """Return the geometric mean over the seeds, with its 95 % interval: low, mean, high."""
    logs = np.log(seconds)
    half = float(student.ppf(0.975, len(logs) - 1)) * float(logs.std(ddof=1)) / np.sqrt(len(logs))
    return tuple(np.exp(logs.mean() + half * np.array([-1.0, 0.0, 1.0])).tolist())


def ranked(cell: pd.DataFrame) -> pd.DataFrame:
    """Rank the schemes of one cell that reach the loss; `tie`: not distinguishable from the fastest by these seeds.

    The seeds are the same for all, so differences are taken seed by seed. If two schemes "k of n" take the same time
    under every seed, only the first is shown. `same` has the names of the others.
    """
    found = cell[[bool(np.isfinite(s).all()) for s in cell["seconds"]]].copy()
    found = found.assign(same=_same(found))
    found = found[found["same"] != "-"].copy()
    found["low"], found["mean"], found["high"] = zip(*map(band, found["seconds"]), strict=True)
    found = found.sort_values("mean", kind="stable")
    best = found["seconds"].iloc[0]
    found["tie"] = [band(seconds / best)[0] <= 1.0 for seconds in found["seconds"]]
    return found


SHOWN = ("family", "scheme", "same", "settings", "share", "step", "low", "mean", "high", "tie", "test")


def shown(found: pd.DataFrame) -> pd.DataFrame:
    """Return the columns of a ranking for display. Schemes that follow only the abstract of their paper have a mark."""
    return found.assign(scheme=[marked(name, name) for name in found["scheme"]])[[*SHOWN]]


def _same(found: pd.DataFrame) -> list[str]:
    """Return, for each row, the later schemes with the same times under every seed, or "-" if an earlier row has it.

    Only the family "k of n" is compared.
    """
    names, families, seconds = (found[each].tolist() for each in ("scheme", "family", "seconds"))
    texts, shown = [""] * len(found), list[int]()
    for k, mine in enumerate(seconds):
        one = [j for j in shown if families[j] == families[k] and np.allclose(mine, seconds[j], rtol=EQUAL)]
        one = one if families[k] == "k of n" else []
        if one:
            texts[one[0]] = ", ".join(filter(None, [texts[one[0]], names[k]]))
            texts[k] = "-"
        else:
            shown.append(k)
    return texts


def best_pair(found: pd.DataFrame) -> tuple[pd.Series[Any], pd.Series[Any]]:
    """Return the fastest code and the fastest scheme without a code. Only plain gradient steps count."""
    return (
        found[found["family"].isin(CODES)].iloc[0],
        found[~found["family"].isin((*CODES, OWN))].iloc[0],
    )


def summary(table: pd.DataFrame) -> Iterator[str]:
    """Yield a row of a Markdown table for each cell: the best code, the best without one, and the ratio of times.

    The ratio is the time without a code divided by that of the code, with its 95 % interval over the seeds. Only plain
    gradient steps count. Both schemes are chosen by their mean time over the seeds that are timed.
    """
    for (problem, delay_model, column, cost), cell in table.groupby(
        ["problem", "delay_model", "column", "cost"]
    ):
        found = ranked(cell)
        coded, other = best_pair(found)
        low, mean, high = band(other["seconds"] / coded["seconds"])
        sides = [
            f"{side['scheme']} {side['settings']}, {side['share']:g}: {side['mean']:.1f}, test {side['test']:.4g}"
            for side in (coded, other)
        ]
        ratio = f"{mean:.2f} ({low:.2f} to {high:.2f})"
        yield f"| {problem} | {delay_model} {column} | {cost:g} | {sides[0]} | {sides[1]} | {ratio} |"


def keep(new: pd.DataFrame) -> None:
    """Replace rows of the same problem, cell and scheme in the saved table."""
    key = ["problem", "delay_model", "column", "cost", "family", "scheme"]
    new = new.astype({"cost": float}).astype(str).replace("nan", "")
    if NUMBERS.is_file():
        old = pd.read_csv(NUMBERS, dtype=str, keep_default_na=False)
        new = pd.concat([old, new]).drop_duplicates(key, keep="last")
    with atomic_write(NUMBERS) as out:
        out.write(new.sort_values(key[:4], kind="stable").to_csv(index=False).encode())
