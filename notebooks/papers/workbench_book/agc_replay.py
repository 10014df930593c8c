"""All schemes with the stragglers that were recorded on EC2: the fastest rounds, and the fastest training."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from workbench.analysis.planning.search import tune
from workbench.core import schemes
from workbench.core.base.types import Array
from workbench.core.contract.delays import recorded
from workbench.core.contract.scheme import mark_note, marked
from workbench.core.experiment import Experiment
from workbench.core.forecasting import forecast
from workbench.core.running.start import run
from workbench.core.trace.trace import Trace
from workbench.lab.figures.speedups import common_target
from workbench.lab.figures.style import scheme_style
from workbench_book import drawing
from workbench_book.catalogue import Entry
from workbench_book.ec2_traces import ABSENT
from workbench_book.measured import NOT_QUICK, ROUNDS, WARM_UP, Measured, measure, sped_up
from workbench_book.setting import TRACES, Setting
from workbench_book.values import Line, Picture, Result

WORKERS = 20
SETTINGS: dict[str, dict[str, Any]] = {  # parameters for 20 workers; other schemes have their defaults
    "SGD": {"stragglers": 2},
    "GC": {"stragglers": 4, "code": "fractional"},
    "CR": {"children": 4, "layers": 2, "stragglers": 1},
    "CEGC": {"load": 4, "stragglers": 2, "reduction": 2},
    "FRC": {"replication": 2, "shuffle": "random", "wait_for": 17},
    "CRC": {"replication": 2, "shuffle": "random", "wait_for": 17},
    "ErasureHead": {"replication": 2, "wait_for": 17},
    "SGC": {"replication": 2, "wait_for": 17, "decoding": "sum"},  # as in its paper
    "BGC": {"replication": 2, "wait_for": 17},
    "UC-MMC": {"load": 4},
    "GC-MMC": {"load": 5, "clusters": 4, "order": 3},
    "LCC": {"load": 4},
    "G-CADA": {"groups": 5},
    "LAGC": {"groups": 5},
    "SR-SGC": {"burst": 1, "window": 2, "stragglers": 4, "tolerance": 0.2},
    "M-SGC": {"burst": 2, "window": 3, "stragglers": 4, "tolerance": 0.2},
}
TOLERANT = ("GC", "CR", "CEGC", "UC-MMC", "GC-MMC", "LCC")  # exact schemes that do not wait for all
REAL_ROUND = 0.1  # s of a round of UMW on real processes
EACH = 40  # rounds per draw of workers


def find(setting: Setting) -> Result:
    """Train linear regression with every scheme, on 20 workers with the recorded times."""
    if setting.traces is None:
        return Result(text=[ABSENT], data=["None: this comparison needs the recorded times."], seed=None)
    times, _ = recorded(str(setting.traces))
    traces: dict[str, Trace] = {}
    for done, name in enumerate(schemes.names(), 1):
        e = experiment(name, setting)
        if e.plan.versions > 1:
            (e,) = tune([e], progress=False)
        traces[name] = run(e, events=False)
        setting.report(done, len(schemes.names()))
    target = common_target(list(traces.values()))
    ends = {name: trace.time_to(target) for name, trace in traces.items()}
    rounds = {name: per_round(trace.experiment, setting) for name, trace in traces.items()}
    means = {name: float(each.mean()) for name, each in rounds.items()}
    real = _measured(setting)
    return Result(
        lines=[*_rounds(rounds), *_real_rounds(real), *_ends(ends, target)],
        pictures=[_times(means), _learning(traces)],
        text=[
            f"{WORKERS} workers; each takes the recorded times of one of {len(times)} EC2 workers, in order, from a"
            " drawn start; a recorded time stands for a twentieth of the data, and larger loads take longer in"
            " proportion. No link costs. Times per round are means over draws of which recorded workers are taken (for"
            " CADA and its relatives of a round that asks everybody), the learning is one of them. Loads and"
            " tolerances are in the settings: this says what each does with its own, not which is best at equal cost."
            " Schemes with gradients of older models, which stand smaller steps only, have a tuned one.",
            _words(means, ends),
        ],
        columns=[],
        heads={"ours": "virtual clock, recorded EC2 times"},
        specs={name: t.experiment for name, t in traces.items()} | real.specs(),
        measured=real.note,
        data=[
            f"{TRACES}: recorded on EC2 (real), replayed, each experiment's times scaled to the median of the first"
            " one's; learnt on the bundled diabetes set (real)."
        ],
        seed=setting.seed,
    )


def per_round(e: Experiment, setting: Setting) -> Array:
    """Return the mean time per round, s, for each draw of workers."""
    draws = range(setting.seed, setting.seed + setting.pick(20, 200))
    return np.array([forecast(e, EACH, seed).mean for seed in draws])


def _rounds(rounds: dict[str, Array]) -> list[Line]:
    errors = {name: float(each.std(ddof=1) / np.sqrt(len(each))) for name, each in rounds.items()}
    return [
        Line(
            f"{_called(name)}: time per round",
            None,
            {"ours": float(each.mean())},
            "s",
            "wb.forecast",
            {"ours": errors[name]},
        )
        for name, each in rounds.items()
    ]


def _measured(setting: Setting) -> Measured:
    """Measure some rounds of the first draw of workers on real processes, in the full form."""
    if setting.quick:
        return Measured(NOT_QUICK)
    chosen = {name: experiment(name, setting).replace(rounds=ROUNDS) for name in schemes.names()}
    small, divided = sped_up(chosen, REAL_ROUND, "UMW")
    return measure(small, setting, divided)


def _real_rounds(real: Measured) -> list[Line]:
    what = f"time per round, rounds {WARM_UP + 1} to {ROUNDS} of the first draw"
    return [
        Line(f"{_called(name)}: {what}", None, real.seconds(name), "s", "wb.run(e, engine='mpi')")
        for name in real.real
    ]


def _ends(ends: dict[str, float], target: float) -> list[Line]:
    return [
        Line(f"{_called(n)}: time to a loss of {target:.4g}", None, {"ours": t}, "s", "wb.run")
        for n, t in ends.items()
    ]


def _called(name: str) -> str:
    """Return the name of a scheme, marked if it follows only the abstract of its paper."""
    return marked(name, name)


def _note(names: Iterable[str]) -> str:
    """Return the footnote of the mark as a sentence, or "" if no scheme has it."""
    note = mark_note(names)
    return f"{note}." if note else ""


def _words(means: dict[str, float], ends: dict[str, float]) -> str:
    ahead = [_called(name) for name in TOLERANT if means[name] < means["UMW"]]
    return (
        f"Of the exact schemes that tolerate stragglers, {', '.join(ahead) or 'none'} have shorter rounds than uncoded"
        f" master-worker ({means['UMW']:.3g} s); those with more work per worker lose that much time in every round,"
        " stragglers or not."
        f" First to reach the common loss: {_called(min(ends, key=lambda name: ends[name]))}."
        f" {_note(means)}"
    )


def experiment(name: str, setting: Setting) -> Experiment:
    """Return the experiment of one scheme in this comparison."""
    lazy = schemes.get(name).numeric and name not in ("LCC", "D-SGD")
    adam = {"optimiser": "amsgrad", "optimiser_args": {"rate": 1.0}}
    return Experiment(
        scheme=name,
        scheme_args=SETTINGS.get(name, {}),
        workers=WORKERS,
        rounds=setting.pick(60, 300),
        seed=setting.seed,
        problem="least_squares",
        problem_args={"data": "diabetes", "intercept": True},
        delays={"kind": "replay", "path": str(setting.traces), "samples": 442 / WORKERS},
        **(adam if lazy else {}),
    )


def _times(means: dict[str, float]) -> Picture:
    ordered = {
        _called(name): {"seconds": means[name]} for name in sorted(means, key=lambda name: means[name])
    }
    caption = f"Virtual clock with computing times recorded on EC2 (real stragglers, simulated schemes). {_note(means)}"
    return drawing.bars(ordered, "Time per round on recorded stragglers", "mean time per round (s)", caption)


def _learning(traces: dict[str, Trace]) -> Picture:
    found = {_called(name): (t.columns["time"], np.asarray(t.columns["loss"])) for name, t in traces.items()}
    looks = {_called(name): scheme_style(name) for name in traces}
    caption = (
        "Learnt on the bundled diabetes set (real); virtual clock with computing times recorded on EC2 (real"
        f" stragglers, simulated schemes). {_note(traces)}"
    )
    return drawing.curves(
        found, "Loss against wall clock on recorded stragglers", "time since start (s)", "training loss", caption,
        looks, (True, True),
    )  # fmt: skip


PLACE = (4, 4)  # paper, and position in its chapter of the book
ENTRIES = (
    Entry("agc-replay", "All schemes on the recorded EC2 stragglers", find, measured=True, weight=5.0),
)
