"""Diagnosis: a slow worker, link or host is named. Nothing is named if all are alike."""

from __future__ import annotations

from array import array
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import workbench as wb
from tests.support.injected_faults import Injected
from tests.support.synthetic_recordings import healthy, public, recording
from tests.support.synthetic_times import remembering, slowed
from workbench.analysis.recordings import Recording, diagnosis
from workbench.analysis.recordings.sources.runs import processor_of
from workbench.core.base.settings import SettingError
from workbench.core.base.types import Array
from workbench.core.problems.unit import UnitArgs
from workbench.core.trace.records import write_end
from workbench.mpi.engine.ledger import Ledger


def named(times: Array, seed: int = 0) -> list[str]:
    return [one.who for one in wb.diagnose(recording(times), seed=seed).culprits]


@pytest.mark.parametrize("count", [20, pytest.param(100, marks=pytest.mark.slow)])
def test_diagnose_names_a_slower_worker_and_nobody_in_healthy_runs(count: int) -> None:
    right, false_alarms = 0, 0
    for seed in range(count):
        rng = np.random.default_rng(seed)
        times = healthy(60, 8, rng)
        false_alarms += bool(named(times))
        times[:, seed % 8] *= 1.2
        right += named(times)[:1] == [f"worker {seed % 8}"]
    assert right >= 0.95 * count
    assert false_alarms <= 0.05 * count


@pytest.mark.parametrize("count", [20, pytest.param(60, marks=pytest.mark.slow)])
def test_diagnose_names_nobody_for_bursts_of_all_workers(count: int) -> None:
    false_alarms = 0
    for seed in range(count):
        e = wb.Experiment(
            scheme="UMW",
            workers=10,
            rounds=80,
            seed=seed,
            delays={"kind": "markov", "p_slow": 0.05, "p_recover": 0.3},
        )
        false_alarms += bool(wb.diagnose(wb.run(e)).culprits)
    assert false_alarms <= 0.05 * count


def test_diagnose_shares_the_cost_of_two_slow_workers() -> None:
    times = np.ones((50, 6)) + 0.01 * np.random.default_rng(0).random((50, 6))
    times[:, 1] *= 2.0
    times[:, 4] *= 2.0
    found = wb.diagnose(recording(times))
    assert sorted(one.who for one in found.culprits) == ["worker 1", "worker 4"]
    assert all(0.2 < one.cost < 0.3 and one.chronic for one in found.culprits)
    assert np.isclose(found.slowdown, 2.0, rtol=0.02)
    assert np.isclose(sum(found.costs.values()), 1 - 1 / found.slowdown, rtol=1e-6)


def test_diagnose_reports_onset_and_recurrence() -> None:
    rng = np.random.default_rng(1)
    times = 1 + 0.05 * rng.random((200, 6))
    times[90:, 2] *= 1.6
    (one,) = wb.diagnose(recording(times)).culprits
    assert one.since is not None
    assert abs(one.since.step - 90) <= 2
    seldom = 1 + 0.05 * rng.random((200, 6))
    seldom[rng.random(200) < 0.2, 3] *= 5.0
    (other,) = wb.diagnose(recording(seldom)).culprits
    assert not other.chronic
    assert "now and then" in str(wb.diagnose(recording(seldom)))


@pytest.mark.parametrize(
    ("parts", "since", "text"),
    [
        ([(0.9, 1.0)], 90, "in most steps, since step 90"),
        ([(0.6, 1.0)], 60, "in most steps, since step 60"),
        ([(0.0, 0.4)], None, "in most steps, until step 39"),
        ([(0.3, 0.6)], 30, "in most steps, in steps 30 to 59"),
        ([(0.2, 0.4), (0.7, 1.0)], 20, "in most steps, in steps 20 to 39 and from 70 on"),
        ([(0.0, 1.0)], None, "in most steps\n"),
    ],
)
def test_diagnose_reports_the_steps_of_a_spell(
    parts: list[tuple[float, float]], since: int | None, text: str
) -> None:
    times = slowed(np.exp(0.05 * np.random.default_rng(2).normal(size=(100, 12))), 4, *parts)
    found = wb.diagnose(recording(times))
    (one,) = found.culprits
    assert (one.who, one.since and one.since.step) == ("worker 4", since)
    assert text in f"{found}\n"


@pytest.mark.parametrize(("hosts", "each"), [(2, 4), (3, 3), (4, 2)])
@pytest.mark.parametrize("part", [(0.8, 1.0), (0.6, 1.0), (0.3, 0.6), (0.0, 0.4)])
def test_diagnose_names_a_host_that_is_slow_in_a_part_of_the_steps(
    part: tuple[float, float], hosts: int, each: int
) -> None:
    times = np.exp(0.2 * np.random.default_rng([hosts, each]).normal(size=(100, hosts * each)))
    for worker in range(each):
        times = slowed(times, each + worker, part, factor=3.0)
    made = recording(times)
    frame = made.frame.assign(host=[f"h{int(worker) // each}" for worker in made.frame["worker"]])
    assert [one.who for one in wb.diagnose(Recording.of_rows(frame, "hosts")).culprits] == ["host h1"]


def test_diagnose_of_a_run_reports_the_same_onset_as_its_recording() -> None:
    delay_model = {"kind": "changing", "before": {"kind": "shifted_exponential"}, "at": 60, "worker": 5}
    after = {"kind": "shifted_exponential", "shift": 2e-4, "rate": 5e3}
    trace = wb.run(wb.Experiment(scheme="UMW", workers=8, rounds=100, delays={**delay_model, "after": after}))
    for what in (trace, wb.traces.load(trace)):
        (one,) = wb.diagnose(what).culprits
        assert one.who == "worker 5"
        assert one.since is not None
        assert abs(one.since.step - 60) <= 3


@pytest.mark.parametrize("count", [20, pytest.param(60, marks=pytest.mark.slow)])
def test_diagnose_bands_hold_the_cost_of_fresh_recordings(count: int) -> None:
    held = 0
    for seed in range(count):
        rng = np.random.default_rng(seed)
        one, other = (1 + 0.3 * rng.random((100, 8)) for _ in range(2))
        one[:, 0] *= 1.5
        other[:, 0] *= 1.5
        (found,) = wb.diagnose(recording(one)).culprits
        fresh = wb.diagnose(recording(other)).costs["worker 0"]
        held += found.low <= fresh <= found.high
    # both costs vary, so about three quarters of 90 % intervals contain the new one
    assert held >= 0.6 * count


@pytest.mark.parametrize(
    ("name", "slowdown", "who"), [("AR", 1.9730, "worker 0 (stage 0)"), ("ST", 1.179, "stage 3")]
)
def test_diagnose_public_jobs_as_published(name: str, slowdown: float, who: str) -> None:
    """The figures are those of ByteDance's result files. No parameter of the diagnosis was fitted to them."""
    path = public(f"bytedance_{name}.parquet")
    found, loaded = wb.diagnose(path), wb.traces.load(path)
    assert str(wb.diagnose(loaded)) == str(found)
    edited = replace(loaded, frame=loaded.frame[loaded.frame["step"] > loaded.frame["step"].min()])
    assert "average of their kind" not in str(wb.diagnose(edited))
    assert np.isclose(found.slowdown, slowdown, rtol=0.03)
    assert [one.who for one in found.culprits] == [who]


def test_diagnose_refuses_incomparable_times() -> None:
    with pytest.raises(SettingError, match="has one worker, which cannot be compared with others"):
        wb.diagnose(recording(np.ones((5, 1))))
    with pytest.raises(SettingError, match="has times of 0 s"):
        wb.diagnose(recording(np.zeros((5, 2))))


# ---------------------------------------------------------------- links, hosts, ports, in runs and recordings of them


def played(places: list[str] | None = None, scheme: str = "UMW", **delay_model: Any) -> wb.Trace:
    """Run on the virtual clock with an injected fault. `places`: hosts of the ranks."""
    e = wb.Experiment(
        scheme=scheme, workers=6, rounds=40, delays=Injected(**delay_model), problem_args={"samples": 60}
    )
    trace = wb.run(e)
    return replace(trace, info={**trace.info, **({"places": places} if places else {})})


def test_diagnose_names_a_slow_link() -> None:
    trace = played(message=0.01, message_factor=1.5, victims=[2])
    (one,) = wb.diagnose(trace).culprits
    assert (one.who, one.what) == ("the link of worker 3", "link")
    (same,) = wb.diagnose(wb.traces.load(trace)).culprits
    assert (same.who, same.what) == ("worker 3", "link")
    # a recording has no links, so fixing a worker fixes all of its delay
    assert one.cost < same.cost < 2 * one.cost
    assert not wb.diagnose(played(message=0.01)).culprits


@pytest.mark.parametrize("recorded", [False, True])
@pytest.mark.parametrize(("victims", "named"), [([2, 3], "host b"), ([3], "worker 4")])
def test_diagnose_names_a_host_only_where_all_its_workers_are_late(
    victims: list[int], named: str, recorded: bool
) -> None:
    trace = played(["head", "a", "a", "b", "b", "c", "c"], victims=victims, task_factor=1.2)
    found = wb.diagnose(wb.traces.load(trace) if recorded else trace)
    assert [one.who for one in found.culprits] == [named]
    assert "by computing" in str(found)


def test_diagnose_names_a_slow_worker_in_an_all_reduce() -> None:
    trace = played(scheme="RAR", victims=[1], task_factor=1.2)
    whole = wb.traces.load(trace).frame.groupby(["worker", "step"])["seconds"].sum().unstack("worker")
    assert (whole.std(axis=1) < 1e-9 * whole.mean(axis=1)).all()
    assert [one.who for one in wb.diagnose(trace).culprits] == ["worker 2"]


def test_diagnose_a_recorded_run_names_port_and_decoding() -> None:
    link = {"bandwidth": 2e4}
    e = wb.Experiment(
        scheme="GC", workers=6, rounds=30, link=link, decode_rate=1e4, scheme_args={"stragglers": 0}
    )
    trace = wb.run(e.replace(delays={"kind": "shifted_exponential", "shift": 1e-5, "rate": 1e6}))
    of_run, of_rows = (wb.diagnose(each) for each in (trace, wb.traces.load(trace)))
    assert (
        {one.who for one in of_run.culprits}
        == {one.who for one in of_rows.culprits}
        == {"the port", "decoding"}
    )
    assert of_rows.slowdown == pytest.approx(of_run.slowdown, rel=0.02)
    for who in ("the port", "decoding"):
        assert of_rows.costs[who] == pytest.approx(of_run.costs[who], abs=0.02)


# ----------------------------------------------------------------------- processor time: waiting and slower cores


def computed(seed: int, slow: int = -1, busy: int = -1) -> wb.traces.Recording:
    """Make a recording of two hosts with two workers each, whose cores vary by a tenth.

    `slow`: host with a slower core. `busy`: host on which another process uses the cores. -1: none.
    """
    rng = np.random.default_rng([seed, 43])
    host = np.array([0, 0, 1, 1])
    work = np.exp(0.1 * remembering(30, 2, 3.0, rng)[:, host] + 0.01 * rng.normal(size=(30, 4)))
    waits = 2 * np.exp(0.05 * remembering(30, 4, 1.0, rng))
    work, waits = work * np.where(host == slow, 1.5, 1.0), waits * np.where(host == busy, 1.5, 1.0)
    step, worker = np.indices(work.shape).reshape(2, -1)
    rows = {"worker": worker, "step": step, "host": np.array(["left", "right"])[host[worker]]}
    times = {"seconds": (work * waits).ravel(), "processor_seconds": work.ravel()}
    return wb.traces.Recording.of_rows(pd.DataFrame(rows | times), "two cores")


@pytest.mark.parametrize("count", [10, pytest.param(200, marks=pytest.mark.slow)])
@pytest.mark.parametrize(("slow", "busy"), [(-1, -1), (0, -1), (-1, 1), (0, 1), (1, 1)])
def test_diagnose_distinguishes_a_busy_neighbour_from_a_slow_core(slow: int, busy: int, count: int) -> None:
    wanted = {("host right", "waiting")} if busy >= 0 else set()
    wanted |= {(f"host {('left', 'right')[slow]}", "slower core")} if slow >= 0 else set()
    all_of_them, others, waiting = 0, 0, 0
    for seed in range(count):
        causes = _named(computed(seed, slow, busy))
        named = {who for who, _ in wanted} <= {who for who, _ in causes}
        # In a recording, a cause that affects both workers of a host is named once.
        all_of_them += wanted <= causes if slow != busy else named and bool(causes & wanted or not wanted)
        others += bool({who for who, _ in causes} - {who for who, _ in wanted})
        waiting += any(what == "waiting" for _, what in causes - wanted)
    assert all_of_them >= 0.9 * count
    assert others <= 0.05 * count
    assert waiting <= 0.02 * count


def _named(job: wb.traces.Recording) -> set[tuple[str, str]]:
    return {(one.who, one.what) for one in wb.diagnose(job).culprits}


def test_diagnose_without_processor_times_has_one_computing_cause() -> None:
    job = computed(0, busy=1)
    found = wb.diagnose(replace(job, frame=job.frame.assign(processor_seconds=np.nan)))
    assert {(one.who, one.what) for one in found.culprits} == {("host right", "compute")}


def with_ledgers(folder: Path, spent: Array, name: str = "worked", scheme: str = "UMW") -> wb.Trace:
    """Make a run whose host b takes 1.5 times as long, with ledgers that contain the processor time."""
    trace = played(["head", "a", "a", "b", "b", "c", "c"], scheme, victims=[2, 3], task_factor=1.5)
    books = [Ledger(rank, 40) for rank in range(7)]
    for book in books[1:]:
        book.counts[name] = array("q", bytes(8 * 41))
        for round, seconds in enumerate(spent[:, book.rank - 1]):
            book.add(name, round, int(1e6 * seconds))
        del book.counts["busy" if name == "worked" else "worked"]
    write_end(folder, {}, [book.pack() for book in books])
    return replace(trace, info={**trace.info, "emulate": "nothing"}, folder=folder)


@pytest.mark.parametrize("what", ["waiting", "slower core"])
def test_diagnose_uses_the_ledgers_of_ranks(what: str, tmp_path: Path) -> None:
    took = wb.traces.load(played(victims=[2, 3], task_factor=1.5)).table().to_numpy()
    even = np.where(np.isin(range(6), [2, 3]), took / 1.5, took)
    trace = with_ledgers(tmp_path, 0.5 * (even if what == "waiting" else took))
    found = wb.diagnose(trace)
    (one,), (same,) = found.culprits, wb.diagnose(wb.traces.load(trace)).culprits
    assert (one.who, one.what) == (same.who, same.what) == ("host b", what)
    assert one.more == pytest.approx(same.more) == pytest.approx(0.5, abs=0.04)
    assert one.low <= one.cost <= one.high
    fields = {"waiting": "waiting for a processor that another", "slower core": "its processor needs 5"}
    assert fields[what] in str(found)
    assert found.mitigations
    best = found.mitigations[0]
    assert best.what.endswith({"waiting": "host b busy", "slower core": "for host b"}[what])
    assert best.saving == pytest.approx(one.cost, abs=0.05)
    (bars,) = found.figure().data
    assert bars.y[0] == one.label == f"host b ({what})"


def test_processor_of_ignores_ledgers_without_computing(tmp_path: Path) -> None:
    spent = np.full((40, 6), 0.01)
    assert processor_of(with_ledgers(tmp_path, spent)) == pytest.approx(spent)
    for name, scheme, known in (("busy", "UMW", True), ("busy", "RAR", False), ("worked", "RAR", True)):
        assert (processor_of(with_ledgers(tmp_path, spent, name, scheme)) is not None) == known
    drawn = with_ledgers(tmp_path, spent)
    assert processor_of(replace(drawn, info={**drawn.info, "emulate": "all"})) is None
    assert processor_of(replace(drawn, folder=tmp_path / "gone")) is None
    spent[3, 2] = 0.0  # a round without a ledger, as in a resumed run
    assert processor_of(with_ledgers(tmp_path, spent)) is None


def test_diagnose_keeps_the_most_expensive_causes(monkeypatch: pytest.MonkeyPatch) -> None:
    trace = played(victims=[3], task_factor=1.5, message=0.01, message_factor=8.0)
    assert [one.who for one in wb.diagnose(trace).culprits] == ["the link of worker 4", "worker 4"]
    monkeypatch.setattr(diagnosis, "MAX_CAUSES", 1)
    assert [one.who for one in wb.diagnose(trace).culprits] == ["the link of worker 4"]


class Elsewhere(UnitArgs):  # without a name, so that other tests do not find it
    """Problem of another package."""


class Here(UnitArgs):
    """The same problem, computed on a processor."""

    device: str = "cpu"


@pytest.mark.parametrize(("spec", "known"), [(UnitArgs, True), (Elsewhere, False), (Here, True)])
def test_processor_of_a_user_defined_problem(spec: type[UnitArgs], known: bool, tmp_path: Path) -> None:
    trace = with_ledgers(tmp_path, np.full((40, 6), 0.01))
    vars(trace.experiment)["problem_spec"] = spec()
    assert (processor_of(trace) is not None) == known


@pytest.mark.parametrize(
    ("seed", "says"),
    [
        ("1", "seed = '1': is text; write 1"),
        (1.5, "seed = 1.5: is not a whole"),
        (None, "seed = None"),
        (-1, "seed = -1: take 0"),
    ],
)
def test_diagnose_refuses_an_invalid_seed(seed: Any, says: str) -> None:
    with pytest.raises(SettingError, match=f"^{says}"):
        wb.diagnose(recording(np.ones((4, 3))), seed=seed)
