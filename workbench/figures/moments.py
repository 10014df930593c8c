"""One round, moment by moment: what a slow-motion picture stops at."""

from __future__ import annotations

from typing import NamedTuple

from workbench.core.plan import MASTER
from workbench.figures.round_events import Bars, events_of
from workbench.trace.trace import Trace


class Moment(NamedTuple):
    """Something happened to a rank, so many seconds after the round's start.

    `time`: s; `text`: what happened.

    >>> Moment(time=0.25, rank=3, text="has computed").rank
    3
    """

    time: float
    rank: int
    text: str


def moments(trace: Trace, round: int) -> list[Moment]:
    """What happened in a round, in order of time.

    Raises `SettingError` when the trace has no such round, or kept no events of it.

    >>> import workbench as wb
    >>> trace = wb.run(wb.Experiment(scheme="UMW", workers=2, rounds=1))
    >>> [moment.text for moment in moments(trace, 0)][-1]
    'the master has the gradient'
    """
    r = events_of(trace, round)
    answers = r.answers
    ends = answers["end"] - r.start
    found = [
        *_each(r.downloading, "the model has come down to {}"),
        *_each(r.did("compute"), "{} has computed its share"),
        *_each(r.did("decode"), "{} has decoded"),
        *_each(r.did("drop"), "the answer of {} is too late: dropped"),
        *_each(r.cut_off, "{} is still computing: cut off"),
        *_each(r.did("commit"), "{} has the gradient"),
    ]
    pairs = zip(answers["rank"].tolist(), answers["to"].tolist(), ends.tolist(), strict=True)
    found += [Moment(at, rank, f"{name(to)} has the message of {name(rank)}") for rank, to, at in pairs]
    order = {moment: place for place, moment in enumerate(found)}
    return sorted(found, key=lambda moment: (moment.time, "gradient" in moment.text, order[moment]))


def _each(bars: Bars, words: str) -> list[Moment]:
    pairs = zip(bars.rank.tolist(), bars.end.tolist(), strict=True)
    return [Moment(float(end), int(rank), words.format(name(rank))) for rank, end in pairs]


def name(rank: int) -> str:
    """What a node is called in a sentence."""
    return "the master" if rank == MASTER else f"worker {rank}"
