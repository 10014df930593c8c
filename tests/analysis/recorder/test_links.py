"""Probes: no rank has two messages at once, each link has a turn, and messages are those of an all-reduce."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.analysis.recorder.links import (
    MAX_MESSAGES,
    MIN_MESSAGE_BYTES,
    _turn,
    probe,
    ring_messages,
)
from workbench.analysis.recorder.steps import PROBE_BYTES


@given(st.integers(2, 200))
def test_probe_turns_never_meet_at_a_rank(ranks: int) -> None:
    turns = [_turn(rank, ranks) for rank in range(ranks)]
    assert {*turns} <= {0, 1, 2}
    assert all(turns[rank] != turns[rank - 1] for rank in range(ranks))


@pytest.mark.parametrize(("ranks", "turns"), [(2, 2), (4, 2), (3, 3), (7, 3)])
def test_probe_takes_a_third_turn_for_odd_rings_only(ranks: int, turns: int) -> None:
    assert len({_turn(rank, ranks) for rank in range(ranks)}) == turns


@given(st.lists(st.integers(1, 2**27), max_size=9), st.integers(2, 64))
def test_probe_sends_the_bytes_of_ring_all_reduces(buckets: list[int], ranks: int) -> None:
    sizes = ring_messages(buckets, ranks)
    assert 0 < len(sizes) <= MAX_MESSAGES
    assert all(MIN_MESSAGE_BYTES <= size <= PROBE_BYTES for size in sizes)
    if 1 < len(sizes) < MAX_MESSAGES:
        most = sum(2 * (1 - 1 / ranks) * bucket for bucket in buckets)
        assert abs(sum(sizes) - most) <= PROBE_BYTES / 2 * len(buckets) + len(sizes)


@pytest.mark.mpi
def test_probe_of_two_ranks_ends_on_both(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="probes are messages of PyTorch")
    torch.multiprocessing.start_processes(_probed, args=(tmp_path,), nprocs=2, start_method="fork")
    for rank in range(2):
        alone, both = json.loads((tmp_path / f"{rank}.json").read_text())
        assert alone > 0
        assert both > 0


def _probed(rank: int, folder: Path) -> None:
    from torch import distributed

    store = distributed.FileStore(str(folder / "store"), 2)
    distributed.init_process_group("gloo", store=store, rank=rank, world_size=2)
    (folder / f"{rank}.json").write_text(json.dumps(probe([2**20, 2**18])))
    distributed.destroy_process_group()
