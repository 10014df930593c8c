"""Types and specs, shared by tests of several packages."""

from __future__ import annotations

from typing import Any

Case = tuple[dict[str, Any], int]  # scheme_args, workers


def quick(scheme: str, rounds: int, samples: int, features: int) -> dict[str, Any]:
    """Return the spec of a run of four workers with short delays on real processes."""
    return {
        "scheme": scheme,
        "workers": 4,
        "rounds": rounds,
        "problem": "least_squares",
        "problem_args": {"samples": samples, "features": features},
        "delays": {"kind": "constant", "shift": 1e-4},
    }


LEAST_SQUARES = ["BGC", "CRC", "ErasureHead", "FRC", "GGC", "SGC", "SGD"]
