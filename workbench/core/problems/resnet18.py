"""ResNet-18 (He et al. 2016) for small images, behind a flat vector of parameters. Needs PyTorch.

The form is that for CIFAR: a first convolution of 3 x 3 without max pooling, four stages of two blocks, the mean over
all pixels, and a linear layer. Normalisation is GroupNorm (Wu and He 2018), with which a sample's gradient does not
depend on the others of its pass. Convolutions start He normal (fan out), the linear layer with PyTorch's default.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import gcd
from typing import Any, ClassVar

import numpy as np

from workbench.core.base.settings import SettingError, setting
from workbench.core.contract.plan import Plan
from workbench.core.problems.base import Problem
from workbench.core.problems.data import DataError, catalogue
from workbench.core.problems.modules import cross_entropy, pytorch
from workbench.core.problems.network import BatchNormArgs, Network

# channels of each stage, in multiples of the width, and stride of its first block
STAGES = (1, 1), (2, 2), (4, 2), (8, 2)
BLOCKS = 2  # blocks of a stage
MAX_GROUPS = 32  # groups of GroupNorm, as in its paper
CHANNELS, SIDE = 3, 32  # channels and side of images, unless the data have others


def group_count(channels: int) -> int:
    """Return the number of groups of GroupNorm: at most 32, each of at least two channels if possible.

    >>> [group_count(channels) for channels in (8, 9, 64, 512)]
    [4, 1, 32, 32]
    """
    return gcd(channels, channels // 2, MAX_GROUPS)


def parameter_count(width: int, classes: int, channels: int = CHANNELS) -> int:
    """Return the number of parameters p.

    >>> parameter_count(64, 10)
    11173962
    """
    total, before = 9 * channels * width + 2 * width, width
    for factor, stride in STAGES:
        here = factor * width
        for block in range(BLOCKS):
            total += 9 * before * here + 9 * here * here + 4 * here
            if block == 0 and (stride > 1 or before != here):
                total += before * here + 2 * here
            before = here
    return total + before * classes + classes


def network(width: int, classes: int, image: tuple[int, int, int], batch_norm: bool) -> Any:
    """Return the layers, from rows of an image's values to the scores of the classes."""
    nn = pytorch("resnet18").nn
    norm = nn.BatchNorm2d if batch_norm else lambda channels: nn.GroupNorm(group_count(channels), channels)
    before = width
    layers = [
        nn.Unflatten(1, image),
        nn.Conv2d(image[0], width, 3, padding=1, bias=False),
        norm(width),
        nn.ReLU(),
    ]
    for factor, stride in STAGES:
        for block in range(BLOCKS):
            layers.append(_block(nn, norm, before, factor * width, stride if block == 0 else 1))
            before = factor * width
    made = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(before, classes))
    for layer in made.modules():
        if isinstance(layer, nn.Conv2d):
            nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
    return made


def _block(nn: Any, norm: Callable[[int], Any], before: int, channels: int, stride: int) -> Any:
    """Return a basic block: two convolutions beside a shortcut, which is a 1 x 1 convolution if the shape changes."""

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.residual = nn.Sequential(
                nn.Conv2d(before, channels, 3, stride, padding=1, bias=False),
                norm(channels),
                nn.ReLU(),
                nn.Conv2d(channels, channels, 3, padding=1, bias=False),
                norm(channels),
            )
            same = stride == 1 and before == channels
            other = () if same else (nn.Conv2d(before, channels, 1, stride, bias=False), norm(channels))
            self.shortcut = nn.Sequential(*other)

        def forward(self, x: Any) -> Any:
            return nn.functional.relu(self.residual(x) + self.shortcut(x))

    return Block()


class ResNet18(Network):
    """Mean cross-entropy of ResNet-18; a `Problem`. X is (d, values of an image): channel, row, column."""

    curvature_samples = 64  # few, because a pass takes long


class ResNet18Args(BatchNormArgs):
    """ResNet-18 for small images, with GroupNorm unless `batch_norm` is given. Needs PyTorch."""

    name = "resnet18"
    task: ClassVar[str] = "multiclass"
    data: str = setting(
        "synthetic_images", "'synthetic_images', 'openml:cifar10', or the path of a file or folder of images"
    )
    channels: int = setting(
        64, "channels of the first stage; 64 = ResNet-18; fewer = a network with fewer parameters", ge=1
    )
    classes: int = setting(10, "classes that the network distinguishes, at least those of the data", ge=2)
    at_once: int = setting(64, "samples in one pass through the network", "samples", ge=1)

    def _image(self) -> tuple[int, int, int]:
        """Return channels, rows and columns of an image. Raise `SettingError` if the data are not images."""
        data = self.open()
        if data.image is None:
            why = "has no images; take 'synthetic_images', 'openml:cifar10', or images of your own"
            raise SettingError(f"problem_args.data = {self.data!r}: {why} (docs/reference/data.md)")
        return data.image

    def size(self, plan: Plan | None) -> int:
        """Return the number of parameters; only data without a name are opened."""
        info = catalogue().get(self.data)
        image = info.image if info and info.image else self._image()
        return parameter_count(self.channels, self.classes, image[0])

    def build(self, plan: Plan) -> Problem:
        """Open the data. Raise `SettingError` without PyTorch, or for data that are not images."""
        pytorch("resnet18")  # checked before the data are prepared
        for field in ("intercept", "features"):
            if getattr(self, field):
                why = "an image keeps all its values and gets no others; leave it out"
                raise SettingError(f"problem_args.{field} = {getattr(self, field)}: {why}")
        data, image = self.open(), self._image()
        if data.classes > self.classes:
            why = f"{self.data!r} has {data.classes}; take {data.classes} or more"
            raise DataError(f"problem_args.classes = {self.classes}: {why}")
        return ResNet18(
            partial(network, self.channels, self.classes, image, bool(self.batch_norm)),
            cross_entropy,
            (data.X, data.y.astype(np.int64)),
            self,
            self.augmentation(len(data.y), image),
            self.loaded().X if self._held_out else None,
        )
