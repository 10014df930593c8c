"""Batches of a job: every rank draws the same samples of each step, and loads those of its own parts.

The batch of a step is the one that the script's DataLoader would return in a script of one process. Its samples are cut
into parts, in order. When the sampler draws, the generators of torch, numpy and random are seeded by job and epoch.
While a sample is loaded, they are seeded by job, epoch and sample. So batches and augmentations of replicas are equal.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized
from contextlib import contextmanager
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, DistributedSampler, IterableDataset, TensorDataset

from workbench.core.base.settings import SettingError
from workbench.core.base.types import Array
from workbench.ddp.wire import digest

Row = tuple[int, int]  # epoch, index of a sample in the data set


class JobBatches:
    """Samples of each step's batch. They are the same on every rank.

    `loader`: the script's DataLoader. With a `DistributedSampler`, the batches of all its replicas are one batch.
    """

    def __init__(self, loader: DataLoader[Any], seed: int) -> None:
        if isinstance(loader.dataset, IterableDataset) or loader.batch_sampler is None:
            kind = type(loader.dataset).__name__
            raise SettingError(f"loader: its dataset is {kind}; take numbered samples, and a batch_size")
        self.loader, self.seed = loader, seed
        self.samples = len(cast(Sized, loader.dataset))
        self._sampler: Iterable[Iterable[int]] = loader.batch_sampler
        self._epoch: tuple[int, list[list[int]]] = (0, self.rows(0))
        self.per_epoch = len(self._epoch[1])
        if not self.per_epoch:
            raise SettingError(f"loader: has no batch of {self.samples} samples; lower batch_size")

    def of(self, step: int) -> list[int]:
        """Return the indices of a step's samples. Steps are numbered from 0."""
        epoch, place = divmod(step, self.per_epoch)
        if epoch != self._epoch[0]:
            self._epoch = (epoch, self.rows(epoch))
        return self._epoch[1][place]

    def rows(self, epoch: int) -> list[list[int]]:
        """Return the samples of each batch of an epoch."""
        sampler = self.loader.sampler
        if isinstance(sampler, DistributedSampler):
            return self._of_replicas(sampler, epoch)
        own = getattr(sampler, "generator", None)
        with generators_restored():
            seed_generators(seed := key(self.seed, epoch))
            if own is not None:
                own.manual_seed(seed)
            return [list(map(int, batch)) for batch in self._sampler]

    def _of_replicas(self, sampler: DistributedSampler[Any], epoch: int) -> list[list[int]]:
        count, size = self.samples, self.loader.batch_size or 1
        generator = torch.Generator().manual_seed(key(self.seed, epoch))
        order = torch.randperm(count, generator=generator).tolist() if sampler.shuffle else [*range(count)]
        whole = size * sampler.num_replicas
        last = count - count % whole if self.loader.drop_last else count
        return [order[begin : begin + whole] for begin in range(0, last, whole)]


class RankBatches:
    """Batches of one rank: the samples of its parts, and their weights in the rank's loss.

    `coefficients`: coefficient of each part in the rank's gradient, (parts,). `mean`: whether the rank's loss is the
    mean over its own samples, instead of a weighted sum over parts of the batch. `take` skips steps that the rank has
    missed.
    """

    def __init__(self, batches: JobBatches, coefficients: Array, mean: bool) -> None:
        self.batches, self.coefficients, self.mean = batches, coefficients, mean
        self.parts = np.flatnonzero(coefficients).tolist()
        self._first = 0  # step from which batches are loaded
        self._loading: deque[int] = deque()
        self._iterator: Iterator[Any] | None = None

    def rows(self, step: int) -> tuple[list[int], Array]:
        """Return the samples that the rank computes in a step, and their weights.

        A rank without samples computes one sample with the weight 0.
        """
        batch = self.batches.of(step)
        shares = np.array_split(np.asarray(batch), len(self.coefficients))
        chosen = [shares[part] for part in self.parts]
        samples = [sample for share in chosen for sample in share.tolist()]
        weights = np.repeat(self.coefficients[self.parts], [len(share) for share in chosen])
        if not samples:
            return batch[:1], np.zeros(1)
        return samples, weights / (len(samples) if self.mean else len(batch))

    def take(self, step: int) -> Any:
        """Return the loaded batch of a step."""
        again, self._first = step < self._first, step
        if self._iterator is None or again:
            self._loading.clear()
            self._iterator = iter(self._loader())
        while True:
            batch, at = next(self._iterator), self._loading.popleft()
            if at == step:
                self._first = step + 1
                return batch

    def __iter__(self) -> Iterator[list[Any]]:
        """Yield the items of each step's samples. The DataLoader may ask for them some steps ahead."""
        step, plain = self._first, not isinstance(self._loader_dataset(), KeyedDataset)
        while True:
            step = max(step, self._first)
            self._loading.append(step)
            samples, epoch = self.rows(step)[0], step // self.batches.per_epoch
            yield samples if plain else [(epoch, sample) for sample in samples]
            step += 1

    def _loader_dataset(self) -> Dataset[Any]:
        dataset = self.batches.loader.dataset
        return dataset if isinstance(dataset, TensorDataset) else KeyedDataset(dataset, self.batches.seed)

    def _loader(self) -> DataLoader[Any]:
        given = self.batches.loader
        names = ["num_workers", "collate_fn", "pin_memory", "timeout", "worker_init_fn"]
        names += ["multiprocessing_context", "prefetch_factor"] if given.num_workers else []
        same: dict[str, Any] = {name: getattr(given, name) for name in names}
        return DataLoader(self._loader_dataset(), batch_sampler=cast(Any, self), **same)


class KeyedDataset(Dataset[Any]):
    """A dataset whose random augmentations depend only on seed, epoch and sample. Its items are (epoch, sample)."""

    def __init__(self, dataset: Dataset[Any], seed: int) -> None:
        self.dataset, self.seed = dataset, seed

    def __getitem__(self, row: Row) -> Any:
        return self.__getitems__([row])[0]

    def __getitems__(self, rows: Sequence[Row]) -> list[Any]:
        """Return the items of several samples."""
        items = []
        with generators_restored():
            for epoch, sample in rows:
                seed_generators(key(self.seed, epoch, sample))
                items.append(self.dataset[sample])
        return items


def key(*numbers: int) -> int:
    """Return a seed of 63 bits, derived from the given numbers.

    >>> key(0, 1) == key(0, 1), key(0, 1) == key(1, 0)
    (True, False)
    """
    return int(digest(repr(numbers).encode()), 16) >> 1


def seed_generators(seed: int) -> None:
    """Seed the global generators of torch, numpy and random."""
    torch.default_generator.manual_seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002 - augmentations of other libraries use it
    random.seed(seed)


@contextmanager
def generators_restored() -> Iterator[None]:
    """Restore the states of the global generators after a block."""
    saved = torch.get_rng_state(), np.random.get_state(), random.getstate()  # noqa: NPY002
    try:
        yield
    finally:
        torch.set_rng_state(saved[0])
        np.random.set_state(saved[1])  # noqa: NPY002
        random.setstate(saved[2])


def input_digests(batch: Any, samples: int) -> list[str]:
    """Return a hash of the inputs of each sample, or [] if no tensor of the batch has one row per sample.

    `samples`: number of samples in the batch. Tensors whose first axis has another length are ignored.
    """
    tensors = [tensor.detach().cpu().contiguous() for tensor in tensors_in(batch)]
    fit = [tensor for tensor in tensors if tensor.dim() and len(tensor) == samples]
    if not fit:
        return []
    rows = [tensor.reshape(samples, -1).view(torch.uint8).numpy() for tensor in fit if tensor.numel()]
    return [digest(b"".join(row[place].tobytes() for row in rows)) for place in range(samples)]


def tensors_in(batch: Any) -> Iterator[Tensor]:
    """Yield the tensors of nested tuples, lists and dicts.

    >>> [tensor.tolist() for tensor in tensors_in({"x": torch.ones(1), "y": (torch.zeros(1), "text")})]
    [[1.0], [0.0]]
    """
    if isinstance(batch, Tensor):
        yield batch
    elif isinstance(batch, Mapping):
        yield from (found for each in batch.values() for found in tensors_in(each))
    elif isinstance(batch, list | tuple):
        yield from (found for each in batch for found in tensors_in(each))
