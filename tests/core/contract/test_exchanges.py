"""Rules of exchanges against simulated rounds: they end with the same answers, and commit with the same residual."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import workbench as wb
from tests.support.strategies import CASES
from workbench.core import schemes
from workbench.core.base.settings import SettingError
from workbench.core.contract.exchanges import GradientSum, ModelAverage

GRADIENTS = ["UMW", "SGD", "Backup", "GC", "FRC", "CRC", "IS-GC", "ErasureHead", "SGC", "BGC", "GGC"]
CLOCKED = ("deadline", "tolerance", "shuffle")  # parameters that exchanges cannot use
ALL = (0, 0)


@pytest.mark.parametrize("name", GRADIENTS)
@settings(max_examples=15)
@given(data=st.data())
def test_rule_ends_and_weighs_as_the_simulated_program_does(name: str, data: st.DataObject) -> None:
    drawn, workers = data.draw(CASES[name])
    args = {field: value for field, value in drawn.items() if field not in CLOCKED}
    scheme = schemes.get(name)(**args)
    rule = scheme.exchange_rule(workers)
    assert isinstance(rule, GradientSum)
    np.testing.assert_array_equal(rule.matrix, scheme.plan(workers, 10 * workers).matrix()[1:])
    run = wb.run(_experiment(name, args, workers, data.draw(st.integers(0, 99))))
    for number, residual in enumerate(run.rounds["residual"]):
        answered = _answered(run, number)
        everybody = range(workers)
        assert rule.ready(ALL, answered, everybody)
        assert not rule.ready(ALL, answered[:-1], everybody)
        assert rule.weights(tuple(sorted(answered)), number)[1] == pytest.approx(residual, abs=1e-9)


def _experiment(name: str, args: dict[str, object], workers: int, seed: int) -> wb.Experiment:
    return wb.Experiment(
        scheme=name,
        scheme_args=args,
        workers=workers,
        rounds=3,
        seed=seed,
        problem="least_squares",
        problem_args={"samples": 10 * workers, "features": 2},
        delays={"kind": "exponential", "mean": 0.01},
    )


def _answered(run: wb.Trace, number: int) -> list[int]:
    """Return the workers that answered before the commit of a round, counted from 0, in order of arrival."""
    events = run.events[run.events["round"] == number]
    commit = float(events.loc[events["kind"] == "commit", "end"].iloc[0])
    sent = events[(events["kind"] == "send") & (events["to"] == 0) & (events["end"] <= commit)]
    return [rank - 1 for rank in sent.sort_values("end", kind="stable")["rank"]]


def test_groups_need_one_answer_each_or_the_number() -> None:
    rule = GradientSum(np.eye(4), 3, lambda ranks, _: (np.ones(len(ranks)), 0.0), group_size=2)
    assert rule.ready(ALL, {0, 2}, range(4))
    assert not rule.ready(ALL, {0, 1}, range(4))
    assert rule.ready(ALL, {0, 1}, {0, 1})  # the other group is dead
    assert not GradientSum(np.eye(4), 3, rule.weigh, strict=True, group_size=2).ready(ALL, {0, 1}, {0, 1})


class Uncounted(tuple[int, ...]):
    def __iter__(self) -> Iterator[int]:
        raise AssertionError("the groups of enough answers are counted")


def test_groups_of_enough_answers_are_not_counted() -> None:
    rule = GradientSum(np.eye(4), 3, lambda ranks, _: (np.ones(len(ranks)), 0.0), group_size=2)
    assert rule.ready(ALL, Uncounted((0, 1, 2)), range(4))
    assert not rule.ready(ALL, (), range(4))
    assert not rule.ready(ALL, (), ())


def test_models_of_stragglers_are_left_out_of_the_average_of_all() -> None:
    rule = ModelAverage(matrix=np.eye(4), period=4, levels={2: 0, 4: 1}, sizes=(2, 4), stragglers=1)
    assert not rule.ready((0, 1), {2}, range(4))
    assert rule.ready((1, 0), {0, 1, 2}, range(4))
    assert rule.weights((0, 1, 2), 4)[0].tolist() == [1 / 3] * 3


def test_scheme_without_a_rule_says_so() -> None:
    with pytest.raises(SettingError, match="scheme = 'CR': has no exchange_rule"):
        schemes.get("CR")().exchange_rule(12)
