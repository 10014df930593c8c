"""Straggler reports of NVIDIA's resiliency extension, in the forms of its callback, its examples and JSON."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

import workbench as wb
from tests.support.profiler_files import refused

REPORTS = 16


def score(rank: int, report: int) -> float:
    """Return the score of a rank: rank 2 takes about twice as long as the others."""
    return round((0.5 if rank == 2 else 0.92) + 0.01 * ((3 * report + rank) % 7), 2)


def scores(report: int) -> dict[int, float]:
    return {rank: score(rank, report) for rank in range(4)}


def callback(report: int) -> str:
    """Return the text of StragglerDetectionCallback."""
    listed = "".join(f"  Rank={r} Node=n{r // 2} Score={s:.2f}\n" for r, s in scores(report).items())
    own = "".join(f"  Rank={r} Node=n{r // 2} Score=1.00\n" for r in range(4))
    return (
        f"[NeMo I 2026-11-26 12:00:01 straggler_det_callback:200] \n GPU relative performance:\n{listed}\n"
        f"[NeMo I 2026-11-26 12:00:01 straggler_det_callback:210] \n GPU individual performance:\n{own}\n"
        f"Straggler report processing time: 0.042 sec.\n"
    )


def example(report: int) -> str:
    return f"Rank 0 GPUs relative perf: {scores(report)}\nRank 0 GPUs individual perf: {{0: 1.0, 1: nan}}\n"


def functional_test(report: int) -> str:
    return f"STRAGGLER REPORT #{report}\nGPU relative perf scores: {scores(report)}\nGPU individual perf scores: {{}}\n"


def json_line(report: int) -> str:
    fields = {
        "gpu_relative_perf_scores": scores(report),
        "section_relative_perf_scores": {},
        "gpu_individual_perf_scores": {},
        "rank_to_node": {rank: f"n{rank // 2}" for rank in range(4)},
        "gather_on_rank0": True,
        "rank": None,
    }
    return json.dumps(fields) + "\n"


@pytest.mark.parametrize("text", [callback, example, functional_test, json_line])
def test_load_of_reports_names_the_slow_gpu(tmp_path: Path, text: Callable[[int], str]) -> None:
    file = tmp_path / "train.log"
    file.write_text("starting\n" * (text is not json_line) + "".join(map(text, range(REPORTS))))
    found = wb.traces.load(file)
    assert found.units == "times the fastest rank"
    assert found.table().shape == (REPORTS, 4)
    assert found.table()[2].iloc[0] == pytest.approx(1 / score(2, 0))
    assert set(found.frame["host"]) == ({"n0", "n1"} if text in (callback, json_line) else {""})
    assert [one.who for one in wb.diagnose(file).culprits] == ["worker 2"]  # type: ignore[union-attr]


def shortened(report: int, ranks: int = 16) -> str:
    """Return the callback's text for more than six ranks: the worst three and the best three. Rank 2 is slow."""
    found = sorted((0.5 if r == 2 else 0.9 + 0.005 * ((3 * report + 5 * r) % 17), r) for r in range(ranks))
    lines = [f"  Rank={r} Node=n{r // 4} Score={s:.2f}\n" for s, r in found]
    worst, best = "".join(lines[:3]), "".join(lines[:-4:-1])
    parts = f" Worst performing 3/{ranks} ranks:\n{worst} Best performing 3/{ranks} ranks:\n{best}"
    return f"GPU relative performance:\n{parts}\nStraggler report processing time: 0.042 sec.\n"


def test_load_takes_unlisted_ranks_to_be_as_slow_as_they_can_be(tmp_path: Path) -> None:
    file = tmp_path / "train.log"
    file.write_text("".join(map(shortened, range(REPORTS))))
    found = wb.traces.load(file)
    assert found.table().shape == (REPORTS, 16)
    assert found.table()[2].tolist() == [2.0] * REPORTS
    assert (found.table().max(axis=1) == 2).all()
    assert "taken to be as slow as they can be" in found.source["left_out"]
    diagnosis = wb.diagnose(file)
    assert [one.who for one in diagnosis.culprits] == ["worker 2"]  # type: ignore[union-attr]
    assert "taken to be as slow as they can be" in str(diagnosis)


def test_load_of_a_report_in_json(tmp_path: Path) -> None:
    file = tmp_path / "reports.json"
    file.write_text(json.dumps([json.loads(json_line(report)) for report in range(3)], indent=1))
    assert wb.traces.load(file).table().shape == (3, 4)


def test_load_of_scores_of_the_own_past_says_so(tmp_path: Path) -> None:
    file = tmp_path / "train.log"
    file.write_text("GPU individual perf scores: {0: 0.5, 1: 1.0}\n" * 3)
    found = wb.traces.load(file)
    assert found.table().to_numpy().tolist() == [[2.0, 1.0]] * 3
    assert "compare each rank with its own past" in found.source["left_out"]


def test_load_leaves_out_ranks_without_a_score(tmp_path: Path) -> None:
    file = tmp_path / "train.log"
    file.write_text("GPU relative perf scores: {0: 0.5, 1: 1.0, 2: nan}\n")
    found = wb.traces.load(file)
    assert found.table().to_numpy().tolist() == [[2.0, 1.0]]
    assert "left out: a test against chance, which needs several steps" in str(wb.diagnose(found))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("a\nGPU relative perf scores: {0: 0.5, 1: -1.0}\n", "line 2: score = -1.0: is not a number above 0"),
        ("GPU relative perf scores: {'zero': 0.5}\n", "line 1: rank = 'zero': is not a whole number from 0"),
        ("GPU relative perf scores: {0: open('x')}\n", "is not a score for each rank"),
        ("GPU relative perf scores: {}\n", "has no report with a score of a GPU"),
        ('{"gpu_relative_perf_scores": {"0": true}}\n', "line 1: score = True: is not a number above 0"),
        (
            '{"gpu_relative_perf_scores": [1]}\n',
            "line 1: gpu_relative_perf_scores: is not a score for each rank",
        ),
        ('{"gpu_relative_perf_scores": {"0": 1.0}\n', "line 1: is not JSON"),
    ],
)
def test_load_of_a_report_names_the_line(tmp_path: Path, text: str, why: str) -> None:
    file = tmp_path / "train.log"
    file.write_text(text)
    refused(file, "train.log", why)
