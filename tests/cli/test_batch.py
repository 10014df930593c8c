"""`workbench sweep` and `workbench runs`."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pandas as pd
import pytest

import workbench as wb
from workbench.cli.main import main

ROOT = Path(__file__).resolve().parents[2]


def call(monkeypatch: pytest.MonkeyPatch, *text: object) -> int:
    monkeypatch.setattr(sys, "argv", ["workbench", *map(str, text)])
    try:
        main()
    except SystemExit as end:
        return int(end.code or 0)
    return 0


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    file = tmp_path / "small.yaml"
    file.write_text(
        "base: {workers: 4, rounds: 3}\n"
        "cases:\n  - {scheme: UMW}\n  - {scheme: UMW, faults: [{worker: 1, round: 0}]}\n"
        "seeds: 2\n"
    )
    return file


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("runs")
    for scheme in ("UMW", "RAR"):
        for seed in range(3):
            wb.run(wb.Experiment(scheme=scheme, workers=4, rounds=3, seed=seed)).save(
                root / f"{scheme}-{seed}"
            )
    return root


@pytest.mark.parametrize("option", ["--walltime", "--timeout"])
def test_time_that_is_not_a_number_of_seconds_is_refused(
    monkeypatch: pytest.MonkeyPatch, plan: Path, capsys: pytest.CaptureFixture[str], option: str
) -> None:
    assert call(monkeypatch, "sweep", plan, option, "1h") == 2
    assert f"'{option}': '1h' is not a valid number of seconds above 0." in capsys.readouterr().err


def test_batch_sweep_then_runs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, plan: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert call(monkeypatch, "sweep", plan, "-j", "2", "--quiet") == 1
    text = capsys.readouterr().out
    assert "2 done, 2 failed" in text
    (first, *_) = re.findall(r"alone: workbench (.*)", text)
    assert call(monkeypatch, *first.split(), "--dry-run") == 0
    capsys.readouterr()
    assert call(monkeypatch, "runs") == 0
    assert capsys.readouterr().out.count("QuorumLost") == 2
    assert call(monkeypatch, "runs", "runs/small", "--where", "state=done", "-o", "table.csv") == 0
    assert pd.read_csv("table.csv")["seed"].tolist() == [0, 1]


def test_batch_dry_run_starts_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, plan: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(monkeypatch, "sweep", plan, "-o", tmp_path / "out", "--dry-run") == 0
    assert len(capsys.readouterr().out.splitlines()) == 4
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("file", sorted((ROOT / "examples").glob("*.yaml")), ids=lambda path: path.stem)
def test_batch_examples_can_be_run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], file: Path
) -> None:
    assert call(monkeypatch, "sweep", file, "--dry-run") == 0
    assert len(capsys.readouterr().out.splitlines()) > 1


def test_runs_by_group(
    monkeypatch: pytest.MonkeyPatch, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(monkeypatch, "runs", folder) == 0
    assert len(capsys.readouterr().out.splitlines()) == 7
    assert call(monkeypatch, "runs", folder, "--of", "time", "--where", "seed=0", "--where", "seed=1") == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines[0][:3] == ["scheme", "n", "never"]
    assert [line[:2] for line in lines[1:]] == [["RAR", "2"], ["UMW", "2"]]
    mean = wb.runs(folder).where(scheme="RAR", seed=[0, 1]).table["time"].mean()
    assert float(lines[1][3]) == pytest.approx(mean, rel=1e-4)


@pytest.mark.parametrize(
    ("argv", "error"),
    [
        (["sweep", "nowhere.yaml"], r"nowhere\.yaml: no such file"),
        (["sweep", "."], r"without sweep\.json"),
        (["runs", "nowhere"], "no such folder"),
        (["runs", ".", "--where", "scheme"], "COLUMN=VALUE"),
        (["runs", ".", "--by", "schme"], "column = 'schme'"),
        (["runs", ".", "--of", "schme"], "column = 'schme'"),
        (["sweep"], "Missing argument"),
        (["sweep", "x.yaml", "-j", "two"], "two"),
    ],
)
def test_batch_errors_are_one_sentence(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    argv: list[str],
    error: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    wb.run(wb.Experiment(scheme="UMW", workers=4, rounds=2)).save("run")
    assert call(monkeypatch, *argv) == 2
    text = capsys.readouterr().err
    assert re.search(error, text), text
    assert "Traceback" not in text


def test_batch_checks_the_engine(
    monkeypatch: pytest.MonkeyPatch, plan: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(monkeypatch, "sweep", plan, "--engine", "mip") == 2
    assert "engine = 'mip'" in capsys.readouterr().err
    assert call(monkeypatch, "sweep", plan, "--cluster", "nowhere") == 2
    assert "cluster = 'nowhere': no such name" in capsys.readouterr().err
