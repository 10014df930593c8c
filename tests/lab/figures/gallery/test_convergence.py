"""The figure of convergence: its curves are the columns of the trace."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import plotly.graph_objects as go
import pytest
from hypothesis import given
from hypothesis import strategies as st

import workbench as wb
from tests.support.figure_runs import experiment
from workbench.analysis.planning.quantities import quantity
from workbench.core.base.settings import SettingError
from workbench.lab.figures import convergence
from workbench.lab.figures.gallery.convergence import MAX_POINTS, thin
from workbench.lab.figures.style import palette


def curves(figure: go.Figure) -> dict[str, go.Scatter]:
    found = [curve for curve in figure.data if curve.mode == "lines+markers"]
    return {curve.legendgroup: curve for curve in found}


def stretched(trace: wb.Trace, factor: float) -> wb.Trace:
    """Return the same run with longer rounds."""
    return replace(trace, columns={**trace.columns, "time": trace.columns["time"] * factor})


@pytest.mark.parametrize("metric", ["loss", "accuracy", "relative_error", "residual"])
@pytest.mark.parametrize("x", ["time", "round", "bytes", "samples"])
def test_curves_are_the_traces_columns(traces: list[wb.Trace], metric: str, x: str) -> None:
    drawn = curves(convergence(traces, metric, x))
    assert sorted(drawn) == sorted(t.label for t in traces)
    for trace in traces:
        curve, rows = drawn[trace.label], trace.rounds
        places = {"time": rows["time"], "round": rows["round"] + 1}.get(x)
        places = rows[x].cumsum() if places is None else places
        begins = metric in trace.initial
        np.testing.assert_array_equal(curve.x, [0.0] * begins + places.tolist())
        first = [trace.initial[metric]] if begins else []
        np.testing.assert_array_equal(curve.y, first + rows[metric].tolist())


def test_convergence_time_axis_is_logarithmic_for_wide_ranges(traces: list[wb.Trace]) -> None:
    near = convergence([traces[0], stretched(traces[1], 1.0)])
    far = convergence([traces[0], stretched(traces[1], 1000.0)])
    assert (near.layout.xaxis.type, far.layout.xaxis.type) == ("linear", "log")
    assert all(np.all(np.asarray(curve.x) > 0) for curve in far.data)
    assert len(curves(far)["UMW"].x) == len(traces[0].rounds)


def test_convergence_metric_axis_is_chosen_by_ratio(traces: list[wb.Trace]) -> None:
    assert convergence(traces, "relative_error").layout.yaxis.type == "log"
    assert convergence(traces, "accuracy").layout.yaxis.type == "linear"
    assert convergence(traces, "residual").layout.yaxis.type == "linear"  # the residual has zeros


def test_convergence_legend_keeps_the_order(traces: list[wb.Trace]) -> None:
    ranked = sorted(convergence(traces).data, key=lambda curve: curve.legendrank)
    assert [curve.name for curve in ranked] == [t.label for t in traces]


def test_convergence_target_marks_when_it_is_reached(traces: list[wb.Trace]) -> None:
    target = float(traces[0].rounds["loss"].iloc[4])
    figure = convergence(traces, target=target)
    base = traces[-1].time_to(target)
    for trace in traces:
        at = trace.time_to(target)
        name = curves(figure)[trace.label].name
        assert name == f"{trace.label}  {quantity(at, 'time')}  ({at / base:.3g}×)"
        ring = next(r for r in figure.data if r.mode == "markers" and r.legendgroup == trace.label)
        row = trace.rounds[trace.rounds["time"] == at].iloc[0]
        assert (ring.x[0], ring.y[0]) == (at, row["loss"])
    assert figure.layout.shapes[0].y0 == figure.layout.shapes[0].y1 == target
    (label,) = figure.layout.annotations  # curves behind the label do not cross its text
    assert (label.name, label.bgcolor) == ("target", palette("light").background)
    height = np.log10(target) if figure.layout.yaxis.type == "log" else target
    assert label.y == pytest.approx(height)
    assert "CR" in figure.layout.legend.title.text


def test_convergence_target_that_is_never_reached(traces: list[wb.Trace]) -> None:
    figure = convergence(traces, target=-1.0)
    assert {c.name for c in curves(figure).values()} == {f"{t.label}  never" for t in traces}
    assert not [ring for ring in figure.data if ring.mode == "markers"]


@pytest.mark.parametrize("target", [0.0, -1.0])
def test_convergence_target_that_a_logarithmic_axis_lacks(traces: list[wb.Trace], target: float) -> None:
    figure = convergence(traces, "relative_error", target=target)
    assert figure.layout.yaxis.type == "log"
    assert not figure.layout.shapes  # plotly would extend the axis by dozens of decades
    assert not figure.layout.annotations
    assert {c.name for c in curves(figure).values()} == {f"{t.label}  never" for t in traces}


def test_convergence_of_accuracy_rises_to_the_target(traces: list[wb.Trace]) -> None:
    best = float(traces[0].rounds["accuracy"].max())
    assert "never" not in curves(convergence(traces[:1], "accuracy", target=best))["UMW"].name
    assert "never" in curves(convergence(traces[:1], "accuracy", target=best + 0.01))["UMW"].name


def test_convergence_labels_distinguish_runs_of_one_scheme() -> None:
    several = [experiment("GC", {"stragglers": s}, rounds=2) for s in (1, 2)]
    several += [experiment("GC", {"stragglers": 2, "code": "fractional"}, rounds=2)]
    drawn = curves(convergence([*wb.compare(several), wb.run(experiment("UMW", rounds=2))]))
    assert set(drawn) == {
        "GC stragglers=1, code=cyclic",
        "GC stragglers=2, code=cyclic",
        "GC stragglers=2, code=fractional",
        "UMW",
    }
    coded = [curve for label, curve in drawn.items() if label.startswith("GC")]
    assert len({curve.line.color for curve in coded}) == 1
    assert len({curve.line.dash for curve in coded}) == len({curve.marker.symbol for curve in coded}) == 3


def test_convergence_labels_differ_by_settings_outside_the_scheme(traces: list[wb.Trace]) -> None:
    other = wb.run(traces[0].experiment.replace(seed=7))
    assert set(curves(convergence([traces[0], other]))) == {"UMW seed=0", "UMW seed=7"}
    assert set(curves(convergence([traces[0], traces[0]]))) == {"UMW #1", "UMW #2"}


@given(st.integers(1, 10**6), st.integers(4, 3000))
def test_thin_keeps_ends_order_and_bound(count: int, most: int) -> None:
    kept = thin(count, most)
    assert len(kept) <= most
    assert kept[0] == 0
    assert kept[-1] == count - 1
    assert np.all(np.diff(kept) > 0)
    if count <= most:
        np.testing.assert_array_equal(kept, np.arange(count))


def test_convergence_thins_long_runs(traces: list[wb.Trace]) -> None:
    columns = {name: np.resize(values, 50_000) for name, values in traces[0].columns.items()}
    columns.update(round=np.arange(50_000), time=np.arange(1.0, 50_001.0))
    long = replace(traces[0], columns=columns)
    curve = convergence([long]).data[0]
    assert 0.8 * MAX_POINTS <= len(curve.x) <= MAX_POINTS + 1
    assert curve.x[-1] == 50_000.0
    np.testing.assert_array_equal(np.asarray(curve.y)[1:], columns["loss"][np.asarray(curve.x, int)[1:] - 1])


def test_convergence_offsets_markers_of_equal_curves(traces: list[wb.Trace]) -> None:
    exact = [t for t in traces if t.label != "SGD"]
    drawn = curves(convergence(exact, x="round"))
    shown = [set(np.flatnonzero(np.asarray(c.marker.color)[1:] != "rgba(0,0,0,0)")) for c in drawn.values()]
    assert all(shown)
    assert len(set.union(*shown)) > len(shown[0])


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        ({"metric": "los"}, r"metric = 'los': no such name; did you mean 'loss'\? choose one of loss, "),
        ({"metric": "time"}, r"metric = 'time': no such name"),
        ({"x": "epochs"}, r"x = 'epochs': no such name; choose one of time, round, bytes, samples"),
        ({"target": float("nan")}, r"target = nan: must be a finite number"),
    ],
)
def test_convergence_refuses_wrong_input(traces: list[wb.Trace], call: dict[str, Any], sentence: str) -> None:
    with pytest.raises(SettingError, match=f"^{sentence}"):
        convergence(traces, **call)


def test_convergence_refuses_empty_traces(traces: list[wb.Trace]) -> None:
    with pytest.raises(SettingError, match=r"^traces = \[\]: is empty; give at least one Trace"):
        convergence([])
    wrong: Any = [traces[0], traces[0].experiment]
    with pytest.raises(SettingError, match=r"^traces\[1\] = Experiment: is not a Trace"):
        convergence(wrong)
    none = replace(traces[0], columns={name: values[:0] for name, values in traces[0].columns.items()})
    with pytest.raises(SettingError, match="finished no round"):
        convergence([none])


def test_convergence_accepts_one_trace() -> None:
    e = wb.Experiment(scheme="UMW", workers=3, rounds=3)
    one: Any = e
    (trace,) = wb.compare(one)
    assert convergence(trace).to_json() == convergence([trace]).to_json()  # type: ignore[arg-type]
    assert wb.tune(one) == wb.tune([e])


def test_convergence_gives_no_ratio_to_zero() -> None:
    runs = [
        wb.run(wb.Experiment(scheme="UMW", workers=3, rounds=5, delays={"kind": "constant", "shift": s}))
        for s in (0.0, 1e-3)
    ]
    named = [trace.name for trace in wb.figures.convergence(runs, target=0.6).data]
    assert not [name for name in named if name and ("nan" in name or "inf" in name)]
