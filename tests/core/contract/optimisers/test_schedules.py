"""Schedules of an optimiser's step: their properties, user-defined ones, and refusals."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import workbench as wb
from workbench.core.contract.optimisers import SGD, CosineSchedule, GradientDescent, Optimiser, Schedule

SMALL: dict[str, Any] = {
    "scheme": "GC",
    "scheme_args": {"stragglers": 1},
    "workers": 3,
    "rounds": 12,
    "problem": "least_squares",
    "problem_args": {"samples": 30, "features": 4},
}
FIELDS: dict[str, st.SearchStrategy[dict[str, Any]]] = {
    "constant": st.just({}),
    "inverse_time": st.fixed_dictionaries({"offset": st.floats(0.1, 1e4)}),
    "steps": st.one_of(
        st.fixed_dictionaries({"decay": st.floats(0.01, 1), "every": st.integers(1, 50)}),
        st.fixed_dictionaries(
            {"decay": st.floats(0.01, 1), "milestones": st.lists(st.integers(0, 99), min_size=1).map(tuple)}
        ),
    ),
    "exponential": st.fixed_dictionaries({"decay": st.floats(0.01, 1)}),
    "cosine": st.fixed_dictionaries({"length": st.integers(1, 200), "end": st.floats(0, 1)}),
}
SCHEDULES = st.sampled_from(sorted(FIELDS)).flatmap(
    lambda kind: st.builds(
        lambda fields, warmup, start: {
            "kind": kind,
            **fields,
            "warmup": warmup,
            **({"warmup_start": start} if start else {}),
        },
        FIELDS[kind],
        st.integers(0, 40),
        st.none() | st.floats(0.01, 1),
    )
)
FILE = """
from workbench import Schedule
from workbench.core.base.settings import setting


class Sawtooth(Schedule):
    kind = "sawtooth"
    period: int = setting(4, "rounds of one tooth", ge=1)

    def share_at(self, t):
        return 1 - (t % self.period) / self.period
"""


def built(fields: dict[str, Any]) -> Schedule:
    found: Schedule = Schedule.from_fields(fields)
    return found


def test_every_kind_of_schedule_is_drawn() -> None:
    ours = {kind for kind, cls in Schedule.catalogue.items() if cls.__module__.startswith("workbench.")}
    assert set(FIELDS) == ours


@given(SCHEDULES)
def test_schedule_grows_during_warmup_and_never_after(fields: dict[str, Any]) -> None:
    schedule = built(fields)
    factors = [schedule.factor_at(t) for t in range(200)]
    warm, rest = factors[: schedule.warmup], factors[schedule.warmup :]
    assert all(0 <= factor <= 1 for factor in factors)
    assert all(a <= b + 1e-12 for a, b in pairwise(warm))
    assert all(a >= b - 1e-12 for a, b in pairwise(rest))
    if warm:
        assert warm[0] == pytest.approx(fields.get("warmup_start", 1 / (schedule.warmup + 1)))


@given(SCHEDULES)
def test_schedule_counts_its_rounds_from_the_end_of_the_warmup(fields: dict[str, Any]) -> None:
    late, soon = built(fields), built({**fields, "warmup": 0})
    assert [late.factor_at(late.warmup + t) for t in range(60)] == [soon.factor_at(t) for t in range(60)]


@given(SCHEDULES, st.sampled_from(list(Optimiser.catalogue)))
def test_experiment_with_a_schedule_is_the_same_after_json(fields: dict[str, Any], name: str) -> None:
    e = wb.Experiment(optimiser=name, optimiser_args={"schedule": fields})
    again = wb.Experiment(**json.loads(e.model_dump_json()))
    assert again == e
    assert again.build_optimiser() == e.build_optimiser()
    assert e.replace(optimiser_args={"schedule": built(fields)}).build_optimiser() == e.build_optimiser()


@given(st.integers(1, 500), st.integers(0, 600))
def test_cosine_without_a_length_ends_with_the_run(rounds: int, warmup: int) -> None:
    args = {"schedule": {"kind": "cosine", "warmup": warmup}}
    e = wb.Experiment(optimiser="sgd", optimiser_args=args, rounds=rounds)
    schedule = e.build_optimiser().schedule  # type: ignore[attr-defined]
    assert schedule.length == max(rounds - warmup, 1)
    longer = e.model_copy(update={"rounds": rounds + 7}).build_optimiser().schedule  # type: ignore[attr-defined]
    assert longer.length == max(rounds + 7 - warmup, 1)
    assert "length" not in e.optimiser_args["schedule"]


def test_schedule_counts_commits_also_with_mini_batches() -> None:
    """From round 6 on, the step is almost 0 and the loss stays the same, whatever share of an epoch a batch is."""
    schedule = {"kind": "steps", "milestones": [6], "decay": 1e-300}
    e = wb.Experiment(
        **SMALL, batch=5, optimiser="sgd", optimiser_args={"schedule": schedule}, evaluate_every=1
    )
    losses = wb.run(e).columns["loss"]
    assert len(set(losses[:6])) == 6
    assert len(set(losses[5:])) == 1


def test_user_defined_schedule_is_one_file(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(FILE)
    schedule = {"kind": f"{file}:Sawtooth", "period": 3, "warmup": 2}
    e = wb.Experiment(**SMALL, optimiser="adam", optimiser_args={"rate": 0.1, "schedule": schedule})
    factors = [e.build_optimiser().factor_at(t) for t in range(6)]  # type: ignore[attr-defined]
    np.testing.assert_allclose(factors, [1 / 3, 2 / 3, 1, 2 / 3, 1 / 3, 1])
    folder = tmp_path / "run"
    trace = wb.run(e)
    trace.save(folder)
    assert (folder / "own-Sawtooth.py").read_text() == FILE
    assert wb.Trace.load(folder, trust=True).replay().same(trace)
    file.write_text(FILE.replace("1 - (t", "1 - 0.5 * (t"))
    with pytest.raises(wb.SettingError, match="Sawtooth: its definition is not what the run began with"):
        trace.replay()


def test_user_defined_schedule_in_a_file_needs_trust(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(FILE + "\nopen('was-run', 'w')\n")
    Path("spec.yaml").write_text("optimiser_args:\n  schedule: {kind: 'mine.py:Sawtooth'}\nscheme: UMW\n")
    e = wb.Experiment.read("spec.yaml")
    assert e.optimiser_args == {"schedule": {"kind": "mine.py:Sawtooth"}}
    with pytest.raises(wb.SettingError, match="names code"):
        e.build_optimiser()
    assert not Path("was-run").exists()


@pytest.mark.parametrize("kind", sorted(FIELDS))
def test_check_passes_with_every_schedule(kind: str) -> None:
    schedule = built({"kind": kind, **({"every": 90} if kind == "steps" else {})})
    assert wb.check(schedule, examples=5).ok
    assert wb.check(SGD(momentum=0.9, schedule=schedule), examples=5).ok


def test_check_finds_a_schedule_that_is_not_a_function_of_the_round() -> None:
    class Forgetful(Schedule):
        calls: ClassVar[list[int]] = []

        def share_at(self, t: int) -> float:
            self.calls.append(t)
            return float(len(self.calls))

    class Upwards(Schedule):
        def share_at(self, t: int) -> float:
            return 1.0 - t

    for cls in (Forgetful, Upwards):
        assert {row.property for row in wb.check(cls, examples=5).failed} == {"factors"}


def test_check_finds_an_optimiser_that_ignores_its_schedule() -> None:
    class Steady(GradientDescent):
        def update(self, state: Any, model: Any, gradient: Any, problem: Any, t: int) -> Any:
            return model - self.first_step(problem) * gradient / problem.samples, state

    (row,) = wb.check(Steady, examples=5).failed
    assert row.property == "schedule"
    assert "multiply the step in `update` by `self.factor_at(t)`" in row.why


@pytest.mark.parametrize(
    ("schedule", "says"),
    [
        ({"kind": "cosin"}, "schedule.kind = 'cosin': choose one of 'constant', 'cosine', "),
        ("cosine", "schedule = 'cosine': must be fields and values, such as {kind: constant}"),
        ({"kind": "steps"}, "schedule.milestones: are empty, and so is every; give one of the two"),
        (
            {"kind": "steps", "every": 3, "milestones": [4]},
            "schedule.every = 3: milestones are given as well;",
        ),
        ({"kind": "cosine", "warmup": -1}, "schedule.warmup = -1: take 0 or more"),
        ({"kind": "cosine", "warmup": 2.5}, "schedule.warmup = 2.5: is not a whole number;"),
        (
            {"kind": "cosine", "lenght": 3},
            "schedule.lenght: CosineSchedule has no such field; did you mean 'length'?",
        ),
        ({"kind": "exponential", "decay": 2}, "schedule.decay = 2: take above 0 to 1"),
        ({"kind": "constant", "warmup_start": 0}, "schedule.warmup_start = 0: take above 0 to 1"),
    ],
)
def test_schedule_refuses_in_one_sentence(schedule: Any, says: str) -> None:
    with pytest.raises(wb.SettingError) as error:
        wb.Experiment(optimiser="adam", optimiser_args={"schedule": schedule})
    assert str(error.value).startswith(f"optimiser_args.{says}")
    assert "\n" not in str(error.value)


def test_cosine_alone_asks_for_its_length() -> None:
    with pytest.raises(wb.SettingError, match=r"schedule\.length: is empty"):
        CosineSchedule().share_at(0)
