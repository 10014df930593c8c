"""TraceML's summaries: averages name a slow rank without a test, and the result lists missing measurements."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import workbench as wb
from tests.support.profiler_files import refused
from workbench.analysis.recordings.averages import Averages

METRICS = [
    *("input_wait_ms", "step_time_ms", "traced_step_time_ms", "step_time_cpu_ms", "step_time_gpu_ms"),
    *(
        "traced_step_time_cpu_ms",
        "traced_step_time_gpu_ms",
        "dataloader_fetch_cpu_ms",
        "h2d_ms",
        "compute_ms",
    ),
    *("residual_ms", "forward_ms", "backward_ms", "optimizer_ms"),
]


def row(rank: int, **times: float | None) -> dict[str, Any]:
    identity = {"global_rank": rank, "local_rank": rank, "node_rank": 0, "hostname": f"h{rank // 2}"}
    return {"identity": identity, "metrics": dict.fromkeys(METRICS) | times}


def summary(path: Path, rows: dict[str, Any], **more: Any) -> Path:
    window = {"kind": "step_window", "alignment": "common_steps", "steps_analyzed": 256}
    section = {
        "global": {"index_by": "global_rank", "window": window},
        "groups": {"by": "global_rank", "rows": rows},
    }
    fields = {"schema_version": 1.7, "meta": {}, "primary_diagnosis": {}, "step_time": section, "text": ""}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(fields | more))
    return path


def slow_input(folder: Path) -> Path:
    """Write a summary: rank 2 waits for its data, and the others wait for rank 2 in their backward passes."""
    times: dict[str, float] = {"h2d_ms": 0.4, "forward_ms": 20, "optimizer_ms": 3, "residual_ms": 1}
    rows = {
        str(r): row(r, **times, input_wait_ms=180.9 if r == 2 else 0.7, backward_ms=40 if r == 2 else 220.2)
        for r in range(4)
    }
    summary(folder / "final_summary.json", rows)
    return folder


def test_diagnose_names_the_rank_with_slow_data(tmp_path: Path) -> None:
    folder = slow_input(tmp_path / "run")
    for path in (folder, folder / "final_summary.json"):
        found = wb.diagnose(path)
        assert isinstance(found, Averages)
        assert [(one.who, one.phase) for one in found.culprits] == [("worker 2", "input")]
        assert found.culprits[0].ratio == pytest.approx((180.9 + 64.4) / (0.7 + 64.4))
        assert "averages of 256 steps for 4 workers" in str(found)
        assert "worker 2: 3.77 times the median" in str(found)
        assert "most of it in input (0.1809 s, not 0.0007 s)" in str(found)
        assert "a test against chance" in str(found)


def test_diagnose_of_equal_averages_names_nobody(tmp_path: Path) -> None:
    rows = {str(r): row(r, forward_ms=20 + r, backward_ms=40 + r) for r in range(4)}
    found = wb.diagnose(summary(tmp_path / "a.json", rows))
    assert found.culprits == ()
    assert "no worker stands out: each average is at most 1.2 times the median" in str(found)
    assert "a rank that is slow in its backward pass" in str(found)


def test_load_counts_what_exceeds_the_shortest_backward_pass_as_exchange(tmp_path: Path) -> None:
    found = wb.traces.load(slow_input(tmp_path / "run"))
    assert found.table("exchange").to_numpy().round(4).tolist() == [[0.1802, 0.1802, 0.0, 0.1802]]
    assert set(found.frame["host"]) == {"h0", "h1"}
    assert found.source["averaged"] == "256"


def test_load_of_a_summary_with_whole_steps_only(tmp_path: Path) -> None:
    rows = {str(r): row(r, step_time_ms=100.0 + r) for r in range(2)}
    found = wb.traces.load(summary(tmp_path / "a.json", rows))
    assert found.table().to_numpy().tolist() == [[0.1, 0.101]]


@pytest.mark.parametrize(
    ("rows", "why"),
    [
        ({}, "step_time.groups.rows = {}: has no rank"),
        ({"0": row(0)}, "has no time that was measured"),
        ({"0": 3}, "step_time.groups.rows[0] = 3: is not an object with fields"),
        ({"x": row(-1, forward_ms=1)}, "rows[x].identity.global_rank = -1: is not a whole number from 0"),
        (
            {"0": row(0, forward_ms=-1)},
            "rows[0].metrics.forward_ms = -1: is not a time in milliseconds from 0",
        ),
        ({"0": {"identity": {}, "metrics": [1]}}, "rows[0].metrics = [1]: is not an object with fields"),
    ],
)
def test_load_of_a_summary_names_the_field(tmp_path: Path, rows: dict[str, Any], why: str) -> None:
    refused(summary(tmp_path / "final_summary.json", rows), "final_summary.json", why)


def test_load_of_a_damaged_summary(tmp_path: Path) -> None:
    file = slow_input(tmp_path / "run") / "final_summary.json"
    file.write_text(file.read_text()[:-40])
    refused(file, "final_summary.json", "is not JSON")
    refused(summary(file, {}, step_time=None), "step_time = None: is not an object with fields")
