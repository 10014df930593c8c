"""Croissant metadata: read by the format's own library where it is installed, and checked against its context."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.synthetic_recordings import recording
from workbench.analysis.recordings.croissant import CONTEXT
from workbench.core.base.types import Array

TIMES: Array = np.array([[1.0, 2.0], [1.5, 2.5]])


def words(value: Any) -> set[str]:
    """Return all keys, and all types, of a document without its context."""
    if isinstance(value, dict):
        keys = {key for key in value if not key.startswith("@")} | {str(value.get("@type", ""))}
        return keys.union(*(words(each) for key, each in value.items() if key != "@context"))
    return set().union(*map(words, value)) if isinstance(value, list) else set()


def test_croissant_metadata_use_only_terms_of_the_format() -> None:
    """Return whether a term is in its own context, or in schema.org, its vocabulary."""
    told = recording(TIMES).croissant()
    schema = {
        "name",
        "description",
        "license",
        "isBasedOn",
        "distribution",
        "contentUrl",
        "encodingFormat",
        "sha256",
    }
    types = {"sc:Dataset", "cr:FileObject", "cr:RecordSet", "cr:Field", ""}
    assert words(told) <= schema | types | set(CONTEXT)
    assert {"name", "description", "conformsTo", "distribution", "recordSet"} <= set(told)


def test_croissant_metadata_are_read_by_mlcroissant(tmp_path: Path) -> None:
    library = pytest.importorskip("mlcroissant")
    made = recording(TIMES)
    made.write(tmp_path / "times.csv")
    (tmp_path / "meta.json").write_text(json.dumps(made.croissant()))
    data = library.Dataset(jsonld=tmp_path / "meta.json")
    assert not data.metadata.ctx.issues.errors
    assert [row["times/seconds"] for row in data.records("times")] == [1.0, 2.0, 1.5, 2.5]
