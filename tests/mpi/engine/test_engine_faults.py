"""Faults on real processes have the same effects as on the simulator."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import workbench as wb
from tests.support.adversary import ADVERSARY
from workbench.core.trace.records import arrivals_of
from workbench.mpi.running.replay import replay_arrivals

pytestmark = [pytest.mark.mpi, pytest.mark.xdist_group("mpi")]


class Ladder(wb.DelayModel):
    """Delay model in which each worker has its own speed, so that the order of answers is always the same."""

    kind = "ladder"
    unit: float = 5e-4  # s per sample

    def draw(self, keyed: Any, round: int, workers: int, slot: int, before: Any) -> np.ndarray:
        return np.arange(1.0, workers + 1)[None]

    def compute(self, draw: np.ndarray, samples: Any) -> np.ndarray:
        return np.asarray(samples * self.unit * (1.0 + 0.5 * draw[0]))


SPEC: dict[str, Any] = {
    "workers": 6,
    "rounds": 8,
    "problem": "least_squares",
    "problem_args": {"samples": 120, "features": 5},
    "optimiser_args": {"step": 0.05},
    "delays": {"kind": "ladder"},
    "link": {"latency": 1e-3},
}
GC = {"scheme": "GC", "scheme_args": {"stragglers": 2}}
CR = {"scheme": "CR", "scheme_args": {"children": 2, "layers": 2, "stragglers": 1}}
UMW: dict[str, Any] = {"scheme": "UMW"}
RING = {"scheme": "RAR", "scheme_args": {"algorithm": "ring"}}
LATE = [
    (UMW, [{"kind": "pause", "worker": 2, "round": 3, "seconds": 0.3}]),
    (GC, [{"kind": "pause", "worker": 2, "round": 2, "seconds": 0.4}]),
    (GC, [{"kind": "slow", "worker": 3, "round": 2, "last": 5, "factor": 9.0}]),
    (
        CR,
        [
            {"kind": "pause", "worker": 1, "round": 3, "seconds": 0.2},
            {"kind": "slow", "worker": 6, "round": 0},
        ],
    ),
    (RING, [{"kind": "slow", "worker": 4, "round": 2, "factor": 3.0}]),
]


def both(scheme: dict[str, Any], faults: list[dict[str, Any]], **options: Any) -> tuple[wb.Trace, wb.Trace]:
    """Return the traces of the simulator and of real processes."""
    e = wb.Experiment(**{**SPEC, **scheme}, faults=faults)
    return wb.run(e, numeric=True), wb.run(e, engine="mpi", **options)


@pytest.mark.parametrize(("scheme", "faults"), LATE)
def test_faults_of_a_late_worker_are_equal_on_both_engines(
    scheme: dict[str, Any], faults: list[dict[str, Any]]
) -> None:
    sim, real = both(scheme, faults)
    np.testing.assert_allclose(real.model, sim.model, rtol=1e-9)
    np.testing.assert_allclose(real.rounds["loss"], sim.rounds["loss"], rtol=1e-9)
    noted = [t.events[t.events["kind"] == "fault"].sort_values(["round", "rank"]) for t in (sim, real)]
    assert noted[0][["round", "rank"]].to_numpy().tolist() == noted[1][["round", "rank"]].to_numpy().tolist()


def test_pause_fault_keeps_the_order_of_answers(tmp_path: Path) -> None:
    apart = {"delays": {"kind": "ladder", "unit": 2e-3}}  # 60 ms between answers, since busy cores delay some
    pause = {"kind": "pause", "worker": 2, "round": 2, "seconds": 1.6}
    e = wb.Experiment(**{**SPEC, **GC, **apart}, faults=[pause])
    wb.run(e, engine="mpi", folder=str(tmp_path / "real"))
    events = wb.run(e).events
    answers = events[(events["kind"] == "send") & (events["to"] == 0)].sort_values("end")
    taken = [(int(round), int(rank)) for round, rank, _ in arrivals_of(tmp_path / "real", 0)]
    for round in range(8):
        order = answers[answers["round"] == round]["rank"].tolist()
        assert [rank for of, rank in taken if of == round] == order[:4]


@pytest.mark.parametrize("scheme", [UMW, GC, CR, RING], ids=["UMW", "GC", "CR", "RAR"])
@pytest.mark.parametrize(
    "rule", [{"kind": "sign_flip"}, {"kind": "noise", "deviation": 3.0}], ids=["flip", "noise"]
)
def test_wrong_answer_fault_is_equal_on_both_engines(scheme: dict[str, Any], rule: dict[str, Any]) -> None:
    apart = {"delays": {"kind": "ladder", "unit": 1.5e-3}}  # answers keep their order on busy cores
    sim, real = both({**scheme, **apart}, [{**rule, "worker": 1, "round": 2, "last": 4}])
    np.testing.assert_allclose(real.model, sim.model, rtol=1e-9)


def test_pause_fault_without_emulated_delays_has_its_length() -> None:
    fault = {"kind": "pause", "worker": 3, "round": 2, "seconds": 0.4}
    sim, real = both(UMW, [fault], emulate="nothing")
    np.testing.assert_allclose(real.model, sim.model, rtol=1e-9)
    rounds = np.diff(real.rounds["time"], prepend=0.0)
    assert rounds[2] >= 0.4


def test_wrong_answer_rule_of_a_file_is_sent_to_the_ranks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(ADVERSARY)
    sim, real = both(GC, [{"kind": "mine.py:Largest", "worker": 2, "round": 1}], folder="kept")
    np.testing.assert_allclose(real.model, sim.model, rtol=1e-9)
    assert Path("kept/own-Largest.py").is_file()


def test_wrong_answer_real_run_is_replayed(tmp_path: Path) -> None:
    e = wb.Experiment(**{**SPEC, **GC}, faults=[{"kind": "noise", "worker": 2, "round": 1}])
    real = wb.run(e, engine="mpi", folder=str(tmp_path / "real"))
    assert replay_arrivals(tmp_path / "real")[-1].tobytes() == real.model.tobytes()
