"""Croissant metadata, read by the format's own library."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tests.support.synthetic_recordings import recording
from workbench.core.base.types import Array

TIMES: Array = np.array([[1.0, 2.0], [1.5, 2.5]])


def test_croissant_metadata_are_read_by_mlcroissant(tmp_path: Path) -> None:
    library = pytest.importorskip("mlcroissant", reason="the extra metadata is not installed")
    made = recording(TIMES)
    made.write(tmp_path / "times.csv")
    (tmp_path / "meta.json").write_text(json.dumps(made.croissant()))
    data = library.Dataset(jsonld=tmp_path / "meta.json")
    assert not data.metadata.ctx.issues.errors
    assert [row["times/seconds"] for row in data.records("times")] == [1.0, 2.0, 1.5, 2.5]
