"""Paper 4, figure 1: stragglers are slow for the whole run, from recorded EC2 times if available."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from workbench.core.base.types import Array
from workbench.core.contract.delays import recorded
from workbench.lab.figures.style import BLUE, VERMILLION, Style
from workbench_book import drawing
from workbench_book.catalogue import Entry
from workbench_book.setting import TRACES, VARIABLE, Setting
from workbench_book.values import Claim, Line, Picture, Result

SHOWN = "ec2-6"  # 15 workers and 300 iterations, as in the caption
# straggling is persistent if it is more probable by this factor right after a straggling iteration than on average
HEAVILY = 3.0
SLOW = 2.0  # an iteration straggles if it takes more than this multiple of the experiment's median
ABSENT = (
    f"no recorded EC2 times here: give `--traces {TRACES}`, set {VARIABLE}, or put {TRACES} (columns experiment,"
    " worker, iteration, seconds) into the folder `data` of the working directory; the recordings are in the public"
    " repository AmoghJohri/GradientCoding, folder EC2_Experiments/Data"
)


def find(setting: Setting) -> Result:
    """Draw the times of each worker for the same task, iteration by iteration. These are real measurements."""
    if setting.traces is None:
        return Result(text=[ABSENT], data=["None: the figure needs the recorded times."], seed=None)
    every = {name: table(setting.traces, name) for name in experiments_in(setting.traces)}
    late = {name: times > SLOW * np.median(times) for name, times in every.items()}
    share = np.concatenate([each.mean(axis=1) for each in late.values()])
    shown = SHOWN if SHOWN in every else next(iter(every))
    names = [f"{name}, worker {i}" for name, each in late.items() for i in range(len(each))]
    by = f"np.mean(times > {SLOW:g} * np.median(times), axis=1)"
    return Result(
        lines=[
            Line(f"{name}: share of straggling iterations", None, {"recorded": float(s)}, "", by)
            for name, s in zip(names, share, strict=True)
            if s > 0.02
        ],
        claims=[_either_or(share), _correlated(list(late.values()))],
        pictures=[_curves(every[shown], shown)],
        text=[
            f"{len(share)} t2.micro workers in {len(every)} experiments, the same task iteration after iteration,"
            " recorded by the paper's authors; an iteration straggles if it takes over"
            f" {SLOW:g} times the experiment's median. Workers that straggle in at most 2 % of their iterations are not"
            " listed. The picture shows the workers with the most and the fewest straggling iterations."
        ],
        columns=[],
        reasons={"claims": "some workers of the recordings are slow for part of the run only"},
        data=[f"{TRACES}: recorded on EC2 by the authors of paper 4 (real)."],
        seed=None,
    )


def experiments_in(path: Path) -> list[str]:
    """Return the names of the recorded experiments."""
    import pandas as pd

    columns = pd.read_csv(path)
    return sorted(set(columns["experiment"].astype(str)))


def table(path: Path, experiment: str) -> Array:
    """Return the recorded seconds, (workers, iterations), for the iterations that all workers have."""
    padded, lengths = recorded(str(path), experiment)
    return np.asarray(padded[:, : int(lengths.min())])


def _either_or(share: Array) -> Claim:
    between = int(np.sum((share > 0.1) & (share < 0.9)))
    found = (
        f"{np.sum(share <= 0.1):.0f} workers do so in at most 10 % of their iterations, {np.sum(share >= 0.9):.0f} in"
        f" at least 90 %, {between} in between"
    )
    return Claim(
        "A worker straggles throughout the experiment or not at all", between == 0, found, "recorded times"
    )


def _correlated(late: Sequence[NDArray[np.bool_]]) -> Claim:
    again = np.concatenate([each[:, 1:][each[:, :-1]] for each in late])
    chance = float(np.mean(np.concatenate([each.ravel() for each in late])))
    text = f"Straggling is heavily correlated over a worker's iterations (over {HEAVILY:g} times as likely after one)"
    found = f"chance to straggle {chance:.3g}; {again.mean():.3g} right after having straggled"
    return Claim(text, bool(again.mean() > HEAVILY * chance), found, "recorded times")


def _curves(times: Array, name: str) -> Picture:
    slow = (times > SLOW * np.median(times)).sum(axis=1)
    most, fewest = int(np.argmax(slow)), int(np.argmin(slow))
    found = {
        f"worker {most}, a straggler": (np.arange(times.shape[1]), times[most]),
        f"worker {fewest}, not a straggler": (np.arange(times.shape[1]), times[fewest]),
    }
    looks = dict(
        zip(found, (Style(VERMILLION, "solid", "circle"), Style(BLUE, "dash", "square")), strict=True)
    )
    return drawing.curves(
        found,
        f"Figure 1: seconds for the same task ({name})",
        "iteration",
        "time for the task (s)",
        "Measured on EC2 by the paper's authors (recorded times), not simulated.",
        looks,
        kind="real",
    )


PLACE = (4, 1)  # paper, and position in its chapter of the book
ENTRIES = (
    Entry(
        "agc-fig1", "Figure 1: a straggler and a non-straggler over 300 iterations (recorded on EC2)", find
    ),
)
