"""Paper 1, table I (resiliency and parallelisation), table II (the network) and the worked example of figure 7."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from itertools import combinations
from types import MappingProxyType
from typing import Any

import numpy as np

from workbench.core import theory
from workbench.core.base.types import Array
from workbench.core.experiment import Experiment
from workbench.core.forecasting import forecast
from workbench.core.problems.cnn import SHAPES, SIZE
from workbench.core.running.start import run
from workbench.core.schemes.coded_reduce import CR
from workbench.core.schemes.gradient_coding import GC
from workbench.core.theory.coded_reduce import exact_load
from workbench_book import drawing
from workbench_book.catalogue import Entry
from workbench_book.setting import Setting
from workbench_book.values import Claim, Line, Picture, Result

B = ((0.5, 1.0, 0.0), (0.0, 1.0, -1.0), (0.5, 0.0, 1.0))  # (4)
# (4): weights of the two workers that answered
A = {(1, 2): (1.0, 2.0), (0, 2): (1.0, 1.0), (0, 1): (2.0, -1.0)}
SAMPLES = 15  # samples of the example: a part has 5, and a fifth of D^T(1,1) = 1/2 D1 u D2 has 2
FIFTHS = {  # coefficients of the five fifths of D^T(1,1) in figure 7, in order
    "(1,1)": (1.0, 1.0, 0.0, 0.0, 0.0),
    "(2,1)": (0.0, 0.0, 0.5, 1.0, 0.0),
    "(2,2)": (0.0, 0.0, 0.0, 1.0, -1.0),
    "(2,3)": (0.0, 0.0, 0.5, 0.0, 1.0),
}
RANKS = {"(1,1)": 1, "(2,1)": 4, "(2,2)": 5, "(2,3)": 6}
PRINTED_SIZE = 120_000  # "p ~ 120,000", caption of figure 13
TABLE_2 = {  # parameter tensors as printed: in x out x kernel, or in x out
    "1 Conv2d": (3, 16, 3, 3), "2 Conv2d": (16, 64, 4, 4), "3 Linear": (64, 384), "4 Linear": (384, 192),
    "5 Linear": (192, 10),
}  # fmt: skip
TREES = ((4, 3, 1), (12, 2, 1), (12, 2, 2), (12, 2, 3), (12, 2, 5))  # trees of figures 2 and 8 to 13
GROWN: Mapping[str, tuple[dict[str, Any], dict[str, Any]]] = {  # two clusters between which a gain grows
    "RAR": ({"workers": 30}, {"workers": 120}),
    "GC": (
        {"workers": 30, "scheme_args": {"stragglers": 3}},
        {"workers": 120, "scheme_args": {"stragglers": 12}},
    ),
    "CR, L = 2": (
        {"scheme_args": {"children": 20, "layers": 2}},
        {"scheme_args": {"children": 60, "layers": 2}},
    ),
    "CR, L = 3": (
        {"scheme_args": {"children": 8, "layers": 3}},
        {"scheme_args": {"children": 16, "layers": 3}},
    ),
}
MANY = 12_000  # number of children at which the order of a resiliency is visible
ORDERS = {"RAR": 1.0, "GC": 0.0, "CR, L = 2": 1 / 2, "CR, L = 3": 2 / 3}  # exponents of N in table I


# ---------------------------------------------------------------- table I


def find_table_1(setting: Setting) -> Result:
    """Compute loads and resiliencies from plans, and the growth of the gain from rounds without computing."""
    return Result(
        lines=[*_loads(), *_resiliencies(), *_gains()],
        claims=[_seven_times(), _reached()],
        text=[
            "Load: what a worker of the scheme's plan holds, against theorem 1 and (S+1)/N. Resiliency: the stragglers"
            " that the plan tolerates, over the children of a parent, against the table's r and r^(1/L) at that load."
            " These have (s+1)/n where the resiliency has s/n, which counts with few stragglers of few children; the"
            f" lines with {MANY} children are without that: there r^(1/L) is alpha/(1 + alpha)^(1/2) for two layers."
            " Gain: messages under way at the same time in a round of"
            " the virtual clock whose workers compute in no time, and the exponent with which it grows from a small"
            " cluster to a large one; the table has orders only."
        ],
        columns=["ours"],
        heads={"ours": "the schemes' own plans and rounds"},
        reasons={
            "ours": "the table's r^(1/L) is an order, which trees of 4 or 12 children with a straggler or two miss"
        },
        specs={label: communicating(label, **GROWN[label][1]) for label in GROWN},
        seed=None,
    )


def _loads() -> Iterator[Line]:
    for n, depth, s in TREES:
        scheme, workers = CR(children=n, layers=depth, stragglers=s), theory.cr_workers(n, depth)
        samples = exact_load(n, depth, s).denominator * n**depth  # divisible at every level
        load = float(scheme.loads(workers, samples).max()) / samples
        yield Line(
            f"load of CR, {_tree(n, depth, s)}", theory.cr_load(n, depth, s), {"ours": load}, "", "CR.loads"
        )
        late = round(s / n * workers)
        gc = GC(stragglers=late)
        load = float(gc.loads(workers, workers).max()) / workers
        yield Line(
            f"load of GC, N = {workers}, S = {late}", (late + 1) / workers, {"ours": load}, "", "GC.loads"
        )


def _resiliencies() -> Iterator[Line]:
    yield Line("resiliency of RAR", 0.0, {"ours": ring_resiliency(10)}, "", "wb.forecast of RAR and of SGD")
    for n, depth, s in TREES:
        load = theory.cr_load(n, depth, s)
        what = f"resiliency of CR at its load, {_tree(n, depth, s)}"
        yield Line(what, load ** (1 / depth), {"ours": s / n}, "", f"{s}/{n}")
        workers = theory.cr_workers(n, depth)
        late = round(s / n * workers)
        what = f"resiliency of GC at its load, N = {workers}, S = {late}"
        yield Line(what, theory.gc_load(workers, late), {"ours": late / workers}, "", f"{late}/{workers}")
    for share in (1 / 12, 1 / 4):
        late = round(share * MANY)
        what = f"resiliency of CR at its load, ({MANY},2), s = {late}"
        yield Line(what, theory.cr_load(MANY, 2, late) ** 0.5, {"ours": late / MANY}, "", f"{late}/{MANY}")


def ring_resiliency(workers: int) -> float:
    """Return the share of workers that a ring tolerates.

    This is the largest share that SGD can ignore while its rounds take as long as those of the ring.
    """
    e = Experiment(scheme="RAR", workers=workers, rounds=20, problem="unit", problem_args={"samples": workers},
                   delays={"kind": "exponential", "mean": 1.0})  # fmt: skip
    ring = forecast(e).seconds
    same = [
        late
        for late in range(workers)
        if np.allclose(forecast(e.replace(scheme="SGD", scheme_args={"stragglers": late})).seconds, ring)
    ]
    return max(same) / workers


def _tree(n: int, depth: int, s: int) -> str:
    return f"({n},{depth}), s = {s}"


def communicating(
    label: str, scheme_args: Mapping[str, int] = MappingProxyType({}), workers: int = 0
) -> Experiment:
    """Return an experiment without computing or latency: only messages, one second per vector on a port."""
    count = workers or theory.cr_workers(scheme_args["children"], scheme_args["layers"])
    return Experiment(
        scheme=label.split(",")[0],
        scheme_args=dict(scheme_args),
        workers=count,
        rounds=1,
        problem="least_squares",
        problem_args={"data": "synthetic", "samples": 4 * count, "features": count},
        delays={"kind": "constant", "shift": 0.0},
        link={"bandwidth": 8.0 * count},
    )


def gain(e: Experiment) -> float:
    """Return the mean number of simultaneous messages: the sum of their times divided by the time of the round.

    >>> gain(communicating("GC", {"stragglers": 1}, 10)), gain(communicating("RAR", workers=10))
    (1.0, 10.0)
    """
    found = forecast(e)
    bandwidth = e.link.bandwidth
    assert bandwidth is not None
    return round(found.bytes / bandwidth / found.mean, 9)


def _gains() -> Iterator[Line]:
    for label, (small, large) in GROWN.items():
        few, many = communicating(label, **small), communicating(label, **large)
        grown = math.log(gain(many) / gain(few)) / math.log(many.workers / few.workers)
        what = f"{label}: exponent of the gain in N, {few.workers} to {many.workers} workers"
        yield Line(what, ORDERS[label], {"ours": grown}, "", "wb.forecast(e).bytes / wb.forecast(e).mean")


def _seven_times() -> Claim:
    """Check remark 2 for alpha = 1/2 and many children."""
    n = 10**4
    fewer = theory.cr_load(n, 1, n // 2) / theory.cr_load(n, 3, n // 2)
    text = "Remark 2: with alpha = 0.5, three layers in place of one take a seventh of the load"
    by = "wb.theory.cr_load(10000, 1, 5000) / wb.theory.cr_load(10000, 3, 5000)"
    return Claim(text, round(fewer) == 7, f"{fewer:.4g} times less, {n} children", by)


def _reached() -> Claim:
    """Check on all trees of the figures that CR tolerates a larger share of stragglers than GC at the same load."""
    pairs = []
    for n, depth, s in TREES:
        workers = theory.cr_workers(n, depth)
        # number of stragglers of GC with at most CR's load
        late = math.floor(theory.cr_load(n, depth, s) * workers) - 1
        pairs.append((s / n, max(late, 0) / workers))
    text = ", ".join(f"{cr:.3g} against {gc:.3g}" for cr, gc in pairs)
    return Claim(
        "At the same load CR tolerates a larger share than GC",
        all(a > b for a, b in pairs),
        text,
        "s/n, S/N",
    )


# ---------------------------------------------------------------- figures 4 and 7


def find_example(setting: Setting) -> Result:
    """Check allocation, decoding and load as printed, every pair of survivors, and a whole run."""
    scheme = CR(children=3, layers=2, stragglers=1, matrix=B)
    fifths = {node: shown(scheme, rank) for node, rank in RANKS.items()}
    code = scheme.code()
    e = _run_of(scheme, setting)
    return Result(
        lines=[*_printed(fifths), *_weights(code), _load(scheme)],
        claims=[_relay(fifths), _master(), _same_model(e)],
        pictures=[_heat(fifths)],
        text=[
            "B and A of equation (4). D^T(1,1) = 1/2 D1 u D2 is cut in five; node (1,1) keeps two of the fifths, its"
            " children get what the rows of B make of the other three. Figure 4 is the same code with three workers:"
            " 2 (1/2 g1 + g2) - (g2 - g3)."
        ],
        columns=["ours"],
        heads={"ours": "the scheme's own allocation"},
        specs={"CR": e},
        seed=setting.seed,
    )


def shown(scheme: CR, rank: int) -> Array:
    """Return a node's weights of the fifths of D^T(1,1), (5,), relative to the weights in D^T(1,1).

    A weight is NaN if it differs within a fifth.

    >>> shown(CR(children=3, layers=2, stragglers=1, matrix=B), RANKS["(2,1)"]).tolist()
    [0.0, 0.0, 0.5, 1.0, 0.0]
    """
    held = scheme.allocate(SAMPLES).of(rank - 1)
    weights = np.zeros(SAMPLES)
    for first, last, weight in zip(held.start, held.stop, held.weight, strict=True):
        weights[first:last] += weight
    own = np.repeat(B[0][:2], SAMPLES // 3)  # weights within D^T(1,1)
    each = (weights[: len(own)] / own).reshape(5, -1)
    return np.where(np.ptp(each, axis=1) == 0, each[:, 0], np.nan)


def _printed(fifths: Mapping[str, Array]) -> Iterator[Line]:
    for node, row in FIFTHS.items():
        for place, value in enumerate(row):
            what = f"node {node}: coefficient of fifth {place + 1}"
            yield Line(what, value, {"ours": float(fifths[node][place])}, "", "CR(...).allocate(15)")


def _weights(code: Any) -> Iterator[Line]:
    for answered, row in A.items():
        found = code.decode(answered).weights
        for place, value, ours in zip(answered, row, found, strict=True):
            what = f"A: weight of child {place + 1}, child {({0, 1, 2} - set(answered)).pop() + 1} missing"
            yield Line(what, value, {"ours": float(ours)}, "", "CR(...).code().decode(...)")


def _load(scheme: CR) -> Line:
    load = float(scheme.loads(12, SAMPLES).max()) / SAMPLES
    return Line("load of every worker", 4 / 15, {"ours": load}, "", "CR(...).loads(12, 15)")


def _relay(fifths: Mapping[str, Array]) -> Claim:
    """Check that node (1,1) computes 1/2 g_D1 + g_D2 from any two children and its own two fifths."""
    code = np.array(B)
    children = np.stack([fifths[f"(2,{i})"] for i in (1, 2, 3)])
    off = []
    for answered in combinations(range(3), 2):
        weights = np.linalg.lstsq(code[list(answered)].T, np.ones(3), rcond=None)[0]
        off.append(np.abs(weights @ children[list(answered)] + fifths["(1,1)"] - 1).max())
    text = "Node (1,1) recovers 1/2 g_D1 + g_D2 from any two children"
    return Claim(
        text, max(off) < 1e-12, f"largest deviation over the three pairs: {max(off):.2g}", "B, all pairs"
    )


def _master() -> Claim:
    code = np.array(B)
    off = []
    for answered in combinations(range(3), 2):
        weights = np.linalg.lstsq(code[list(answered)].T, np.ones(3), rcond=None)[0]
        off.append(np.abs(weights @ code[list(answered)] - 1).max())
    text = "The master recovers the full gradient from any two children"
    return Claim(
        text, max(off) < 1e-12, f"largest deviation over the three pairs: {max(off):.2g}", "B, all pairs"
    )


def _run_of(scheme: CR, setting: Setting) -> Experiment:
    return Experiment(
        scheme="CR",
        scheme_args={"children": 3, "layers": 2, "stragglers": 1, "matrix": B},
        workers=12,
        rounds=setting.pick(30, 300),
        problem="least_squares",
        problem_args={"data": "synthetic", "samples": 60, "features": 8},
        seed=setting.seed,
    )


def _same_model(e: Experiment) -> Claim:
    """Check that a run with drawn stragglers and real vectors in messages gives the model of plain gradient descent."""
    coded = run(e, numeric=True, events=False)
    plain = run(e.replace(scheme="UMW", scheme_args={}), events=False)
    off = float(np.abs(coded.model - plain.model).max() / np.abs(plain.model).max())
    text = f"Training with it gives the uncoded scheme's model ({e.rounds} rounds, real vectors, drawn stragglers)"
    return Claim(text, off < 1e-9, f"largest relative difference {off:.2g}", "wb.run(e, numeric=True)")


def _heat(fifths: Mapping[str, Array]) -> Picture:
    table = np.stack(list(fifths.values()))
    return drawing.heat(
        np.where(table == 0, np.nan, table),
        [f"node {node}" for node in fifths],
        [f"fifth {i}" for i in range(1, 6)],
        "Figure 7: what the nodes of T(1,1) hold",
        ("fifths of 1/2 D1 u D2", "node"),
        "Coefficients from the scheme's own allocation of 15 samples; nothing measured.",
    )


# ---------------------------------------------------------------- table II


def find_table_2(setting: Setting) -> Result:
    """Count the weights of the network of figure 13, layer by layer."""
    weights = [math.prod(shape) for shape in SHAPES[::2]]  # the table has no biases
    lines = [
        Line(f"{name} {' × '.join(map(str, shape))}", float(math.prod(shape)), {"ours": float(found)}, "weights",
             "workbench.core.problems.cnn.SHAPES")
        for (name, shape), found in zip(TABLE_2.items(), weights, strict=True)
    ]  # fmt: skip
    return Result(
        lines=[*lines, Line("all, p", float(PRINTED_SIZE), {"ours": float(SIZE)}, "parameters", "cnn.SIZE")],
        text=[
            f"The network has {SIZE} parameters with its biases, which the table does not list; figure 13 says"
            f" about {PRINTED_SIZE}. How the 64 channels after the second convolution become the 64 inputs of the"
            " first linear layer is not said: here by the mean over all pixels."
        ],
        columns=["ours"],
        heads={"ours": "the network of figure 13, as built"},
        seed=None,
    )


PLACE = (1, 1)  # paper, and position in its chapter of the book
ENTRIES = (
    Entry("cr-table1", "Table I: straggler resiliency and communication parallelisation gain", find_table_1),
    Entry("cr-fig7", "Figures 4 and 7: the worked allocation, (3,2) tree with one straggler", find_example),
    Entry("cr-table2", "Table II: the network of figure 13", find_table_2),
)
