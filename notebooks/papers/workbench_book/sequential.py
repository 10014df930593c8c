"""Sequential codes against GC and no code, with short and long slow spells of workers."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np

from workbench.analysis.planning.search import search
from workbench.core.base.types import Array
from workbench.core.contract.scheme import log_spaced_ints
from workbench.core.experiment import Experiment
from workbench.core.forecasting import forecast
from workbench.core.schemes.multiplexed import MSGC
from workbench.core.schemes.sequential import SRSGC, Sequential
from workbench_book import drawing
from workbench_book.catalogue import Entry
from workbench_book.setting import Setting
from workbench_book.values import Claim, Line, Picture, Result

WORKERS, SLOW, FACTOR = 16, 0.06, 10.0
MU, WIDE = 0.2, 1.0  # tolerances of the wait rule; the authors' scripts have 0.1 to 0.3, and 1
SHORT, LONG = 1.25, 5.0  # mean length of a slow spell, rounds
PUBLISHED = {"M-SGC": 916.0, "SR-SGC": 1019.0, "GC": 1095.0, "UMW": 1321.0}  # s, on 256 Lambda workers
FIRST = "GC, first N-S"  # the usual GC, which stops waiting once it has enough answers
SCHEMES = {"M-SGC": "M-SGC", "SR-SGC": "SR-SGC", "GC": "GC", FIRST: "GC", "UMW": "UMW"}  # label -> scheme
PATIENT = ("M-SGC", "SR-SGC", "GC")  # labels of schemes with the wait rule
# label -> experiment with the scheme's best parameters, and the seconds of whole runs, one per seed
Found = dict[str, tuple[Experiment, Array]]


def experiment(label: str, spell: float, jobs: int, seed: int, mu: float = MU) -> Experiment:
    """Return an experiment whose workers are slow in 6 % of the rounds, in spells of mean length `spell`."""
    leave = 1.0 / spell
    return Experiment(
        scheme=SCHEMES[label],
        scheme_args={"tolerance": mu} if label in PATIENT else {},
        workers=WORKERS,
        rounds=jobs,
        seed=seed,
        problem="unit",
        problem_args={"samples": 60 * WORKERS},
        delays={
            "kind": "markov", "shift": 1e-3, "factor": FACTOR, "p_recover": leave, "p_slow": leave * SLOW / (1 - SLOW),
        },
    )  # fmt: skip


def settings(label: str) -> Iterator[dict[str, Any]]:
    """Return the search grid of the paper: delays of at most five rounds, and windows of at most seven."""
    cls: type[Sequential] | None = {"M-SGC": MSGC, "SR-SGC": SRSGC}.get(label)
    if cls is not None:
        lambdas = log_spaced_ints(1, WORKERS)
        yield from (s for s in cls.settings(WORKERS, 5, 7) if s["stragglers"] in lambdas)
    elif label == "UMW":
        yield {}
    else:
        yield from ({"stragglers": s} for s in range(WORKERS))


def race(spell: float, setting: Setting, mu: float = MU) -> Found:
    """Choose the best parameters of each scheme on the stragglers of one seed, and run the scheme on other seeds."""
    jobs, seeds = setting.pick(60, 150), range(setting.seed + 1, setting.seed + 1 + setting.pick(10, 30))
    found: Found = {}
    for label in SCHEMES:
        e = experiment(label, spell, jobs, setting.seed, mu)
        best = e.replace(scheme_args={**e.scheme_args, **search(e, settings(label))[0][1]})
        found[label] = best, np.array([forecast(best, seed=seed).seconds.sum() for seed in seeds])
    return found


def find(setting: Setting) -> Result:
    """Compare whole runs for slow spells of growing length."""
    spells = setting.pick((SHORT, 2.5, LONG), (1.0, SHORT, 1.6, 2.5, LONG, 10.0))
    races: dict[float, Found] = {}
    for done, spell in enumerate(spells, 1):
        races[spell] = race(spell, setting)
        setting.report(done, len(spells))
    return Result(
        lines=[*_lines(races[SHORT], SHORT, PUBLISHED), *_lines(races[LONG], LONG, {})],
        claims=[_claim(races[SHORT])],
        pictures=[_picture(races)],
        text=[
            f"{WORKERS} workers, each slow ({FACTOR:g} times) {100 * SLOW:g} % of the time, in spells whose mean"
            " length is given (`markov`); computing time grows with the load. Run times of whole runs of"
            f" {setting.pick(60, 150)} jobs, the rounds of delay included, over those without a code. Each scheme has"
            " the numbers that are best on the stragglers of one seed, by the paper's search, and is run on those of"
            f" others. Wait rule: 1 + mu = {1 + MU:g} times the fastest, also for GC. The paper's are"
            " seconds on 256 workers of its own, over its uncoded ones; ours are a model, and only their order is"
            " comparable.",
            _turn(races),
            _rule(races),
            _wider(race(SHORT, setting, WIDE)),
        ],
        baseline=1.0,
        reasons={"ours": "drawn stragglers and loads that count in full, instead of Lambda's overhead"},
        heads={"ours": "virtual clock, drawn spells, best numbers by the search"},
        specs={label: e for label, (e, _) in races[SHORT].items()},
        data=["None: computing times are drawn, and nothing is learnt."],
        seed=setting.seed,
    )


def over_uncoded(found: Found) -> dict[str, tuple[float, float]]:
    """Return the mean run time of each scheme divided by that without a code, and the standard error of the ratio."""
    base = found["UMW"][1]
    ratios = {label: seconds / base.mean() for label, (_, seconds) in found.items() if label != "UMW"}
    return {k: (float(r.mean()), float(r.std(ddof=1) / np.sqrt(len(r)))) for k, r in ratios.items()}


def _lines(found: Found, spell: float, published: dict[str, float]) -> list[Line]:
    return [
        Line(
            f"{label}: run time over uncoded, spells of {spell:g} rounds",
            published[label] / published["UMW"] if label in published else None,
            {"ours": ratio},
            by="workbench.analysis.planning.search.search",
            errors={"ours": error},
        )
        for label, (ratio, error) in over_uncoded(found).items()
    ]


def _claim(found: Found) -> Claim:
    order = ("M-SGC", "SR-SGC", "GC", "UMW")
    gaps = [found[slower][1] - found[faster][1] for faster, slower in pairwise(order)]
    means = [float(gap.mean()) for gap in gaps]
    clear = [abs(gap.mean()) > 2 * gap.std(ddof=1) / np.sqrt(len(gap)) for gap in gaps]
    holds = all(mean > 0 for mean in means) if all(clear) else None
    return Claim(
        "M-SGC is faster than SR-SGC, SR-SGC than GC, GC than no code, where stragglers come in bursts",
        holds,
        f"spells of {SHORT:g} rounds: " + ", ".join(f"{k} {found[k][1].mean():.3g} s" for k in order),
        "workbench.analysis.planning.search.search",
    )


def _turn(races: dict[float, Found]) -> str:
    """Describe where the order of the schemes changes."""
    order = {
        spell: sorted(SCHEMES, key=lambda label: found[label][1].mean()) for spell, found in races.items()
    }
    text = "; ".join(f"{spell:g}: {' < '.join(of)}" for spell, of in order.items())
    lost = [spell for spell, found in races.items() if found["M-SGC"][1].mean() > found["GC"][1].mean()]
    turn = (
        f"It turns where spells are long: from {min(lost):g} rounds on M-SGC takes longer than GC under the same rule,"
        " since a worker that is late for more than B rounds in a row must be waited for, in every round again"
        if lost
        else "It does not turn in these spells"
    )
    return f"By mean run time, for each mean spell: {text}. {turn}."


def _rule(races: dict[float, Found]) -> str:
    shares = [f"{found[FIRST][1].mean() / found['GC'][1].mean():.3g}" for found in races.values()]
    return (
        "The rule itself costs GC: continuing with the first N - S answers, as GC does elsewhere, it takes"
        f" {', '.join(shares)} of its time under the rule, in the order of the spells. The paper compares with GC"
        " under the rule."
    )


def _wider(found: Found) -> str:
    text = ", ".join(f"{k} {over_uncoded(found)[k][0]:.3g}" for k in PATIENT)
    return (
        f"With mu = {WIDE:g}, spells of {SHORT:g} rounds: {text} of the time without a code. Here what is waited for"
        " grows with the load; in the authors' simulator, whose delays hardly depend on it, it does not."
    )


def _picture(races: dict[float, Found]) -> Picture:
    curves = {
        label: (list(races), [over_uncoded(found)[label][0] for found in races.values()])
        for label in SCHEMES
        if label != "UMW"
    }
    return drawing.curves(
        {**curves, "UMW": (list(races), [1.0] * len(races))},
        "Sequential codes: run time over uncoded",
        "mean length of a slow spell, rounds",
        "run time over uncoded",
        "Each at its best numbers, means over seeds; slow for as many rounds in all, in longer and longer spells.",
        log=(True, False),
    )


PLACE = (6, 1)
ENTRIES = (
    Entry("sequential", "Run times in slow spells, short and long: M-SGC, SR-SGC, GC", find, weight=6.0),
)
