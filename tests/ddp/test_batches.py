"""Batches of a job: those of the script's loader, cut into parts, with augmentations that replicas share."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from workbench.core.base.settings import SettingError
from workbench.core.codes import cyclic

torch = pytest.importorskip("torch")

from torch.utils.data import (  # noqa: E402 - needs torch
    DataLoader,
    Dataset,
    DistributedSampler,
    IterableDataset,
    TensorDataset,
    WeightedRandomSampler,
)

from workbench.ddp.batches import JobBatches, RankBatches, input_digests  # noqa: E402


def data(count: int = 20) -> TensorDataset:
    return TensorDataset(torch.arange(count), torch.arange(count) % 3)


class Augmented(Dataset[Any]):
    """Samples with noise from three global generators."""

    def __len__(self) -> int:
        return 20

    def __getitem__(self, sample: int) -> Any:
        noise = random.random(), float(np.random.rand()), float(torch.rand(()))  # noqa: NPY002
        return torch.tensor([sample, *noise])


LOADERS: dict[str, Any] = {
    "shuffled": lambda: DataLoader(data(), batch_size=6, shuffle=True),
    "in order": lambda: DataLoader(data(), batch_size=6),
    "without the last": lambda: DataLoader(data(), batch_size=6, shuffle=True, drop_last=True),
    "own generator": lambda: DataLoader(data(), batch_size=6, shuffle=True, generator=torch.Generator()),
    "weighted": lambda: DataLoader(data(), 6, sampler=WeightedRandomSampler([1.0] * 20, 20)),
    "distributed": lambda: DataLoader(data(), 2, sampler=DistributedSampler(data(), 3, 1)),
}


@pytest.mark.parametrize("name", LOADERS)
def test_all_ranks_and_restarts_draw_the_same_batches(name: str) -> None:
    torch.manual_seed(1)
    one = JobBatches(LOADERS[name](), seed=0)
    first = [one.of(step) for step in range(3 * one.per_epoch)]
    torch.manual_seed(2)
    other = JobBatches(LOADERS[name](), seed=0)
    assert [other.of(step) for step in reversed(range(3 * one.per_epoch))] == first[::-1]
    assert one.per_epoch == (3 if name == "without the last" else 4)
    assert [len(batch) for batch in first[:3]] == [6, 6, 6]
    shuffled = name != "in order"
    assert (first[: one.per_epoch] != first[one.per_epoch : 2 * one.per_epoch]) == shuffled
    if shuffled:
        assert JobBatches(LOADERS[name](), seed=1).of(0) != first[0]


def test_epoch_has_every_sample_once() -> None:
    batches = JobBatches(LOADERS["distributed"](), seed=0)
    assert sorted(row for step in range(4) for row in batches.of(step)) == list(range(20))


@pytest.mark.parametrize("batch", [3, 6, 20])
def test_weights_of_all_ranks_decode_to_the_mean(batch: int) -> None:
    """The code's weights of any 4 of 5 ranks give each sample of the batch the weight 1 / batch."""
    batches, code = JobBatches(DataLoader(data(), batch_size=batch, shuffle=True), seed=0), cyclic(5, 1)
    ranks = [RankBatches(batches, row, mean=False) for row in code.matrix]
    for late in range(5):
        total, answered = np.zeros(20), tuple(rank for rank in range(5) if rank != late)
        for rank, weight in zip(answered, code.decode(answered).weights, strict=True):
            samples, weights = ranks[rank].rows(step=1)
            np.add.at(total, samples, weight * weights)
        expected = np.zeros(20)
        expected[batches.of(1)] = 1 / len(batches.of(1))
        np.testing.assert_allclose(total, expected, atol=1e-12)


def test_local_weights_are_a_mean_over_own_samples() -> None:
    samples, weights = RankBatches(JobBatches(LOADERS["shuffled"](), 0), np.eye(4)[1], mean=True).rows(0)
    assert len(samples) == 2
    assert weights.tolist() == [0.5, 0.5]


@pytest.mark.parametrize("workers", [0, pytest.param(2, marks=pytest.mark.slow)])
def test_take_skips_missed_steps(workers: int) -> None:
    loader = DataLoader(data(), batch_size=5, shuffle=True, num_workers=workers)
    batches = JobBatches(loader, seed=0)
    rank = RankBatches(batches, np.eye(2)[0], mean=False)
    for step in (0, 1, 5, 6, 13):
        assert rank.take(step)[0].tolist() == rank.rows(step)[0]


@pytest.mark.parametrize("workers", [0, pytest.param(2, marks=pytest.mark.slow)])
def test_augmentations_of_replicas_are_equal_and_new_in_each_epoch(workers: int) -> None:
    batches = JobBatches(DataLoader(Augmented(), batch_size=10, num_workers=workers), seed=0)
    ranks = [RankBatches(batches, row, mean=False) for row in np.array([[1.0, 1.0], [0.0, 1.0]])]
    found = []
    for step in (0, 2):
        random.seed(step)
        before = random.getstate()
        whole, second = (rank.take(step) for rank in ranks)
        assert random.getstate() == before or workers
        assert torch.equal(whole[5:], second)
        assert len(set(whole[:, 1].tolist())) == 10
        found.append(whole)
    assert torch.equal(found[0][:, 0], found[1][:, 0])
    assert not torch.equal(found[0], found[1])


def test_input_digests_are_of_all_tensors_of_a_sample() -> None:
    batch = {"x": torch.arange(6.0).reshape(3, 2), "y": [torch.tensor([0, 1, 2]), "text"]}
    first = input_digests(batch, 3)
    batch["y"][0][1] = 7
    changed = input_digests(batch, 3)
    assert [a == b for a, b in zip(first, changed, strict=True)] == [True, False, True]
    assert input_digests("text", 3) == []


class Stream(IterableDataset[Any]):
    """A dataset whose samples have no numbers."""

    def __iter__(self) -> Any:
        return iter(())


def test_loaders_without_numbered_samples_are_refused() -> None:
    with pytest.raises(SettingError, match="loader: its dataset is Stream"):
        JobBatches(DataLoader(Stream(), batch_size=2), 0)
    with pytest.raises(SettingError, match="lower batch_size"):
        JobBatches(DataLoader(data(), batch_size=50, drop_last=True), 0)


class Shuffled(list[int]):
    """A sampler that draws with the generators of Python and numpy."""

    def __iter__(self) -> Iterator[int]:
        order = [*range(len(self))]
        random.shuffle(order)
        np.random.shuffle(order)  # noqa: NPY002 - samplers of users do so
        return iter(order)


def test_samplers_that_draw_with_python_or_numpy_have_equal_batches_on_all_ranks() -> None:
    loader = DataLoader(TensorDataset(torch.zeros(12)), batch_size=4, sampler=Shuffled(range(12)))
    one, other = JobBatches(loader, 0), JobBatches(loader, 0)
    epochs = [one.rows(epoch) for epoch in range(3)]
    assert epochs == [other.rows(epoch) for epoch in range(3)]
    assert epochs[0] != epochs[1]
