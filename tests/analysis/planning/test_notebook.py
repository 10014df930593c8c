"""The notebook that measures, plans and checks, executed on real processes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.sampled_cases import sampled_test
from workbench.lab import notebooks

ROOT = Path(__file__).resolve().parents[3]


@sampled_test("expensive notebooks", 1, 3)
@pytest.mark.mpi
@pytest.mark.xdist_group("mpi")
def test_planning_notebook_executes(tmp_path: Path) -> None:
    parameters = {
        "workers": 3,
        "problem": "least_squares",
        "data": "diabetes",
        "rounds": 8,
        "measured_rounds": 8,
        "schemes": "UMW, GC, SGD",
        "other": "GC",
    }
    done = notebooks.execute(ROOT / "notebooks" / "04-plan.ipynb", tmp_path / "out.ipynb", parameters, ROOT)
    outputs = [o for c in done.cells if c.cell_type == "code" for o in c.outputs]
    pictures = [o for o in outputs if "application/vnd.plotly.v1+json" in o.get("data", {})]
    assert len(pictures) == 3
    text = "".join(str(o) for o in outputs)
    # The mean times in the table are from the same rounds as those in the figure.
    (table,) = (
        o["data"]["text/plain"] for o in outputs if "ratio" in o.get("data", {}).get("text/plain", "")
    )
    figure = pictures[-1]["data"]["application/vnd.plotly.v1+json"]
    scale = {"s": 1.0, "ms": 1e3, "µs": 1e6}[
        re.search(r"\((.+)\)", figure["layout"]["xaxis"]["title"]["text"])[1]
    ]  # type: ignore[index]
    means = [t["x"][0] / scale for t in figure["data"] if t.get("name", "").endswith(" measured mean")]
    assert means == pytest.approx([float(row.split()[-2]) for row in table.splitlines()[1:]], rel=3e-3)
    assert "resampled predictions" in text
    assert "ratio" in text
    verdicts = [
        o["data"] for o in outputs if re.search("right:", o.get("data", {}).get("text/html", ""), re.I)
    ]
    (verdict,) = verdicts
    assert re.search(
        r'<b style="color: [^"]+">(Not right|Right):</b>.* times its forecast', verdict["text/html"]
    )
