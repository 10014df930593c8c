"""What one worker holds, and what a parent makes of its children's messages."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import plotly.graph_objects as go

from workbench.base.settings import SettingError
from workbench.core.plan import MASTER, Plan
from workbench.experiment import Experiment
from workbench.figures.decoding import Weights, decode_weights
from workbench.figures.inputs import runs
from workbench.figures.style import BLUE, HUES, VERMILLION, Theme, new_figure, palette
from workbench.figures.tree import Strips, strips_of
from workbench.trace.trace import Trace

HEIGHT = 360
_FEW = 24  # bars up to which every number is printed


def weights(trace: Trace, round: int, parent: int = MASTER, theme: Theme = "light") -> go.Figure:
    """Draw the decode weights of a parent in a round: a bar per message used, a cross per sender that was too late.

    Raises `SettingError` as `decode_weights` does, and for an unknown theme.

    Examples
    --------
    >>> import workbench as wb
    >>> trace = wb.run(wb.Experiment(scheme="GC", scheme_args={"stragglers": 2}, workers=6, rounds=3))
    >>> weights(trace, 1).data[0].name
    'weight'
    """
    found = decode_weights(trace, round, parent)
    who = "the master" if parent == MASTER else f"rank {parent}"
    title = f"{trace.label}: decode weights of {who} in round {round}"
    figure = new_figure(theme, title, _used(found), height=HEIGHT)
    figure.add_traces([_bars(found, row, trace) for row in range(len(found.weight))])
    if len(found.late):
        figure.add_trace(_crosses(found))
    figure.update_xaxes(
        title_text="sender’s rank", dtick=1 if len(_senders(found)) <= _FEW else None, showgrid=False
    )
    figure.update_yaxes(title_text="weight", zeroline=True, zerolinecolor=palette(theme).muted)
    figure.update_layout(barmode="group", showlegend=len(found.weight) > 1 or bool(len(found.late)))
    return figure


def _senders(found: Weights) -> set[int]:
    return {*found.rank.tolist(), *found.late.tolist()}


def _used(found: Weights) -> str:
    used = np.any(np.abs(found.weight) > 1e-12, axis=0)
    words = [f"{len(used)} message{'s' * (len(used) != 1)} came in time"]
    if not used.all():
        words.append(f"{int(np.sum(~used))} not needed")
    if len(found.late):
        words.append(f"too late: {runs(found.late.tolist())}")
    return " · ".join(words)


def _bars(found: Weights, row: int, trace: Trace) -> go.Bar:
    many = len(found.weight) > 1
    several = max(Counter(found.rank.tolist()).values(), default=1) > 1
    numbers = [f"message {n + 1}, " if several else "" for n in found.number.tolist()]
    values = found.weight[row]
    few = len(values) <= _FEW and not many
    return go.Bar(
        x=found.rank,
        y=values,
        name=f"coordinates {row}, {row + len(found.weight)}, …" if many else "weight",
        marker={"color": HUES[row % len(HUES)] if many else BLUE, "line": {"width": 0}},
        text=[f"{value:.3g}".replace("-", "−") for value in values] if few else None,
        textposition="outside",
        cliponaxis=False,
        customdata=[f"{n}came at {t:.5g} s" for n, t in zip(numbers, found.time.tolist(), strict=True)],
        hovertemplate="<b>rank %{x}</b><br>weight %{y:.5g}<br>%{customdata}<extra></extra>",
    )


def _crosses(found: Weights) -> go.Scatter:
    return go.Scatter(
        x=found.late,
        y=np.zeros(len(found.late)),
        mode="markers",
        name="too late: dropped",
        marker={"symbol": "x-thin", "size": 11, "line": {"width": 2.5, "color": VERMILLION}},
        hovertemplate="<b>rank %{x}</b>: too late<extra></extra>",
    )


def held(experiment: Experiment, rank: int, round: int = 0, theme: Theme = "light") -> go.Figure:
    """Draw which samples a worker goes through in a round, with which coefficients.

    `experiment`: which run; `rank`: of the worker, from 1; `round` from 0.

    Raises `SettingError` when there is no such worker, or for an unknown theme.

    Examples
    --------
    >>> import workbench as wb
    >>> e = wb.Experiment(scheme="GC", scheme_args={"stragglers": 2}, workers=12)
    >>> held(e, 3).data[0].y.tolist()
    [1.0]
    """
    plan = experiment.build_scheme().held(experiment.plan, round)
    if not 1 <= rank <= plan.workers:
        raise SettingError(f"rank = {rank}: there are workers 1 to {plan.workers}")
    strips = _strips(plan, rank)
    start, width, coefficient = strips.start, strips.stop - strips.start, strips.coefficient
    parts = sorted(plan.indices[plan.indptr[rank] : plan.indptr[rank + 1]].tolist())
    words = f"parts {runs(parts)} of {plan.parts} · {plan.loads[rank]} of {plan.samples} samples"
    figure = new_figure(theme, f"{experiment.scheme}: what rank {rank} computes", words, height=HEIGHT)
    figure.add_trace(
        go.Bar(
            x=start + width / 2,
            y=coefficient,
            width=width,
            name="held",
            marker={"color": BLUE, "line": {"width": 0}},
            text=[f"{c:.3g}".replace("-", "−") for c in coefficient] if len(start) <= _FEW else None,
            textposition="outside",
            cliponaxis=False,
            customdata=np.stack([start, start + width - 1], axis=1),
            hovertemplate="samples %{customdata[0]} to %{customdata[1]}<br>coefficient %{y:.5g}<extra></extra>",
        )
    )
    figure.update_xaxes(title_text="sample", range=[0, plan.samples], showgrid=False)
    figure.update_yaxes(title_text="coefficient", zeroline=True, zerolinecolor=palette(theme).muted)
    return figure


def _strips(plan: Plan, rank: int) -> Strips:
    """Runs of samples that one rank holds with one coefficient each."""
    mine = slice(plan.indptr[rank], plan.indptr[rank + 1])
    indices, coefficients = plan.indices[mine], plan.coefficients[mine]
    alone = replace(plan, indptr=np.array([0, len(indices)]), indices=indices, coefficients=coefficients)
    return strips_of(alone, 1)
