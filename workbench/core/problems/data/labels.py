"""Names of classes, compared as text."""

import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
from numpy.typing import NDArray

from workbench.core.base.tables import number

from .options import DataError, Options

MISSING_MARKERS = {  # texts that programs write for a missing value
    "", "?", "NA", "N/A", "n/a", "#N/A", "#N/A N/A", "#NA", "<NA>", "NaN", "nan", "-NaN", "-nan", "1.#QNAN", "-1.#QNAN",
    "1.#IND", "-1.#IND", "NULL", "null", "None", "none",
}  # fmt: skip
_PLAIN = re.compile(r"[-+]?(0|[1-9][0-9]*)?(\.[0-9]*)?", re.ASCII)  # plain numbers; 007 and 1e5 are names


def missing(values: NDArray[Any]) -> NDArray[np.bool_]:
    """Return which values are missing: None, NaN, or blank text."""
    if values.dtype.kind != "O":
        return np.isnan(values) if values.dtype.kind in "fcmM" else np.zeros(len(values), dtype=bool)
    return np.array(
        [v is None or v != v or (isinstance(v, str) and not v.strip()) for v in values], dtype=bool
    )


def text_labels(
    values: NDArray[Any], options: Options, place: Callable[[int], str]
) -> tuple[NDArray[Any], NDArray[Any], bool]:
    """Return the distinct labels, the label of each row as an index, and whether labels are a quantity.

    Numbers are sorted by size, other labels by the alphabet. Raises `DataError` if a row has no label, or if two
    labels may be the same class: 1 and 1.0, or two that differ only in blanks. Also raises it for NA and similar
    markers among numbers.
    """
    texts = [v if isinstance(v, str) else "" if v is None or v != v else str(v) for v in values]
    rows: dict[str, int] = {}
    for row, text in enumerate(texts):
        if text not in rows:
            if not text.strip():
                raise _missing(options, place(row))
            rows[text] = row
    finite = {text for text in rows if (value := number(text)) is not None and np.isfinite(value)}
    if finite:
        for text in rows:
            if text.strip() in MISSING_MARKERS or (number(text) is not None and text not in finite):
                raise _missing(options, f"{place(rows[text])} ({text!r} among numbers)")
    _refuse_alike(rows, options, place)
    numeric = len(finite) == len(rows)
    ordered = sorted(rows, key=lambda text: (Decimal(text.strip() if numeric else 0), text))
    code = {text: i for i, text in enumerate(ordered)}
    quantity = numeric and any(Decimal(text.strip()) != int(Decimal(text.strip())) for text in rows)
    return np.array(ordered, dtype=object), np.array([code[text] for text in texts]), quantity


def _missing(options: Options, where: str) -> DataError:
    what = f"the target of {options.source!r} is missing or not finite in {where}"
    return DataError(f"source: {what}; remove that row or fill it in")


def _refuse_alike(rows: dict[str, int], options: Options, place: Callable[[int], str]) -> None:
    """Raise `DataError` for labels that differ only in how they are written."""
    seen: dict[Any, str] = {}
    for text in rows:
        bare = text.strip()
        plain = bool(bare.strip("+-.")) and _PLAIN.fullmatch(bare)
        key = Decimal(bare) if plain else bare
        if (other := seen.setdefault(key, text)) != text:
            what = f"the target of {options.source!r} is {text!r} in {place(rows[text])} and {other!r} in"
            raise DataError(f"source: {what} {place(rows[other])}; write each class in one way")
