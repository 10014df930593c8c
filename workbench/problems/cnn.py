"""The convolutional network of paper 1 (section IV-B, table II) behind a flat vector of parameters; needs PyTorch.

Table II gives the layers: Conv 3 -> 16 (3 x 3, padding 1), Conv 16 -> 64 (4 x 4), Linear 64-384-192-10. It does not
say how 32 x 32 pixels become the 64 numbers that the first Linear takes; here the largest of 4 x 4 pixels follows the
first convolution and the mean over all the second, each after its ReLU. Convolutions start Glorot uniform, the rest as
PyTorch has it. Everything that schemes, optimisers and engines see is NumPy: a model is (117706,) float64.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from workbench.base.settings import SettingError, setting
from workbench.base.types import Array
from workbench.core.plan import Plan
from workbench.problems.base import Evaluation, Problem, Request, Slice
from workbench.problems.data import DataError, DataSet, catalogue
from workbench.problems.on_data import OnData
from workbench.problems.torch import Device, Precision, all_digits, device_of, pytorch

SIDE, CHANNELS, CLASSES = 32, 3, 10  # of CIFAR-10
SHAPES = (  # weights and biases, layer by layer
    (16, 3, 3, 3), (16,), (64, 16, 4, 4), (64,), (384, 64), (384,), (192, 384), (192,), (10, 192), (10,),
)  # fmt: skip
SIZE = sum(int(np.prod(shape)) for shape in SHAPES)
BLOCK = 512  # samples in one pass through the network
PROBED, POWER_STEPS = 512, 12  # samples and steps that the curvature is estimated with


def torch() -> Any:
    """PyTorch; raises `SettingError` where it is not installed."""
    return pytorch("cnn")


class Cnn:
    """Mean cross-entropy of the network; a `Problem`. X is (d + held out, 3072) with values per channel, row, column.

    The last `held_out` rows are kept for the metric `test_accuracy`. Work is done in `precision` on `device`; the same
    samples in the same order give the same bits on a CPU. On CUDA, convolutions keep all digits of their numbers:
    PyTorch's usual ones have 10 bits, in which a coded gradient could not be told from a wrong one.
    """

    def __init__(
        self,
        X: Array,
        y: Array,
        l2: float = 0.0,
        held_out: int = 0,
        precision: Precision = "float32",
        device: str = "auto",
        init_seed: int = 0,
    ) -> None:
        self.torch, self.device = torch(), device_of(device)
        self.kind = getattr(self.torch, precision)
        self.samples, self.size, self.l2 = len(X) - held_out, SIZE, l2
        self.truth: Array | None = None
        self.init_seed = init_seed
        self.X, self.y = X, np.asarray(y)
        self._resident = self._put(X[: len(X)]) if self.device.type == "cuda" else None

    def start(self) -> Array:
        """Glorot uniform convolutions, PyTorch's own start for the rest; drawn from `init_seed`."""
        t = self.torch
        random = t.Generator().manual_seed(self.init_seed)
        pieces = [_drawn(shape, SHAPES[i - i % 2], random, t) for i, shape in enumerate(SHAPES)]
        return np.asarray(t.cat([piece.ravel() for piece in pieces]).numpy())

    def gradient(self, slices: Sequence[Slice], model: Array) -> Array:
        """Weighted sum of the slices' gradients, shape (p,): all of them in blocks of samples, copied together."""
        kept = [(a, b, w) for a, b, w in slices if b > a]
        if not kept:
            return np.zeros(self.size)
        rows = np.concatenate([np.arange(a, b) for a, b, _ in kept])
        weights = np.repeat([w for *_, w in kept], [b - a for a, b, _ in kept])
        return self._pass(model, rows, weights)[2]

    def evaluate(self, requests: Sequence[Request]) -> list[Evaluation]:
        """One pass over the data for each request."""
        return [self._evaluate(request) for request in requests]

    def _evaluate(self, request: Request) -> Evaluation:
        rows = np.arange(self.samples)
        weights = np.ones(self.samples) if request.weights is None else request.weights
        loss, right, gradient = self._pass(request.model, rows, weights if request.gradient else None)
        metrics = {"accuracy": right / self.samples}
        if len(self.X) > self.samples:
            test = np.arange(self.samples, len(self.X))
            metrics["test_accuracy"] = self._pass(request.model, test, None)[1] / len(test)
        penalty = 0.5 * self.l2 * float(request.model @ request.model) if self.l2 else 0.0
        return Evaluation(loss / self.samples + penalty, gradient if request.gradient else None, metrics)

    def smoothness(self, slices: Sequence[Slice] | None = None) -> float:
        """Largest curvature at the start model, on at most 512 samples: an estimate, no bound holds everywhere."""
        ranges = [(0, self.samples)] if slices is None else [(a, b) for a, b, _ in slices if b > a]
        rows = np.concatenate([np.arange(a, b) for a, b in ranges]) if ranges else np.arange(0)
        if not len(rows):
            return self.l2
        return self._curvature(rows[:: -(-len(rows) // PROBED)]) + self.l2

    # ---------------------------------------------------------------- PyTorch's side

    def _pass(
        self, model: Array, rows: NDArray[np.int64], weights: Array | None
    ) -> tuple[float, float, Array]:
        """Sum of losses, number of right answers, weighted sum of gradients (zeros without weights)."""
        t = self.torch
        flat = t.as_tensor(model, dtype=self.kind, device=self.device).requires_grad_(weights is not None)
        loss, right, total = 0.0, 0.0, np.zeros(self.size)
        with all_digits(t), t.set_grad_enabled(weights is not None):
            for block in _blocks(rows):
                scores, labels = self._scores(flat, rows[block]), self._labels(rows[block])
                each = t.nn.functional.cross_entropy(scores, labels, reduction="none")
                loss += float(each.detach().sum(dtype=t.float64))
                right += float((scores.detach().argmax(dim=1) == labels).sum())
                if weights is not None:
                    w = t.as_tensor(weights[block], dtype=self.kind, device=self.device)
                    (part,) = t.autograd.grad((each * w).sum(), flat)
                    total += part.cpu().numpy()
        return loss, right, total

    def _scores(self, flat: Any, rows: NDArray[np.int64]) -> Any:
        return network(flat, self._images(rows), self.torch)

    def _images(self, rows: NDArray[np.int64]) -> Any:
        if self._resident is not None:
            return self._resident[self.torch.as_tensor(rows, device=self.device)]
        return self._put(self.X[rows])

    def _put(self, X: Array) -> Any:
        images = self.torch.as_tensor(np.array(X, dtype=np.float64), dtype=self.kind, device=self.device)
        return images.reshape(-1, CHANNELS, SIDE, SIDE)

    def _labels(self, rows: NDArray[np.int64]) -> Any:
        return self.torch.as_tensor(self.y[rows], dtype=self.torch.long, device=self.device)

    def _curvature(self, rows: NDArray[np.int64]) -> float:
        """Power iteration with products of the Hessian and a vector."""
        with all_digits(self.torch):
            return self._largest(rows)

    def _largest(self, rows: NDArray[np.int64]) -> float:
        t = self.torch
        flat = t.as_tensor(self.start(), dtype=self.kind, device=self.device).requires_grad_()
        loss = t.nn.functional.cross_entropy(self._scores(flat, rows), self._labels(rows))
        (slope,) = t.autograd.grad(loss, flat, create_graph=True)
        random = t.Generator().manual_seed(self.init_seed)
        v = t.randn(self.size, generator=random, dtype=t.float64).to(flat)
        top = 0.0
        for _ in range(POWER_STEPS):
            v = v / v.norm()
            (product,) = t.autograd.grad(slope @ v, flat, retain_graph=True)
            top = float(product.norm())
            v = product
        return top


def network(flat: Any, images: Any, t: Any) -> Any:
    """Scores (samples, 10) of the images (samples, 3, 32, 32) under a flat vector of parameters."""
    f = t.nn.functional
    pieces = flat.split([int(np.prod(shape)) for shape in SHAPES])
    w = [piece.reshape(shape) for piece, shape in zip(pieces, SHAPES, strict=True)]
    x = f.max_pool2d(f.relu(f.conv2d(images, w[0], w[1], padding=1)), 4)
    x = f.relu(f.conv2d(x, w[2], w[3])).mean(dim=(2, 3))
    x = f.relu(f.linear(x, w[4], w[5]))
    x = f.relu(f.linear(x, w[6], w[7]))
    return f.linear(x, w[8], w[9])


def _drawn(shape: tuple[int, ...], weight: tuple[int, ...], random: Any, t: Any) -> Any:
    """Uniform numbers: sqrt(6 / (fan in + fan out)) for a convolution's weights, else 1 / sqrt(fan in), as PyTorch."""
    field = int(np.prod(weight[2:]))
    fan_in, fan_out = weight[1] * field, weight[0] * field
    bound = np.sqrt(6 / (fan_in + fan_out)) if len(shape) == 4 else 1 / np.sqrt(fan_in)
    return (2 * t.rand(shape, generator=random, dtype=t.float64) - 1) * bound


def _blocks(rows: NDArray[np.int64]) -> Iterator[slice]:
    return (slice(a, a + BLOCK) for a in range(0, len(rows), BLOCK))


class CnnArgs(OnData):
    """The convolutional network of paper 1, table II, on images of 3 x 32 x 32 (CIFAR-10's shape); needs PyTorch."""

    name: ClassVar[str] = "cnn"
    task: ClassVar[str] = "multiclass"
    features: int | None = setting(
        3072, "pixels of an image; the network takes 3 x 32 x 32", ge=3072, le=3072
    )
    held_out: int = setting(0, "samples kept apart for the metric test_accuracy", "samples", ge=0)
    precision: Precision = setting("float32", "numbers that the network computes with")
    device: Device = setting("auto", "where; auto = CUDA where there is one")
    init_seed: int = setting(0, "seed of the start model", ge=0)

    def count(self) -> int:
        """Number of samples d, those held out not counted."""
        if self.samples is None:
            return super().count() - self.held_out
        return self.samples

    def size(self, plan: Plan | None) -> int:
        """117706, whatever the data."""
        return SIZE

    def open(self) -> DataSet:
        """The samples and those held out, in one set."""
        info = catalogue().get(self.data)
        if info and info.name != "synthetic" and self.features and info.features < self.features:
            raise DataError(
                f"problem_args.data = {self.data!r}: has {info.features} features, and the network takes pictures of"
                f" {self.features} numbers; use 'synthetic', or 'openml:cifar10'"
            )
        if self.samples is None or not self.held_out:
            return super().open()
        return self.replace(samples=self.samples + self.held_out, held_out=0).open()

    def build(self, plan: Plan) -> Problem:
        """Open the data; raises `SettingError` without PyTorch, or for data of another shape."""
        torch()  # before the data are prepared
        if self.intercept:
            raise SettingError(
                "problem_args.intercept = True: the network has biases of its own; leave it out"
            )
        data = self.open()
        if data.classes > CLASSES:
            raise SettingError(
                f"problem_args.data = {self.data!r}: has {data.classes} classes, the network {CLASSES}; take a set with"
                " at most so many"
            )
        return Cnn(data.X, data.y, self.l2, self.held_out, self.precision, self.device, self.init_seed)
