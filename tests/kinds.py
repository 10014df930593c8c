"""Types that the drawn settings share."""

from __future__ import annotations

from typing import Any

Case = tuple[dict[str, Any], int]  # scheme_args, workers
