"""Paper 1, figures 2 and 8 to 12: speedups of CR, on the virtual clock and measured."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from workbench.analysis.planning.search import tune
from workbench.core.experiment import Experiment
from workbench.core.forecasting import Forecast, forecast
from workbench.core.presets.codedreduce import (
    MESSAGE_S,
    RATE_SAMPLES_PER_S,
    SHIFT_S_PER_SAMPLE,
    Preset,
    presets,
)
from workbench.core.running.start import compare
from workbench.core.trace.trace import Trace
from workbench.lab.figures.speedups import common_target, speedups
from workbench_book import drawing, real_data
from workbench_book.catalogue import Entry
from workbench_book.ec2_model import SAME_STEPS, Constants, column, ratios
from workbench_book.measured import NOT_QUICK, Measured, measure, per_round, scaled, spread, spread_link
from workbench_book.setting import Setting
from workbench_book.values import Line, Picture, Result

CURVES = ("fig8", "fig9a", "fig9b", "fig9c", "fig10", "fig11a", "fig11b", "fig11c", "fig12")
SHRINK = 8  # quick form: about this factor fewer features
# samples of the quick form: divisible by 84 and 156, so that all loads of trees are whole numbers
SAMPLES = 1092
QUICK_MEASURED = ("fig8",)
REASON = (
    "the constants of the paper's cluster are not stated, and without a latency a ring is ahead of the tree"
)
HEADS = {"ours": "virtual clock, figure 13's constants", "per_round": "the same, time per round only"}


def find_times(setting: Setting) -> Result:
    """Compute only times per iteration, without data."""
    preset = presets["fig2"]
    expected = _forecasts(preset, setting)
    found = measured_part("fig2", preset, setting)
    lines = _lines(preset, expected, setting, found, {}, {})
    return replace(
        _result(lines, list(preset), found, setting),
        pictures=[_picture(lines, preset), _bars(expected)],
        text=[*shape(preset), _ring(expected)],
        data=["None: times per iteration depend on the sizes of data and model only."],
    )


def find_curves(name: str, setting: Setting) -> Result:
    """Train with all five schemes on the same stragglers, and compare the times to an equal error."""
    preset, data, caption = real_data.for_preset(presets[name], setting)
    used = small(preset) if setting.quick else preset
    used = used.replace(seed=setting.seed)
    setting.report(0, 3)
    with warnings.catch_warnings():  # step sizes that are too large are tried, and give an infinite loss
        warnings.simplefilter("ignore", RuntimeWarning)
        tuned = tune(used)
    setting.report(1, 3)
    traces = compare(tuned, events=False)
    setting.report(2, 3)
    metric = "relative_error" if used[0].problem == "logistic" else "model_error"
    target = common_target(traces, metric)
    to_target = speedups(traces, target, metric, reference="CR")
    equal = dict(zip(to_target["scheme"], to_target["times_as_long"], strict=True))
    needed = {trace.label: rounds_to(trace, metric, target) for trace in traces}
    found = measured_part(name, preset, setting)
    expected = _forecasts(preset, setting)
    lines = _lines(preset, expected, setting, found, equal, needed)
    return replace(
        _result(lines, tuned, found, setting),
        pictures=[_picture(lines, preset), _convergence(traces, metric, target, caption, setting)],
        text=[*shape(preset), _sgd(traces, metric, target), _ring(expected)],
        data=[data, *([shrunk(used)] if setting.quick else [])],
    )


def _result(lines: list[Line], run: Sequence[Experiment], found: Measured, setting: Setting) -> Result:
    """Return the result of both kinds of figures. `run`: the experiments on the virtual clock."""
    return Result(
        lines=lines,
        columns=["ours", "tested", "fitted", "measured"],
        heads=HEADS,
        reasons={"ours": REASON, "tested": "see the entry ec2 for what the model cannot give"},
        baseline=1.0,
        specs={e.scheme: e for e in run} | found.specs(),
        measured=found.note,
        seed=setting.seed,
    )


def small(preset: Preset, rounds: int = 60) -> Preset:
    """Return the preset with less data for training, and with the same computing and transfer times.

    Samples and parameters are divided evenly among the workers, so that rounding of loads or of the ring's slices
    does not change the times.
    """
    e = preset[0]
    samples, size = e.shape()
    kept = size // SHRINK // e.workers * e.workers
    args = {**e.problem_args, "samples": SAMPLES, "features": kept - bool(e.problem_args.get("intercept"))}
    return preset.replace(
        problem_args=args,
        rounds=min(e.rounds, rounds),
        delays=spread(e.delays.model_dump(), samples / SAMPLES),
        link=spread_link(e.link.model_dump(), size / kept),
    )


def shrunk(preset: Preset) -> str:
    """Describe the data of the quick form."""
    samples, size = preset[0].shape()
    return (
        f"Quick form: learnt on {samples} samples and {size} parameters over {preset[0].rounds} rounds, with the full"
        " size's computing and transfer times."
    )


def shape(preset: Preset) -> list[str]:
    """Describe the comparison."""
    samples, size = preset[0].shape()
    args = preset["CR"].scheme_args
    late = f"{args['stragglers']} straggler{'s' if args['stragglers'] > 1 else ''}"
    return [
        f"CR on the ({args['children']},{args['layers']}) tree, {preset[0].workers} workers, {late} per parent, GC and"
        f" SGD with {preset['GC'].scheme_args['stragglers']}; d = {samples}, p = {size}, {preset[0].rounds} rounds."
        " Numbers are times over CR's. The paper's model with figure 13's constants (section IV-B):"
        f" t_c = {MESSAGE_S:g} s a message, a = {SHIFT_S_PER_SAMPLE:g} s/sample,"
        f" mu = {RATE_SAMPLES_PER_S:g} samples/s.{_none_stated(preset)}"
    ]


def _none_stated(preset: Preset) -> str:
    return "" if preset.name == "fig13" else " For this figure the paper states none."


def rounds_to(trace: Trace, metric: str, target: float) -> int:
    """Return the rounds until a metric reaches a target that every trace reaches."""
    return int(np.argmax(np.asarray(trace.columns[metric]) <= target)) + 1


def measured_part(name: str, preset: Preset, setting: Setting) -> Measured:
    """Measure the scaled figure on real processes."""
    if setting.quick and name not in QUICK_MEASURED:
        return Measured(NOT_QUICK)
    experiments, divided = scaled(preset, setting)
    found = measure(experiments, setting, divided)
    return replace(found, note=f"{found.note}{_scaled_words(found)}") if found.real else found


def _scaled_words(found: Measured) -> str:
    """Describe the measurement: the tree, the data, and the time of CR, by which all times are divided."""
    e, took = found.real["CR"].experiment, found.values("CR", per_round)
    args, (samples, size) = e.scheme_args, e.shape()
    return (
        f". Scaled: the ({args['children']},{args['layers']}) tree, {args['stragglers']} of {args['children']} children"
        f" not waited for, least squares on {samples} x {size} synthetic numbers, all times divided by"
        f" {found.divided:.3g}; a round of CR takes {took['scaled']:.3g} s on the virtual clock and took"
        f" {took['measured']:.3g} s"
    )


def _forecasts(preset: Preset, setting: Setting) -> dict[str, Forecast]:
    return {e.scheme: forecast(e, setting.pick(100, 600), setting.seed) for e in preset}


def _lines(
    preset: Preset,
    expected: dict[str, Forecast],
    setting: Setting,
    found: Measured,
    equal: dict[str, float],
    needed: dict[str, int],
) -> list[Line]:
    """Return one line per baseline.

    `equal`: times to an equal error over CR's; empty for times per round. `needed`: rounds to that error. With fitted
    constants, a time to that error is the time per round times these rounds.
    """
    cluster = Constants(**setting.facts["ec2"]["crowded"])
    ec2 = ratios(preset, cluster, setting.pick(100, 400), setting.seed)
    lines = []
    for scheme, published in preset.published.items():
        each, error = over_cr(expected, scheme)
        more = 1.0 if scheme in SAME_STEPS else needed[scheme] / needed["CR"]
        values = {"ours": equal.get(scheme, each), column(preset.name, scheme): more * ec2[scheme]}
        values |= {"per_round": each} if equal else {}
        values |= found.ratio(scheme, "CR")
        errors = {"per_round" if equal else "ours": error}
        lines.append(
            Line(scheme, published, values, "× CR", "wb.compare" if equal else "wb.forecast", errors)
        )
    return lines


def over_cr(expected: dict[str, Forecast], scheme: str) -> tuple[float, float]:
    """Return a scheme's time per round divided by CR's, and the standard error, as if both times were independent."""
    one, base = expected[scheme], expected["CR"]
    ratio = one.mean / base.mean
    return ratio, ratio * float(np.hypot(one.error / one.mean, base.error / base.mean))


def _picture(lines: list[Line], preset: Preset) -> Picture:
    real = any("measured" in line.values for line in lines)
    caption = (
        "Times over CR's: what the paper measured on EC2, the virtual clock with figure 13's constants (the paper"
        " states none for this figure), and with constants fitted to some of its figures"
    ) + (
        "; stars are measured here, on real processes, at the scaled settings."
        if real
        else "; nothing measured here."
    )
    return drawing.numbers(lines, preset.title, "time over CR's", caption, heads=HEADS)


def _bars(expected: dict[str, Forecast]) -> Picture:
    times = {name: {"seconds": f.mean} for name, f in expected.items()}
    caption = "Mean time per iteration, virtual clock, figure 13's constants: the paper states none for this figure."
    return drawing.bars(times, "Time per iteration", "mean time per iteration (s)", caption)


def _convergence(traces: list[Trace], metric: str, target: float, data: str, setting: Setting) -> Picture:
    quick = ", at the quick form's size" if setting.quick else ""
    caption = (
        "The schemes' programs on the virtual clock, figure 13's constants (the paper states none for this figure);"
        f" learnt on {data}{quick}."
    )
    return drawing.convergence(traces, metric, target, caption)


def _sgd(traces: list[Trace], metric: str, target: float) -> str:
    last = {t.label: float(t.columns[metric][-1]) for t in traces}
    needed = {t.label: rounds_to(t, metric, target) for t in traces}
    steps = {t.label: _step(t) for t in traces}
    return (
        f"Equal error is the {metric.replace('_', ' ')} that all five reach, {target:.3g}: SGD after {needed['SGD']}"
        f" rounds, the exact schemes after {needed['CR']}. With fitted constants, SGD's time per round is multiplied by"
        f" its number of rounds. At the end SGD is at {last['SGD']:.3g},"
        f" the exact schemes at {last['CR']:.3g}. Steps were tuned on the same grid for all: {steps['CR']} for the"
        f" exact schemes, {steps['SGD']} for SGD (step c1/(t + c2))."
    )


def _step(trace: Trace) -> str:
    return ", ".join(f"{name} = {value:.4g}" for name, value in trace.experiment.optimiser_args.items())


def _ring(expected: dict[str, Forecast]) -> str:
    ratio = expected["RAR"].mean / expected["CR"].mean
    return (
        f"In the paper's model the ring takes {ratio:.2g} of CR's time: its 2(N-1) messages of p/N floats cost t_c/N"
        " each, and no latency. What the paper measured for RAR therefore shows a latency (or MPI_Allreduce's own"
        " cost), not bandwidth or stragglers."
    )


PLACE = (1, 3)  # paper, and position in its chapter of the book
ENTRIES = [
    Entry("fig2", presets["fig2"].title + ": time per iteration", find_times, ("ec2",), measured=True),
    *(
        Entry(name, presets[name].title, partial(find_curves, name), ("ec2",), measured=True, weight=8.0)
        for name in CURVES
    ),
]
