"""Pictures in executed notebooks: one beside every figure, once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.browser.lab import CHROMIUM
from workbench.batch import sweep
from workbench.batch.page import FIGURE
from workbench.batch.pictures import PNG, add_pictures
from workbench.trace.layout import STOP

DRAWN = {"data": [{"type": "scatter", "y": [1, 3, 2]}], "layout": {"height": 200}}


def notebook(path: Path, figures: int) -> Path:
    path.parent.mkdir(parents=True)
    outputs = [
        {"output_type": "display_data", "data": {FIGURE: DRAWN}, "metadata": {}} for _ in range(figures)
    ]
    text = {"output_type": "stream", "name": "stdout", "text": "no figure"}
    cells = [
        {"cell_type": "code", "source": "", "outputs": [text, *outputs]},
        {"cell_type": "markdown", "source": "é"},
    ]
    path.write_text(json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}))
    return path


def pictures(path: Path) -> list[str]:
    cells = json.loads(path.read_text())["cells"]
    return [
        out["data"][PNG] for cell in cells for out in cell.get("outputs", ()) if PNG in out.get("data", {})
    ]


def test_every_figure_gets_one_once_and_a_stop_ends_it(tmp_path: Path) -> None:
    files = [notebook(tmp_path / f"{i}" / "run.ipynb", i) for i in range(4)]
    drawn: list[dict[str, Any]] = []

    def draw(figure: dict[str, Any]) -> bytes:
        drawn.append(figure)
        if len(drawn) == 3:
            (tmp_path / STOP).touch()
        return b"png"

    assert add_pictures(files, draw) == 3  # of the first three notebooks
    (tmp_path / STOP).unlink()
    assert add_pictures(files, draw) == 3
    assert [len(pictures(file)) for file in files] == [0, 1, 2, 3]
    assert add_pictures(files, draw) == 0
    assert all(figure == DRAWN for figure in drawn)


@pytest.mark.skipif(not CHROMIUM, reason="no Chromium to draw with")
def test_the_notebooks_of_a_sweep_carry_them(tmp_path: Path) -> None:
    """From the sweep's settings to the executed notebook: a PNG beside each of its figures."""
    plan = {"base": {"scheme": "UMW", "workers": 4, "rounds": 5}}
    assert sweep(plan, tmp_path / "sweep", pictures=True, progress=False).found == ""
    (file,) = tmp_path.glob("sweep/*/run.ipynb")
    found = pictures(file)
    assert len(found) == file.read_text().count(f'"{FIGURE}"') == 3
    assert all(picture.startswith("iVBORw0KGgo") for picture in found)
