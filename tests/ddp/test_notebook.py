"""The notebook that starts a script with a code: the curve of losses, and the slow rank that is named."""

from __future__ import annotations

from base64 import b64decode
from pathlib import Path
from typing import Any

import pytest

from workbench.lab import notebooks

ROOT = Path(__file__).resolve().parents[2]
pytest.importorskip("torch")


def points(values: Any) -> int:
    """Return the number of values of a curve, which plotly writes as a list or as the bytes of an array."""
    if isinstance(values, list):
        return len(values)
    return len(b64decode(values["bdata"])) // int(values["dtype"][1:])


@pytest.mark.mpi
@pytest.mark.slow
def test_notebook_shows_the_curve_and_names_the_slow_rank(tmp_path: Path) -> None:
    parameters = {"ranks": 4, "slow": 1, "nap": 0.1, "steps": 80, "folder": str(tmp_path / "job")}
    done = notebooks.execute(
        ROOT / "notebooks" / "09-your-script.ipynb", tmp_path / "out.ipynb", parameters, ROOT
    )
    outputs = [output for cell in done.cells if cell.cell_type == "code" for output in cell.outputs]
    (figure,) = [o["data"] for o in outputs if "application/vnd.plotly.v1+json" in o.get("data", {})]
    assert points(figure["application/vnd.plotly.v1+json"]["data"][0]["y"]) == 80
    text = "".join(str(output.get("text", "")) for output in outputs)
    assert "torchrun ended with status 0 after 80 exchanges" in text
    assert "worker 1" in text
