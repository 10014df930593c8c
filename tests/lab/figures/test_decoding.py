"""Decode weights of a parent, for every scheme, independent of the run that they are computed for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given

import workbench as wb
from tests.support.strategies import CASES, experiments
from workbench.core.base.settings import SettingError
from workbench.core.contract.delays import DelayStream
from workbench.core.contract.protocol import MODEL, PEER_LOST, Commit, Message, Node
from workbench.core.engine.virtual.arithmetic import Coefficients
from workbench.core.engine.virtual.sim import SimSetup, simulate
from workbench.lab.figures.decoding import decode_weights

DECODING = [
    name
    for name in CASES
    # A ring has no parents. The other excluded schemes have no weights per round.
    if not (
        wb.schemes.get(name).numeric
        or wb.schemes.get(name).clock_driven
        or wb.schemes.get(name).self_paced
        or name == "RAR"
    )
]


class Overheard:
    """Wrapper of a scheme that records the master's messages and commits during a run."""

    def __init__(self, scheme: Any) -> None:
        self.scheme = scheme
        self.heard: dict[int, dict[tuple[int, int], Any]] = {}
        self.committed: dict[int, Any] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self.scheme, name)

    def program(self, node: Node) -> Iterator[Any]:
        program = self.scheme.program(node)
        return self._listen(program) if node.rank == 0 else program

    def _listen(self, program: Any) -> Iterator[Any]:
        answer: Any = None
        while True:
            try:
                effect = program.send(answer)
            except StopIteration:
                return
            if isinstance(effect, Commit):
                self.committed[effect.round] = effect.gradient
            answer = yield effect
            if isinstance(answer, Message) and answer.kind not in (MODEL, PEER_LOST):
                self.heard.setdefault(answer.round, {})[answer.src, answer.number] = answer.value


@given(experiments(DECODING))
def test_decode_weights_times_messages_is_the_commit(spec: dict[str, Any]) -> None:
    e = wb.Experiment(**spec)
    if e.plan.versions > 1:
        with pytest.raises(wb.SettingError, match="keeps what came in other rounds"):
            decode_weights(wb.run(e), 0)
        return
    spy, arithmetic = Overheard(e.built_scheme), Coefficients(e.plan)
    world = SimSetup(e.rounds, e.shape()[1], DelayStream(e.delays, e.seed, e.workers), e.link)
    simulate(spy, e.plan, world, arithmetic)  # type: ignore[arg-type]
    trace = wb.run(e)
    for r in range(e.rounds):
        found, heard = decode_weights(trace, r), spy.heard.get(r, {})
        keys = list(zip(found.rank.tolist(), found.number.tolist(), strict=True))
        assert set(keys) <= set(heard)
        values = [np.asarray(heard[key]).reshape(-1) for key in keys]
        combined = found.weight @ np.array(values) if keys else 0.0
        committed = np.broadcast_to(spy.committed[r], arithmetic._ones.shape)
        np.testing.assert_allclose(
            np.reshape(combined, -1) if keys else 0.0, committed.reshape(-1), atol=1e-7
        )


def test_decode_weights_refuse_commits_of_several_models() -> None:
    with pytest.raises(wb.SettingError, match="keeps what came in other rounds"):
        decode_weights(wb.run(wb.Experiment(scheme="ASGD", workers=3, rounds=4)), 1)


def tree(**changes: Any) -> wb.Trace:
    spec = {
        "scheme_args": {"children": 3, "layers": 2, "stragglers": 1},
        "workers": 12,
        "rounds": 4,
        **changes,
    }
    return wb.run(wb.Experiment(**spec))


@pytest.mark.parametrize("parent", [0, 1, 2, 3])
def test_decode_weights_of_a_tree(parent: int) -> None:
    trace = tree(delays={"kind": "pareto", "shape": 1.2})
    code = trace.experiment.plan.notes["children_code"]
    finished = [r for r in range(4) if sends(trace, r, parent) or not parent]
    assert finished
    for r in finished:
        found = decode_weights(trace, r, parent)
        first = trace.experiment.plan.children[parent][0]
        assert len(found.rank) == 2
        np.testing.assert_allclose(found.weight[0] @ code[found.rank - first], 1.0, atol=1e-12)
        assert sorted(found.time) == found.time.tolist()


def sends(trace: wb.Trace, round: int, rank: int) -> bool:
    """Return whether this rank sent its sum in that round."""
    rows = trace.events
    return bool(
        len(
            rows[
                (rows["round"] == round)
                & (rows["rank"] == rank)
                & (rows["kind"] == "send")
                & (rows["to"] == 0)
            ]
        )
    )


def test_decode_weights_refuse_a_cancelled_relay() -> None:
    trace = tree(delays={"kind": "pareto", "shape": 1.2}, rounds=30)
    behind = [
        (r, p)
        for r in range(30)
        for p in (1, 2, 3)
        if len(trace.events.query(f"round == {r} and to == {p} and kind == 'send' and rank > 3")) < 2
    ]
    assert behind
    with pytest.raises(wb.SettingError, match="did not finish"):
        decode_weights(trace, *behind[0])


def test_decode_weights_report_late_workers() -> None:
    trace = tree(link={"latency": 1e-3, "bandwidth": 1e5})
    late = [decode_weights(trace, r).late.tolist() for r in range(4)]
    drops = trace.events.query("kind == 'drop' and to == 0")
    assert late == [sorted(set(drops["rank"][drops["round"] == r])) for r in range(4)]
    assert any(late)


def test_decode_weights_of_fractional_messages() -> None:
    args = {"load": 5, "stragglers": 1, "reduction": 3}
    trace = wb.run(wb.Experiment(scheme="CEGC", scheme_args=args, workers=8, rounds=2))
    assert decode_weights(trace, 1).weight.shape == (3, 7)


@pytest.mark.parametrize(
    ("spec", "round", "parent", "reason"),
    [
        ({"scheme": "CADA"}, 0, 0, "decides by the numbers"),
        ({"scheme": "DropCompute"}, 0, 0, "decides by the clock"),
        ({"scheme": "RAR"}, 0, 0, "nobody sends it"),
        ({"scheme": "UMW"}, 0, 3, "parent = 3"),
        ({"scheme": "UMW"}, 9, 0, "round = 9"),
        ({"scheme": "UMW"}, 0, 99, "parent = 99"),
    ],
)
def test_decode_weights_refuse_what_has_none(
    spec: dict[str, Any], round: int, parent: int, reason: str
) -> None:
    trace = wb.run(wb.Experiment(workers=6, rounds=2, **spec))
    with pytest.raises(wb.SettingError, match=reason):
        decode_weights(trace, round, parent)


def test_decode_weights_until_a_change_of_scheme() -> None:
    args = {"scheme_args": {"stragglers": 3}, "problem_args": {"samples": 240, "features": 20}}
    trace = wb.run(wb.Experiment(scheme="GC", workers=6, rounds=30, adaptive=True, **args))
    first = trace.changes[0].round
    assert decode_weights(trace, first - 1).weight.size
    with pytest.raises(
        SettingError, match=rf"^round = {first}: the scheme changed in round {first}, and weights"
    ):
        decode_weights(trace, first)
