"""Escapes for text in tables that a spreadsheet would read as a formula: an apostrophe before the text.

OWASP, "CSV Injection": text that begins with =, +, -, @, a tab or a line break is computed when a file is opened.
"""

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

# Text that already begins with an apostrophe gets another one, so that it can be restored.
_FORMULA = re.compile(r"'*[=+\-@\t\r\n]")
_ESCAPED = re.compile(r"'+[=+\-@\t\r\n]")
_NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?")


def escaped(value: Any) -> Any:
    """Return text with an apostrophe before a possible formula. Numbers are unchanged, also as text.

    >>> escaped("=cmd|' /C calc'!A0"), escaped("-1.5e3"), escaped(-2), escaped("a=b")
    ("'=cmd|' /C calc'!A0", '-1.5e3', -2, 'a=b')
    """
    is_formula = isinstance(value, str) and _FORMULA.match(value) and not _NUMBER.fullmatch(value)
    return f"'{value}" if is_formula else value


def is_escaped(value: Any) -> bool:
    """Return whether `escaped` may have returned this text."""
    return isinstance(value, str) and bool(_ESCAPED.match(value))


def restored(value: Any) -> Any:
    """Return the original text of `escaped`.

    >>> restored(escaped("@name")), restored(escaped("'=1"))
    ('@name', "'=1")
    """
    return value[1:] if is_escaped(value) else value


def to_csv(frame: "pd.DataFrame") -> bytes:
    """Return a table as .csv, without its index and with escaped formulas."""
    frame = frame.rename(columns=escaped)
    for place in range(frame.shape[1]):
        if not _is_number(frame.iloc[:, place]):
            frame.isetitem(place, frame.iloc[:, place].astype(object).map(escaped).to_numpy())
    text: str = frame.to_csv(index=False)
    return text.encode()


def _is_number(column: "pd.Series[Any]") -> bool:
    from pandas.api import types

    return bool(types.is_numeric_dtype(column.dtype))
