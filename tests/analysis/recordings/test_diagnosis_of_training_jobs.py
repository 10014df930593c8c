"""Real jobs of DistributedDataParallel over gloo, on this machine, with a sleeping rank."""

from __future__ import annotations

from pathlib import Path

import pytest

import workbench as wb
from tests.support.sampled_cases import sampled_cases

pytest.importorskip("torch", reason="training jobs need PyTorch, which is not installed")

from tests.support.ddp_jobs import Job, measured, run

SHORT = {"blocks": 2, "steps": 10}
CASES = [
    Job("backward", who=2, **SHORT),
    Job("backward", who=1, overlap=True, **SHORT),
    Job("backward", who=3, accumulate=4, **SHORT),
    Job("loader", who=0, **SHORT),
    Job("forward", who=1, **SHORT),
    Job("backward", who=2, profiler=True, **SHORT),
]


@pytest.mark.mpi
@pytest.mark.parametrize("job", sampled_cases("training jobs", 1, CASES), ids=str)
def test_diagnosis_names_the_rank_that_sleeps(job: Job, tmp_path: Path) -> None:
    run(job, tmp_path)
    found = measured(job, tmp_path)
    diagnosis = wb.diagnose(found.recording)
    assert diagnosis.culprits[0].who == f"worker {job.who}", str(diagnosis)


@pytest.mark.mpi
@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_diagnosis_of_a_healthy_job_names_nobody(seed: int, tmp_path: Path) -> None:
    job = Job(who=seed)
    run(job, tmp_path)
    assert not wb.diagnose(measured(job, tmp_path).recording).culprits
