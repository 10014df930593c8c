"""Columns with mean 0 and variance 1, whatever their range."""

from dataclasses import dataclass

import numpy as np

from .options import DataError
from .table import Floats, Table


@dataclass(frozen=True)
class Standard:
    """x' = ((x - low) / span - middle) / spread, column by column.

    The range is brought to 0 ... 1 first, where nothing over- or underflows and a large offset costs no
    digits. In constant columns x - low is exactly 0 and stays it.
    """

    low: Floats
    span: Floats
    middle: Floats
    spread: Floats

    def __call__(self, block: Floats) -> Floats:
        """Standardise a block of rows."""
        return ((block - self.low) / self.span - self.middle) / self.spread

    def moved(self, truth: Floats) -> tuple[Floats, float]:
        """Express a linear model of x in x': its coefficients and its constant."""
        return truth * self.span * self.spread, float((self.low + self.span * self.middle) @ truth)


def ranges(table: Table, source: str) -> tuple[Floats, Floats]:
    """Find the least and the greatest value of every column.

    Raises `DataError` where a column has missing or infinite values; the first such column is named.
    """
    low, high = np.full(table.features, np.inf), np.full(table.features, -np.inf)
    gaps = np.zeros(table.features, dtype=bool)
    with np.errstate(invalid="ignore"):
        for block, _ in table.blocks():
            np.minimum(low, block.min(axis=0), out=low)
            np.maximum(high, block.max(axis=0), out=high)
            gaps |= ~np.isfinite(block).all(axis=0)
    if gaps.any():
        column = table.column(int(np.argmax(gaps)))
        raise DataError(
            f"source: column {column} of {source!r} has missing or infinite values (NaN, inf); "
            "fill them in, or remove those rows or the column"
        )
    return low, high


def standard(table: Table, low: Floats, high: Floats, source: str) -> Standard:
    """Measure mean and deviation of every column, in one pass.

    Raises `DataError` where the range of a column is beyond the largest number.
    """
    with np.errstate(over="ignore"):
        span = high - low
    if not np.isfinite(span).all():
        column = table.column(int(np.argmax(~np.isfinite(span))))
        raise DataError(
            f"scale: column {column} of {source!r} is too large to standardise; divide it, or use scale=False"
        )
    constant = span == 0
    span[constant] = 1
    total, squares = np.zeros(table.features), np.zeros(table.features)
    for block, _ in table.blocks():
        unit = (block - low) / span
        total += unit.sum(axis=0)
        squares += np.square(unit).sum(axis=0)
    middle = total / table.samples
    # 0 and 1 both occur, so the variance is 1/(2 samples) at least and the difference keeps its digits.
    spread = np.sqrt(squares / table.samples - np.square(middle))
    return Standard(low, span, middle, np.where(constant, 1.0, spread))
