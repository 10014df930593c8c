"""Files of a job: tables that can be diagnosed, and checkpoints that are whole."""

from __future__ import annotations

import csv
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import workbench as wb
from workbench.core.base.errors import RunError
from workbench.core.base.settings import SettingError
from workbench.ddp.record import CHECKPOINT, STEPS, TIMES, Recorder, State, saved_state


@pytest.mark.parametrize("more", [1, 400])
def test_times_can_be_diagnosed(more: int, tmp_path: Path) -> None:
    """The times of a job are known to be in seconds, so one rank may take 400 times as long as the others."""
    recorder = Recorder(tmp_path)
    for event in range(1, 60):
        for rank in range(6):
            times = {
                "seconds": 0.1 * (1 + more * (rank == 2)) + 0.001 * ((7 * event + rank) % 5),
                "samples": 8,
            }
            recorder.answer(rank, event, times, used=True)
    assert [culprit.who for culprit in wb.diagnose(tmp_path / TIMES).culprits] == ["worker 2"]


def test_checkpoint_is_read_back_and_damage_is_found(tmp_path: Path) -> None:
    assert saved_state(tmp_path) is None
    Recorder(tmp_path).checkpoint(State(3, b"\n\x00values"))
    assert saved_state(tmp_path) == State(3, b"\n\x00values")
    path = tmp_path / CHECKPOINT
    path.write_bytes(path.read_bytes()[:-1] + b"!")
    with pytest.raises(RunError, match="is damaged"):
        saved_state(tmp_path)
    path.write_bytes(b"{}")
    with pytest.raises(RunError, match="is damaged"):
        saved_state(tmp_path)


@given(
    starts=st.lists(st.tuples(st.integers(0, 30), st.integers(1, 30)), min_size=2, max_size=4),
    torn=st.binary(max_size=6),
)
@settings(max_examples=20, deadline=None)
def test_tables_of_restarted_jobs_have_each_step_once_and_can_be_diagnosed(
    starts: list[tuple[int, int]], torn: bytes
) -> None:
    """Each start resumes from a checkpoint in the steps that were made, and is killed while it writes a row."""
    with TemporaryDirectory() as name:
        folder, made = Path(name) / "job", 0
        for back, more in starts:
            resumed = max(0, made - back)
            recorder = Recorder(folder, resumed if made else None)
            for step in range(resumed + 1, resumed + more + 21):
                for rank in range(4):
                    times = {"seconds": 0.1 + 0.2 * (rank == 2), "samples": 8}
                    recorder.answer(rank, step, times, used=True)
                    recorder.answer(
                        rank, step, times, used=True
                    )  # once more, after the script was started again
                recorder.step(step, 0.5, 0.0, range(4))
                made = step
            for table in (STEPS, TIMES):
                recorder._files[table].close()
                with (folder / table).open("ab") as file:
                    file.write(torn.translate(None, b"\r\n"))
        Recorder(folder, made)
        rows = list(csv.DictReader((folder / TIMES).open()))
        assert [(int(row["step"]), int(row["worker"])) for row in rows] == [
            (step, rank) for step in range(1, made + 1) for rank in range(4)
        ]
        assert [int(row["step"]) for row in csv.DictReader((folder / STEPS).open())] == [*range(1, made + 1)]
        assert [culprit.who for culprit in wb.diagnose(folder / TIMES).culprits] == ["worker 2"]


def test_folder_is_private_and_continued_only_if_asked(tmp_path: Path) -> None:
    folder = tmp_path / "job"
    Recorder(folder).step(1, 0.5, 0.0, [0, 1])
    assert folder.stat().st_mode & 0o077 == 0
    with pytest.raises(SettingError, match="is not empty"):
        Recorder(folder)
    Recorder(folder, resumed=1).step(2, 0.25, float("nan"), [0])
    rows = (folder / "steps.csv").read_text().splitlines()
    assert [row.split(",")[0] for row in rows] == ["step", "1", "2"]
    assert rows[2].split(",")[2:] == ["0.25", "1", "", "0"]
