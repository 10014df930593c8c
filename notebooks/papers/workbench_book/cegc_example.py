"""Paper 2, figure 2: five workers with three parts each, for two stragglers and for messages of half the length.

The available text of the figure has lost its minus signs, so absolute values are compared.
"""

from __future__ import annotations

from functools import partial
from itertools import combinations

import numpy as np
from numpy.polynomial import polynomial

from workbench.core.base.types import Array
from workbench.core.experiment import Experiment
from workbench.core.forecasting import forecast
from workbench.core.running.start import run
from workbench.core.trace.trace import Trace
from workbench_book import drawing
from workbench_book.catalogue import Entry
from workbench_book.measured import NOT_QUICK, ROUND, ROUNDS, Measured, measure, sped_up
from workbench_book.setting import Setting
from workbench_book.values import Claim, Line, Picture, Result

N, D = 5, 3
NODES = np.array([-2.0, -1.0, 0.0, 1.0, 2.0])  # nodes of the example; section 4 has others
# Messages of the workers, absolute values as printed: coefficients of g1(0), ..., g5(0), then of g1(1), ..., g5(1).
PRINTED_A = ((1, 3, 6, 0, 0), (0, 2, 6, 3, 0), (0, 0, 1, 2, 1), (2, 0, 0, 3, 6), (3, 1, 0, 0, 6))
PRINTED_B = (
    (1, 3, 6, 0, 0, 3, 3, 6, 0, 0),
    (0, 2, 6, 3, 0, 0, 0, 12, 3, 0),
    (0, 0, 1, 2, 1, 0, 0, 3, 0, 3),
    (2, 0, 0, 3, 6, 0, 0, 0, 3, 12),
    (3, 1, 0, 0, 6, 3, 3, 0, 0, 6),
)
TABLE_2 = {  # straggler W1: weights of f2, ..., f5 for both coordinates
    "coordinate 0": (1 / 2, 2.0, 1 / 2, 0.0),
    "coordinate 1": (1 / 6, 1.0, 1 / 2, 1 / 3),
}


def find(s: int, m: int, setting: Setting) -> Result:
    """Compare the printed code with the polynomials of section 3, and decode all sets of answers.

    The model of a run is compared with that of plain gradient descent as well.
    """
    code = example(m)
    printed = np.array(PRINTED_A if m == 1 else PRINTED_B, dtype=float)
    ours = _like(code, printed)
    lines = [
        Line(f"W{i + 1} sends {' '.join(f'{c:g}' for c in row)}: coefficients that come out", float(len(row)),
             {"exact": float(np.sum(np.isclose(np.abs(ours[i]), row)))}, "", "section 3's recursion, nodes -2 to 2")
        for i, row in enumerate(printed)
    ]  # fmt: skip
    if m == 2:
        lines += _table_2(ours)
    e = _experiment(s, m, setting)
    real = _measured(e, setting)
    return Result(
        lines=lines,
        claims=[_decodes(ours, s, m), _shorter(e, m), _run(e), *_really(real)],
        pictures=[_heat(ours, m)],
        text=[
            "Part i is absent from workers i+1 and i+2, so its polynomial has these workers' nodes as roots; for m = 2"
            " a second polynomial makes the second coordinate. Rows and weights are compared by absolute value: the"
            " text that we have of the figure has lost its minus signs. The example's nodes are -2, ..., 2; the"
            " package's own code of the same numbers uses the nodes of section 4; the run below decodes with it."
        ],
        columns=["exact"],
        specs={"CEGC": e} | real.specs(),
        measured=real.note,
        seed=setting.seed,
    )


def _experiment(s: int, m: int, setting: Setting) -> Experiment:
    return Experiment(
        scheme="CEGC",
        scheme_args={"load": D, "stragglers": s, "reduction": m},
        workers=N,
        rounds=setting.pick(50, 500),
        problem="least_squares",
        problem_args={"data": "synthetic", "samples": 50, "features": 8},
        seed=setting.seed,
    )


def example(m: int) -> Array:
    """Return the messages, (5, 5 m): coefficients of coordinate u of part i in column u * 5 + i."""
    columns = []
    for u in range(m):
        for part in range(N):
            first = _roots([NODES[(part + j) % N] for j in range(1, N - D + 1)])
            p = first
            for _ in range(u):
                p = polynomial.polysub(polynomial.polymulx(p), p[N - D - 1] * first)
            columns.append(polynomial.polyval(NODES, p))
    return np.stack(columns, axis=1)


def _roots(nodes: list[float]) -> Array:
    return np.asarray(polynomial.polyfromroots(nodes))


def _like(code: Array, printed: Array) -> Array:
    """Scale each row so that its first coefficient is as printed, since a worker may scale its message."""
    rows = []
    for row, shown in zip(code, printed, strict=True):
        at = int(np.flatnonzero(shown)[0])
        rows.append(row * shown[at] / row[at])
    return np.array(rows)


def _targets(m: int) -> Array:
    """Return the sum of each coordinate over the parts, (m, 5 m)."""
    return np.asarray(np.kron(np.eye(m), np.ones(N)), dtype=float)


def _weights(code: Array, answered: tuple[int, ...], m: int) -> Array:
    return np.asarray(np.linalg.lstsq(code[list(answered)].T, _targets(m).T, rcond=None)[0].T, dtype=float)


def _table_2(code: Array) -> list[Line]:
    weights = _weights(code, (1, 2, 3, 4), 2)
    return [
        Line(f"table 2, W1 missing, {name}: weight of f{worker}", value, {"exact": abs(float(weights[u, worker - 2]))},
             "", "least squares on the printed code")
        for u, (name, row) in enumerate(TABLE_2.items())
        for worker, value in enumerate(row, 2)
    ]  # fmt: skip


def _decodes(code: Array, s: int, m: int) -> Claim:
    off = []
    for answered in combinations(range(N), N - s):
        off.append(np.abs(_weights(code, answered, m) @ code[list(answered)] - _targets(m)).max())
    text = f"The sum vector can be calculated from any {N - s} of the five workers"
    found = f"largest deviation from the sum over all {len(off)} sets: {max(off):.2g}"
    return Claim(text, bool(max(off) < 1e-9), found, "least squares on the code of the figure")


def _shorter(e: Experiment, m: int) -> Claim:
    floats = e.shape()[1]
    expected = forecast(e)
    length = expected.bytes / expected.messages / 8
    return Claim(
        f"Each worker sends {'whole vectors' if m == 1 else 'half a vector'}",
        length == floats / m,
        f"{length:g} floats a message for {floats} parameters",
        "wb.forecast(e).bytes / wb.forecast(e).messages",
    )


def _run(e: Experiment) -> Claim:
    """Check that real vectors in messages give the model of plain gradient descent."""
    coded = run(e, numeric=True, events=False)
    plain = run(e.replace(scheme="UMW", scheme_args={}), events=False)
    off = _apart(coded, plain)
    return Claim(
        f"Training with it gives the uncoded scheme's model ({e.rounds} rounds, real vectors)",
        off < 1e-9,
        f"largest relative difference {off:.2g}",
        "wb.run(e, numeric=True)",
    )


def _apart(one: Trace, other: Trace) -> float:
    return float(np.abs(one.model - other.model).max() / np.abs(other.model).max())


def _measured(e: Experiment, setting: Setting) -> Measured:
    """Measure some rounds with the code, and uncoded, on five real processes, in the full form."""
    if setting.quick:
        return Measured(NOT_QUICK)
    few = e.replace(rounds=ROUNDS)
    chosen, divided = sped_up({"CEGC": few, "UMW": few.replace(scheme="UMW", scheme_args={})}, ROUND, "UMW")
    return measure(chosen, setting, divided)


def _really(found: Measured) -> list[Claim]:
    """Compare the models again, with messages between real processes."""
    if not found.real:
        return []
    off = _apart(found.real["CEGC"], found.real["UMW"])
    text = f"On real processes, too ({ROUNDS} rounds)"
    return [Claim(text, off < 1e-9, f"largest relative difference {off:.2g}", "wb.run(e, engine='mpi')")]


def _heat(code: Array, m: int) -> Picture:
    names = [f"g{i + 1}({u})" for u in range(m) for i in range(N)]
    shown = np.where(code == 0, np.nan, code)
    return drawing.heat(
        shown,
        [f"W{i + 1}" for i in range(N)],
        names,
        f"Figure 2{'a' if m == 1 else 'b'}: what each worker sends",
        ("partial gradient (coordinate)", "worker"),
        "Coefficients computed from section 3's polynomials, rows scaled as printed; nothing measured.",
    )


PLACE = (2, 2)  # paper, and position in its chapter of the book
ENTRIES = (
    Entry(
        "cegc-fig2a",
        "Figure 2a: s = 2, m = 1: each of five workers sends whole vectors, any three decode",
        partial(find, 2, 1),
        measured=True,
    ),
    Entry(
        "cegc-fig2b",
        "Figure 2b and table 2: s = 1, m = 2: each sends half as much, any four decode",
        partial(find, 1, 2),
        measured=True,
    ),
)
