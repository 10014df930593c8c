"""Tables of results, which are shown without the row numbers of pandas."""

import math
import re
from functools import cache
from typing import TYPE_CHECKING, Any, SupportsFloat

from workbench.core.base.settings import SettingError

if TYPE_CHECKING:
    import pandas as pd

# column -> unit, for columns whose name does not contain the unit
UNITS = dict.fromkeys(("seconds", "time", "round_time", "time_to", "predicted", "measured"), "s") | {
    "bytes": "B"
}
MAX_WHOLE_DIGITS = 9  # whole numbers with more digits are written with a power of ten
_LATEX = {c: f"\\{c}" for c in "&%$#_{}"} | {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
}
DIGITS = 3  # significant digits in a table for a paper


def results(rows: Any, columns: Any = None) -> "pd.DataFrame":
    """Return a table that is shown without row numbers.

    >>> print(results({"scheme": ["CR", "GC"], "share": [0.5, 0.25]}).sort_values("share"))
    scheme  share
        GC   0.25
        CR   0.50
    """
    return _kind()(rows, columns=columns)


@cache
def _kind() -> "type[pd.DataFrame]":
    import pandas as pd

    class Results(pd.DataFrame):
        @property
        def _constructor(self) -> "type[Results]":
            return Results

        def __reduce__(self) -> Any:
            # pickled as a plain frame, so that other processes need not import this class
            plain = pd.DataFrame(self)
            plain.attrs = self.attrs
            return pd.DataFrame.copy, (plain,)

        def latex(self, digits: int = DIGITS, **options: Any) -> str:
            """Return the table as LaTeX with the package booktabs; see `latex`."""
            return latex(self, digits, **options)

        def __repr__(self) -> str:
            return str(self.to_string(line_width=pd.get_option("display.width"), **self._shown()))

        def _repr_html_(self) -> str:
            return str(self.to_html(notebook=True, **self._shown()))

        def _shown(self) -> dict[str, Any]:
            """Return options for `to_string` and `to_html`. An index is shown if it has a name or is not of numbers."""
            rows, columns = pd.get_option("display.max_rows"), pd.get_option("display.max_columns") or None
            named = self.index.names != [None] or not pd.api.types.is_integer_dtype(self.index)
            return {"index": named, "max_rows": rows, "max_cols": columns}

    return Results


def latex(table: "pd.DataFrame", digits: int = DIGITS, caption: str = "", label: str = "") -> str:
    r"""Return a table as LaTeX, by pandas' Styler: headings with units, numbers with significant digits, text escaped.

    `digits`: significant digits of numbers that are not whole. `caption`, `label`: caption and label of a floating
    table. Without both, only the tabular is returned. LaTeX needs the package booktabs. Missing numbers are a dash.

    Raises `SettingError` unless `digits` is 1 to 17.

    >>> print(latex(results({"scheme": ["CR", "GC_2"], "seconds": [12.3456, None]})))
    \begin{tabular}{lr}
    \toprule
    scheme & seconds (s) \\
    \midrule
    CR & 12.3 \\
    GC\_2 & -- \\
    \bottomrule
    \end{tabular}
    <BLANKLINE>
    """
    import pandas as pd

    if not 1 <= digits <= 17:
        raise SettingError(f"digits = {digits}: take 1 to 17")
    shown = pd.DataFrame(table).reset_index(
        drop=pd.api.types.is_integer_dtype(table.index) and table.index.names == [None]
    )
    number = {name: pd.api.types.is_numeric_dtype(shown[name]) for name in shown}
    cells = shown.astype(object)
    for name in shown:
        cells[name] = [_cell(value, digits) for value in shown[name]]
    cells.columns = [_heading(str(name)) for name in shown]
    style = cells.style.hide(axis="index")
    columns = "".join("r" if number[name] else "l" for name in shown)
    floating: dict[str, Any] = {"caption": _escaped(caption), "position": "t"} if caption else {}
    return str(style.to_latex(column_format=columns, hrules=True, label=label or None, **floating))


def _heading(name: str) -> str:
    unit = UNITS.get(name, "")
    return _escaped(f"{name.replace('_', ' ')} ({unit})" if unit else name.replace("_", " "))


def _cell(value: Any, digits: int) -> str:
    """Return a cell: whole numbers as they are, others with significant digits, powers of ten as mathematics."""
    if value is None or value != value:
        return "--"
    if isinstance(value, bool) or not isinstance(value, SupportsFloat):
        return _escaped(str(value))
    number = float(value)
    if math.isinf(number):
        return r"$\infty$" if number > 0 else r"$-\infty$"
    if number.is_integer() and abs(number) < 10**MAX_WHOLE_DIGITS:
        return f"${number:.0f}$" if number < 0 else f"{number:.0f}"
    text = f"{number:#.{digits}g}".rstrip(".")
    mantissa, mark, power = text.partition("e")
    if mark:
        return rf"${mantissa.rstrip('.')} \times 10^{{{int(power)}}}$"
    return f"${text}$" if number < 0 else text


def _escaped(text: str) -> str:
    return re.sub(r"[\\&%$#_{}~^]", lambda found: _LATEX[found[0]], text)
