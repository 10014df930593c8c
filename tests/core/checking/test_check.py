"""`wb.check`: it passes correct classes, and names the property that fails with an example."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import workbench as wb
from tests.support.sampled_cases import sampled_cases
from workbench.core.base.settings import SettingError, setting
from workbench.core.base.types import Array
from workbench.core.checking import PropertyFailed
from workbench.core.contract.delays import (
    Constant,
    CounterRNG,
    DelayModel,
    Exponential,
    Heterogeneous,
    Markov,
    Pareto,
    delay_models,
)
from workbench.core.contract.optimisers import GradientDescent
from workbench.core.contract.plan import MASTER, Plan, uncoded_plan
from workbench.core.contract.programs import at_least, parent_program, plain_sum, worker_program
from workbench.core.contract.protocol import CODED, MODEL, Commit, Compute, Node, Program, Recv, Send
from workbench.core.contract.round_times import RoundTimes, SampledTimes, star_round_times
from workbench.core.contract.scheme import Scheme
from workbench.core.problems.linear import LeastSquares
from workbench.core.schemes.uncoded import UMW

EXAMPLES_PER_PROPERTY = 12  # cases per property; the wrong classes below fail in nearly every case


def broken(what: Any) -> set[str]:
    return {row.property for row in wb.check(what, examples=EXAMPLES_PER_PROPERTY).failed}


@pytest.mark.parametrize(
    "name", sampled_cases("schemes' laws", 2, ["UMW", "GC", "SGD", "RAR", "CADA", "LCC"])
)
def test_check_passes_for_the_papers_schemes(name: str) -> None:
    checked = wb.check(name, examples=8)
    assert checked.ok, checked
    assert all(row.verdict != "passes" or row.cases for row in checked.rows)


@pytest.mark.parametrize(
    "name",
    sampled_cases(
        "delays' laws",
        3,
        sorted(
            name
            for name, model in delay_models().items()
            if name != "replay" and model.__module__.startswith("workbench.")
        ),
    ),
)
def test_check_passes_for_delay_models(name: str) -> None:
    checked = wb.check(name, examples=20)
    assert checked.ok, checked
    verdicts = {row.property: row.verdict for row in checked.rows}
    # the mean of "changing" depends on the number of rounds
    expected = "does not apply" if name == "changing" else "passes"
    assert (verdicts["mean"], verdicts["quantiles"]) == (expected, expected)


def test_check_accepts_a_tail_without_variance() -> None:
    rows = {row.property: row.verdict for row in wb.check(Pareto(shape=1.5), examples=10).rows}
    assert (rows["mean"], rows["quantiles"]) == ("does not apply", "passes")


@pytest.mark.parametrize("checked", [Heterogeneous(slow=0.001), Markov(p_slow=1e-3, p_recover=1e-2)])
def test_check_accepts_rare_events(checked: DelayModel) -> None:
    assert wb.check(checked, only=["mean", "quantiles"], examples=20).ok


@pytest.mark.parametrize("name", ["gd", "nesterov", "inverse_time", "amsgrad"])
def test_check_passes_for_optimisers(name: str) -> None:
    assert wb.check(name, examples=10).ok


@pytest.mark.parametrize("name", ["least_squares", "logistic", "softmax", "unit"])
def test_check_passes_for_problems(name: str) -> None:
    assert wb.check(name, examples=20).ok


def twice(round: int, got: Any) -> tuple[Any, float]:
    """Commit the sum of all answers, with the first one counted twice."""
    values = [message.value for message in got.values()]
    return plain_sum([*values, values[0]]), 0.0


def test_check_finds_a_part_counted_twice() -> None:
    class Twice(UMW):
        name = "Twice"

        def program(self, node: Node) -> Program:
            if node.rank == MASTER:
                rule = at_least(len(node.children))
                return parent_program(node, rule, twice)
            return super().program(node)

    checked = wb.check(Twice, examples=EXAMPLES_PER_PROPERTY)
    (row,) = (row for row in checked.failed if row.property == "exact")
    assert row.why == "round 0: part 0 has weight 2 in what is committed, instead of 1"
    assert row.case is not None
    assert row.case["workers"] == 1  # the smallest possible case
    with pytest.raises(PropertyFailed, match="part 0 has weight 2"):  # as the report suggests
        wb.check(Twice, only="exact", case=row.case)
    assert "Twice fails" in str(checked)
    assert "✗" in checked._repr_html_()
    assert "<code>round_times</code>" in checked._repr_html_()


def test_check_finds_late_answers_used_as_new() -> None:
    class Late(Scheme):
        """Scheme whose master takes the first answers of any round."""

        name = "Late"
        title = "takes late answers"
        exact = False
        wait: int = setting(1, "answers", ge=1, le=3)

        def check(self, workers: int) -> None:
            if self.wait > workers:
                raise SettingError(f"scheme_args.wait = {self.wait}: there are {workers} workers")

        def plan(self, workers: int, samples: int) -> Plan:
            return uncoded_plan(workers, samples)

        def round_times(self, draws: SampledTimes, workers: int) -> RoundTimes:
            return star_round_times(draws, self.wait)

        def program(self, node: Node) -> Program:
            return self._master(node) if node.rank == MASTER else worker_program(node, _answer)

        def _master(self, node: Node) -> Program:
            model = node.model
            for r in node.span:
                yield Send(node.children, MODEL, r, model)
                values = []
                for _ in range(self.wait):
                    message = yield Recv({CODED: 0})
                    values.append(message.value)
                total = plain_sum(values)
                model = yield Commit(total, r, 0.0)
            yield Send(node.children, MODEL, node.rounds, None, floats=0)

    assert {"fresh", "residual"} <= broken(Late)


def _answer(node: Node, job: Any) -> Program:
    value = yield Compute(node.work, job.value, job.round)
    yield Send(MASTER, CODED, job.round, value)


def test_check_finds_wrong_round_times_and_loads() -> None:
    class TooFast(UMW):
        name = "TooFast"

        def round_times(self, draws: SampledTimes, workers: int) -> RoundTimes:
            return star_round_times(draws, max(1, workers - 1))

        def loads(self, workers: int, samples: int) -> Any:
            return super().loads(workers, samples) + 1

    assert broken(TooFast) == {"forecast", "plan"}


def test_check_reports_a_users_error_with_its_line() -> None:
    class Bad(UMW):
        name = "Bad"

        def program(self, node: Node) -> Program:
            return {}["nothing"]  # type: ignore[no-any-return]

    (row,) = wb.check(Bad, only="rounds", examples=EXAMPLES_PER_PROPERTY).failed
    assert row.why.startswith(
        "raises RunError: Bad: the program of rank 0 failed in round 0: KeyError: 'nothing' ("
    )
    assert "test_check.py, line" in row.why


def test_check_finds_a_program_that_waits_for_nothing() -> None:
    class Idle(UMW):
        name = "Idle"

        def program(self, node: Node) -> Program:
            yield Recv({CODED: 0})

    (row,) = wb.check(Idle, only="rounds", examples=EXAMPLES_PER_PROPERTY).failed
    assert row.why.startswith("raises Deadlock: ")


class OrderDependent(Constant):
    """Delay model whose draws depend on the order of calls."""

    def draw(self, keyed: CounterRNG, round: int, workers: int, slot: int, before: Array | None) -> Array:
        DRAWN.append(round)
        return np.full((1, workers), float(len(DRAWN)))

    def compute(self, draw: Array, samples: Any) -> Array:
        return np.asarray(samples * draw[0])


DRAWN: list[int] = []


class Backwards(Exponential):
    """Delay model in which fewer samples take longer, and draws depend on earlier ones without being declared so."""

    def draw(self, keyed: CounterRNG, round: int, workers: int, slot: int, before: Array | None) -> Array:
        return super().draw(keyed, round, workers, slot, None) + (0 if before is None else before)

    def compute(self, draw: Array, samples: Any) -> Array:
        return np.asarray(draw[0] / np.maximum(samples, 1))


class WrongMean(Exponential):
    """Delay model whose `expected` is twice its mean. Its quantiles are correct."""

    def expected(self, samples: int) -> float:
        return 2 * self.mean

    def quantile(self, q: float, samples: int) -> float:
        return float(-np.log1p(-q) * self.mean)


class HighMean(Heterogeneous):
    """Delay model whose `expected` is 10 % above its mean."""

    def expected(self, samples: int) -> float:
        return 1.1 * super().expected(samples)


class WrongShare(Markov):
    """Delay model whose declared share of slow rounds is a tenth of the true one."""

    p_slow: float = setting(0.1, "chance", gt=0, le=1)

    @property
    def _share(self) -> float:
        return 0.1 * super()._share


@pytest.mark.parametrize(
    ("checked", "wrong"),
    sampled_cases(
        "wrong laws",
        2,
        [
            (OrderDependent, {"order"}),
            (Backwards, {"growing", "memory"}),
            (WrongMean, {"mean"}),
            (HighMean, {"mean"}),
            (WrongShare, {"quantiles"}),
        ],
    ),
)
def test_check_finds_wrong_delay_models(checked: type[DelayModel], wrong: set[str]) -> None:
    assert wrong <= broken(checked)


def test_check_finds_wrong_optimisers() -> None:
    class Uphill(GradientDescent):
        name = "uphill"

        def update(self, state: Any, model: Array, gradient: Array, problem: Any, t: int) -> Any:
            model -= 0.0  # in place
            new, state = super().update(state, model, -gradient, problem, t)
            return new, {**state, "why": "text"}

    assert broken(Uphill) == {"kept", "descends"}


def test_check_finds_a_wrong_gradient(monkeypatch: pytest.MonkeyPatch) -> None:
    true = LeastSquares.slope
    monkeypatch.setattr(LeastSquares, "slope", lambda self, z, y: 1.01 * true(self, z, y))
    assert "passes" in broken("least_squares") or "differences" in broken("least_squares")


def test_check_refuses_what_it_cannot_check() -> None:
    with pytest.raises(SettingError, match="what = 5: cannot be checked"):
        wb.check(5)  # type: ignore[arg-type]
    with pytest.raises(SettingError, match="did you mean 'UMW'"):
        wb.check("UMV")
    with pytest.raises(SettingError, match=r"only = 'exacte'.*did you mean 'exact'"):
        wb.check("UMW", only="exacte")
    with pytest.raises(SettingError, match="is for one property"):
        wb.check("UMW", case={})


@pytest.mark.mpi
@pytest.mark.xdist_group("mpi")
def test_check_on_real_processes() -> None:
    assert wb.check("CR", only="mpi", mpi=True).ok
