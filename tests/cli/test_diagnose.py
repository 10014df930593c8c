"""`workbench diagnose`: text, a figure, and one sentence for a file that cannot be read."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import workbench as wb
from tests.support.synthetic_recordings import recording
from workbench.cli.main import cli
from workbench.core.base.settings import SettingError


def test_diagnose_command_names_the_slow_worker(tmp_path: Path) -> None:
    times = 1 + 0.05 * np.random.default_rng(0).random((60, 6))
    times[:, 2] *= 1.5
    file = recording(times).write(tmp_path / "times.csv")
    found = CliRunner().invoke(cli, ["diagnose", str(file), "--card", "--picture", str(tmp_path / "c.html")])
    assert found.exit_code == 0, found.output
    assert "worker 2 is late in most steps" in found.output
    assert "worker 2 costs" in found.output
    assert (tmp_path / "c.html").stat().st_size > 1000


def test_diagnose_command_reports_a_missing_file(tmp_path: Path) -> None:
    found = CliRunner().invoke(cli, ["diagnose", str(tmp_path / "none.csv")])
    assert isinstance(found.exception, SettingError)
    with pytest.raises(SettingError, match="there is no such file or folder"):
        raise found.exception


def test_the_unit_of_a_table_is_an_option(tmp_path: Path) -> None:
    file = tmp_path / "times.csv"
    file.write_text("worker,step,seconds\n" + "".join(f"{w},{t},250\n" for t in range(6) for w in range(3)))
    found = CliRunner().invoke(cli, ["diagnose", str(file), "--card", "--unit", "ms"])
    assert found.exit_code == 0, found.output
    assert "median 0.25 s" in found.output
    wrong = CliRunner().invoke(cli, ["diagnose", str(file), "--unit", "weeks"])
    assert isinstance(wrong.exception, SettingError)
    assert "unit = 'weeks': choose one of 's', 'ms'" in str(wrong.exception)


def test_the_unit_of_a_run_is_known(tmp_path: Path) -> None:
    run = wb.run(wb.Experiment(scheme="UMW", workers=3, rounds=6)).save(tmp_path / "run")
    found = CliRunner().invoke(cli, ["diagnose", str(run), "--unit", "ms"])
    assert isinstance(found.exception, SettingError)
    assert "has its own unit; leave it out" in str(found.exception)
