"""Paper 2, table 3: expected iteration times for all loads and reductions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from workbench.core import theory
from workbench.core.base.types import Array
from workbench.core.experiment import Experiment
from workbench.core.forecasting import forecast
from workbench_book import drawing
from workbench_book.catalogue import Entry
from workbench_book.measured import Measured, measure, sped_up
from workbench_book.setting import Setting
from workbench_book.values import Claim, Line, Picture, Result

N = 8
MODEL = {"lambda1": 0.8, "lambda2": 0.1, "t1": 1.6, "t2": 6.0}
PUBLISHED = (  # row m - 1, from d = m on
    (36.1138, 29.2288, 27.3351, 26.7469, 26.4574, 26.0891, 25.4172, 24.1063),
    (23.1036, 21.3994, 21.5369, 21.9114, 22.2099, 22.3189, 22.1405),
    (22.2604, 21.3697, 21.5749, 21.9095, 22.1707, 22.2772),
    (24.8036, 23.2793, 23.1114, 23.1862, 23.2611),
    (28.5800, 25.9827, 25.2862, 25.0141),
    (32.8664, 29.0745, 27.7904),
    (37.3977, 32.3759),
    (42.0638,),
)
MEASURED = ((1, 1), (8, 1), (4, 3))  # d, m: uncoded, the best plain gradient code, the best of all
QUICK_MEASURED = ((1, 1), (4, 3))
PAPER = {"uncoded": 0.41, "m = 1": 0.11}  # savings that section 5 states


def experiment(d: int, m: int, rounds: int, seed: int = 0, **changes: Any) -> Experiment:
    """Return a cell of the table: 8 workers, 8 parts of one sample, s = d - m."""
    fields: dict[str, Any] = {
        "scheme": "CEGC",
        "scheme_args": {"load": d, "stragglers": d - m, "reduction": m},
        "workers": N,
        "problem": "unit",
        "problem_args": {"samples": N},
        "delays": {"kind": "two_part", **MODEL},
        "rounds": rounds,
        "seed": seed,
    }
    return Experiment(**{**fields, **changes})


def find(setting: Setting) -> Result:
    """Compute all 36 cells by quadrature and by simulation, and three (quick form: two) on real processes."""
    exact = theory.cegc_table(N, **MODEL)
    rounds = setting.pick(4000, 40000)
    found = _measured(setting)
    lines = []
    for m in range(1, N + 1):
        for d in range(m, N + 1):
            expected = forecast(experiment(d, m, rounds, setting.seed))
            values = {"exact": float(exact[m - 1, d - 1]), "ours": expected.mean}
            values |= found.seconds(label(d, m))
            by = f"wb.theory.cegc_time({N}, {d}, {m}, 0.8, 0.1, 1.6, 6)"
            published = PUBLISHED[m - 1][d - m]
            lines.append(Line(label(d, m), published, values, "s", by, {"ours": expected.error}))
        setting.report(m, N)
    best = theory.cegc_best(N, **MODEL)
    return Result(
        lines=lines,
        claims=_claims(exact, best),
        pictures=[_heat(exact, best)],
        text=[
            "A worker needs d T1 + T2/m: T1 = 1.6 + Exp(rate 0.8) for each of its d parts, the same draw for all of"
            " them, T2 = 6 + Exp(rate 0.1) for sending a whole vector; the iteration ends with the (n-s)-th of n = 8"
            " workers, s = d - m."
        ],
        columns=["exact", "ours", "measured"],
        specs={label(d, m): experiment(d, m, rounds, setting.seed) for d, m in MEASURED} | found.specs(),
        measured=found.note,
        seed=setting.seed,
    )


def _measured(setting: Setting) -> Measured:
    cells = setting.pick(QUICK_MEASURED, MEASURED)
    rounds = setting.pick(40, 100)
    chosen = {label(d, m): on_data(experiment(d, m, rounds, setting.seed)) for d, m in cells}
    return measured_like(chosen, label(1, 1), setting)


def measured_like(experiments: Mapping[str, Experiment], base: str, setting: Setting) -> Measured:
    """Measure experiments on real processes, with times divided so that a round of `base` takes 0.1 s."""
    chosen, divided = sped_up(experiments, 0.1, base)
    return measure(chosen, setting, divided)


def on_data(e: Experiment) -> Experiment:
    """Return an experiment with the same seconds on synthetic data, with 25 samples in each part."""
    args = {"data": "synthetic", "samples": 25 * e.workers, "features": 24}
    delays = e.delays.model_dump()
    delays |= {"t1": delays["t1"] / 25, "lambda1": 25 * delays["lambda1"]}
    return e.replace(problem="least_squares", problem_args=args, delays=delays)


def label(d: int, m: int) -> str:
    """Return the name of a cell."""
    return f"d = {d}, m = {m}"


def _claims(exact: Array, best: tuple[int, int]) -> list[Claim]:
    least = float(np.nanmin(exact))
    saved = {"uncoded": 1 - least / exact[0, 0], "m = 1": 1 - least / np.nanmin(exact[0])}
    right = all(abs(saved[name] - PAPER[name]) < 0.01 for name in PAPER)
    return [
        Claim(
            "d = 4, m = 3 is best", best == (4, 3), f"best: d, m = {best}", f"wb.theory.cegc_best({N}, ...)"
        ),
        Claim(
            "41 % less than uncoded, 11 % less than the best with m = 1",
            right,
            ", ".join(f"{100 * v:.3g} % less than {k}" for k, v in saved.items()),
            "wb.theory.cegc_table(8, 0.8, 0.1, 1.6, 6)",
        ),
    ]


def _heat(exact: Array, best: tuple[int, int]) -> Picture:
    names = [str(i + 1) for i in range(N)]
    return drawing.heat(
        exact,
        names,
        names,
        "Table 3: expected iteration time (s)",
        ("load d (parts per worker)", "reduction m"),
        f"Computed by quadrature; darker is slower. The least is at d = {best[0]}, m = {best[1]}.",
    )


PLACE = (2, 1)  # paper, and position in its chapter of the book
ENTRIES = (
    Entry(
        "table3",
        "Table 3: expected iteration time for every load d and reduction m",
        find,
        measured=True,
        weight=6.0,
    ),
)
