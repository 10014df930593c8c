"""Paper 4, figures 2a to 2d: loss against iterations, shuffled and not, simulated and on recorded EC2 times."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np

from workbench.core.base.types import Array
from workbench.core.experiment import Experiment
from workbench.core.running.start import compare, run
from workbench.core.trace.trace import Trace
from workbench.lab.figures.style import scheme_style
from workbench_book import drawing
from workbench_book.agc import P_AS, P_SLOW, P_SS, N, S, experiment
from workbench_book.agc_data import EC2_WORKERS, LATEST, boston, diabetes, ec2
from workbench_book.catalogue import Entry
from workbench_book.measured import NOT_QUICK, Measured, faster, measure
from workbench_book.setting import Setting
from workbench_book.values import Claim, Line, Picture, Result

DEADLINE, REAL_ROUNDS = 0.2, 40  # deadline of the real runs, s, and their rounds
CHANCE = 2.0  # smaller differences, in standard errors, are not significant
SAME = 0.02  # max distance of curves that cannot be distinguished
SHUFFLES = ("none", "random")


class Words(NamedTuple):
    """Texts of an entry: its data, in full and in a caption, its setting, and why statements do not hold."""

    data: str
    caption: str
    text: str
    reason: str


def find_simulated(panel: str, setting: Setting) -> Result:
    """Simulate both codes with and without shuffling: n = 8, s = 2, the paper's probabilities."""
    problem, args, data, caption = boston(setting) if panel == "a" else diabetes()
    rounds = setting.pick(150, 400)

    def make(scheme: str, shuffle: str, seed: int) -> Experiment:
        scheme_args = {"replication": S, "shuffle": shuffle, "deadline": 2.0}
        e = experiment(scheme, rounds, seed, problem=problem, problem_args=args, scheme_args=scheme_args)
        # samples of a part, so that a worker without straggling is done after 1 s
        share = e.problem_spec.count() / N
        return e.replace(delays={**e.delays.model_dump(), "shift": 1 / (S * (share + 1))})

    study = studied(make, ("FRC", "CRC"), setting)
    claims = [_shuffled(study.losses, "FRC"), _shuffled(study.losses, "CRC"), _crc_ahead(study.losses)]
    text = f"n = {N}, s = {S}, p-hat = {P_SLOW}, p_ss = {P_SS}, p_as = {P_AS}"
    reason = "FRC has the smaller expected error for these numbers, see agc-errors"
    return _result(study, claims, setting, Words(data, caption, text, reason))


def find_recorded(scheme: str, setting: Setting) -> Result:
    """Simulate one code on iris with 20 workers, on recorded times, or else with the heterogeneous delay model."""
    delays, deadline, note, reason = ec2(setting)
    rounds = setting.pick(150, 300)

    def make(name: str, shuffle: str, seed: int) -> Experiment:
        return Experiment(
            scheme=name,
            scheme_args={"replication": S, "shuffle": shuffle, "deadline": deadline},
            workers=EC2_WORKERS,
            rounds=rounds,
            seed=seed,
            problem="softmax",
            problem_args={"data": "iris", "intercept": True},
            delays=delays,
        )

    study = studied(make, (scheme,), setting)
    text = f"n = {EC2_WORKERS}, s = {S}; the master takes what has come after {deadline:.3g} s, {LATEST:g} medians"
    found_text = Words(f"Iris (bundled, real). {note}", "iris (real)", text, reason)
    return _result(study, [_shuffled(study.losses, scheme)], setting, found_text)


Pair = tuple[str, str]  # scheme, shuffling
Losses = dict[Pair, Array]
Make = Callable[[str, str, int], Experiment]


@dataclass(frozen=True)
class Study:
    """Data of a panel. `losses`: training loss minus `least`, (seeds, rounds + 1), by pair.

    `least`: loss close to the minimum.
    """

    make: Make
    losses: Losses
    least: float
    real: Measured


def studied(make: Make, schemes: Sequence[str], setting: Setting) -> Study:
    """Run every scheme with and without shuffling over some seeds, and some rounds on real processes.

    Real processes run fewer rounds of the first seed. Slow workers are drawn once per seed. The loss of full gradients
    after 20 times as many rounds is subtracted from each loss.
    """
    pairs = [(scheme, shuffle) for scheme in schemes for shuffle in SHUFFLES]
    seeds = setting.pick(8, 40)
    found: dict[Pair, list[Array]] = {}
    for done in range(seeds):
        traces = compare([make(*pair, setting.seed + done) for pair in pairs], events=False)
        for pair, trace in zip(pairs, traces, strict=True):
            curve = np.concatenate([[trace.initial["loss"]], trace.columns["loss"]])
            found.setdefault(pair, []).append(curve)
        setting.report(done + 1, seeds)
    full = make(schemes[0], "none", setting.seed)
    full = full.replace(scheme="UMW", scheme_args={}, rounds=20 * full.rounds)
    least = float(run(full, events=False).columns["loss"][-1])
    losses = {pair: np.stack(curves) - least for pair, curves in found.items()}
    return Study(make, losses, least, measured(make, pairs, setting))


def measured(make: Make, pairs: Sequence[Pair], setting: Setting) -> Measured:
    """Run the first seed on real processes, with fewer rounds and a deadline of `DEADLINE`, in the full form."""
    if setting.quick:
        return Measured(NOT_QUICK)
    chosen = {_label(pair): make(*pair, setting.seed).replace(rounds=REAL_ROUNDS) for pair in pairs}
    divided = float(chosen[_label(pairs[0])].scheme_args["deadline"]) / DEADLINE
    return measure({label: faster(e, divided) for label, e in chosen.items()}, setting, divided)


def _final(losses: Losses, pair: Pair) -> Array:
    """Return the loss of each seed, averaged over the last tenth of the rounds."""
    return _last_tenth(losses[pair])


def _last_tenth(curves: Array) -> Array:
    return np.asarray(curves[..., -max(1, curves.shape[-1] // 10) :].mean(axis=-1))


def _below(text: str, low: Array, high: Array) -> Claim:
    """Return the claim that one mean is below another, for pairs of runs with the same seed and stragglers.

    The claim is undecided (None) if the difference is less than `CHANCE` standard errors.
    """
    gain = high - low
    error = gain.std(ddof=1) / np.sqrt(len(gain))
    holds = bool(gain.mean() > 0) if abs(gain.mean()) > CHANCE * error else None
    found = (
        f"excess loss {low.mean():.4g} against {high.mean():.4g}; difference {gain.mean():.3g} ± {error:.2g}"
        f" over {len(gain)} runs"
    )
    return Claim(text, holds, found, "wb.compare")


def _shuffled(losses: Losses, scheme: str) -> Claim:
    text = f"{scheme} with shuffling is below {scheme} without"
    return _below(text, _final(losses, (scheme, "random")), _final(losses, (scheme, "none")))


def _crc_ahead(losses: Losses) -> Claim:
    text = "CRC with shuffling is below FRC with shuffling"
    return _below(text, _final(losses, ("CRC", "random")), _final(losses, ("FRC", "random")))


def _result(study: Study, claims: list[Claim], setting: Setting, text: Words) -> Result:
    seeds = len(next(iter(study.losses.values())))
    return Result(
        lines=[*(_line(study.losses, pair) for pair in study.losses), *_real_lines(study, setting)],
        claims=claims,
        pictures=[_picture(study.losses, seeds, text.caption)],
        text=[
            f"{text.text}. Mean over {seeds} runs (seeds {setting.seed} to {setting.seed + seeds - 1}) of the training"
            " loss above the least, because who is slow, and how much shuffling helps, differs from run to run; the"
            " paper shows single runs of an absolute loss."
        ],
        columns=[],
        reasons={"claims": text.reason},
        specs={_label(p): study.make(*p, setting.seed) for p in study.losses} | study.real.specs(),
        data=[text.data],
        measured=study.real.note,
        seed=setting.seed,
    )


def _line(losses: Losses, pair: Pair) -> Line:
    final = _final(losses, pair)
    error = float(final.std(ddof=1) / np.sqrt(len(final)))
    what = f"{_label(pair)}: training loss above the least, at the end"
    return Line(what, None, {"ours": float(final.mean())}, "", "wb.compare", {"ours": error})


def _real_lines(study: Study, setting: Setting) -> list[Line]:
    """Return the lines of real runs.

    The loss depends on which workers answer in time. The same seed has the same stragglers on both clocks.
    """

    def end(trace: Trace) -> float:
        return float(_last_tenth(np.asarray(trace.columns["loss"]))) - study.least

    return [
        Line(f"{label}, seed {setting.seed}: loss above the least, after {REAL_ROUNDS} rounds", None,
             study.real.values(label, end), "", "wb.run(e, engine='mpi')")
        for label in study.real.real
    ]  # fmt: skip


def _label(pair: tuple[str, str]) -> str:
    return pair[0] + ("" if pair[1] == "none" else ", shuffled")


def _picture(losses: Losses, seeds: int, data: str) -> Picture:
    dashes = dict(zip(SHUFFLES, ("dot", "solid"), strict=True))
    looks = {_label(p): scheme_style(p[0])._replace(dash=dashes[p[1]]) for p in losses}
    curves = {_label(p): (np.arange(c.shape[1]), c.mean(axis=0)) for p, c in losses.items()}
    caption = (
        f"Simulated learning on {data}, mean of {seeds} runs; the stragglers are named above.{_alike(losses)}"
    )
    title, axis = "Training loss above the least, against iterations", "loss above the least"
    return drawing.curves(curves, title, "iteration", axis, caption, looks, (False, True))


def _alike(losses: Losses) -> str:
    """Return the codes whose two curves cannot be distinguished, as text."""
    means = {pair: curves.mean(axis=0) for pair, curves in losses.items()}
    apart = {
        scheme: float(np.max(np.abs(means[scheme, "random"] / means[scheme, "none"] - 1)))
        for scheme, _ in losses
    }
    same = [scheme for scheme, off in apart.items() if off < SAME]
    return (
        f" The curves of {' and of '.join(same)} lie on one another, within {100 * SAME:g} %." if same else ""
    )


PLACE = (4, 3)  # paper, and position in its chapter of the book
_TITLES = {
    "Figure 2a: linear regression, simulated stragglers": partial(find_simulated, "a"),
    "Figure 2b: logistic regression, simulated stragglers": partial(find_simulated, "b"),
    "Figure 2c: iris, FRC on EC2's stragglers": partial(find_recorded, "FRC"),
    "Figure 2d: iris, CRC on EC2's stragglers": partial(find_recorded, "CRC"),
}
ENTRIES = [Entry(f"agc-fig{title[7:9]}", title, find, measured=True) for title, find in _TITLES.items()]
