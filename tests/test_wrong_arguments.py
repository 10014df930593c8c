"""Wrong arguments of public functions: one sentence with name and value, and nothing is started."""

from __future__ import annotations

from collections.abc import Callable
from inspect import Parameter, signature
from pathlib import Path
from typing import Any

import numpy as np
import plotly.graph_objects as go
import pytest
from hypothesis import given
from hypothesis import strategies as st

import workbench as wb
from workbench.analysis.planning.measuring import simulated
from workbench.core.running.run import recorded
from workbench.mpi.clusters import load as load_cluster
from workbench.mpi.running.replay import replay_arrivals

E = wb.Experiment(scheme="UMW", workers=2, rounds=2, problem="unit")
NO_PATHS: tuple[Any, ...] = (5, None, ["x"], 1.5, b"x", {"a": 1}, "a\0b", "x" * 300)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"events": "no"}, "events = 'no': is neither true nor false; write one of the two"),
        ({"events": 1}, "events = 1: is neither true nor false"),
        ({"numeric": "yes"}, "numeric = 'yes': is neither true nor false"),
        ({"engine": 5}, "engine = 5: no such name; choose one of sim, mpi"),
        ({"engine": ["sim"]}, "engine = ['sim']: no such name"),
        (
            {"folder": 3},
            "folder = 3: is not an option of engine = 'sim'; leave it out, or take one of numeric, events",
        ),
        (
            {"engine": "mpi", "folder": 3},
            "folder = 3: is not a path; give the name of a file or folder, in quotes",
        ),
        ({"engine": "mpi", "events": "no"}, "events = 'no': is neither true nor false"),
        ({"engine": "mpi", "gradients": None}, "gradients = None: is neither true nor false"),
        ({"engine": "mpi", "checkpoint_every": "a"}, "checkpoint_every = 'a': is not a number"),
        ({"engine": "mpi", "checkpoint_every": -1}, "checkpoint_every = -1: take 0 s or more"),
        ({"engine": "mpi", "patience": float("nan")}, "patience = nan: take more than 0 s"),
        ({"engine": "mpi", "patience": "a"}, "patience = 'a': is not a number"),
        ({"engine": "mpi", "cluster": 5}, "cluster = 5: no such name; choose one of local"),
        ({"engine": "mpi", "cluster": None}, "cluster = None: no such name"),
        ({"engine": "mpi", "emulate": 5}, "emulate = 5: take 'all', 'delays' or 'nothing'"),
        (
            {"engine": "mpi", "nonsense": 5},
            "nonsense = 5: is not an option of engine = 'mpi'; leave it out, or take one of",
        ),
    ],
)
def test_start_refuses_wrong_options(
    options: dict[str, Any], says: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    for begin in (wb.run, wb.start):
        with pytest.raises(wb.SettingError) as caught:
            begin(E, **options)
        assert str(caught.value).startswith(says)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("given", [5, None, "CR", {"scheme": "CR"}, [5], [E, "CR"]])
def test_run_refuses_what_is_not_an_experiment(given: Any) -> None:
    for begin in (wb.run, wb.start, wb.compare, wb.start_all):
        with pytest.raises(wb.SettingError, match=r"^experiment = .*: give a wb\.Experiment"):
            begin(given)
    assert wb.start_all(E)[0].result().same(wb.compare(E)[0])  # one alone is a list of one


CALLS: dict[str, Callable[[Any], Any]] = {
    "save": lambda path: wb.run(E).save(path),
    "load": wb.Trace.load,
    "runs": wb.runs,
    "attach": wb.attach,
    "resume": wb.resume,
    "replay_arrivals": replay_arrivals,
    "read": wb.Experiment.read,
    "write": E.write,
    "profile": wb.ClusterProfile.load,
    "sweep": wb.batch.Sweep.read,
    "figure": lambda path: wb.figures.save(wb.figures.convergence([wb.run(E)]), path),
    "export": lambda path: wb.runs(".").export(path),
}


@pytest.mark.parametrize("name", CALLS)
def test_functions_refuse_what_is_not_a_path(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for path in NO_PATHS:
        with pytest.raises(
            wb.SettingError, match=r"^(folder|path) = .*(is not a path; give the|take at most 255)"
        ):
            CALLS[name](path)
    assert list(tmp_path.iterdir()) == []


@given(st.none() | st.booleans() | st.integers() | st.floats() | st.lists(st.integers()))
def test_functions_refuse_paths_of_any_wrong_kind(value: Any) -> None:
    for name in ("load", "runs", "attach", "read", "write"):
        with pytest.raises(wb.SettingError, match="is not a path"):
            CALLS[name](value)
    with pytest.raises(wb.SettingError, match=r"^cluster = "):
        load_cluster(value)


def test_functions_refuse_unwritable_places(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    trace = wb.run(E)
    for call in (trace.save, lambda path: E.write(path.with_suffix(".yaml"))):
        for place in (tmp_path / "file" / "x", Path("/proc/nosuch/x")):
            with pytest.raises(
                wb.SettingError, match=r"^(folder|path) = .*: cannot be written \(.*choose another"
            ):
                call(place)


@pytest.mark.parametrize("target", ["a", None, [0.1]])
def test_functions_refuse_what_is_not_a_target(target: Any, tmp_path: Path) -> None:
    trace = wb.run(E)
    with pytest.raises(wb.SettingError, match=r"^target = .*: is not a number"):
        trace.time_to(target)
    trace.save(tmp_path / "run")
    if target is not None:
        with pytest.raises(wb.SettingError, match=r"^target = .*: is not a number"):
            wb.runs(tmp_path, target=target)


def deep(levels: int, list_: bool) -> Any:
    found: Any = 1
    for _ in range(levels):
        found = [found] if list_ else {"a": found}
    return found


@pytest.mark.parametrize("levels", [900, 5000])
@pytest.mark.parametrize("list_", [True, False])
def test_experiment_and_sweep_refuse_recursive_values(levels: int, list_: bool) -> None:
    value = deep(levels, list_)
    for make in (
        lambda: wb.Experiment(problem_args={"x": value}),
        lambda: wb.Experiment(scheme="GC", scheme_args={"matrix": value}),
        lambda: wb.Experiment(delays=value),
        lambda: wb.Experiment(faults=value),
        lambda: wb.Experiment.model_validate({"link": value}),
        lambda: wb.batch.Sweep(base={"link": value}).items(),
        lambda: wb.batch.Sweep(grid={"rounds": [value]}).items(),
        lambda: wb.batch.Sweep(seeds=value).items(),
    ):
        with pytest.raises(wb.SettingError) as caught:
            make()
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: wb.Experiment(5), "Experiment(5): has no field's name; write Experiment(name=value)"),
        (lambda: wb.batch.Sweep({}), "Sweep({}): has no field's name"),
        (lambda: E.replace(5), "replace(5): has no field's name; write replace(name=value)"),
        (lambda: wb.run(E).same(5), "other = 5: give a wb.Trace"),
        (lambda: wb.quickstart.keep(5, "kept"), "traces = 5: is not a list of traces; give what wb.run"),
        (lambda: wb.quickstart.keep([5], "kept"), "traces[0] = int: is not a Trace"),
        (lambda: wb.quickstart.summary(5), "traces = 5: is not a list of traces"),
        (lambda: wb.quickstart.summary([]), "traces = []: is empty"),
        (lambda: wb.quickstart.story(5), "traces = 5: is not a list of traces"),
        (lambda: wb.quickstart.story([5]), "traces[0] = int: is not a Trace"),
        (lambda: wb.tune(5), "experiment = 5: give a wb.Experiment"),
        (lambda: wb.tune(E, progress="x"), "progress = 'x': is neither true nor false"),
        (lambda: wb.tune(E, budget="x"), "budget = 'x': is not a number"),
        (lambda: wb.tune(E, budget=3), "budget = 3: the grid of UMW with gd has 6 optimisers"),
        (lambda: wb.tune(E, schedules=5), "schedules = 5: is not a schedule; give a kind, such as 'cosine'"),
        (
            lambda: wb.tune(E, schedules="cosin"),
            "schedules.kind = 'cosin': choose one of 'constant', 'cosine'",
        ),
        (lambda: wb.tune(E, schedules=["steps"]), "schedules.milestones: are empty, and so is every"),
        (lambda: wb.explore([E, 5]), "experiment = 5: give a wb.Experiment"),
        (lambda: wb.watch([5]), "runs = [5]: give what wb.start returns"),
        (lambda: wb.figures.convergence(5), "traces = 5: is not a list of traces"),
        (lambda: wb.figures.convergence([wb.run(E)], target="a"), "target = 'a': is not a number"),
        (lambda: wb.figures.convergence([wb.run(E)], theme=["dark"]), "theme = ['dark']: no such name"),
        (lambda: wb.figures.convergence([wb.run(E)], metric=["loss"]), "metric = ['loss']: no such name"),
        (
            lambda: wb.figures.speedups([wb.run(E)], metric=["loss"], target=1.0),
            "metric = ['loss']: no such name",
        ),
        (lambda: wb.figures.convergence([wb.run(E)], x=["time"]), "x = ['time']: no such name"),
        (lambda: wb.figures.round_times(5), "runs = 5: is not a list"),
        (
            lambda: wb.figures.save(5, "a.html"),
            "figure = 5: is none; give what a function of wb.figures returns",
        ),
        (lambda: wb.problems.get(["x"]), "problem = ['x']: no such name"),
        (lambda: wb.schemes.get(["x"]), "scheme = ['x']: no such name"),
        (lambda: wb.batch.sweep({}, jobs="a"), "jobs = 'a': is not a number"),
        (lambda: wb.batch.sweep({}, jobs=1.5), "jobs = 1.5: is not a whole number"),
        (lambda: wb.batch.sweep({}, timeout="a"), "timeout = 'a': is not a number"),
        (lambda: wb.batch.sweep({}, fresh="no"), "fresh = 'no': is neither true nor false"),
        (lambda: wb.batch.sweep({}, only=5), "only = 5: give names of runs, in quotes"),
        (lambda: wb.batch.sweep({}, only=[5]), "only = [5]: give names of runs"),
        (lambda: wb.batch.sweep({}, notebook=5), "notebook = 5: is not a path"),
        (lambda: wb.batch.sweep(5), "sweep = 5: is not a path"),
        (
            lambda: wb.batch.Sweep(base={"seed": True}, seeds=2).items(),
            "base.seed = True: is not a whole number",
        ),
    ],
)
def test_functions_refuse_other_wrong_calls(
    call: Callable[[], Any], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(wb.SettingError) as caught:
        call()
    assert str(caught.value).startswith(says)
    assert list(tmp_path.iterdir()) == []


def test_functions_accept_any_collection_of_runs() -> None:
    traces = {e.scheme: t for e, t in zip([E], wb.compare(iter([E])), strict=True)}
    assert len(wb.figures.convergence(traces.values()).data) >= 1


WRONG: tuple[Any, ...] = (
    None, 5, -1, 1.5, "x", b"x", ["x"], {"a": 1}, object(), False, True, float("nan"), 10**400, 10**5000,
    np.arange(3), np.arange(4.0).reshape(2, 2), np.array(2.5),
)  # fmt: skip
T = wb.run(E)
NEEDED: dict[str, Any] = {
    "trace": T, "traces": [T], "runs": [T], "experiment": E, "source": E, "round": 0, "rank": 1,
    "path": "x.html", "figure": go.Figure(), "target": 0.1, "name": "CR",
}  # fmt: skip


@pytest.mark.parametrize("name", [*wb.figures.names(), "moments", "save", "scheme_style", "speedups"])
def test_figures_refuse_wrong_arguments(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For each wrong argument: a figure, or one sentence that begins with the name of an argument."""
    monkeypatch.chdir(tmp_path)
    figure = getattr(wb.figures, name)
    fields = signature(figure).parameters
    needed = {field: NEEDED.get(field) for field, about in fields.items() if about.default is Parameter.empty}
    text: list[str] = []
    for field in fields:
        for value in WRONG:
            try:
                figure(**{**needed, field: value})
            except wb.SettingError as error:
                text.append(str(error))
    assert text
    assert not any("\n" in sentence for sentence in text)
    # Functions that several figures share name their own arguments.
    known = {*fields, "plan", "traces", "worker"}
    for sentence in text:
        assert sentence.split()[0].partition("[")[0].rstrip(":") in known


@pytest.mark.parametrize("draw", [wb.figures.moments, wb.figures.gantt, wb.figures.weights])
def test_figures_refuse_rounds_that_are_not_whole_numbers(draw: Callable[..., Any]) -> None:
    for wrong in (False, True, np.False_, 0.0, "0", None, [0], np.array([0]), 10**5000):
        with pytest.raises(wb.SettingError, match=r"^round = [^\n]*$"):
            draw(T, wrong)


MEASURED = simulated(E, rounds=10, resamples=0)
SAID: list[tuple[Callable[[Any], Any], Any, str]] = [
    (wb.figures.cluster, 5, "measured = 5: is of the wrong kind; give a ClusterProfile"),
    (
        lambda rank: wb.figures.allocation(E, rank),
        1.5,
        "rank = 1.5: is of the wrong kind; give a whole number",
    ),
    (wb.figures.scheme_style, 5, "name = 5: is of the wrong kind; give text"),
    (wb.batch.job, 5, "names = 5: is of the wrong kind; give names, each with"),
    (recorded, "x", "trace = 'x': is of the wrong kind; give a Trace"),
    (
        lambda args: wb.problems.problem_from(args, E.plan),
        {},
        "args = {}: is of the wrong kind; give a ProblemA",
    ),
    (
        lambda sharing: wb.forecast(E, sharing=sharing),
        5,
        "sharing = 5: is of the wrong kind; give a Sharing, or",
    ),
    (
        lambda args: wb.plan(MEASURED, problem_args=args),
        5,
        "problem_args = 5: is of the wrong kind; give names",
    ),
    (lambda effort: wb.plan(MEASURED, effort=effort), "a", "effort = 'a': is"),
    (lambda much: wb.plan(MEASURED, tolerance=much), "a", "tolerance = 'a': is"),
    (lambda target: wb.plan(MEASURED, target=target), "a", "target = 'a': is"),
    (lambda schemes: wb.plan(MEASURED, schemes=schemes), 5, "schemes = 5: is"),
]


@pytest.mark.parametrize(("call", "value", "says"), SAID)
def test_functions_refuse_wrong_arguments(call: Callable[[Any], Any], value: Any, says: str) -> None:
    with pytest.raises(wb.SettingError) as caught:
        call(value)
    assert str(caught.value).startswith(says)
