"""The recorder: in a training loop of PyTorch, and without PyTorch."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import workbench as wb
from workbench.analysis.recorder import record as module
from workbench.analysis.recorder.record import rank_of_process
from workbench.analysis.recorder.steps import PHASES, ROW, place_of, places
from workbench.core.base.settings import SettingError
from workbench.core.base.types import Array

PATIENCE_S = 60.0


def steps_in(folder: Path, attempt: int = 0) -> Array:
    """Return the recorded steps of an attempt, in order."""
    found = sorted(place for place in places(folder) if place.attempt == attempt)
    return np.concatenate([np.load(folder / place.name)["steps"] for place in found])


@pytest.fixture
def no_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)


@pytest.mark.usefixtures("no_torch")
def test_record_without_torch_records_what_it_is_told(tmp_path: Path) -> None:
    with wb.record(tmp_path / "steps") as recorder:
        for batch in recorder.batches(range(4)):
            with recorder.phase("exchange"):
                time.sleep(0.002)
            recorder.step(tokens=10 + batch)
    steps = steps_in(tmp_path / "steps")
    assert steps["step"].tolist() == [0, 1, 2, 3]
    assert steps["tokens"].tolist() == [10, 11, 12, 13]
    assert np.isnan(steps["samples"]).all()
    assert (steps["exchange"] >= 0.002).all()
    assert not steps["backward"].any()
    assert (tmp_path / "steps").stat().st_mode & 0o77 == 0


@pytest.mark.usefixtures("no_torch")
def test_record_writes_segments_and_attempts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SEGMENT_STEPS", 10)
    recorder = wb.record(tmp_path)
    for attempt in range(2):
        with recorder:
            for _ in range(25):
                recorder.step()
        assert steps_in(tmp_path, attempt)["step"].tolist() == list(range(25))
    assert len(list(tmp_path.iterdir())) == 6


def test_record_can_be_read_while_the_job_runs(tmp_path: Path) -> None:
    with wb.record(tmp_path, every=0.05) as recorder:
        recorder.step()
        recorder.step()
        begun = time.monotonic()
        while not list(places(tmp_path)) or len(steps_in(tmp_path)) < 2:
            assert time.monotonic() - begun < PATIENCE_S
            time.sleep(0.01)
        assert wb.traces.load(tmp_path).steps == 1
        recorder.step()
    assert wb.traces.load(tmp_path).steps == 2


@pytest.mark.usefixtures("no_torch")
def test_record_continues_when_its_folder_is_gone(tmp_path: Path) -> None:
    folder = tmp_path / "steps"
    recorder = wb.record(folder)
    recorder.__enter__()
    recorder.step()
    folder.rmdir()
    with pytest.warns(UserWarning, match=r"steps: the recorder cannot write .* training continues"):
        recorder.close()
    assert recorder.steps == 1


@pytest.mark.usefixtures("no_torch")
def test_record_keeps_the_steps_of_a_job_that_fails(tmp_path: Path) -> None:
    def fail() -> None:
        with wb.record(tmp_path) as recorder:
            recorder.step()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert len(steps_in(tmp_path)) == 1


@pytest.mark.usefixtures("no_torch")
def test_record_refuses_in_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match=r"every = 0\.001: take 0\.05 s or more"):
        wb.record(tmp_path, every=0.001)
    with wb.record(tmp_path / "a") as recorder:
        with pytest.raises(SettingError, match=r"b': this process records into .*a already"):
            wb.record(tmp_path / "b").__enter__()
        with (
            pytest.raises(SettingError, match="name = 'sleep': choose one of 'data', 'forward'"),
            recorder.phase("sleep"),
        ):
            pass
        with pytest.raises(
            SettingError, match="work: 'words' is not an amount of work; give samples, tokens, squares"
        ):
            recorder.step(words=3)


def test_record_finds_the_rank_of_a_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in module.RANK_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    assert rank_of_process() == 0
    monkeypatch.setenv("SLURM_PROCID", "5")
    assert rank_of_process() == 5
    monkeypatch.setenv("RANK", "3")
    assert rank_of_process() == 3


# ---------------------------------------------------------------- with PyTorch


def train(torch: Any, steps: int, accumulate: int = 1, retain: bool = False) -> None:
    """Train a small network on token ids, one optimiser step for some micro-batches."""
    network = torch.nn.Sequential(torch.nn.Embedding(50, 8), torch.nn.Flatten(), torch.nn.Linear(96, 2))
    optimiser = torch.optim.SGD(network.parameters(), lr=0.1)
    ids = torch.randint(0, 50, (4 * steps * accumulate, 12))
    loader = torch.utils.data.DataLoader(ids, batch_size=4)
    for number, batch in enumerate(loader, 1):
        loss = network(batch).sum()
        if retain:
            loss.backward(retain_graph=True)
        loss.backward()
        if number % accumulate == 0:
            optimiser.step()
            optimiser.zero_grad()


@pytest.mark.parametrize("accumulate", [1, 3])
def test_record_recognises_phases_of_a_training_loop(accumulate: int, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    before = torch.autograd.backward, torch.distributed.all_reduce
    with wb.record(tmp_path) as recorder:
        train(torch, 6, accumulate)
    assert (torch.autograd.backward, torch.distributed.all_reduce) == before
    assert recorder.steps == 6
    steps = steps_in(tmp_path)
    assert steps.dtype == ROW
    for phase in ("data", "forward", "backward", "optimiser"):
        assert (steps[phase] > 0).all(), phase
    assert steps["tokens"].tolist() == [48 * accumulate] * 6
    assert steps["squares"].tolist() == [576 * accumulate] * 6
    train(torch, 2)
    assert recorder.steps == 6  # the recorder is closed


def test_record_phases_are_all_of_a_step(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    with wb.record(tmp_path):
        train(torch, 30)
    steps = steps_in(tmp_path)
    # phases and ends of steps are measured by different clocks, whose total times must agree
    lasted = sum(steps[phase] for phase in PHASES)
    assert lasted[1:].sum() == pytest.approx(steps["ended"][-1] - steps["ended"][0], rel=0.05, abs=5e-3)


def test_record_measures_backward_passes_that_are_called_twice(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    with wb.record(tmp_path, work=lambda batch: 7):
        train(torch, 3, retain=True)
    assert steps_in(tmp_path)["tokens"].tolist() == [7, 7, 7]


def test_record_takes_steps_that_are_told_instead_of_the_optimisers(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    with wb.record(tmp_path) as recorder:
        recorder.step()
        train(torch, 4)
        recorder.step(samples=1)
    assert recorder.steps == 2
    assert steps_in(tmp_path)["samples"].tolist()[1] == 17


def test_record_names_its_files_by_rank(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "11")
    with wb.record(tmp_path) as recorder:
        recorder.step()
    (file,) = tmp_path.iterdir()
    place = place_of(file)
    assert place is not None
    assert place.rank == 11


def test_record_leaves_the_time_of_a_probe_out_of_the_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Collective operations of a probe, such as its barriers, are not an exchange of the step."""
    torch = pytest.importorskip("torch", reason="the recorder's instruments are for PyTorch")
    nap = 0.3

    def probe(_: Any) -> tuple[float, float]:
        torch.distributed.Work.wait(Napping())
        return 0.1, 0.2

    class Napping(torch.distributed.Work):
        def wait(self, *_: Any) -> bool:
            time.sleep(nap)
            return True

    monkeypatch.setattr(module, "probe", probe)
    monkeypatch.setattr(torch.distributed.Work, "wait", lambda work: Napping.wait(work))
    begun = time.perf_counter()
    with wb.record(tmp_path / "steps") as recorder:
        recorder.step()
        recorder.probe_links()
        recorder.step()
    took = time.perf_counter() - begun
    rows = steps_in(tmp_path / "steps")
    assert sum(rows[phase].sum() for phase in PHASES) <= took - nap
    (about,) = [json.loads(str(np.load(file)["about"])) for file in (tmp_path / "steps").glob("*.npz")]
    assert about["probes"] == [[1, 0.1, 0.2]]
