"""Loading of recordings: by the format of a file, or by the name of a public recording.

No code in a file is executed.
"""

from __future__ import annotations

import gzip
import json
import os
import pickle
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import workbench as wb
from tests.support.synthetic_recordings import public
from workbench.analysis.planning.measuring import simulated
from workbench.core.base.settings import SettingError


@pytest.mark.parametrize(
    ("name", "workers", "steps", "source"),
    [
        ("alibaba_job_1.csv", 10, 300, "Alibaba's training jobs"),
        ("alibaba_job_2.csv", 10, 254, "Alibaba's training jobs"),
        ("bytedance_AR.parquet", 16, 44, "ByteDance's language model jobs"),
        ("bytedance_ST.parquet", 8, 32, "ByteDance's language model jobs"),
        ("ec2_traces.csv", 15, 312, "a table of times"),
    ],
)
def test_load_public_recordings(name: str, workers: int, steps: int, source: str) -> None:
    found = wb.traces.load(public(name))
    assert (found.frame["worker"].nunique(), found.steps) == (workers, steps)
    assert found.source["title"] == source


def test_load_reports_where_to_download_a_missing_recording(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("WORKBENCH_CACHE", str(tmp_path))
    monkeypatch.delenv("WORKBENCH_RECORDINGS", raising=False)
    with pytest.raises(
        SettingError,
        match=r"is not here; get alibaba_job_.* from public repository alibaba/clusterdata.*put it at",
    ):
        wb.traces.load("alibaba_job_1.csv")
    with pytest.raises(SettingError, match=r"get bytedance_.* put it at .*recordings$"):
        wb.traces.load("bytedance")
    with pytest.raises(SettingError, match="there is no such file or folder"):
        wb.traces.load("mine.csv")
    (tmp_path / "mine.parquet").write_bytes(b"PAR1, and then nothing of that kind")
    with pytest.raises(SettingError, match=r"mine.parquet': cannot be read \("):
        wb.traces.load(tmp_path / "mine.parquet")
    home = wb.traces.home()
    home.mkdir(parents=True)
    (home / "alibaba_job_1.csv").write_text(",worker,gpu,time,batch_time_norm\n0,0,25,1,476\n1,1,25,1,509\n")
    assert wb.traces.load("alibaba_job_1").table().to_numpy().tolist() == [[476.0, 509.0]]


def test_load_names_the_published_files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("WORKBENCH_CACHE", str(tmp_path))
    monkeypatch.delenv("WORKBENCH_RECORDINGS", raising=False)
    for name, text in {
        "ec2_traces.csv": r"published as data4.txt, data6.txt and data7.txt\).*load\('FOLDER'\).write\('ec2_traces",
        "alibaba": r"published as job_1_norm.csv to job_4_norm.csv\)",
        "alibaba_job_2": r"put it at .*recordings.alibaba_job_2.csv$",
        "job_2_norm.csv": r"put it at .*recordings.job_2_norm.csv$",
        "trace-mine.parquet": r"there is no such file or folder",
        "job_mine.txt": r"there is no such file or folder",
        "trace-SE.parquet": r"published as trace-AR.parquet, trace-SE.parquet and trace-ST.parquet\)",
    }.items():
        with pytest.raises(SettingError, match=text):
            wb.traces.load(name)


def test_load_the_published_ec2_times(tmp_path: Path) -> None:
    """Each line is HOST_SECONDS, in some files after a number or before another field. Hosts may be missing."""
    (tmp_path / "data4.txt").write_text(
        "   1 ip-10-0-1-2_2.5\n   2 _9\n   3 ip-10-0-1-1_3.5\n   4 ip-10-0-1-2_2.25"
    )
    (tmp_path / "data10.txt").write_text("ip-10-0-1-9_7.5_323\nip-10-0-1-8_8.5_377\n")
    (tmp_path / "data.txt").write_text("notes")
    found = wb.traces.load(tmp_path)
    assert found.names == ["ec2-4", "ec2-10"]
    assert found.job("ec2-4").table().fillna(0).to_numpy().tolist() == [[2.5, 3.5], [2.25, 0.0]]
    assert found.job("ec2-10").table().to_numpy().tolist() == [[7.5, 8.5]]
    assert set(found.job("ec2-4").frame["host"]) == {"ip-10-0-1-1", "ip-10-0-1-2"}
    made = wb.traces.load(found.write(tmp_path / "ec2_traces.csv"))
    assert made.names == found.names
    pd.testing.assert_frame_equal(made.job("ec2-4").table(), found.job("ec2-4").table())
    assert "GradientCoding" in made.source["where"]
    assert wb.traces.load(tmp_path / "data10.txt").names == ["ec2-10"]
    (tmp_path / "data10.txt").write_text("ip-10-0-1-9_7.5_323\nip-10-0-1-8_long\n")
    with pytest.raises(SettingError, match=r"data10.txt', line 2: 'ip-10-0-1-8_long': is not HOST_SECONDS"):
        wb.traces.load(tmp_path / "data10.txt")


def test_load_a_users_own_table(tmp_path: Path) -> None:
    (tmp_path / "mine.csv").write_text("worker,step,seconds\na,0,0.5\nb,0,0.7\n")
    assert "where" not in wb.traces.load(tmp_path / "mine.csv").source
    assert "isBasedOn" not in wb.traces.load(tmp_path / "mine.csv").croissant()


def profile(path: Path, more: Any = None) -> Path:
    rounds = [
        {
            "round": r,
            "results": [
                {"worker_id": np.int32(w), "started": 10.0, "finished": 11.0 + w + r, "payload": more}
                for w in range(3)
            ],
        }
        for r in range(2)
    ]
    path.write_bytes(pickle.dumps(rounds))
    return path


class _Bomb:
    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.target),)


def test_load_pickles_without_executing_code(tmp_path: Path) -> None:
    found = wb.traces.load(profile(tmp_path / "w3-n2-l0.pkl"))
    assert found.table().to_numpy().tolist() == [[1.0, 2.0, 3.0], [2.0, 3.0, 4.0]]
    armed = profile(tmp_path / "armed.pkl", _Bomb(tmp_path / "gone off"))
    assert wb.traces.load(armed).steps == 2
    assert not (tmp_path / "gone off").exists()
    pickle.loads(armed.read_bytes())
    assert (tmp_path / "gone off").exists()  # executed by pickle itself, so the file would have run code


def test_load_refuses_other_pickles(tmp_path: Path) -> None:
    (tmp_path / "other.pkl").write_bytes(pickle.dumps({"loss": [1, 2]}))
    with pytest.raises(SettingError, match="is not a profile of Lambda workers"):
        wb.traces.load(tmp_path / "other.pkl")
    (tmp_path / "torn.pkl").write_bytes(profile(tmp_path / "whole.pkl").read_bytes()[:200])
    with pytest.raises(SettingError, match="is not a profile of Lambda workers"):
        wb.traces.load(tmp_path / "torn.pkl")


def kineto(path: Path, rank: int) -> None:
    """Write a profile of two steps of 1 s: 0.3 s of exchange in two overlapping calls, and 0.2 s in a nested module."""
    events = []
    for step in range(2):
        start = 1e6 * step
        events += [
            {"ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{step}", "ts": start, "dur": 1e6},
            {
                "ph": "X",
                "cat": "gpu_user_annotation",
                "name": f"ProfilerStep#{step}",
                "ts": start,
                "dur": 2e6,
            },
            {"ph": "X", "cat": "kernel", "name": "sgemm", "ts": start, "dur": 5e5},
            {"ph": "X", "cat": "python_function", "name": "nn.Module: Net_0", "ts": start, "dur": 5e5},
            {
                "ph": "X",
                "cat": "python_function",
                "name": "nn.Module: Conv2d_0",
                "ts": start + 1e5,
                "dur": 2e5,
            },
            {"ph": "X", "cat": "kernel", "name": "ncclDevKernel_AllReduce", "ts": start + 6e5, "dur": 2e5},
            {"ph": "X", "cat": "kernel", "name": "ncclDevKernel_AllReduce", "ts": start + 7e5, "dur": 2e5},
        ]
    fields = {
        "traceEvents": [*events, {"ph": "M", "name": "process_name"}],
        "distributedInfo": {"rank": rank},
    }
    path.write_bytes(gzip.compress(json.dumps(fields).encode()))


def test_load_pytorch_profiles(tmp_path: Path) -> None:
    for rank in (1, 0):
        kineto(tmp_path / f"host{rank}_77.{rank}.pt.trace.json.gz", rank)
    found = wb.traces.load(tmp_path)
    assert found.source["title"] == "PyTorch's profiler"
    np.testing.assert_allclose(found.table("exchange").to_numpy(), 0.3)
    np.testing.assert_allclose(found.table().to_numpy(), 0.7)
    for phase, seconds in (("compute: Net_0", 0.3), ("compute: Conv2d_0", 0.2)):
        np.testing.assert_allclose(found.table(phase).to_numpy(), seconds)
    assert sorted(set(found.frame["host"])) == ["host0", "host1"]


def profiled(worker: int, slow: float, folder: Path) -> None:
    """Write a profile of PyTorch for a worker with two linear layers, the second of which is slower."""
    torch = pytest.importorskip("torch", reason="PyTorch is not installed; it makes the profile")

    def forward(self: Any, x: Any) -> Any:
        time.sleep(slow)
        return torch.nn.Linear.forward(self, x)

    second = type("Second", (torch.nn.Linear,), {"forward": forward})
    net = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), second(64, 64))
    steps = torch.profiler.schedule(wait=0, warmup=1, active=20, repeat=1)
    name = str(folder / f"host{worker}_1.{worker}.pt.trace.json")
    # with two threads, waiting may take longer than the layer if the machine is busy
    torch.set_num_threads(1)
    looked = {"with_stack": True, "with_modules": True, "activities": [torch.profiler.ProfilerActivity.CPU]}
    with torch.profiler.profile(
        schedule=steps, on_trace_ready=lambda p: p.export_chrome_trace(name), **looked
    ) as prof:
        for _ in range(21):
            net(torch.ones(32, 64)).sum().backward()
            prof.step()


def test_load_a_real_profile_and_diagnose_its_slow_layer(tmp_path: Path) -> None:
    """Make profiles of three workers with PyTorch."""
    for worker in range(3):
        profiled(worker, 0.05 if worker == 1 else 0.001, tmp_path)
    found = wb.traces.load(tmp_path)
    assert {"compute: Second_0", "compute: Linear_0"} <= set(found.frame["phase"])
    (one,) = wb.diagnose(found).culprits
    assert (one.who, one.what) == ("worker 1", "layer Second_0")


def test_load_runs_and_cluster_profiles(tmp_path: Path) -> None:
    e = wb.Experiment(scheme="UMW", workers=4, rounds=8)
    trace = wb.run(e)
    trace.save(tmp_path / "run")
    kept, live = wb.traces.load(tmp_path / "run"), wb.traces.load(trace)
    pd.testing.assert_frame_equal(kept.table(), live.table())
    assert kept.table().shape == (8, 4)
    file = simulated(e, rounds=8, resamples=1).save(tmp_path / "cluster.yaml")
    measured = wb.traces.load(file)
    assert measured.source["title"] == "a cluster profile"
    assert measured.job(measured.names[0]).table().shape[1] == 4


def test_load_with_named_columns(tmp_path: Path) -> None:
    file = tmp_path / "mine.csv"
    file.write_text("who,when,took,step\na,0,0.5,x\nb,0,0.7,y\n")
    found = wb.traces.load(file, worker="who", step="when", seconds="took")
    assert found.table().to_numpy().tolist() == [[0.5, 0.7]]
    with pytest.raises(SettingError, match=r"lacks columns \['took too'\]"):
        wb.traces.load(file, worker="who", step="when", seconds="took too")
    with pytest.raises(SettingError, match="speed = 'who': columns are recording, worker"):
        wb.traces.load(file, speed="who")
    with pytest.raises(SettingError, match="source = 'alibama'"):
        wb.traces.load(file, source="alibama")
    with pytest.raises(SettingError, match="lacks columns"):
        wb.traces.load(file)
    (tmp_path / "mine.txt").write_text("?")
    with pytest.raises(SettingError, match="is not of a known kind; give it"):
        wb.traces.load(tmp_path / "mine.txt")
