"""Text in tables that a spreadsheet would take for a formula: an apostrophe before it keeps it text.

OWASP, "CSV Injection": text that begins with =, +, -, @, a tab or a line break is computed when a file is opened.
"""

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

_FORMULA = re.compile(
    r"'*[=+\-@\t\r\n]"
)  # one that has an apostrophe already gets another, so that both come back
_ESCAPED = re.compile(r"'+[=+\-@\t\r\n]")
_NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?")


def escaped(value: Any) -> Any:
    """Return text with an apostrophe before what looks like a formula; numbers, also as text, stay as they are.

    >>> escaped("=cmd|' /C calc'!A0"), escaped("-1.5e3"), escaped(-2), escaped("a=b")
    ("'=cmd|' /C calc'!A0", '-1.5e3', -2, 'a=b')
    """
    is_formula = isinstance(value, str) and _FORMULA.match(value) and not _NUMBER.fullmatch(value)
    return f"'{value}" if is_formula else value


def is_escaped(value: Any) -> bool:
    """Is this text that `escaped` may have returned?"""
    return isinstance(value, str) and bool(_ESCAPED.match(value))


def restored(value: Any) -> Any:
    """Return the text that `escaped` was given.

    >>> restored(escaped("@name")), restored(escaped("'=1"))
    ('@name', "'=1")
    """
    return value[1:] if is_escaped(value) else value


def to_csv(frame: "pd.DataFrame") -> bytes:
    """Write a table as .csv, without its index, in which no text is a formula."""
    frame = frame.rename(columns=escaped)
    for place in range(frame.shape[1]):
        if not _is_number(frame.iloc[:, place]):
            frame.isetitem(place, frame.iloc[:, place].astype(object).map(escaped).to_numpy())
    text: str = frame.to_csv(index=False)
    return text.encode()


def _is_number(column: "pd.Series[Any]") -> bool:
    from pandas.api import types

    return bool(types.is_numeric_dtype(column.dtype))
