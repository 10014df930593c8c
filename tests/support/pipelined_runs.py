"""Experiments with pipelined gradient coding (PGC) on the Unit problem."""

from __future__ import annotations

import workbench as wb

N = 7


def experiment(rounds: int, stragglers: int = 2, **fields: object) -> wb.Experiment:
    base = {"problem": "unit", "problem_args": {"samples": N}, "delays": {"kind": "exponential", "mean": 1.0}}
    args = {"stragglers": stragglers}
    return wb.Experiment(scheme="PGC", scheme_args=args, workers=N, rounds=rounds, **{**base, **fields})
