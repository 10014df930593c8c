"""`workbench reproduce` on the command line, the notebooks of the papers, and the whole quick book."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from workbench_book import names
from workbench_book.notebook import NOTEBOOKS

from tests.support.sampled_cases import sampled_test
from workbench.cli.main import cli, main
from workbench.lab.notebooks import execute

PAPERS = sorted(NOTEBOOKS.glob("*.ipynb"))


def workbench(*text: str) -> None:
    cli(["reproduce", *text], standalone_mode=False)


def test_reproduce_list(capsys: pytest.CaptureFixture[str]) -> None:
    workbench("--list")
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == names()


@pytest.mark.parametrize("text", [(), ("--quick",), ("--fresh", "--download")])
def test_reproduce_without_a_name_lists_the_entries(
    text: tuple[str, ...],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    workbench(*text)
    text = capsys.readouterr()
    assert [line.split()[0] for line in text.out.splitlines()] == names()
    assert "nothing was started" in text.err
    assert "workbench reproduce all" in text.err
    assert list(tmp_path.iterdir()) == []


def test_reproduce_refuses_an_unknown_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["workbench", "reproduce", "tabel3", "-o", str(tmp_path / "out")])
    with pytest.raises(SystemExit) as exit_:
        main()
    assert exit_.value.code == 2
    assert "did you mean 'table3'?" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_reproduce_prints_and_writes_one_entry(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    workbench("cada-misprints", "--quick", "-o", str(tmp_path))
    out = capsys.readouterr().out
    assert "cada-misprints  ✓ 3 of 3 shown by computation" in out
    assert "12292" in out
    assert (tmp_path / "cada-misprints.html").is_file()


def test_reproduce_refuses_missing_recorded_times(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"traces = .*no such file"):
        workbench("agc-fig1", "--traces", str(tmp_path / "none.csv"), "-o", str(tmp_path))


def test_reproduce_has_one_notebook_for_each_paper() -> None:
    assert [path.name[0] for path in PAPERS] == ["1", "2", "3", "4", "5", "6"]


@sampled_test("expensive notebooks", 0, 3)
@pytest.mark.parametrize("path", [p for p in PAPERS if p.name[0] == "5"], ids=lambda p: p.stem)
def test_reproduce_notebook_shows_the_entries_of_the_book(
    path: Path, tmp_path: Path, found_before: Path
) -> None:
    """Stored entries are used again, as they are for a user."""
    parameters = {"folder": str(found_before), "measure": False}
    done = execute(path, tmp_path / "out.ipynb", parameters, Path.cwd())
    text = "".join(str(o) for c in done.cells if c.cell_type == "code" for o in c.outputs)
    assert "what the paper says holds" in text
    assert "holds only if reworded" in text
    assert len(list((found_before / "kept").glob("mmc-*.json"))) == 3


@pytest.mark.slow
def test_reproduce_all_quick(traces: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Every entry is computed, the page and the notebooks are written, and a second run uses the stored entries."""
    text = ("all", "--quick", "--no-measure", "--traces", str(traces), "-o", str(tmp_path))
    workbench(*text)
    out = capsys.readouterr().out
    assert "not computed" not in out
    page = (tmp_path / "reproduction.html").read_text()
    for name in names():
        assert f'<section class="entry" id="{name}">' in page
    assert sorted(path.name for path in (tmp_path / "papers").glob("*.ipynb")) == [p.name for p in PAPERS]
    kept = {path: path.stat().st_mtime_ns for path in (tmp_path / "kept").glob("*.json")}
    assert len(kept) == len(names())
    workbench(*text, "--no-notebooks")
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "kept").glob("*.json")} == kept
