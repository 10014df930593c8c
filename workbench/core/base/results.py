"""Tables of results, which a notebook and `print` show without pandas' numbers of the rows."""

from typing import Any

import pandas as pd


class Results(pd.DataFrame):
    """A table whose rows have no names: shown with its columns alone, as its files are written.

    >>> print(Results({"scheme": ["CR", "GC"], "share": [0.5, 0.25]}).sort_values("share"))
    scheme  share
        GC   0.25
        CR   0.50
    """

    @property
    def _constructor(self) -> type["Results"]:
        return Results

    def __repr__(self) -> str:
        return str(self.to_string(line_width=pd.get_option("display.width"), **self._shown()))

    def _repr_html_(self) -> str:
        return str(self.to_html(notebook=True, **self._shown()))

    def _shown(self) -> dict[str, Any]:
        """Options of pandas: names of rows, where there are any, stay."""
        named = self.index.names != [None] or not pd.api.types.is_integer_dtype(self.index)
        return {
            "index": named,
            "max_rows": pd.get_option("display.max_rows"),
            "max_cols": pd.get_option("display.max_columns") or None,
        }
