"""Traces of PyTorch's profiler: their ranks, communication events, and errors for damaged files."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import workbench as wb
from tests.support.profiler_files import (
    SECOND,
    STEP,
    Event,
    event,
    events,
    four,
    rank,
    refused,
    seconds,
    write,
)
from workbench.analysis.recordings.sources.kineto.spans import Cover
from workbench.analysis.recordings.sources.kineto.workers import _varying

HOSTS = (
    "10.0.0.0",
    "10.0.0.1",
    "node1.rack1.example",
    "node2.rack1.example",
    "gpu_node_1",
    "gpu_node_2",
    "n-1",
    "vm",
)


@st.composite
def runs(draw: st.DrawFn) -> tuple[np.ndarray[Any, Any], list[str], int, str, list[int]]:
    """Draw seconds (steps, workers), the host of each worker, windows, file names, and the order of files."""
    workers, steps, cut = draw(st.integers(1, 13)), draw(st.integers(2, 6)), draw(st.integers(1, 2))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    times = rng.integers(100, 900, (steps, workers)) / 1000
    hosts = [draw(st.sampled_from(HOSTS)) for _ in range(workers)]
    how = draw(st.sampled_from(["handler", "host_name", "rank in the name", "worker names"]))
    return times, hosts, cut, how, rng.permutation(workers).tolist()


@given(runs())
def test_kineto_recording_is_independent_of_file_names_and_order(
    run: tuple[np.ndarray[Any, Any], list[str], int, str, list[int]],
) -> None:
    times, hosts, cut, how, order = run
    with tempfile.TemporaryDirectory() as name:
        for w in order:
            pid = 3000 - 7 * w  # process ids have no order
            for window, part in enumerate(np.array_split(np.arange(len(times)), cut)):
                stem = f"rank{w}" if how in ("host_name", "rank in the name") else f"{hosts[w]}_{pid}"
                file = Path(name) / f"{stem}.{9 - window}.pt.trace.json{'.gz' * (w % 2)}"
                text = rank(w) if how in ("handler", "host_name") else {}
                text |= {"host_name": hosts[w]} if how in ("host_name", "rank in the name") else {}
                write(file, events(times[part, w], int(part[0])), **text)
        found = wb.traces.load(Path(name))
    workers: list[Any] = list(range(times.shape[1]))
    if how == "worker names" and len(workers) > 1:
        workers = [f"{hosts[w]}_{3000 - 7 * w}" for w in workers]
    assert seconds(found) == dict(zip(workers, times.T.tolist(), strict=True))
    assert found.frame.groupby("worker")["host"].first().to_dict() == dict(zip(workers, hosts, strict=True))


WORDS = (
    "nccl",
    "gloo",
    "broadcast",
    "all_reduce",
    "allgather",
    "c10d::",
    "nccl:all_reduce",
    "reduce_scatter",
)


@given(
    category=st.sampled_from(
        ["python_function", "user_annotation", "gpu_user_annotation", "cpu_op", "kernel", "ac2g", ""]
    ),
    before=st.sampled_from(["train_", "my ", "/home/", "DDP::", "<built-in method ", "#"]),
    word=st.sampled_from(WORDS),
    after=st.sampled_from(["", "_features", ".py(12): step", ">", " #2"]),
)
@example(category="python_function", before="", word="nccl:all_reduce", after="")
@example(category="gpu_user_annotation", before="", word="nccl:all_reduce", after="")
@example(category="user_annotation", before="", word="broadcast", after="_features")
@example(category="cpu_op", before="", word="record_param_comms", after="_features")
@example(category="user_annotation", before="", word="nccl", after=": setting up")
def test_kineto_events_of_other_libraries_are_not_communication(
    category: str, before: str, word: str, after: str
) -> None:
    with tempfile.TemporaryDirectory() as name:
        other = event(f"{before}{word}{after}", 1.7e15, 1e5, category)
        found = wb.traces.load(four(Path(name), other))
    assert seconds(found) == {r: [0.7 if r == 2 else 0.4] * 6 for r in range(4)}


@pytest.mark.parametrize(
    ("category", "name"),
    [
        *(("user_annotation", f"{backend}:all_reduce") for backend in ("nccl", "gloo", "mpi", "ucc", "xccl")),
        *(
            ("user_annotation", f"nccl:{what}")
            for what in ("_all_gather_base", "send 0->1", "coalesced", "broadcast")
        ),
        *(
            ("cpu_op", name)
            for name in (
                "record_param_comms",
                "c10d::allreduce_",
                "_c10d_functional::wait_tensor",
                "_c10d_functional_autograd::all_to_all_single",
            )
        ),
        ("kernel", "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"),
        ("kernel", "ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclDevComm*, unsigned long, ncclWork*)"),
        ("Kernel", "ncclAllReduceRingLLKernel_sum_f32(ncclColl)"),
    ],
)
def test_kineto_events_of_each_backend_are_communication(tmp_path: Path, category: str, name: str) -> None:
    some = events([0.5, 0.5, 0.5])
    some = [each | {"name": name, "cat": category} if each["name"][0] == "g" else each for each in some]
    write(tmp_path / "rank0.json", some)
    assert seconds(wb.traces.load(tmp_path)) == {0: [0.5] * 3}


def test_kineto_host_of_the_file_counts_before_its_name(tmp_path: Path) -> None:
    for r, name in enumerate(["node_1", "node_2"]):
        write(tmp_path / f"{name}.1.pt.trace.json", events([0.5]), **rank(r), host_name=f"gpu{r}.site")
    assert wb.traces.load(tmp_path).frame.groupby("worker")["host"].first().tolist() == [
        "gpu0.site",
        "gpu1.site",
    ]


def test_kineto_overlapped_communication_is_not_waiting(tmp_path: Path) -> None:
    """A step of 1 s: its all-reduce runs in another thread from 0.2 s on, the backward pass from 0.1 to 0.8 s."""
    start = 1.7e15
    step = [event("ProfilerStep#0", start, STEP), event("gloo:all_reduce", start + 2e5, 8e5, tid=2)]
    backward = event("autograd::engine::evaluate_function: SlowBackward", start + 1e5, 7e5, "cpu_op")
    write(tmp_path / "rank0.json", [*step, backward])
    write(tmp_path / "rank1.json", step)
    # an operator that contains a collective waits for it
    write(tmp_path / "rank2.json", [*step, backward, event("c10d::allreduce_", start + 2e5, 1e4, "cpu_op")])
    assert seconds(wb.traces.load(tmp_path)) == {0: [0.8], 1: [0.2], 2: [0.2]}
    kernels = [
        event("sgemm", start + 1e5, 4e5, "kernel"),
        event("ncclDevKernel_AllReduce", start + 2e5, 8e5, "kernel"),
    ]
    write(tmp_path / "gpu" / "rank0.json", [step[0], *kernels])
    assert seconds(wb.traces.load(tmp_path / "gpu")) == {0: [0.5]}


def test_kineto_layers_exclude_communication(tmp_path: Path) -> None:
    start = 1.7e15
    modules = [
        event("nn.Module: Net_0", start, 7e5, "python_function"),
        event("nn.Module: Conv_0", start + 1e5, 2e5, "python_function"),
    ]
    write(tmp_path / "rank0.json", [*events([0.6]), *modules])
    found = wb.traces.load(tmp_path).table(None).to_numpy()
    assert found.round(4).tolist() == [[0.6]]
    phases = {
        phase: wb.traces.load(tmp_path).table(phase).to_numpy().item()
        for phase in ("compute: Net_0", "compute: Conv_0")
    }
    assert phases == pytest.approx({"compute: Net_0": 0.4, "compute: Conv_0": 0.2})


def test_kineto_ranks_are_read_from_numbers_in_file_names(tmp_path: Path) -> None:
    for style, name in enumerate(
        ("rank{}.1.pt.trace.json", "trace-rank_{}.json", "worker_{}.17.pt.trace.json", "w{}.json.gz")
    ):
        folder = tmp_path / str(style)
        for r in range(12):
            write(folder / name.format(r), events([0.7 if r == 2 else 0.4] * 8))
        assert seconds(wb.traces.load(folder)) == {r: [0.7 if r == 2 else 0.4] * 8 for r in range(12)}
        (one,) = wb.diagnose(wb.traces.load(folder)).culprits
        assert one.who == "worker 2"


@pytest.mark.parametrize("number", [None, "1", 1.0])
def test_kineto_ranks_may_be_null_or_text(tmp_path: Path, number: Any) -> None:
    write(tmp_path / "rank1.json", events([0.5, 0.5]), **rank(number))
    write(tmp_path / "rank0.json", events([0.4, 0.4]), distributedInfo=None)
    assert seconds(wb.traces.load(tmp_path)) == {0: [0.4] * 2, 1: [0.5] * 2}
    for name in ("trace.json", "local_rank_3.json", "dp_rank1_tp_rank2.json"):
        file = write(tmp_path / "one" / name, events([0.4, 0.4]), **rank(None), baseTimeNanoseconds=10**400)
        assert seconds(wb.traces.load(file)) == {0: [0.4] * 2}


@pytest.mark.parametrize("number", [-1, 1.5, "first", True, [0], {}, "1e3"])
def test_kineto_refuses_ranks_that_are_not_numbers(tmp_path: Path, number: Any) -> None:
    refused(
        write(tmp_path / "rank1.json", events([0.5]), **rank(number)),
        "rank1.json",
        "distributedInfo.rank",
        repr(number),
    )


@pytest.mark.parametrize(
    ("names", "ranks"),
    [
        (("a.json", "b.json"), (None, None)),
        (("trace_20250101.json", "trace_20250102.json"), (None, None)),  # dates
        (("node0_local_rank0.json", "node1_local_rank0.json"), (None, None)),
        (("dp_rank0_tp_rank1.json", "dp_rank1_tp_rank0.json"), (None, None)),
        (("n_1.1.pt.trace.json", "n_2.1.pt.trace.json"), (0, None)),
        (("rank1.json", "rank2.json"), (0, None)),
    ],
)  # fmt: skip
def test_kineto_refuses_files_without_a_rank(
    tmp_path: Path, names: tuple[str, ...], ranks: tuple[Any, ...]
) -> None:
    for name, number in zip(names, ranks, strict=True):
        write(tmp_path / name, events([0.4, 0.5]), **rank(number))
    refused(tmp_path, names[1], "no distributedInfo.rank", "rank0.json")


def test_kineto_windows_of_one_process_are_one_worker(tmp_path: Path) -> None:
    for place, first in enumerate((20, 0, 10)):  # the order in the file differs from that of the times
        write(tmp_path / f"vm_77.{place}.pt.trace.json", events([0.1 + first / 100] * 2, first))
    assert seconds(wb.traces.load(tmp_path)) == {0: [0.1, 0.1, 0.2, 0.2, 0.3, 0.3]}
    assert wb.traces.load(tmp_path).table().index.tolist() == [0, 1, 10, 11, 20, 21]


def test_kineto_windows_that_restart_at_zero_are_consecutive(tmp_path: Path) -> None:
    for r in range(2):
        for epoch in range(3):
            write(
                tmp_path / f"vm_{r}.{epoch}.pt.trace.json",
                events([0.1 * (1 + epoch + r)] * 2, at=1e9 * (1 + epoch)),
                **rank(r),
            )
    found = wb.traces.load(tmp_path)
    assert seconds(found) == {0: [0.1, 0.1, 0.2, 0.2, 0.3, 0.3], 1: [0.2, 0.2, 0.3, 0.3, 0.4, 0.4]}
    assert found.table().index.tolist() == list(range(6))
    for short, whole in ((0, 1), (1, 0)):
        shutil.copytree(
            tmp_path, tmp_path / f"{short}", ignore=shutil.ignore_patterns(f"vm_{short}.2.*", "0", "1")
        )
        refused(tmp_path / f"{short}", f"worker {whole} has 3 windows", f"worker {short} 2")


def test_kineto_refuses_copies_and_mixed_runs(tmp_path: Path) -> None:
    write(tmp_path / "vm_1.1.pt.trace.json", events([0.4] * 3), **rank(0))
    write(tmp_path / "copy" / "vm_1.1.pt.trace.json", events([0.4] * 3), **rank(0))
    shutil.copy(tmp_path / "vm_1.1.pt.trace.json", tmp_path / "copy" / "vm_1.2.pt.trace.json")
    refused(
        tmp_path / "copy",
        "vm_1.1.pt.trace.json and vm_1.2.pt.trace.json are both of worker 0, and overlap in time",
    )
    write(tmp_path / "vm_2.2.pt.trace.json", events([0.4] * 3, 10), **rank(0))
    refused(
        tmp_path,
        "vm_1.1.pt.trace.json and vm_2.2.pt.trace.json are both of worker 0, but of different processes",
    )


@pytest.mark.parametrize(
    ("late", "is_refused"), [(3, False), (60, False), (120, True), (3600, True), (-3600, True)]
)
def test_kineto_refuses_files_of_two_runs(tmp_path: Path, late: float, is_refused: bool) -> None:
    """Files of one rank end before those of another begin, by more than clocks of hosts differ. Six steps take 7 s."""
    for r in range(2):
        write(tmp_path / f"rank{r}.json", events([0.4] * 6, at=1.7e15 + r * late * SECOND), **rank(r))
    if is_refused:
        first, second = ("rank0", "rank1") if late > 0 else ("rank1", "rank0")
        refused(tmp_path, f"{first}.json ends", f"s before {second}.json begins; give the files of one run")
    else:
        assert list(seconds(wb.traces.load(tmp_path))) == [0, 1]


def test_kineto_times_without_a_date_may_differ_between_hosts(tmp_path: Path) -> None:
    """They count from the start of a host, or of its process."""
    for r in range(2):
        write(tmp_path / f"rank{r}.json", events([0.4] * 6, at=1e9 + r * 1e12), **rank(r))
    assert list(seconds(wb.traces.load(tmp_path))) == [0, 1]


@pytest.mark.parametrize(
    "cut",
    [
        lambda step, exchange: [step | {"dur": None}, exchange],
        lambda step, exchange: [{k: v for k, v in step.items() if k != "dur"}, exchange],
        lambda step, exchange: [step | {"ph": "B"} | {"dur": None}],
        lambda step, exchange: [step, exchange | {"dur": None}],
        lambda step, exchange: [step | {"dur": 20}],  # training ended before the next call of step()
    ],
)
def test_kineto_skips_unfinished_steps_and_reports_it(
    tmp_path: Path, cut: Callable[..., list[Event]]
) -> None:
    for r in range(3):
        some = events([0.3 + 0.1 * r] * 5)
        write(tmp_path / f"rank{r}.json", [*some[:-2], *(cut(*some[-2:]) if r == 1 else some[-2:])])
    found = wb.traces.load(tmp_path)
    assert found.table().loc[:3, 1].round(4).tolist() == [0.4] * 4
    assert np.isnan(found.table().loc[4, 1])
    assert "unfinished steps (4 of worker 1)" in str(wb.diagnose(found))
    write(tmp_path / "one" / "rank0.json", cut(*events([0.4])))
    if "dur" not in str(cut(*events([0.4]))[0]) or cut(*events([0.4]))[0].get("dur") != 20:
        refused(tmp_path / "one", "rank0.json", "has no finished ProfilerStep")


def test_kineto_refuses_a_repeated_step(tmp_path: Path) -> None:
    some = [*events([0.4, 0.4]), *events([0.4], at=2e15)]
    refused(
        write(tmp_path / "rank0.json", some),
        "ProfilerStep#0 is there twice, in traceEvents[0] and traceEvents[4]; give one file for each rank",
    )


def test_kineto_reads_a_folder_of_sampled_files(tmp_path: Path) -> None:
    for r in (0, 1):
        write(tmp_path / f"hta_sampled_rank-{r}.json.gz", events([0.4, 0.5]), **rank(r))
    (tmp_path / "about.json").write_text("{}")
    (tmp_path / "._rank-0.json").write_bytes(b"\0\1")
    assert seconds(wb.traces.load(tmp_path)) == {0: [0.4, 0.5], 1: [0.4, 0.5]}
    shutil.rmtree(tmp_path)
    tmp_path.mkdir()
    (tmp_path / "about.json").write_text("{}")
    refused(tmp_path, "is not of a known kind")


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 5))), st.integers(0, 26), st.integers(0, 26))
def test_cover_measures_unions_of_intervals(spans: list[tuple[int, int]], a: int, b: int) -> None:
    start, end = sorted((a, b))
    covered = {moment for begin, took in spans for moment in range(begin, begin + took)}
    cover = Cover([(float(begin), float(begin + took)) for begin, took in spans])
    assert cover.within(start, end) == len(covered & set(range(start, end)))


def test_varying_numbers_between_file_names() -> None:
    assert _varying(["a1b2", "a3b2"]) == [1, 3]
    assert _varying(["a1b2", "a3b4"]) == []


TRAIN = """
import os, sys, time, torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.profiler import profile, schedule, tensorboard_trace_handler, ProfilerActivity
rank, world, out = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
dist.init_process_group("gloo", init_method=f"file://{out}.store", rank=rank, world_size=world)
torch.set_num_threads(1)
model = DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Linear(64, 8)))
optimiser = torch.optim.SGD(model.parameters(), 1e-3)
def broadcast_features():
    if rank == 1:
        time.sleep(0.1)
    return torch.randn(32, 64)
plan = schedule(wait=1, warmup=1, active=8)
handler = tensorboard_trace_handler(out)
with profile(activities=[ProfilerActivity.CPU], schedule=plan, on_trace_ready=handler, with_stack=True) as p:
    for _ in range(24):
        with torch.profiler.record_function("broadcast_features"):
            batch = broadcast_features()
        optimiser.zero_grad()
        model(batch).pow(2).mean().backward()
        optimiser.step()
        p.step()
dist.barrier()
"""


@pytest.mark.slow
def test_kineto_diagnosis_names_the_slow_rank_of_a_real_profile(tmp_path: Path) -> None:
    """Three ranks use gloo. They are profiled in three windows, of which the last one ends with the training."""
    pytest.importorskip("torch", reason="PyTorch is not installed; it makes the profile")
    script, out = tmp_path / "train_nccl.py", tmp_path / "out"
    script.write_text(TRAIN)
    own = os.environ | {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    ranks = [
        subprocess.Popen(
            [sys.executable, str(script), str(r), "3", str(out)], env=own, stderr=subprocess.DEVNULL
        )
        for r in range(3)
    ]
    assert [each.wait(300) for each in ranks] == [0, 0, 0]
    assert len(list(out.glob("*.pt.trace.json"))) == 9
    found = wb.traces.load(out)
    assert found.table().shape == (18, 3)
    assert found.table().notna().all(axis=None)
    assert "unfinished steps (24 of worker 0, 24 of worker 1, 24 of worker 2)" in found.source["left_out"]
    diagnosis = wb.diagnose(found)
    assert diagnosis.culprits[0].who == "worker 1"
    assert found.table()[1].median() >= 0.1
    assert len(set(found.frame["host"])) == 1
