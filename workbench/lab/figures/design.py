"""Style sheet of widgets and pages. All colours of pages are in js/design.css."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from workbench.core.base.reading import read_text

_EXPLORER = "/* ==== explorer"  # beginning of the part of the style sheet that only the explorer needs


@cache
def style_sheet(whole: bool = False) -> str:
    """Return the style sheet of the package for every widget and page, without comments and line ends.

    `whole`: include the explorer's part.
    """
    text = read_text(Path(__file__).parent / "js" / "design.css")
    text = text if whole else text.partition(_EXPLORER)[0]
    return re.sub(r"\s+", " ", re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)).strip()
