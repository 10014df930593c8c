"""Problems of the lectures' runs: small and bundled, and shared by several lectures."""

from __future__ import annotations

from typing import Any

DIGITS: dict[str, Any] = {
    "problem": "softmax",
    "problem_args": {"data": "digits", "intercept": True, "l2": 1e-4},
}
DIGITS_SAMPLES = 1797
