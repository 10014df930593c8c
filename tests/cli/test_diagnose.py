"""`workbench diagnose`: text, a figure, and one sentence for a file that cannot be read."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

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
