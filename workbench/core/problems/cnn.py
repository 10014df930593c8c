"""The convolutional network of paper 1 (section IV-B, table II) behind a flat vector of parameters. Needs PyTorch.

Table II gives the layers: Conv 3 -> 16 (3 x 3, padding 1), Conv 16 -> 64 (4 x 4), Linear 64-384-192-10. It omits how
32 x 32 pixels become the 64 inputs of the first Linear layer. Here, the first convolution and its ReLU are followed
by the maximum over 4 x 4 pixels. The second convolution and its ReLU are followed by the mean over all pixels.
Convolutions start Glorot uniform, the other layers with PyTorch's default. Schemes, optimisers and engines see only
NumPy arrays: a model is (117706,) float64.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from workbench.core.base.settings import SettingError, setting
from workbench.core.base.types import Array
from workbench.core.contract.links import BYTES_PER_FLOAT
from workbench.core.contract.plan import Plan
from workbench.core.problems.base import POWER_STEPS, Problem
from workbench.core.problems.data import DataError, DataSet, catalogue
from workbench.core.problems.modules import all_digits, cross_entropy, pytorch
from workbench.core.problems.network import Network, NetworkArgs, Precision

SIDE, CHANNELS, CLASSES = 32, 3, 10  # shape of CIFAR-10 images
SHAPES = (  # weights and biases, layer by layer
    (16, 3, 3, 3), (16,), (64, 16, 4, 4), (64,), (384, 64), (384,), (192, 384), (192,), (10, 192), (10,),
)  # fmt: skip
SIZE = sum(int(np.prod(shape)) for shape in SHAPES)


def torch() -> Any:
    """Return the module PyTorch. Raise `SettingError` if it is not installed."""
    return pytorch("cnn")


class Cnn(Network):
    """Mean cross-entropy of the network; a `Problem`. X is (d, 3072): values by channel, row, column."""

    def __init__(self, X: Array, y: Array, args: CnnArgs) -> None:
        augmentation = args.augmentation(len(y), (CHANNELS, SIDE, SIDE))
        super().__init__(network, cross_entropy, (X, y.astype(np.int64)), args, augmentation)
        self.first = drawn(self.seed)

    def _pass(
        self, model: Array, rows: NDArray[np.int64], weights: Array | None
    ) -> tuple[float, float | None, Array]:
        """Run a pass as `Network` does, with gradients as float64, which is the type in messages."""
        loss, right, gradient = super()._pass(model, rows, weights)
        return loss, right, gradient.astype(np.float64)

    def _curvature(self, rows: NDArray[np.int64]) -> float:
        """Estimate the curvature by Hessian-vector products. Finite differences would cross the kinks of the ReLUs."""
        t, top = self.torch, 0.0
        with self.lock, all_digits(t):
            self._put(self.first)
            x, y = self._rows(rows)
            trained = list(self.module.parameters())
            slopes = t.autograd.grad(self.loss(self.module(x), y).mean(), trained, create_graph=True)
            slope = t.cat([part.ravel() for part in slopes])
            random = t.Generator().manual_seed(self.seed)
            v = t.randn(self.size, generator=random, dtype=t.float64).to(slope)
            for _ in range(POWER_STEPS):
                product = t.autograd.grad(slope @ (v / v.norm()), trained, retain_graph=True)
                v = t.cat([part.ravel() for part in product])
                top = float(v.norm())
        return top


def network() -> Any:
    """Return the layers of table II, from rows of 3072 values to 10 scores."""
    nn = torch().nn
    first = [nn.Unflatten(1, (CHANNELS, SIDE, SIDE)), nn.Conv2d(CHANNELS, 16, 3, padding=1), nn.ReLU()]
    second = [nn.MaxPool2d(4), nn.Conv2d(16, 64, 4), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    linear = [nn.Linear(64, 384), nn.ReLU(), nn.Linear(384, 192), nn.ReLU(), nn.Linear(192, CLASSES)]
    return nn.Sequential(*first, *second, *linear)


def drawn(seed: int) -> Array:
    """Draw the start model: Glorot uniform convolutions, and PyTorch's default for the other layers."""
    t = torch()
    random = t.Generator().manual_seed(seed)
    pieces = [_drawn(shape, SHAPES[i - i % 2], random, t) for i, shape in enumerate(SHAPES)]
    return np.asarray(t.cat([piece.ravel() for piece in pieces]).numpy())


def _drawn(shape: tuple[int, ...], weight: tuple[int, ...], random: Any, t: Any) -> Any:
    """Draw uniform numbers, up to sqrt(6 / (fan in + fan out)) for weights of convolutions, else 1 / sqrt(fan in)."""
    field = int(np.prod(weight[2:]))
    fan_in, fan_out = weight[1] * field, weight[0] * field
    bound = np.sqrt(6 / (fan_in + fan_out)) if len(shape) == 4 else 1 / np.sqrt(fan_in)
    return (2 * t.rand(shape, generator=random, dtype=t.float64) - 1) * bound


class CnnArgs(NetworkArgs):
    """The convolutional network of paper 1, table II, on images of 3 x 32 x 32 (CIFAR-10's shape). Needs PyTorch."""

    name = "cnn"
    task: ClassVar[str] = "multiclass"
    features: int | None = setting(3072, "pixels of an image; the network takes 3x32x32", ge=3072, le=3072)
    precision: Precision = setting("float32", "type of the numbers that the network computes with")

    @property
    def width(self) -> int:
        """Bytes of a value in a message, which is float64."""
        return BYTES_PER_FLOAT

    def size(self, plan: Plan | None) -> int:
        """Return 117706, which does not depend on the data."""
        return SIZE

    def open(self) -> DataSet:
        """Open the data. Raise `DataError` for images of another size."""
        info = catalogue().get(self.data)
        if info and not info.drawn and self.features and info.features < self.features:
            raise DataError(
                f"problem_args.data = {self.data!r}: has {info.features} features, and the network takes pictures of"
                f" {self.features} numbers; use 'synthetic_images', or 'openml:cifar10'"
            )
        return super().open()

    def build(self, plan: Plan) -> Problem:
        """Open the data. Raise `SettingError` without PyTorch, or for data of another shape."""
        torch()  # checked before the data are prepared
        if self.intercept:
            why = "the network contains biases; leave it out"
            raise SettingError(f"problem_args.intercept = True: {why}")
        data = self.open()
        why = ""
        if data.classes > CLASSES:
            why = f"has {data.classes} classes, the network {CLASSES}; take a set with at most as many"
        elif data.image not in (None, (CHANNELS, SIDE, SIDE)):
            size = " x ".join(map(str, data.image))
            why = f"has images of {size} (channels, rows, columns), and the network takes 3 x 32 x 32; resize them"
        if why:
            raise SettingError(f"problem_args.data = {self.data!r}: {why}")
        return Cnn(data.X, data.y, self)
