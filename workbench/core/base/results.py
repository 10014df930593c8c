"""Tables of results, which are shown without the row numbers of pandas."""

from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd


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

        def __repr__(self) -> str:
            return str(self.to_string(line_width=pd.get_option("display.width"), **self._shown()))

        def _repr_html_(self) -> str:
            return str(self.to_html(notebook=True, **self._shown()))

        def _shown(self) -> dict[str, Any]:
            """Return options for `to_string` and `to_html`, which show the index only if it has names."""
            rows, columns = pd.get_option("display.max_rows"), pd.get_option("display.max_columns") or None
            named = self.index.names != [None] or not pd.api.types.is_integer_dtype(self.index)
            return {"index": named, "max_rows": rows, "max_cols": columns}

    return Results
