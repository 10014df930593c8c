"""Paper 3, figure 2 and its three numbers: loss, communication and computation against wall clock."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from workbench.book import drawing, standins
from workbench.book.catalogue import Entry
from workbench.book.measured import NOT_QUICK, Measured, measure, sped_up
from workbench.book.real_data import at_hand
from workbench.book.setting import Setting
from workbench.book.values import Claim, Line, Picture, Result, number
from workbench.experiment import Experiment
from workbench.figures.style import Style, scheme_style
from workbench.runner import run
from workbench.trace import Trace

ETA, BATCH, RATE = 1e-4, 100, 0.01
TARGET = 0.1  # training loss; the paper's has no factor 1/2, the package's has
PUBLISHED = {  # at a training loss of 0.1: s, messages, mini-batches
    "CADA": {"time": 0.380, "communication": 19292, "computation": 9646},
    "G-CADA": {"time": 0.068, "communication": 12292, "computation": 9219},
}
COSTS = {"time": "s", "communication": "messages", "computation": "mini-batches"}
MNIST = "openml:mnist"
REAL_ROUNDS, REAL_ROUND = 200, 0.15  # of the real runs; s that a round of D-Adam takes in them
UNITS_OF_C = (
    0.1  # the paper's c belongs to smoothness constants that it does not state: c is scaled by this times L^2
)


class Run(NamedTuple):
    """A scheme of the figure: how many workers, which numbers; `c` in the paper's units."""

    label: str
    workers: int
    scheme: str
    args: dict[str, Any]
    c: float | None = None


RUNS = (
    Run("D-SGD", 12, "D-SGD", {}),
    Run("D-Adam", 12, "D-Adam", {}),
    Run("CADA", 12, "CADA", {}, 2.0),
    Run("G-CADA, G = 3, M_G = 4", 12, "G-CADA", {"groups": 3}, 0.3),
    Run("G-CADA, G = 4, M_G = 3", 12, "G-CADA", {"groups": 4}, 0.3),
    Run("G-CADA, 9 workers, G = 3, M_G = 3", 9, "G-CADA", {"groups": 3}, 0.3),
)
STATED, MEANT = RUNS[3].label, RUNS[4].label  # the setting in the text, and the one with the numbers' ratio


def entries() -> list[Entry]:
    """The curves."""
    return [
        Entry(
            "gcada-fig2",
            "Figure 2: loss, communication and computation against wall clock",
            find_curves,
            measured=True,
        ),
    ]


def experiments(setting: Setting) -> Iterator[tuple[str, Experiment]]:
    """Every run of the figure by label; D-SGD with the automatic step (its 2.6 belongs to another scale of data)."""
    return _on(data_of(setting)[0], setting)


def _on(data: dict[str, Any], setting: Setting) -> Iterator[tuple[str, Experiment]]:
    smoothness = _experiment(RUNS[1], data, setting).build_problem().smoothness()
    for each in RUNS:
        scaled = each.args if each.c is None else {**each.args, "c": each.c * UNITS_OF_C * smoothness**2}
        yield each.label, _experiment(each._replace(args=scaled), data, setting)


def _experiment(each: Run, data: dict[str, Any], setting: Setting) -> Experiment:
    adam = {"optimiser": "amsgrad", "optimiser_args": {"rate": RATE, "beta1": 0.9, "beta2": 0.999}}
    return Experiment(
        scheme=each.scheme,
        scheme_args={**each.args, "batch": setting.pick(25, BATCH)},
        workers=each.workers,
        rounds=setting.pick(2500, 6000),
        seed=setting.seed,
        problem="least_squares",
        problem_args=data,
        delays={"kind": "exponential", "mean": ETA},
        **({} if each.scheme == "D-SGD" else adam),
    )


def data_of(setting: Setting) -> tuple[dict[str, Any], str, str]:
    """Data, a sentence about them, and their name for captions."""
    if not setting.quick and at_hand(MNIST, setting):
        note = "MNIST (real), 12000 samples, targets its digits' numbers."
        return {"data": MNIST, "samples": 12000}, note, "MNIST (real)"
    return _stand_in(setting)


def _stand_in(setting: Setting) -> tuple[dict[str, Any], str, str]:
    samples = setting.pick(600, 2000)
    note = f"{standins.DIGITS_28}; {samples} samples, noiseless targets y = X theta, theta standard normal."
    data = {"data": standins.regression_on_digits(samples), "scale": False}
    return data, note[0].upper() + note[1:], "scikit-learn's digits in MNIST's place"


def traces_of(setting: Setting) -> dict[str, Trace]:
    """Run everything, with real vectors (whom CADA asks depends on them)."""
    found = {}
    for done, (label, e) in enumerate(experiments(setting), 1):
        found[label] = run(e, events=False)
        setting.report(done, len(RUNS))
    return found


def costs(trace: Trace, target: float) -> dict[str, float]:
    """Seconds, messages and mini-batches until the loss (without the 1/2) is at the target; NaN: never."""
    reached = np.flatnonzero(2 * np.asarray(trace.columns["loss"]) <= target)
    if not len(reached):
        return dict.fromkeys(COSTS, float("nan"))
    return {name: float(values[reached[0]]) for name, values in running(trace).items()}


def running(trace: Trace) -> dict[str, Any]:
    """The three costs so far, after each round."""
    c, batch = trace.columns, trace.experiment.scheme_args["batch"]
    return {
        "time": np.asarray(c["time"]),
        "communication": np.cumsum(c["messages"]) + np.cumsum(c["downloads"]),
        "computation": np.cumsum(c["started"]) / batch,
    }


def common_target(traces: dict[str, Trace]) -> float:
    """The paper's 0.1, or what CADA and its relatives all reach where a short run ends above it."""
    adaptive = [t for label, t in traces.items() if label != "D-SGD"]
    reached = max(2 * float(np.min(t.columns["loss"])) for t in adaptive)
    return max(TARGET, 1.05 * reached)


def find_curves(setting: Setting) -> Result:
    """The three panels of the figure, and what the paper reads from them."""
    traces = traces_of(setting)
    target = common_target(traces)
    found = {label: costs(trace, target) for label, trace in traces.items()}
    real = measured(setting)
    short, reached = real_costs(real)
    return Result(
        claims=claims_of(found, target),
        pictures=_curves(traces, data_of(setting)[2]),
        lines=[
            *_cost_lines(
                f"until loss {target:.3g}", {label: {"ours": each} for label, each in found.items()}
            ),
            *_cost_lines(f"until loss {reached:.3g}, on less data", short),
        ],
        text=[
            "The paper states G = 3 and M_G = 4; its numbers belong to M_G = 3 (see cada-misprints), so both are run."
            f" c is the paper's value times {UNITS_OF_C:g} L², L the measured smoothness of the whole data set;"
            f" learning rate {RATE:g}, mini-batches of {traces['CADA'].experiment.scheme_args['batch']}.",
            _laziness(traces, found),
        ],
        columns=[],
        reasons={
            "claims": "laziness alone costs more rounds here than it saves, with the stand-in and c in our units"
        },
        specs={label: t.experiment.model_dump(mode="json") for label, t in traces.items()} | real.specs(),
        facts={"costs": found, "target": target, "short": short, "note": real.note},
        data=[data_of(setting)[1]],
        measured=real.note,
        seed=setting.seed,
    )


def _laziness(traces: dict[str, Trace], found: dict[str, dict[str, float]]) -> str:
    """How many answers a round waits for on average, beside those of a round that asks everybody."""
    words = []
    for label in ("CADA", STATED, MEANT):
        e, answers = traces[label].experiment, np.asarray(traces[label].columns["messages"])
        rounds = int(np.searchsorted(traces[label].columns["time"], found[label]["time"])) + 1
        most = e.scheme_args.get("groups", e.workers)
        words.append(f"{label}: {answers[:rounds].mean():.3g} of {most}")
    return (
        f"Answers that a round waits for, on average until that loss: {'; '.join(words)}. Where it is all of them,"
        " nobody is lazy, and what is gained is that the fastest of a group answers."
    )


def _cost_lines(what: str, found: dict[str, dict[str, dict[str, float]]]) -> list[Line]:
    """A line for each of the three costs; `found`: label -> column -> costs."""
    return [
        Line(
            f"{label}: {name} {what}", None, {column: of[name] for column, of in each.items()}, unit, "wb.run"
        )
        for label, each in found.items()
        if label != "D-SGD"
        for name, unit in COSTS.items()
    ]


def measured(setting: Setting) -> Measured:
    """The first rounds on 12 real processes, 600 samples in batches of 25, longer answers; full form only."""
    if setting.quick:
        return Measured(NOT_QUICK)
    little = replace(setting, quick=True)
    every = dict(_on(_stand_in(little)[0], little))
    chosen = {label: every[label].replace(rounds=REAL_ROUNDS) for label in ("D-Adam", "CADA", STATED, MEANT)}
    slow, divided = sped_up(chosen, REAL_ROUND, "D-Adam")
    return measure(slow, setting, divided)


def real_costs(real: Measured) -> tuple[dict[str, dict[str, dict[str, float]]], float]:
    """Costs until a loss that every one of these runs reaches, by label and column; and that loss."""
    traces = [*real.real.values(), *real.simulated.values()]
    target = max((2 * float(np.min(t.columns["loss"])) for t in traces), default=float("nan"))
    columns = {"scaled": real.simulated, "measured": real.real}
    found = {
        label: {column: costs(every[label], target) for column, every in columns.items()}
        for label in real.real
    }
    for each in found.values():
        for of in each.values():
            of["time"] *= real.divided
    return found, target


def claims_of(found: dict[str, dict[str, float]], target: float) -> list[Claim]:
    """What the paper's text reads from the figure, for the groups as stated."""
    cada, grouped = found["CADA"], found[STATED]
    said = [
        ("G-CADA needs less time than CADA", "time", 1.0),
        ("G-CADA needs fewer messages than CADA", "communication", 1.0),
        ("G-CADA computes no more than CADA", "computation", 1.05),
    ]
    claims = [
        Claim(
            text,
            grouped[name] <= slack * cada[name],
            f"{number(grouped[name])} against {number(cada[name])}",
            "wb.run",
        )
        for text, name, slack in said
    ]
    if "D-Adam" in found:
        adam = found["D-Adam"]
        for name in ("communication", "computation"):
            text = f"CADA needs less {name} than distributed Adam (at loss {target:.3g})"
            claims.append(
                Claim(
                    text,
                    cada[name] < adam[name],
                    f"{number(cada[name])} against {number(adam[name])}",
                    "wb.run",
                )
            )
    return claims


def _curves(traces: dict[str, Trace], data: str) -> list[Picture]:
    return [_loss(traces, data), *(_cost(traces, name, data) for name in ("communication", "computation"))]


def _loss(traces: dict[str, Trace], data: str) -> Picture:
    found = {label: (t.columns["time"], 2 * np.asarray(t.columns["loss"])) for label, t in traces.items()}
    caption = f"Simulated wall clock: an answer takes Exp(mean {ETA:g} s). Learnt on {data}."
    return drawing.curves(
        found,
        "Training loss against wall clock",
        "time since start (s)",
        "training loss",
        caption,
        _styles(),
        (False, True),
    )


def _cost(traces: dict[str, Trace], name: str, data: str) -> Picture:
    found = {label: (t.columns["time"], running(t)[name]) for label, t in traces.items()}
    title = f"{name.capitalize()} against wall clock"
    caption = f"Simulated wall clock. Learnt on {data}."
    return drawing.curves(found, title, "time since start (s)", f"{name} ({COSTS[name]})", caption, _styles())


def _styles() -> dict[str, Style]:
    seen: dict[str, int] = {}
    looks = {}
    for each in RUNS:
        looks[each.label] = scheme_style(each.scheme, seen.get(each.scheme, 0))
        seen[each.scheme] = seen.get(each.scheme, 0) + 1
    return looks
