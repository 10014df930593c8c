"""Augmentation in training: images are mirrored, and shifted within a border of zeros.

The draws follow from (seed, round, sample). With mini-batches the round is the job that draws the batch. All workers
that store a sample therefore see the same image of it, on both engines and in resumed runs. Exact schemes stay exact.
Losses and metrics are evaluated on unchanged images.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from workbench.core.contract.delays import CounterRNG

AUGMENTATION_STREAM = 11  # random stream of flips and crops; `contract.delays.base` lists all
# number of rounds whose draws are cached, because asynchronous workers are in different rounds
CACHED_ROUNDS = 4


@dataclass(frozen=True)
class Augmentation:
    """Random changes of images, drawn by round and sample.

    `samples`: size of the data set (d). `flip`: mirror an image, left to right, with probability 1/2. `crop`: border of
    zeros in pixels, from which an image of the old size is cut. `image`: channels, rows and columns.

    >>> Augmentation(samples=5, image=(3, 32, 32), flip=True, crop=4, seed=0).drawn(7).shape
    (5, 3)
    """

    samples: int
    image: tuple[int, int, int]
    flip: bool
    crop: int
    seed: int

    def drawn(self, round: int) -> NDArray[np.int64]:
        """Return whether each sample is mirrored, and its first row and column in the bordered image, (samples, 3)."""
        return _drawn(self, round)

    def __call__(self, x: Any, rows: NDArray[np.int64], round: int) -> Any:
        """Return the changed images of some samples, a tensor of the shape of `x`: (rows, values) or (rows, *image)."""
        from torch.nn.functional import pad

        channels, height, width = self.image
        mirrored, top, left = self.drawn(round)[rows].T
        down = top[:, None] + np.arange(height)
        across = np.arange(width)
        across = left[:, None] + np.where(mirrored[:, None] == 1, across[::-1], across)
        images = pad(x.reshape(len(rows), channels, height, width), (self.crop,) * 4)
        place = np.arange(len(rows))[:, None, None]
        places = (place, slice(None), down[:, :, None], across[:, None, :])
        return images[places].permute(0, 3, 1, 2).reshape(x.shape)  # the sliced axis comes last


@lru_cache(maxsize=CACHED_ROUNDS)
def _drawn(augmentation: Augmentation, round: int) -> NDArray[np.int64]:
    random = CounterRNG(augmentation.seed, AUGMENTATION_STREAM).rng(round)
    mirrored = random.integers(0, 2, augmentation.samples) * augmentation.flip
    places = random.integers(0, 2 * augmentation.crop + 1, (augmentation.samples, 2))
    return np.column_stack([mirrored, places])
