"""Types and specs that tests of several rooms share."""

from __future__ import annotations

from typing import Any

Case = tuple[dict[str, Any], int]  # scheme_args, workers


def quick(scheme: str, rounds: int, samples: int, features: int) -> dict[str, Any]:
    """Spec of a run of four workers on which real processes lose no time."""
    return {
        "scheme": scheme,
        "workers": 4,
        "rounds": rounds,
        "problem": "least_squares",
        "problem_args": {"samples": samples, "features": features},
        "delays": {"kind": "constant", "shift": 1e-4},
    }


LEAST_SQUARES = ["BGC", "CRC", "ErasureHead", "FRC", "GGC", "SGC", "SGD"]
