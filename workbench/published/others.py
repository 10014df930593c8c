"""The experiments of papers 2 to 5, as presets on data that are at hand: the explorer offers them beside paper 1's.

Delay models, codes and cluster sizes are the papers'; data that would have to be downloaded (Amazon employee access,
MNIST, Boston) have bundled or synthetic stand-ins, which the titles name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, partial
from types import MappingProxyType
from typing import Any

import numpy as np

from workbench.base.settings import SettingError
from workbench.experiment import Experiment
from workbench.published.codedreduce import Preset
from workbench.theory import cegc_table

Make = Callable[[], tuple[Experiment, ...]]

# ---------------------------------------------------------------- paper 2: Ye and Abbe

PARTS = 8  # of table 3; its constants are of one part
T1, LAMBDA1, T2, LAMBDA2 = 1.6, 0.8, 6.0, 0.1  # s/part, parts/s, s, 1/s


def _codes(parts: int) -> list[tuple[int, int, int]]:
    """(d, s, m): uncoded, the best with m = 1, the best of all, by expected time; a part is 8/n of table 3's."""
    share = PARTS / parts
    table = cegc_table(parts, t1=T1 * share, lambda1=LAMBDA1 / share, t2=T2, lambda2=LAMBDA2)
    rows = np.where(np.isnan(table), np.inf, table)
    best = [(int(np.argmin(rows[0])), 0), *[divmod(int(np.argmin(rows)), parts)[::-1]]]
    return [(1, 0, 1), *((d + 1, d - m, m + 1) for d, m in best)]


def _cegc(parts: int) -> tuple[Experiment, ...]:
    size = 100  # samples of a part
    each = size * parts / PARTS  # so that a part takes as long as its share of table 3's data
    delays = {"kind": "two_part", "t1": T1 / each, "lambda1": LAMBDA1 * each, "t2": T2, "lambda2": LAMBDA2}
    data = {"samples": size * parts, "features": 60, "l2": 1e-3}
    common: dict[str, Any] = {
        "problem": "logistic",
        "problem_args": data,
        "optimiser": "nesterov",
        "delays": delays,
    }
    return tuple(
        Experiment(
            scheme="CEGC",
            scheme_args={"load": d, "stragglers": s, "reduction": m},
            workers=parts,
            rounds=100,
            **common,
        )
        for d, s, m in _codes(parts)
    )


# ---------------------------------------------------------------- paper 3: CADA and G-CADA


def _cada() -> tuple[Experiment, ...]:
    adam = {"optimiser": "amsgrad", "optimiser_args": {"rate": 0.01, "beta1": 0.9, "beta2": 0.999}}
    common: dict[str, Any] = {
        "workers": 12,
        "rounds": 1500,
        "problem": "least_squares",
        "problem_args": {"data": "digits"},
        "delays": {"kind": "exponential", "mean": 1e-4},
    }
    lazy = [("CADA", {"c": 2.0}), *(("G-CADA", {"c": 0.3, "groups": groups}) for groups in (3, 4))]
    schemes: list[tuple[str, dict[str, Any], dict[str, Any]]] = [("D-SGD", {}, {}), ("D-Adam", {}, adam)]
    schemes += [(name, args, adam) for name, args in lazy]
    return tuple(
        Experiment(scheme=name, scheme_args={**args, "batch": 25}, **{**common, **more})
        for name, args, more in schemes
    )


# ---------------------------------------------------------------- paper 4: approximate gradient coding


def _agc(workers: int, deadline: float, schemes: Sequence[str], **problem: Any) -> tuple[Experiment, ...]:
    """Two workers per part; who does not straggle is done well before the deadline, a straggler well after it."""
    delays = {
        "kind": "heterogeneous",
        "slow": 0.3,
        "slow_straggles": 0.8,
        "active_straggles": 0.01,
        "factor": 10.0,
    }
    return tuple(
        Experiment(
            scheme=scheme,
            scheme_args={"replication": 2, "shuffle": shuffle, "deadline": deadline},
            workers=workers,
            rounds=200,
            delays=delays,
            **problem,
        )
        for scheme in schemes
        for shuffle in ("none", "random")
    )


# ---------------------------------------------------------------- paper 5: multi-message gradient coding


def _mmc() -> tuple[Experiment, ...]:
    workers, load, each = 40, 10, 25  # each: samples of a part
    common: dict[str, Any] = {
        "workers": workers,
        "rounds": 60,
        "problem": "least_squares",
        "problem_args": {"samples": workers * each, "features": 40},
        "delays": {"kind": "shifted_exponential", "shift": 0.01 / each, "rate": 10.0 * each},
    }
    four = {"load": load, "clusters": 4}
    schemes: list[tuple[str, dict[str, Any]]] = [
        ("GC", {"stragglers": load - 1}),
        ("GC", {"stragglers": load - 1, "code": "fractional"}),
        ("LCC", {"load": load}),
        ("UC-MMC", {"load": load}),
        ("GC-MMC", {**four, "order": 6}),
        ("GC-MMC", {**four, "order": (6, 8, 10)}),
        ("GC-MMC", {**four, "order": (6, 8, 10), "hybrid": True}),
    ]
    return tuple(Experiment(scheme=name, scheme_args=args, **common) for name, args in schemes)


# ---------------------------------------------------------------- all of them

_BOTH = ("FRC", "CRC")
_ALL: dict[str, tuple[str, Make]] = {
    "table3": ("Table 3 of Ye-Abbe: 8 workers, uncoded, best m = 1, best of all", partial(_cegc, PARTS)),
    **{
        f"cegc{n}": (
            f"Figures 3, 4 of Ye-Abbe: {n} workers; synthetic in Amazon's place",
            partial(_cegc, n),
        )
        for n in (10, 15, 20)
    },
    "gcada": ("Figure 2 of G-CADA: 12 workers; digits in MNIST's place", _cada),
    "agc2a": (
        "Figure 2a of AGC: 8 workers, linear; scikit-learn's diabetes in Boston's place",
        lambda: _agc(
            8, 0.02, _BOTH, problem="least_squares", problem_args={"data": "diabetes", "intercept": True}
        ),
    ),
    "agc2b": (
        "Figure 2b of AGC: 8 workers, two classes; breast_cancer in Diabetes' place",
        lambda: _agc(
            8, 0.02, _BOTH, problem="logistic", problem_args={"data": "breast_cancer", "intercept": True}
        ),
    ),
    "agc2c": (
        "Figure 2c of AGC: 20 workers, iris, FRC",
        lambda: _agc(
            20, 0.002, ("FRC",), problem="softmax", problem_args={"data": "iris", "intercept": True}
        ),
    ),
    "agc2d": (
        "Figure 2d of AGC: 20 workers, iris, CRC",
        lambda: _agc(
            20, 0.002, ("CRC",), problem="softmax", problem_args={"data": "iris", "intercept": True}
        ),
    ),
    "mmc": ("Figure 1 of multi-message coding: 40 workers, load 10", _mmc),
}


class _Others(Mapping[str, Preset]):
    """Presets by name, made when they are asked for."""

    titles: Mapping[str, str] = MappingProxyType({name: title for name, (title, _) in _ALL.items()})

    def __getitem__(self, name: str) -> Preset:
        if name not in _ALL:
            raise SettingError(f"preset = {name!r}: no such preset; choose one of {', '.join(_ALL)}")
        return _made(name)

    def __iter__(self) -> Iterator[str]:
        return iter(_ALL)

    def __len__(self) -> int:
        return len(_ALL)


@cache
def _made(name: str) -> Preset:
    title, make = _ALL[name]
    return Preset(name, title, make())


others = _Others()
"""Presets of papers 2 to 5 by name.

>>> [e.scheme_args["reduction"] for e in others["table3"]]
[1, 1, 3]
"""
