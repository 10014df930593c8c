"""Paper 5: figure 1, completion time and messages, and inconsistencies."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from workbench.core import theory
from workbench.core.codes import correlated
from workbench.core.engine.virtual.arithmetic import Coefficients
from workbench.core.experiment import Experiment
from workbench.core.forecasting import Forecast, forecast
from workbench.core.running.simulated import timeline
from workbench.core.running.start import run
from workbench.core.trace.trace import Trace
from workbench_book import drawing
from workbench_book.catalogue import Entry
from workbench_book.measured import NOT_QUICK, ROUNDS, Measured, measure, sped_up
from workbench_book.setting import Setting
from workbench_book.values import Claim, Line, Misprint, Picture, Result

K, LOAD, SHIFT, RATE = 40, 10, 0.01, 10.0
FOUR: dict[str, Any] = {"clusters": 4, "load": LOAD}
HYBRID = "GC-MMC-2, hybrid"
SCHEMES: dict[str, tuple[str, dict[str, Any]]] = {
    "GC": ("GC", {"stragglers": LOAD - 1}),
    "GC in 4 clusters": ("GC-MMC", {**FOUR, "order": LOAD}),
    "LCC": ("LCC", {"load": LOAD}),
    "UC-MMC": ("UC-MMC", {"load": LOAD}),
    "GC-MMC-1": ("GC-MMC", {**FOUR, "order": 6}),
    "GC-MMC-2": ("GC-MMC", {**FOUR, "order": (6, 8, 10)}),
    HYBRID: ("GC-MMC", {**FOUR, "order": (6, 8, 10), "hybrid": True}),
}
NEAR = 0.1  # tolerance of equality, if the paper describes a figure without numbers
GO_ON = ("GC in 4 clusters", "GC-MMC-1", "GC-MMC-2", HYBRID)


def experiment(label: str, rounds: int, seed: int, when_done: str = "stop", workers: int = K) -> Experiment:
    """Return an experiment with 40 workers, parts of one sample, and alpha and mu of section IV."""
    scheme, args = SCHEMES[label]
    more = {"when_done": when_done} if "clusters" in args else {}
    return Experiment(
        scheme=scheme,
        scheme_args={**args, **more},
        workers=workers,
        rounds=rounds,
        seed=seed,
        problem="unit",
        problem_args={"samples": workers},
        delays={"kind": "shifted_exponential", "shift": SHIFT, "rate": RATE},
    )


def exact(label: str) -> float:
    """Return the mean completion time by the closed forms, s."""
    t = partial(theory.mmc_completion, K, LOAD, shift=SHIFT, rate=RATE)
    by_label = {
        "GC": lambda: theory.gc_completion(K, LOAD, SHIFT, RATE),
        "GC in 4 clusters": lambda: theory.clustered_gc_completion(K, LOAD, 4, SHIFT, RATE),
        "LCC": lambda: theory.lcc_completion(K, LOAD, SHIFT, RATE),
        "UC-MMC": lambda: t(1, 1),
        "GC-MMC-1": lambda: t(6, 4),
        "GC-MMC-2": lambda: t([6, 8, 10], 4),
        HYBRID: lambda: t([6, 8, 10], 4, hybrid=True),
    }
    return float(by_label[label]())


def find_times(setting: Setting) -> Result:
    """Compute times by closed forms, sampling, and the event engine, and on real processes."""
    rounds, events = setting.pick((3000, 150), (40000, 2000))
    found = measured(setting)
    lines, means = [], {}
    for done, label in enumerate(SCHEMES, 1):
        expected = forecast(experiment(label, rounds, setting.seed))
        means[label] = exact(label)
        values = {
            "ours": expected.mean,
            "exact": means[label],
            "events": by_events(label, events, setting.seed),
            **found.seconds(label),
        }
        lines.append(Line(label, None, values, "s", "wb.forecast", {"ours": expected.error}))
        setting.report(done, len(SCHEMES))
    return Result(
        lines=lines,
        claims=_claims(means, messages_of(setting), "time"),
        pictures=[
            _picture(lines, "Figure 1a: completion time", "mean completion time (s)", _agreement(lines))
        ],
        text=[
            f"K = {K} workers and parts, r = {LOAD}; a worker is done with s parts at s X,"
            f" X = {SHIFT:g} + Exp(rate {RATE:g}). The figure has no printed numbers; what the text reads from it is"
            " judged."
        ],
        columns=[],
        specs={label: experiment(label, rounds, setting.seed) for label in SCHEMES} | found.specs(),
        measured=found.note,
        facts={"messages": {label: found.values(label, per_round) for label in SCHEMES}, "note": found.note},
        seed=setting.seed,
    )


def per_round(trace: Trace) -> float:
    """Return the mean number of messages in a round."""
    return float(np.mean(trace.columns["messages"]))


def find_messages(setting: Setting) -> Result:
    """Count messages until the round ends, if finished clusters are stopped and if all continue to the end."""
    lines = []
    real = setting.facts["mmc-fig1a"]["messages"]  # messages of the real runs of figure 1a
    for more, when_done in (("", "stop"), (", going on", "go on")):
        for label, expected in forecasts(setting, when_done).items():
            if when_done == "stop" or label in GO_ON:
                values = {"ours": expected.messages, **(real[label] if when_done == "stop" else {})}
                lines.append(Line(label + more, None, values, "messages", "wb.forecast"))
    means = {label: exact(label) for label in SCHEMES}
    return Result(
        lines=lines,
        claims=_claims(means, messages_of(setting), "messages"),
        pictures=[
            _picture(
                lines,
                "Figure 1b: messages to the master in a round",
                "mean number of messages",
                "Means of drawn rounds",
            )
        ],
        text=[
            "The paper does not say whether a cluster that is done goes on sending; both are given: stopping, and going"
            " on until the master has all that it needs."
        ],
        columns=[],
        specs={label: experiment(label, setting.pick(3000, 40000), setting.seed) for label in SCHEMES},
        measured=setting.facts["mmc-fig1a"]["note"],
        seed=setting.seed,
    )


def forecasts(setting: Setting, when_done: str) -> dict[str, Forecast]:
    """Return forecasts of every scheme."""
    rounds = setting.pick(3000, 40000)
    return {label: forecast(experiment(label, rounds, setting.seed, when_done)) for label in SCHEMES}


def messages_of(setting: Setting) -> dict[str, float]:
    """Return the mean number of messages per round, if all workers continue to the end."""
    return {label: expected.messages for label, expected in forecasts(setting, "go on").items()}


def by_events(label: str, rounds: int, seed: int) -> float:
    """Return the mean completion time on the event engine, s."""
    e = experiment(label, rounds, seed)
    if e.built_scheme.numeric:
        return float(run(e, events=False).columns["time"][-1]) / rounds
    return float(timeline(e, Coefficients(e.plan), events=False).times[-1]) / rounds


def measured(setting: Setting) -> Measured:
    """Measure the schemes on 40 real processes, in the full form.

    The problem is least squares on synthetic data. Drawn times are scaled so that a round of GC takes 1.2 s.
    """
    if setting.quick:
        return Measured(NOT_QUICK)
    args = {"data": "synthetic", "samples": 10 * K, "features": 20}
    delays = {"kind": "shifted_exponential", "shift": SHIFT / 10, "rate": 10 * RATE}
    chosen = {
        label: experiment(label, ROUNDS, setting.seed).replace(
            problem="least_squares", problem_args=args, delays=delays
        )
        for label in SCHEMES
    }
    small, divided = sped_up(chosen, 1.2, "GC")
    return measure(small, setting, divided)


def _claims(means: dict[str, float], messages: dict[str, float], about: str) -> list[Claim]:
    """Return the claims about the panel of "time" or "messages"."""
    lcc, two = means["LCC"], means[HYBRID]
    faster, equal, few, extreme = (
        Claim(
            "GC-MMC-1 is faster than LCC",
            means["GC-MMC-1"] < lcc,
            f"{means['GC-MMC-1']:.3g} s against {lcc:.3g} s",
            "wb.theory.mmc_completion(40, 10, 6, 4, 0.01, 10)",
        ),
        Claim(
            f"GC-MMC-2 is as fast as LCC (within {100 * NEAR:g} %)",
            abs(means["GC-MMC-2"] / lcc - 1) < NEAR,
            f"{means['GC-MMC-2']:.3g} s, {two:.3g} s with the hybrid rule, LCC {lcc:.3g} s",
            "wb.theory.mmc_completion(40, 10, [6, 8, 10], 4, 0.01, 10, hybrid=...)",
            "with the hybrid rule of section III-D" if abs(two / lcc - 1) < NEAR else "",
        ),
        Claim(
            f"GC-MMC-2 sends a single message per worker and round (within {100 * NEAR:g} %)",
            abs(messages["GC-MMC-2"] / K - 1) < NEAR,
            f"{messages['GC-MMC-2'] / K:.3g} per worker, {messages[HYBRID] / K:.3g} with the hybrid rule",
            "wb.forecast(e).messages / 40",
            "with the hybrid rule of section III-D" if abs(messages[HYBRID] / K - 1) < NEAR else "",
        ),
        Claim(
            "UC-MMC is the fastest and sends the most",
            means["UC-MMC"] == min(means.values()) and messages["UC-MMC"] == max(messages.values()),
            f"{means['UC-MMC']:.3g} s, {messages['UC-MMC']:.3g} messages",
            "wb.theory.mmc_completion(40, 10, 1, 1, 0.01, 10)",
        ),
    )
    return [faster, equal, extreme] if about == "time" else [few, extreme]


def _agreement(lines: list[Line]) -> str:
    drawn = drawing.agreement(lines, "ours", "exact", "Formula and drawn rounds")
    return f"{drawn}, {drawing.agreement(lines, 'events', 'exact', 'formula and event engine')}"


def _picture(lines: list[Line], title: str, axis: str, caption: str) -> Picture:
    real = any("measured" in line.values for line in lines)
    return drawing.numbers(
        lines, title, axis, caption + ("; stars are measured here." if real else "; nothing measured.")
    )


# ---------------------------------------------------------------- misprints


def find_misprints(setting: Setting) -> Result:
    """Check all misprints of the paper."""
    return Result(misprints=[_needed(), _speed()], seed=setting.seed)


def _needed() -> Misprint:
    code = correlated(6, 3, 2)
    found = code.needed
    return Misprint(
        "Section III-A, example 1 (K = 6, m = 2)",
        f"K - m - 1 = 5 messages are enough (which would be {6 - 2 - 1})",
        f"K - m + 1 = {found}",
        "workbench.core.codes.correlated(6, 3, 2).needed",
        found == 6 - 2 + 1,
    )


def _speed() -> Misprint:
    mean = SHIFT + 1 / RATE
    drawn = float(np.mean(SHIFT + np.random.default_rng(0).exponential(1 / RATE, 10**6)))
    return Misprint(
        "Section IV-A",
        f"mu = {RATE:g}: {RATE:g} partial gradients a second on average",
        f"alpha counts too: a part takes {mean:g} s ({drawn:.4g} drawn), {1 / mean:.3g} parts a second",
        "alpha + 1 / mu",
        abs(drawn / mean - 1) < 0.01 and 1 / mean < 0.95 * RATE,
    )


PLACE = (5, 1)  # paper, and position in its chapter of the book
ENTRIES = (
    Entry("mmc-fig1a", "Figure 1a: average completion time", find_times, measured=True, weight=8.0),
    Entry("mmc-fig1b", "Figure 1b: average number of messages", find_messages, ("mmc-fig1a",), weight=4.0),
    Entry("mmc-misprints", "Misprints of the multi-message paper", find_misprints),
)
