"""Write the table of schemes in docs/schemes.md from the schemes themselves; `make format` calls it.

python tools/schemes_table.py
"""

from __future__ import annotations

from pathlib import Path

import workbench as wb
from workbench.core.base.files import atomic_write

PAGE = Path(__file__).resolve().parents[1] / "docs" / "schemes.md"
HEAD = "| name | scheme | source | commits the full gradient | status |\n| --- | --- | --- | --- | --- |\n"


def table() -> str:
    """One row a scheme, in the order of `wb.schemes.names()`."""
    rows = []
    for name in wb.schemes.names():
        scheme = wb.schemes.get(name)
        forecast = "; forecast of a round that selects all" if scheme.data_dependent else ", forecast"
        exact = "yes" if scheme.exact else "no"
        rows.append(
            f"| {name} | {scheme.title} | {scheme.paper} | {exact} | virtual clock, MPI{forecast} |\n"
        )
    return HEAD + "".join(rows)


def renewed(text: str) -> str:
    """The page with the table as it should be."""
    before, head, rest = text.partition(HEAD)
    _, gap, after = rest.partition("\n\n")
    return before + (table().rstrip("\n") if head else "") + gap + after


def main() -> None:
    """Replace the table where it has changed."""
    text = PAGE.read_text()
    if renewed(text) != text:
        with atomic_write(PAGE, "w") as out:
            out.write(renewed(text))


if __name__ == "__main__":
    main()
