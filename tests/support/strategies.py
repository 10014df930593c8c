"""Hypothesis strategies for experiments, one for each scheme."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import Any

from hypothesis import strategies as st

from tests.support import schemes
from tests.support.specs import Case
from workbench.core.schemes.coded_reduce import tree_size

SHAPES = [(1, 1), (2, 1), (5, 1), (2, 2), (3, 2), (4, 2), (5, 2), (2, 3), (3, 3), (2, 4)]


@st.composite
def umw(draw: st.DrawFn) -> Case:
    return {}, draw(st.integers(1, 20))


@st.composite
def rar(draw: st.DrawFn) -> Case:
    return {"algorithm": draw(st.sampled_from(["mpi", "ring"]))}, draw(st.integers(1, 15))


@st.composite
def sgd(draw: st.DrawFn) -> Case:
    workers = draw(st.integers(1, 20))
    return {"stragglers": draw(st.integers(0, workers - 1))}, workers


@st.composite
def gc(draw: st.DrawFn) -> Case:
    late = draw(st.integers(0, 5))
    args: dict[str, Any] = {"stragglers": late}
    if draw(st.booleans()):
        args["tolerance"] = draw(st.sampled_from([0.0, 0.2, 1.0]) | st.floats(0, 10))
    if draw(st.booleans()):
        return {**args, "code": "fractional"}, (late + 1) * draw(st.integers(1, 5))
    return {**args, "code_seed": draw(st.integers(0, 9))}, late + draw(st.integers(1, 12))


@st.composite
def cr(draw: st.DrawFn) -> Case:
    children, layers = draw(st.sampled_from(SHAPES))
    late = draw(st.integers(0, children - 1))
    args = {"children": children, "layers": layers, "stragglers": late, "code_seed": draw(st.integers(0, 9))}
    return args, tree_size(children, layers)


CASES: dict[str, st.SearchStrategy[Case]] = {"UMW": umw(), "RAR": rar(), "SGD": sgd(), "GC": gc(), "CR": cr()}
for _file in iter_modules(schemes.__path__):  # one file per family of schemes
    CASES.update(import_module(f"{schemes.__name__}.{_file.name}").CASES)

# The recording has only two different times, so that most workers have equal times.
TIED_STEP_TIMES = Path(__file__).with_name("tied_step_times.csv")
LEVEL = st.one_of(  # delay models with few values, so that several answers arrive at the same time
    st.builds(lambda shift: {"kind": "constant", "shift": shift}, st.sampled_from([0.0, 5e-5, 0.01])),
    st.builds(
        lambda shift, factor, share: {
            "kind": "heterogeneous",
            "shift": shift,
            "factor": factor,
            "active_straggles": share,
        },
        st.sampled_from([5e-5, 0.01]),
        st.sampled_from([2.0, 3.0, 10.0]),
        st.floats(0, 1),
    ),
    st.builds(
        lambda factor, enter: {"kind": "markov", "factor": factor, "p_slow": enter},
        st.sampled_from([2.0, 10.0]),
        st.floats(0.05, 1),
    ),
    st.just({"kind": "replay", "path": str(TIED_STEP_TIMES), "samples": 1.0}),
)
DELAYS = st.one_of(
    st.builds(lambda a: {"kind": "pareto", "shift": 1e-3, "shape": a}, st.floats(1.05, 3)),
    st.builds(lambda r: {"kind": "shifted_exponential", "shift": 1e-3, "rate": r}, st.floats(1e-1, 1e5)),
    st.just({"kind": "shifted_exponential", "per": "part"}),
    st.just({"kind": "two_part", "t1": 0.1, "lambda1": 3.0, "t2": 2.0, "lambda2": 0.3}),
    st.just({"kind": "exponential", "mean": 0.1}),
    LEVEL,
)
LINKS = st.builds(
    lambda latency, bandwidth, downloads: {
        "latency": latency,
        "bandwidth": bandwidth,
        "downloads": downloads,
    },
    st.sampled_from([0.0, 1e-4, 0.3]),
    st.sampled_from([None, 1.0, 1e3, 1e7]),
    st.booleans(),
)


@st.composite
def experiments(draw: st.DrawFn, names: list[str], rounds: int = 4, **fields: Any) -> dict[str, Any]:
    """Draw the fields of a valid experiment of one of the named schemes."""
    name = draw(st.sampled_from(sorted(names)))
    args, workers = draw(CASES[name])
    # each of these needs at least one sample
    least = workers * max(args.get("pieces", 1), args.get("micro_batches", 1))
    least = 1 if least == workers else least
    return {
        "scheme": name,
        "scheme_args": args,
        "workers": workers,
        "rounds": rounds,
        "seed": draw(st.integers(0, 2**32)),
        "delays": draw(DELAYS),
        "link": draw(LINKS),
        "problem": "unit",
        "problem_args": {"samples": draw(st.integers(least, 300))},
        **fields,
    }
