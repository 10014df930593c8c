"""`workbench diagnose`: words, a picture, and a sentence for what cannot be read."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from tests.support.synthetic_recordings import recording
from workbench.cli.main import cli
from workbench.core.base.settings import SettingError


def test_it_names_who_is_slow(tmp_path: Path) -> None:
    times = 1 + 0.05 * np.random.default_rng(0).random((60, 6))
    times[:, 2] *= 1.5
    file = recording(times).write(tmp_path / "times.csv")
    found = CliRunner().invoke(cli, ["diagnose", str(file), "--card", "--picture", str(tmp_path / "c.html")])
    assert found.exit_code == 0, found.output
    assert "worker 2 is late in most steps" in found.output
    assert "worker 2 costs" in found.output
    assert (tmp_path / "c.html").stat().st_size > 1000


def test_what_is_not_there_is_said(tmp_path: Path) -> None:
    found = CliRunner().invoke(cli, ["diagnose", str(tmp_path / "none.csv")])
    assert isinstance(found.exception, SettingError)
    with pytest.raises(SettingError, match="there is no such file or folder"):
        raise found.exception
