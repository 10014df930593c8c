"""Slurm's accounting: all forms of Elapsed and of the columns; workers are tasks of arrays, or nodes."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import workbench as wb
from tests.support.profiler_files import refused
from workbench.analysis.recordings.sources.sacct import seconds_of

NAMES = "JobID|JobName|NodeList|State|Elapsed"
WIDTHS = 15, 10, 10, 10, 12


def rows(slow: int = 2, jobs: int = 12) -> list[list[str]]:
    """Return rows of arrays of four tasks, with their batch scripts. Task `slow` takes two minutes, the others one."""
    found = []
    for job in range(100, 100 + jobs):
        for task in range(4):
            took = f"00:0{2 if task == slow else 1}:{10 + (job + task) % 4}"
            found.append([f"{job}_{task}", "train", f"n{task}", "COMPLETED", took])
            found.append([f"{job}_{task}.batch", "batch", f"n{task}", "COMPLETED", "00:09:00"])
            found.append([f"{job}_{task}.extern", "extern", f"n{task}", "COMPLETED", "00:09:00"])
    return found


def parsable(path: Path, table: list[list[str]], end: str = "", names: str = NAMES) -> Path:
    path.write_text("".join(f"{line}{end}\n" for line in [names, *map("|".join, table)]))
    return path


def aligned(path: Path, table: list[list[str]]) -> Path:
    """Write a table as sacct prints it: columns are right-aligned, and cut off at their width with a +."""

    def line(fields: list[str]) -> str:
        cut = [
            text if len(text) <= w else text[: w - 1] + "+" for text, w in zip(fields, WIDTHS, strict=True)
        ]
        return " ".join(text.rjust(w) for text, w in zip(cut, WIDTHS, strict=True)) + " \n"

    path.write_text(line(NAMES.split("|")) + line(["-" * w for w in WIDTHS]) + "".join(map(line, table)))
    return path


@pytest.mark.parametrize("how", ["-P", "-p", "aligned", ".csv"])
def test_load_sacct_of_arrays_names_the_slow_task(tmp_path: Path, how: str) -> None:
    file = tmp_path / "jobs.txt"
    file = aligned(file, rows()) if how == "aligned" else parsable(file, rows(), "|" * (how == "-p"))
    found = wb.traces.load(file)
    if how == ".csv":
        file = tmp_path / "jobs.csv"
        file.write_text((tmp_path / "jobs.txt").read_text().replace("|", ","))
        found = wb.traces.load(file)
    assert found.source["title"] == "Slurm's accounting (sacct)"
    assert found.names == ["train"]
    assert found.table().shape == (12, 4)
    assert found.frame["host"].unique().tolist() == ["n0", "n1", "n2", "n3"]
    assert found.table()[2].min() >= 130
    assert [one.who for one in wb.diagnose(file).culprits] == ["worker 2"]


def test_load_sacct_of_jobs_compares_their_nodes(tmp_path: Path) -> None:
    jobs = [[str(100 + i), "run", f"n{i % 3}", "COMPLETED", "01:00:00"] for i in range(30)]
    found = wb.traces.load(parsable(tmp_path / "jobs.out", jobs))
    assert found.table().shape == (10, 3)
    assert sorted(found.table()) == ["n0", "n1", "n2"]


def test_load_sacct_takes_numbered_steps_instead_of_their_job(tmp_path: Path) -> None:
    table = []
    for task in range(3):
        table.append([f"7_{task}", "train", f"n{task}", "COMPLETED", "00:10:00"])
        table += [
            [f"7_{task}.{step}", "python", f"n{task}", "COMPLETED", f"00:0{step + 1}:00"] for step in range(3)
        ]
    found = wb.traces.load(parsable(tmp_path / "jobs.txt", table))
    assert found.table().to_numpy().tolist() == [[60.0] * 3, [120.0] * 3, [180.0] * 3]
    assert found.names == ["train"]


def test_load_sacct_leaves_out_what_is_not_completed(tmp_path: Path) -> None:
    more = [
        ["200_1", "train", "n1", "RUNNING", "00:00:03"],
        ["200_[2-9]", "train", "None assigned", "PENDING", "00:00:00"],
    ]
    more += [["200_0", "train", "n0", "CANCELLED by 1000", "00:00:09"]]
    found = wb.traces.load(parsable(tmp_path / "jobs.txt", [*rows(), *more]))
    assert found.table().shape == (12, 4)
    assert found.source["left_out"] == "tasks that are not COMPLETED (CANCELLED, RUNNING)"


def test_load_sacct_reads_seconds_of_elapsedraw(tmp_path: Path) -> None:
    table = [[f"1_{task}", str(60 + task)] for task in range(3)]
    found = wb.traces.load(parsable(tmp_path / "jobs.txt", table, names="JobID|ElapsedRaw"))
    assert found.table().to_numpy().tolist() == [[60.0, 61.0, 62.0]]


@given(st.integers(0, 400), st.integers(0, 23), st.integers(0, 59), st.integers(0, 59))
def test_seconds_of_every_form_of_elapsed(days: int, hours: int, minutes: int, seconds: int) -> None:
    whole = hours * 3600 + minutes * 60 + seconds
    assert seconds_of(f"{days}-{hours:02d}:{minutes:02d}:{seconds:02d}") == days * 86400 + whole
    assert seconds_of(f"{hours:02d}:{minutes:02d}:{seconds:02d}") == whole
    assert seconds_of(f"{days}-{minutes:02d}:{seconds:02d}") == days * 86400 + minutes * 60 + seconds
    assert seconds_of(f"{minutes:02d}:{seconds:02d}") == minutes * 60 + seconds
    assert seconds_of(f"{minutes:02d}:{seconds:02d}.250") == minutes * 60 + seconds + 0.25


@pytest.mark.parametrize(
    "text", ["", "INVALID", "Unknown", "12", "1-02", "00:60:00", "00:00:60", "1-24:00:00", "-1:00"]
)
def test_seconds_of_other_text_is_none(text: str) -> None:
    assert seconds_of(text) is None


@pytest.mark.parametrize(
    ("row", "text"),
    [
        (["9_1", "a", "n", "COMPLETED", "INVALID"], "Elapsed = 'INVALID': is not a time of Slurm"),
        (["9_1.b+", "a", "n", "COMPLETED", "00:01:00"], "n is fine"),
        (["123456789+.1+", "a", "n", "COMPLETED", "00:01:00"], "JobID = '123456789+.1+': is cut off"),
        (["job", "a", "n", "COMPLETED", "00:01:00"], "JobID = 'job': is not a job, JOB_TASK or JOB.STEP"),
        (["9_1", "a", "node-of-ra+", "COMPLETED", "00:01:00"], "NodeList = 'node-of-ra+': is cut off"),
        (["9_1", "a", "n"], "has 3 fields, its first line 5"),
    ],
)
def test_load_sacct_names_the_line(tmp_path: Path, row: list[str], text: str) -> None:
    file = parsable(tmp_path / "jobs.txt", [["9_0", "a", "n", "COMPLETED", "00:01:00"], row])
    if text == "n is fine":  # the batch script's row, cut off
        assert wb.traces.load(file).table().shape == (1, 1)
    else:
        refused(file, "jobs.txt', line 3", text)


def test_load_sacct_refuses_what_it_cannot_compare(tmp_path: Path) -> None:
    several = [["1", "a", "n[1-4]", "COMPLETED", "00:01:00"]]
    refused(parsable(tmp_path / "a.txt", several), "line 2", "NodeList = 'n[1-4]'", "need one node each")
    refused(
        parsable(tmp_path / "b.txt", [["1", "a", "n", "FAILED", "00:01:00"]]), "has no task that is COMPLETED"
    )
    (tmp_path / "c.txt").write_text("JobID Elapsed\n1_0 00:01:00\n")
    refused(tmp_path / "c.txt", "line 2", "has no line of dashes below its names", "sacct -P")
