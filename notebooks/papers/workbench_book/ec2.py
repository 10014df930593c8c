"""Entry `ec2`: the constants of paper 1's cluster, fitted to some of its figures, tested on the others."""

from __future__ import annotations

import math

import numpy as np

from workbench.core.base.types import Array
from workbench.core.presets.codedreduce import presets
from workbench_book import drawing
from workbench_book.catalogue import Entry
from workbench_book.ec2_model import (
    FACTORS,
    FITTED_ON,
    LOGS,
    SAME_STEPS,
    TESTED_ON,
    Constants,
    column,
    decomposed,
    factor,
    fit,
    ratios,
    residuals,
    seconds,
    speedups,
    without,
    words,
)
from workbench_book.setting import Setting
from workbench_book.values import Claim, Line, Picture, Result

EXPLAINED = "fig9a"  # figure with CR's speedup of 27 over GC


def find(setting: Setting) -> Result:
    """Fit both models, test them on the other figures, and decompose CR's speedups."""
    rounds, evaluations = setting.pick(8, 40), setting.pick(45, 300)
    total = 2 + len(FITTED_ON + TESTED_ON)
    stated = fit(False, rounds, evaluations, setting.seed)
    setting.report(1, total)
    crowded = fit(True, rounds, evaluations, setting.seed)
    setting.report(2, total)
    fresh = setting.seed + 1  # draws that the fit has not used
    samples = setting.pick(100, 400)
    lines = []
    for done, name in enumerate(FITTED_ON + TESTED_ON, 3):
        lines += _lines(name, crowded, samples, fresh)
        setting.report(done, total)
    parts = decomposed(presets[EXPLAINED], crowded, samples, fresh)
    return Result(
        lines=lines,
        claims=[_crowding(stated, crowded, samples, fresh)],
        pictures=[_scatter(lines), _factors(parts)],
        text=[
            _constants(crowded),
            _fits(stated, crowded, samples, fresh),
            _explained(parts, crowded, samples, fresh),
        ],
        columns=["tested", "fitted"],
        reasons={"tested": "above all UMW over 84 workers, which no constants give, see the text"},
        baseline=1.0,
        specs={f"{EXPLAINED} {e.scheme}": crowded.experiment(e) for e in presets[EXPLAINED]},
        facts={"crowded": words(crowded), "stated": words(stated)},
        seed=fresh,
    )


def _lines(name: str, constants: Constants, rounds: int, seed: int) -> list[Line]:
    preset = presets[name]
    found = ratios(preset, constants, rounds, seed, SAME_STEPS)
    return [
        Line(
            f"{name} {scheme} ({column(name, scheme)})",
            preset.published[scheme],
            {column(name, scheme): found[scheme]},
            "× CR",
            "wb.forecast",
        )
        for _, scheme in speedups([name])
    ]


def _crowding(stated: Constants, crowded: Constants, rounds: int, seed: int) -> Claim:
    """Return a claim on whether the paper's own model can give the published speedups over GC.

    Even the largest speedup that this model can give is smaller.
    """
    only = without(Constants(spread=1.0, transfer=1.0), ("stragglers", "latency"))
    limit = ratios(presets[EXPLAINED], Constants(1e-12, 1.0, 0.0, only.transfer, 0.0, False), 1, seed)["GC"]
    best = ratios(presets[EXPLAINED], stated, rounds, seed)["GC"]
    published = presets[EXPLAINED].published["GC"]
    load = ratios(presets[EXPLAINED], without(stated, FACTORS), 1, seed)["GC"]
    near = ratios(presets[EXPLAINED], crowded, rounds, seed)["GC"]
    found = (
        f"transfers alone give {limit:.3g}, computing alone {load:.3g}, the best constants of the paper's model"
        f" {best:.3g}, with crowded ports {near:.3g}; published {published:g}"
    )
    text = (
        "The model of section III-C can reach the published speedup over GC (figure 9a) with some constants"
    )
    return Claim(
        text, max(limit, load, best) >= published, found, f"ratios(presets[{EXPLAINED!r}], constants)['GC']"
    )


def _constants(c: Constants) -> str:
    most = math.exp(LOGS[1])
    bound = " (the most that the search allows: it wants no fixed part)" if c.spread > 0.99 * most else ""
    return (
        "Fitted constants, for vectors of 5000 floats and samples of 5000 features; only ratios of times are"
        f" published, so a = {c.shift:g} s/sample is set and the rest is relative to it: mean random part of a"
        f" computing time {c.spread:.3g} a (1/(a mu)){bound}, latency {1e3 * c.latency:.3g} ms a message, transfer"
        f" {1e3 * c.transfer:.3g} ms a message into a port with one sender, {100 * c.crowding:.3g} % more for each"
        f" further sender (which makes {1 + 155 * c.crowding:.3g} times as much with 156). In units of the transfer:"
        f" latency {c.latency / c.transfer:.3g}, mean computing time of 100 samples"
        f" {100 * c.shift * (1 + c.spread) / c.transfer:.3g}."
    )


def _fits(stated: Constants, crowded: Constants, rounds: int, seed: int) -> str:
    off = {
        (name, group): factor(residuals(figures, c, rounds, seed))
        for name, c in (("stated", stated), ("crowded", crowded))
        for group, figures in (("fitted", FITTED_ON), ("tested", TESTED_ON))
    }
    return (
        f"Typical factor between ours and the published speedups: with the paper's model {off['stated', 'fitted']:.3g}"
        f" on the figures fitted ({', '.join(FITTED_ON)}) and {off['stated', 'tested']:.3g} on the others; with"
        f" ports that slow down by the number of senders {off['crowded', 'fitted']:.3g} and"
        f" {off['crowded', 'tested']:.3g}. What stays off most is UMW with 84 workers (figures 2, 8, 10), where the"
        " paper's UMW is far slower than everything that the other schemes of the same figure allow: RAR waits for"
        " the same slowest worker. Without these three numbers the factor is"
        f" {factor(_without_umw_84(crowded, rounds, seed)):.3g}. SGD is in neither: its published speedups are at equal"
        " error, where it needs other numbers of rounds than the exact schemes, so no constants of a cluster give them"
        " alone; figures 8 to 12 have it with the rounds that it takes here."
    )


def _without_umw_84(constants: Constants, rounds: int, seed: int) -> Array:
    """Return the residuals of all figures except for UMW with 84 workers."""
    logs = []
    for name in FITTED_ON + TESTED_ON:
        preset = presets[name]
        found = residuals([name], constants, rounds, seed)
        kept = [not (scheme == "UMW" and preset[0].workers == 84) for _, scheme in speedups([name])]
        logs.append(found[kept])
    return np.concatenate(logs)


def _explained(parts: dict[str, dict[str, float]], c: Constants, rounds: int, seed: int) -> str:
    gc, preset = parts["GC"], presets[EXPLAINED]
    product = float(np.prod(list(gc.values())))
    chain = " × ".join(f"{value:.3g} ({name})" for name, value in gc.items())
    off = {name: ratios(preset, without(c, (name,)), rounds, seed)["GC"] for name in FACTORS}
    alone = ", ".join(f"{value:.3g} without {name}" for name, value in off.items())
    times = seconds(preset, c, rounds, seed)
    return (
        f"CR over GC in figure 9a: published {preset.published['GC']:g}, here {product:.3g} = {chain}. A factor is"
        " the mean of what switching it on multiplies, over all orders of switching on. Switched off one at a time,"
        f" the speedup is {alone}. {_ranked(parts)} (Model seconds per round:"
        f" {', '.join(f'{k} {v:.3g}' for k, v in times.items())}.)"
    )


def _ranked(parts: dict[str, dict[str, float]]) -> str:
    """Rank the factors for each baseline: bandwidth (transfers, incast), stragglers, or latency."""
    texts = []
    for scheme, each in parts.items():
        by_size = sorted(FACTORS, key=lambda name: -abs(math.log(each[name])))
        texts.append(f"{scheme} {', '.join(f'{name} ×{each[name]:.3g}' for name in by_size)}")
    return f"In order of weight, by rival: {'; '.join(texts)}. Load is the work per worker beside CR's."


def _scatter(lines: list[Line]) -> Picture:
    chosen = [line for line in lines if line.published is not None]
    found = {
        f"{scheme} {how}": (
            [line.published for line in chosen if scheme in line.what.split() and how in line.values],
            [line.values[how] for line in chosen if scheme in line.what.split() and how in line.values],
        )
        for scheme in SAME_STEPS
        for how in ("fitted", "tested")
    }
    return drawing.dots(
        found,
        "Speedups of CR: published and fitted",
        "speedup of CR, published (×)",
        "speedup of CR, fitted constants (×)",
        "Speedups of CR over three schemes in figures 2 and 8 to 12 on the line of equality: filled marks were fitted,"
        " open ones tested. Simulated with fitted constants, against what the paper measured on EC2.",
    )


def _factors(parts: dict[str, dict[str, float]]) -> Picture:
    return drawing.bars(
        {f"over {scheme}": each for scheme, each in parts.items()},
        "What CR's speedups in figure 9a are made of",
        "factor (the product is the speedup)",
        "Factors of CR's speedup per round over each scheme, fitted constants, virtual clock: load (all workers alike),"
        " then what stragglers, latency, transfers and crowded ports multiply.",
        base=1.0,
    )


PLACE = (1, 2)  # paper, and position in its chapter of the book
ENTRIES = (
    Entry(
        "ec2",
        "Which cluster gives figures 2 and 8 to 12? Fitted constants, and what CR's speedup is made of",
        find,
        weight=11.0,
    ),
)
