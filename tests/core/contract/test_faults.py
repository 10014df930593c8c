"""Faults on the simulator: their effects, what they leave unchanged, how they are written, and refusals."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import workbench as wb
from tests.support.adversary import ADVERSARY
from workbench.core.base.older import renamed, spelled_as_before
from workbench.core.contract.faults import Fault, WrongAnswer, fault_from

ROUNDS, WORKERS = 5, 6
SPEC: dict[str, Any] = {
    "workers": WORKERS,
    "rounds": ROUNDS,
    "problem": "least_squares",
    "problem_args": {"samples": 60, "features": 4},
    "optimiser_args": {"step": 0.05},
}
LINEAR = [
    {"scheme": "UMW"},
    {"scheme": "GC", "scheme_args": {"stragglers": 2}},
    {"scheme": "CR", "scheme_args": {"children": 2, "layers": 2, "stragglers": 1}},
    {"scheme": "RAR"},
]
RULES: list[dict[str, Any]] = [
    {"kind": "sign_flip", "factor": 4.0},
    {"kind": "scale", "factor": 3.0},
    {"kind": "zeros"},
    {"kind": "same_value", "value": 7.0},
    {"kind": "noise", "deviation": 2.0, "seed": 3},
]
EACH_SCHEME = pytest.mark.parametrize("scheme", LINEAR, ids=[each["scheme"] for each in LINEAR])


def experiment(**fields: Any) -> wb.Experiment:
    return wb.Experiment(**{**SPEC, "scheme": "UMW", **fields})


@st.composite
def drawn_faults(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Draw faults of different workers. No worker dies, so that every scheme ends."""
    workers = draw(st.lists(st.integers(1, WORKERS), max_size=3, unique=True))
    kinds = [{"kind": "pause", "seconds": 0.2}, {"kind": "slow", "factor": 5.0}, *RULES]
    rounds = st.integers(0, ROUNDS - 1)
    return [{**draw(st.sampled_from(kinds)), "worker": w, "round": draw(rounds)} for w in workers]


@given(drawn_faults(), st.sampled_from(LINEAR), st.integers(0, 99))
def test_faults_round_trip_through_json_and_repeat(
    faults: list[dict[str, Any]], scheme: dict[str, Any], seed: int
) -> None:
    e = experiment(**scheme, faults=faults, seed=seed)
    assert wb.Experiment(**json.loads(e.model_dump_json())) == e
    one, two = wb.run(e), wb.run(e)
    assert len(one.rounds) == ROUNDS
    assert one.model.tobytes() == two.model.tobytes()
    assert one.rounds["time"].tolist() == two.rounds["time"].tolist()


def first_commit(scheme: dict[str, Any], faults: list[Any]) -> np.ndarray:
    """Return the gradient that the first round commits, (p,)."""
    e = experiment(**scheme, rounds=1, faults=faults)
    moved = e.build_problem().start() - wb.run(e, numeric=True).model
    return np.asarray(moved * 60 / 0.05)


@EACH_SCHEME
def test_wrong_answer_changes_the_commit_by_the_rule(scheme: dict[str, Any]) -> None:
    """The commit changes by (wrong - right answer) times the worker's decoding weight.

    The weight is the same under each rule.
    """
    seen: list[np.ndarray] = []

    class Spy(WrongAnswer):
        """Fault that records the right answer, and does not change it."""

        kind = "spy"

        def answer(self, value: np.ndarray, round: int, number: int) -> np.ndarray:
            seen.append(np.array(value))
            return value

    right, weights = first_commit(scheme, []), []
    for rule in RULES:
        fault = fault_from({**rule, "worker": 1, "round": 0})
        assert isinstance(fault, WrongAnswer)
        seen.clear()
        found = first_commit(scheme, [Spy(worker=1, round=0), fault])
        (answer,) = seen
        error = fault.answer(answer, 0, 0) - answer
        weights.append(float((found - right) @ error / (error @ error)))
        np.testing.assert_allclose(found - right, weights[-1] * error, atol=1e-6 * np.abs(error).max())
    np.testing.assert_allclose(weights, weights[0], rtol=1e-6)
    assert weights[0] == pytest.approx(1.0) if scheme["scheme"] in ("UMW", "RAR") else weights[0]


@EACH_SCHEME
def test_wrong_answer_rule_without_effect_gives_equal_bits(scheme: dict[str, Any]) -> None:
    e = experiment(**scheme)
    same = e.replace(faults=[{"kind": "scale", "worker": 2, "round": 0, "factor": 1.0}])
    assert wb.run(same).model.tobytes() == wb.run(e, numeric=True).model.tobytes()


def test_pause_fault_delays_one_round() -> None:
    e = experiment(delays={"kind": "constant", "shift": 1e-2}, link={})
    times = np.diff(wb.run(e).rounds["time"], prepend=0.0)
    paused = wb.run(e.replace(faults=[{"kind": "pause", "worker": 3, "round": 2, "seconds": 4.0}]))
    found = np.diff(paused.rounds["time"], prepend=0.0)
    np.testing.assert_allclose(found - times, [0, 0, 4, 0, 0], atol=1e-9)
    row = paused.events[paused.events["kind"] == "fault"].iloc[0]
    assert (row["round"], row["rank"], row["end"] - row["start"]) == (2, 3, pytest.approx(4.0))


def test_pause_fault_worker_continues_with_the_newest_model() -> None:
    """The worker skips the rounds in which it paused, as a late worker does."""
    e = experiment(
        scheme="GC", scheme_args={"stragglers": 2}, rounds=9, delays={"kind": "constant", "shift": 1e-2}
    )
    paused = wb.run(e.replace(faults=[{"kind": "pause", "worker": 3, "round": 2, "seconds": 1.0}]))
    computed = paused.events[(paused.events["kind"] == "compute") & (paused.events["rank"] == 3)]
    assert {0, 1} <= set(computed["round"])
    assert not {2, 3} & set(computed["round"])
    assert paused.rounds["time"].tolist() == wb.run(e).rounds["time"].tolist()


@given(st.floats(0.1, 50.0), st.integers(0, ROUNDS - 1), st.integers(0, ROUNDS - 1))
def test_slow_down_fault_multiplies_computing_times(factor: float, first: int, last: int) -> None:
    e = experiment(delays={"kind": "pareto", "shift": 1e-2, "shape": 2.0})
    slow = {
        "kind": "slow",
        "worker": 4,
        "round": min(first, last),
        "last": max(first, last),
        "factor": factor,
    }
    found = [wb.run(x).events for x in (e, e.replace(faults=[slow]))]
    seconds = []
    for events in found:
        rows = events[(events["kind"] == "compute") & (events["rank"] == 4)].sort_values("round")
        seconds.append((rows["end"] - rows["start"]).to_numpy())
    inside = (np.arange(ROUNDS) >= slow["round"]) & (np.arange(ROUNDS) <= slow["last"])
    np.testing.assert_allclose(seconds[1], np.where(inside, factor, 1.0) * seconds[0], rtol=1e-9)
    assert (found[1]["kind"] == "fault").sum() == (inside.sum() if factor != 1.0 else 0)


@pytest.mark.parametrize("kind", ["kill", "segfault", "exit"])
def test_kill_fault_is_an_event(kind: str) -> None:
    e = experiment(
        scheme="GC", scheme_args={"stragglers": 2}, faults=[{"kind": kind, "worker": 2, "round": 3}]
    )
    dead = wb.run(e).events.query("kind == 'dead'")
    assert dead[["round", "rank"]].to_numpy().tolist() == [[3, 2]]


def test_faults_of_one_worker_may_be_several() -> None:
    faults = [
        {"kind": "slow", "worker": 2, "round": 0, "factor": 3.0},
        {"kind": "slow", "worker": 2, "round": 1, "factor": 2.0},
        {"kind": "zeros", "worker": 2, "round": 1},
        {"kind": "kill", "worker": 2, "round": 3},
    ]
    e = experiment(scheme="GC", scheme_args={"stragglers": 1}, delays={"kind": "constant", "shift": 1e-2})
    trace = wb.run(e.replace(faults=faults))
    rows = trace.events.query("rank == 2")
    assert rows[rows["kind"] == "dead"]["round"].tolist() == [3]


REFUSED: list[tuple[Any, list[str]]] = [
    (
        [{"kind": "kil", "worker": 1, "round": 1}],
        ["faults.0.kind = 'kil'", "'kill'", "'pause'", "'sign_flip'"],
    ),
    ([{"worker": 9, "round": 1}], ["faults.worker = 9", "1 to 6"]),
    ([{"worker": 0, "round": 1}], ["faults.0.worker = 0", "1 or more"]),
    ([{"worker": 1, "round": 5}], ["faults.round = 5", "0 to 4"]),
    ([{"kind": "pause", "worker": 1, "round": 1, "seconds": -1.0}], ["faults.0.seconds = -1.0", "above 0"]),
    ([{"kind": "slow", "worker": 1, "round": 1, "factor": 0}], ["faults.0.factor = 0", "above 0"]),
    ([{"kind": "slow", "worker": 1, "round": 3, "last": 1}], ["faults.0.last = 1", "3 or more"]),
    (
        [{"kind": "noise", "worker": 1, "round": 0, "deviation": -2.0}],
        ["faults.0.deviation = -2.0", "above 0"],
    ),
    (
        [{"kind": "pause", "worker": 1, "round": 1, "second": 1.0}],
        ["faults.0.second", "no such field", "seconds"],
    ),
    ([{"kind": "kill", "worker": 1}], ["faults.0.round", "missing"]),
    ([{"kind": 3, "worker": 1, "round": 0}], ["faults.0.kind = '3'", "choose one of"]),
    (
        [{"kind": "gone.py:Lazy", "worker": 1, "round": 0}],
        ["faults.0.kind = 'gone.py:Lazy'", "no file 'gone.py'"],
    ),
    ([Fault(worker=1, round=2)], ["faults.0: Fault has no kind", "{kind: kill}"]),
    (["kill"], ["faults.0 = 'kill'", "fields and values"]),
]


@pytest.mark.parametrize(("faults", "argv"), REFUSED)
def test_faults_that_are_invalid_are_refused(faults: Any, argv: list[str]) -> None:
    with pytest.raises(wb.SettingError) as error:
        experiment(faults=faults)
    for word in argv:
        assert word in str(error.value)


@pytest.mark.parametrize("kind", ["kill", "segfault", "exit", "pause", "slow"])
def test_faults_that_change_times_are_refused_by_forecast(kind: str) -> None:
    e = experiment(faults=[{"kind": kind, "worker": 1, "round": 0}])
    with pytest.raises(wb.SettingError, match=rf"faults\.kind = '{kind}': a forecast does not count it"):
        wb.forecast(e)


def test_wrong_answer_faults_are_accepted_by_forecast() -> None:
    e = experiment(problem="unit", problem_args={"samples": 60}, optimiser_args={})
    wrong = e.replace(faults=[{"kind": "zeros", "worker": 1, "round": 0}])
    assert wb.forecast(wrong).mean == wb.forecast(e).mean


def test_wrong_answer_rule_of_a_user_is_one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rule is named in YAML as FILE.py:NAME, and the run folder contains its source."""
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(ADVERSARY)
    fault = {"kind": "mine.py:Largest", "worker": 2, "round": 1, "times": 3.0}
    e = experiment(faults=[fault])
    assert e.faults[0].kind == "largest"
    e.write("e.yaml")
    assert wb.Experiment.read("e.yaml", trust=True) == e
    shown = wb.Experiment.read("e.yaml")
    assert shown.faults[0].kind in ("largest", "mine.py:Largest")
    trace = wb.run(e)
    trace.save("kept")
    assert Path("kept/own-Largest.py").is_file()
    assert wb.Trace.load("kept", trust=True).experiment == e
    assert trace.model.tobytes() != wb.run(experiment()).model.tobytes()


def test_wrong_answer_rule_of_another_shape_is_refused() -> None:
    class Short(WrongAnswer):
        kind = "short"

        def answer(self, value: np.ndarray, round: int, number: int) -> np.ndarray:
            return value[:-1]

    with pytest.raises(
        wb.RunError, match=r"faults\.kind = 'short': `answer` returns an array of shape \(3,\)"
    ):
        wb.run(experiment(faults=[Short(worker=1, round=0)]))


def test_faults_of_version_1_are_read() -> None:
    before = {"faults": [{"worker": 2, "round": 3, "how": "segfault"}]}
    now = {"faults": [{"kind": "segfault", "worker": 2, "round": 3}]}
    assert renamed(before) == now
    assert spelled_as_before(now) == before
    assert experiment(**renamed(before)).model_dump(mode="json")["faults"] == now["faults"]


def test_fault_kinds_have_a_sentence_and_a_default() -> None:
    for kind, cls in Fault.catalogue.items():
        assert (cls.__doc__ or "").strip()
        assert fault_from({"kind": kind, "worker": 1, "round": 0}).kind == kind
