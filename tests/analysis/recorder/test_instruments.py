"""Wrapped functions of PyTorch: the phases that are recorded in exchanges, compiled code, threads and errors."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from workbench.analysis.recorder.instruments import Instruments
from workbench.analysis.recorder.timeline import Timeline

torch = pytest.importorskip("torch", reason="the instruments are for PyTorch, which is not installed")
distributed = torch.distributed
NAP_S = 0.02


@pytest.fixture
def instruments() -> Iterator[Instruments]:
    found = Instruments(Timeline(), lambda batch: None, lambda optimiser: None)
    found.install()
    yield found
    found.remove()


@pytest.fixture
def timeline(instruments: Instruments) -> Timeline:
    return instruments._timeline


@pytest.fixture
def group(tmp_path: Path) -> Iterator[None]:
    store = distributed.FileStore(str(tmp_path / "store"), 1)
    distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    yield
    distributed.destroy_process_group()


def loss() -> Any:
    return (torch.ones(3, requires_grad=True) * 2).sum()


def phases(timeline: Timeline) -> list[str]:
    return timeline.step_ends().phases


def test_instruments_see_gradients_before_the_exchange_of_ddp(timeline: Timeline, group: None) -> None:
    """A slow hook of DDP represents its exchange. A hook of the user belongs to the backward pass."""
    from torch.nn.parallel import DistributedDataParallel

    module = DistributedDataParallel(torch.nn.Linear(4, 2))

    def late(state, bucket):  # type: ignore[no-untyped-def] # DDP checks the types of arguments
        found: Any = torch.futures.Future()

        def answer() -> None:
            time.sleep(5 * NAP_S)
            found.set_result(bucket.buffer())

        threading.Thread(target=answer).start()
        return found

    module.register_comm_hook(None, late)
    x = torch.ones(3, 4, requires_grad=True)
    inner = x * 1.0
    inner.register_hook(lambda gradient: time.sleep(NAP_S))
    module(inner).sum().backward()
    seconds = timeline.step_ends().seconds()
    assert seconds["backward"] >= NAP_S
    assert seconds["exchange"] >= 2 * NAP_S


def test_instruments_count_the_bytes_of_gradients_of_ddp(instruments: Instruments, group: None) -> None:
    """Each module counts once. With a hook of the user, which may compress gradients, the bytes are unknown."""
    from torch.nn.parallel import DistributedDataParallel

    assert instruments.gradient_bytes == 0
    first, second = torch.nn.Linear(4, 2), torch.nn.Linear(4, 3).double()
    first.bias.requires_grad_(False)
    modules = [DistributedDataParallel(first), DistributedDataParallel(second)]
    for module in modules:
        for _ in range(2):
            module(torch.ones(3, 4, dtype=module.module.weight.dtype)).sum().backward()
    assert instruments.gradient_bytes == 8 * 4 + 15 * 8
    hooked = DistributedDataParallel(torch.nn.Linear(4, 2))
    hooked._comm_hooks.append((None, None))
    hooked(torch.ones(3, 4))
    assert instruments.gradient_bytes == 0


def test_instruments_keep_the_bytes_of_a_module_that_has_ended(instruments: Instruments, group: None) -> None:
    """A recorder writes its last file when the function that trains has returned, and its model is gone."""

    def train() -> None:
        torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 2))(torch.ones(3, 4)).sum().backward()

    train()
    gc.collect()
    assert instruments.gradient_bytes == 10 * 4


def test_instruments_return_the_all_reduces_and_their_overlap_with_the_backward_pass(
    instruments: Instruments, group: None
) -> None:
    """The gradients of the last layer are sent first, while those of the first layer are not computed yet."""
    layers = [torch.nn.Linear(700, 700), Late(), *[torch.nn.Linear(700, 700) for _ in range(2)]]
    module = torch.nn.parallel.DistributedDataParallel(torch.nn.Sequential(*layers), bucket_cap_mb=1)
    assert instruments.exchanges() == (0.0, [])
    for _ in range(3):
        module(torch.ones(3, 700)).sum().backward()
    overlap, buckets = instruments.exchanges()
    assert NAP_S <= overlap < 60
    assert len(buckets) == 3
    assert sum(buckets) == instruments.gradient_bytes == 3 * 701 * 700 * 4
    instruments.gradient_bytes = 0.0  # as with a hook of the user
    assert instruments.exchanges() == (0.0, [])


class Late(torch.nn.Module):
    """Identity that sleeps in its backward pass."""

    def forward(self, x: Any) -> Any:
        x.register_hook(lambda gradient: time.sleep(NAP_S))
        return x


@pytest.mark.parametrize("way", ["function", "work", "object"])
def test_instruments_see_collectives(way: str, timeline: Timeline, group: None) -> None:
    x = torch.ones(2)
    if way == "function":
        distributed.all_reduce(x)
    elif way == "work":
        distributed.all_reduce(x, async_op=True).wait()
    else:
        distributed.all_gather_object([None], {"a": 1})
    found = phases(timeline)
    assert "exchange" in found
    assert found[-2:] == ["other", "other"]  # the phase after the exchange, and the end of the step


def test_instruments_ignore_other_threads(timeline: Timeline) -> None:
    thread = threading.Thread(target=lambda: loss().backward())
    thread.start()
    thread.join()
    assert phases(timeline) == ["other", "other"]


def test_instruments_end_a_backward_pass_that_fails(timeline: Timeline) -> None:
    x = torch.ones(3, requires_grad=True)
    y = x * 1.0

    def fail(gradient: Any) -> None:
        raise ZeroDivisionError

    y.register_hook(fail)
    with pytest.raises(ZeroDivisionError):
        y.sum().backward()
    assert phases(timeline) == ["forward", "backward", "optimiser", "other"]
    loss().backward()
    assert phases(timeline) == ["forward", "backward", "exchange", "optimiser", "other"]


def test_instruments_leave_errors_as_they_are(timeline: Timeline) -> None:
    with pytest.raises(RuntimeError, match="does not require grad"):
        torch.ones(1).sum().backward()
    with pytest.raises(TypeError):
        torch.autograd.backward()
    assert phases(timeline)[-1] == "other"


def test_instruments_count_checkpointed_passes_once(timeline: Timeline) -> None:
    from torch.utils.checkpoint import checkpoint

    x = torch.ones(3, requires_grad=True)
    checkpoint(lambda y: (y * 2).exp(), x, use_reentrant=True).sum().backward()
    assert phases(timeline).count("backward") == 1


def test_instruments_see_data_that_worker_processes_load(timeline: Timeline) -> None:
    loader = torch.utils.data.DataLoader(torch.arange(4), batch_size=2, num_workers=1)
    assert [batch.tolist() for batch in loader] == [[0, 1], [2, 3]]
    assert phases(timeline).count("data") == 3  # two batches, and the end


def test_instruments_leave_functions_alone_that_others_wrapped_since() -> None:
    instruments = Instruments(Timeline(), lambda batch: None, lambda optimiser: None)
    before = torch.autograd.backward
    instruments.install()
    theirs = lambda *args, **options: before(*args, **options)  # noqa: E731
    try:
        torch.autograd.backward = theirs
        instruments.remove()
        assert torch.autograd.backward is theirs
    finally:
        torch.autograd.backward = before


def test_overlap_is_unknown_in_versions_without_the_method_of_ddp(
    instruments: Instruments, group: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 2))
    module(torch.ones(3, 4)).sum().backward()
    monkeypatch.delattr(torch.nn.parallel.DistributedDataParallel, "_get_ddp_logging_data")
    assert instruments.exchanges() == (0.0, [])
