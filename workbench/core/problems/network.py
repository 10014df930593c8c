"""Network in PyTorch, seen as a flat vector of its parameters.

Schemes, optimisers and engines see only NumPy arrays. A model is (p,) numbers: the trained parameters in the order of
`module.parameters()`. A gradient is the weighted sum over samples of the gradients of their losses. So the result of
a sample must not depend on the other samples of its pass. Layers that mix the samples of a batch are refused.

Random numbers of training (dropout) are drawn by commit and sample, in groups of `SAMPLES_PER_DRAW`. They do not
depend on the worker or on the round in which it computes. So replicas of a part agree, and all exact schemes have the
same iterates. The same is true of augmentation (see `augmentation`).

`batch_norm` = "local" is the exception. Gradients then use the statistics of the pass that computes them, which has
the samples of one message of one worker. Evaluations use statistics that are measured first, at the same model, on
training samples ("precise BN", Wu and Johnson 2021). The results are equal on the two engines. No scheme is exact.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from copy import copy
from itertools import pairwise
from threading import RLock
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from workbench.core.base.errors import RunError
from workbench.core.base.settings import SettingError, setting
from workbench.core.base.types import Array
from workbench.core.base.user_code import fault_of
from workbench.core.contract.problem import rows_of, stretch
from workbench.core.problems.augmentation import Augmentation
from workbench.core.problems.base import Evaluation, Request, Slice, curvature
from workbench.core.problems.modules import (
    a_sample,
    all_digits,
    device_of,
    forked,
    hits,
    local_layers,
    made,
    pytorch,
    seed_of,
)
from workbench.core.problems.on_data import OnData

Precision = Literal["float32", "float64"]
Device = Literal["auto", "cpu", "cuda"]
# number of samples that share a draw; a part that begins within such a group computes the whole group
SAMPLES_PER_DRAW = 16
CURVATURE_SAMPLES = 512  # max number of samples of the curvature estimate
DIFFERENCE_STEPS = {
    "float32": 1e-2,
    "float64": 1e-4,
}  # length of the steps of the finite differences of that estimate
SAMPLES_PER_PASS = 512  # samples in one pass through a network whose arguments do not set the number
MAX_TENSOR_BYTES = 2**26  # max bytes of samples that are converted to tensors only once
STATISTICS_SAMPLES = 1024  # max number of training samples on which statistics of evaluations are measured

INEXACT = (
    "problem_args.batch_norm = 'local': BatchNorm makes a sample's gradient depend on the others of its worker's pass,"
    " so no scheme is exact"
)


class Network:
    """Mean loss of a PyTorch module; a `Problem`.

    `make()`: returns the module. `loss(outputs, targets)`: returns one loss per sample, or several, whose mean is
    taken. `samples`: X and y, arrays or tensors with one row per sample; real numbers are converted to the precision of
    `args` on its device. On a CPU, the same samples in the same order give the same bits.

    `augmentation`: changes images in training. `population`: training samples on which the statistics of batch
    normalisation are measured for evaluations; default: the first of X.
    """

    curvature_samples = CURVATURE_SAMPLES
    rough = "of a network it is an estimate, at the first model"  # reason why `smoothness` is not a bound

    def __init__(
        self,
        make: Callable[[], Any],
        loss: Callable[[Any, Any], Any],
        samples: tuple[Any, Any],
        args: NetworkArgs,
        augmentation: Augmentation | None = None,
        population: Any = None,
    ) -> None:
        self.torch = t = pytorch()
        self.device, self.kind = device_of(args.device), getattr(t, args.precision)
        self.step, self.at_once = DIFFERENCE_STEPS[args.precision], getattr(args, "at_once", SAMPLES_PER_PASS)
        self.loss, self.l2, self.seed = loss, args.l2, args.init_seed
        self.round: int | None = None  # round whose draws are used; None = without draws
        self.batch: NDArray[np.int64] | None = None  # samples of the mini-batch, ascending; None: all
        X, y = self.X, self.y = samples
        self.samples = len(X)
        self.truth: Array | None = None
        self.lock = RLock()  # one pass at a time uses the module
        if (
            self.device.type == "cuda"
            or isinstance(X, t.Tensor)
            or X.size * self.kind.itemsize <= MAX_TENSOR_BYTES
        ):
            self.X, self.y = self._tensor(X), self._tensor(y)
        local = bool(args.inexact)  # whether layers of batch normalisation are allowed
        self.module = made(make, self.seed, local).to(self.device, self.kind)
        self.local = local_layers(self.module) if local else []
        self.augmentation, self.population = augmentation, self.X if population is None else population
        trained = [p for p in self.module.parameters() if p.requires_grad]
        self.flat = t.cat([p.detach().ravel() for p in trained])
        self.slope = t.zeros_like(self.flat)
        self.size, a = len(self.flat), 0
        # parameters and gradients become views of two vectors, so that nothing is copied after a pass
        for p in trained:
            p.data, p.grad = (v[a : a + p.numel()].view(p.shape) for v in (self.flat, self.slope))
            a += p.numel()
        self.first = self.flat.cpu().numpy().astype(np.float64)
        self.draws = _tried(self)

    def start(self) -> Array:
        """Return the initial parameters of the module, drawn with `init_seed`."""
        return self.first.copy()

    def at(self, round: int) -> Network:
        """Return the problem with the draws of a commit, or this problem if nothing is drawn."""
        if not self.draws and self.augmentation is None:
            return self
        other = copy(self)
        other.round = round
        return other

    def among(self, batch: NDArray[np.int64]) -> Network:
        """Return the problem whose samples share draws by their place in a mini-batch, (samples,), ascending."""
        if self.round is None or not self.draws:
            return self
        other = copy(self)
        other.batch = batch
        return other

    def gradient(self, slices: Sequence[Slice], model: Array) -> Array:
        """Return the weighted sum of the slices' gradients, shape (p,), in the network's precision."""
        return self._pass(model, *rows_of(slices))[2]

    def rows_gradient(self, rows: NDArray[np.int64], weights: Array, model: Array) -> Array:
        """Return the weighted sum of the gradients of some samples, shape (p,)."""
        return self._pass(model, rows, weights)[2]

    def evaluate(self, requests: Sequence[Request]) -> list[Evaluation]:
        """Evaluate each request in one pass over the data, and a second one for a gradient that needs other passes."""
        return [self._evaluate(request) for request in requests]

    def _evaluate(self, request: Request) -> Evaluation:
        rows = np.arange(self.samples)
        weights = np.ones(self.samples) if request.weights is None else request.weights
        other = self if request.round is None else self.at(request.round)
        apart = request.gradient and (other is not self or bool(self.local))
        backward = weights if request.gradient and not apart else None
        loss, right, gradient = self._pass(request.model, rows, backward)
        if apart:
            gradient = other._pass(request.model, rows, weights)[2]
        metrics = {} if right is None else {"accuracy": right / self.samples}
        penalty = 0.5 * self.l2 * float(request.model @ request.model) if self.l2 else 0.0
        return Evaluation(loss / self.samples + penalty, gradient if request.gradient else None, metrics)

    def scores(self, model: Array) -> Array | None:
        """Return the score of the second class minus that of the first for each sample, (samples,), for two classes."""
        found = []
        with self.lock, all_digits(self.torch), self.torch.no_grad():
            self._put(model)
            self._set_modes(training=False)
            for a in range(0, self.samples, self.at_once):
                x, y = self._rows(np.arange(a, min(a + self.at_once, self.samples)))
                out = self.module(x)
                if hits(out, y) is None or tuple(out.shape[1:]) != (2,):
                    return None
                found.append((out[:, 1] - out[:, 0]).double().cpu().numpy())
        return np.concatenate(found)

    def smoothness(self, slices: Sequence[Slice] | None = None) -> float:
        """Estimate the largest curvature at the start model, on some of the samples. No bound holds everywhere."""
        rows, _ = rows_of([(0, self.samples, 1.0)] if slices is None else slices)
        return self.l2 + (
            self._curvature(rows[:: -(-len(rows) // self.curvature_samples)]) if len(rows) else 0.0
        )

    def _curvature(self, rows: NDArray[np.int64]) -> float:
        """Estimate by differences of gradients, because not every layer has second derivatives."""

        def mean(model: Array) -> Array:
            return self._pass(model, rows, np.ones(len(rows)))[2].astype(np.float64) / len(rows)

        return curvature(mean, self.first, self.step, self.seed)

    # ---------------------------------------------------------------- passes in PyTorch

    def _pass(
        self, model: Array, rows: NDArray[np.int64], weights: Array | None
    ) -> tuple[float, float | None, Array]:
        """Return the sum of losses, number of right answers (None without classes), and weighted sum of gradients."""
        with self.lock, all_digits(self.torch):
            self._put(model)
            return self._run(rows, weights)

    def _run(self, rows: NDArray[np.int64], weights: Array | None) -> tuple[float, float | None, Array]:
        t, loss, right = self.torch, 0.0, None
        self._set_modes(training=weights is not None)
        self.slope.zero_()
        with t.set_grad_enabled(weights is not None), forked(t, self.round is not None):
            for key, chosen, weight in self._blocks(rows, weights):
                x, y = self._rows(chosen)
                if self.round is not None:
                    t.manual_seed(seed_of(self.seed, self.round, key))
                    x = x if self.augmentation is None else self.augmentation(x, chosen, self.round)
                out = self._outputs(x)
                each = a_sample(self.loss(out, y))
                if weight is not None:
                    (each * self._tensor(weight)).sum().backward()
                loss += float(each.detach().sum(dtype=t.float64))
                if (hit := hits(out, y)) is not None:
                    right = (right or 0.0) + hit
        return loss, right, self.slope.cpu().numpy().copy()

    def _outputs(self, x: Any) -> Any:
        try:
            return self.module(x)
        except ValueError:
            if len(x) > 1 or not self.local:
                raise
            why = "this pass has one sample, which has no statistics; take a larger batch, or GroupNorm"
            raise RunError(f"problem_args.batch_norm = 'local': {why}") from None

    def _set_modes(self, training: bool) -> None:
        """Let layers draw in training for a round, and measure the statistics of batch normalisation otherwise."""
        self.module.train(training and self.round is not None)
        for layer in self.local:
            layer.train()
            layer.reset_running_stats()
        if training or not self.local:
            return
        known = self.population[:STATISTICS_SAMPLES]
        with self.torch.no_grad():
            for rows in self._cut(np.arange(len(known))):
                # a copy, because the module may write into it
                self._outputs(self._tensor(known[rows[0] : rows[-1] + 1]).clone())
        for layer in self.local:
            layer.eval()

    def _cut(self, rows: NDArray[np.int64]) -> list[NDArray[np.int64]]:
        """Return the samples in passes of nearly equal size, so that no pass has too few for its statistics."""
        return np.array_split(rows, max(1, -(-len(rows) // self.at_once))) if len(rows) else []

    def _blocks(
        self, rows: NDArray[np.int64], weights: Array | None
    ) -> Iterator[tuple[int, NDArray[np.int64], Array | None]]:
        """Yield for each pass: the number that seeds its random draws, its rows, and their weights."""
        if self.local and weights is not None:
            ends = np.cumsum([0, *map(len, self._cut(rows))]).tolist()
            yield from ((int(rows[a]), rows[a:b], weights[a:b]) for a, b in pairwise(ends))
            return
        if self.round is None or not self.draws:
            for a in range(0, len(rows), self.at_once):
                block = slice(a, a + self.at_once)
                yield a, rows[block], None if weights is None else weights[block]
            return
        assert weights is not None
        everybody = np.arange(self.samples) if self.batch is None else self.batch
        places = rows if self.batch is None else np.searchsorted(self.batch, rows)
        for group in np.unique(places // SAMPLES_PER_DRAW).tolist():
            first, here = group * SAMPLES_PER_DRAW, places // SAMPLES_PER_DRAW == group
            chosen = everybody[first : first + SAMPLES_PER_DRAW]
            yield group, chosen, np.bincount(places[here] - first, weights[here], len(chosen)).astype(float)

    def _put(self, model: Array) -> None:
        if self.device.type == "cpu":
            np.copyto(self.flat.numpy(), model, casting="same_kind")
        else:
            self.flat.copy_(self.torch.tensor(model))

    def _rows(self, rows: NDArray[np.int64]) -> tuple[Any, Any]:
        if isinstance(self.X, self.torch.Tensor):  # copied, because a module may write into its input
            chosen = self.torch.as_tensor(rows, device=self.device)
            return self.X[chosen], self.y[chosen]
        taken = stretch(rows)
        return self._tensor(self.X[taken]), self._tensor(self.y[taken])

    def _tensor(self, values: Any) -> Any:
        found = values if isinstance(values, self.torch.Tensor) else self.torch.as_tensor(np.array(values))
        return found.to(self.device, self.kind if found.is_floating_point() else None)


def _tried(problem: Network) -> bool:
    """Return whether the network draws random numbers. Raise `SettingError` if samples affect each other."""
    few = min(4, problem.samples)
    rows, others = np.arange(few), np.arange(problem.samples)[-few:]
    others[0] = 0
    with problem.lock, problem.torch.no_grad():
        noise = problem.torch.as_tensor(np.random.default_rng(0).standard_normal(problem.size))
        problem.flat += 0.05 * noise.to(problem.flat)  # avoid parameters that are still 0
        problem.module.train()
        for layer in problem.local:
            layer.eval()
        buffers = {name: value.clone() for name, value in problem.module.named_buffers()}
        one, beside, again = (_try(problem, *at) for at in ((rows, 1), (others, 1), (rows, 2)))
        changed = [n for n, value in problem.module.named_buffers() if not value.equal(buffers[n])]
        problem._put(problem.first)
    slack = 1e-3 if problem.kind == problem.torch.float32 else 1e-9
    if few > 1 and not problem.torch.allclose(one[0], beside[0], slack, slack):
        raise SettingError(
            "problem_args.module: what comes of a sample depends on the samples beside it; let every layer look at"
            " one sample alone, as GroupNorm and LayerNorm do"
        )
    if changed:
        raise SettingError(
            f"problem_args.module: its buffer {changed[0]!r} changes from pass to pass; let nothing but the"
            " parameters remember, as GroupNorm and LayerNorm do"
        )
    return not one.equal(again)


def _try(problem: Network, rows: NDArray[np.int64], seed: int) -> Any:
    """Return losses of some samples in training, with the draws of `seed`.

    Raise `SettingError` with the user's line.
    """
    x, y = problem._rows(rows)
    shapes = f"samples of shape {tuple(x.shape)} and targets of shape {tuple(y.shape)}"
    try:
        with forked(problem.torch, True):
            problem.torch.manual_seed(seed)
            each = problem.loss(problem.module(x), y)
    except Exception as error:  # user code may raise any exception
        why, fault = " ".join(f"{type(error).__name__}: {error}".split()), fault_of(error)
        raise SettingError(
            f"problem_args.module: cannot take {shapes} ({why}{f'; {fault.line}' if fault else ''})"
        ) from error
    if tuple(each.shape[:1]) != (len(rows),):
        raise SettingError(
            f"problem_args.loss: gives shape {tuple(each.shape)} for {shapes}; give a loss a sample, as"
            " PyTorch's do with reduction='none'"
        )
    return a_sample(each)


class NetworkArgs(OnData):
    """Base of the problems in PyTorch: precision, device, augmentation and the seed of the start model."""

    precision: Precision = setting("float32", "type of the numbers in the network and in messages")
    device: Device = setting("auto", "device; auto = CUDA if there is one")
    flip: bool = setting(False, "mirror images in training with probability 1/2, drawn by round and sample")
    crop: int = setting(
        0,
        "border of zeros around each image, from which a window of the image's size is cut in training, drawn by round"
        " and sample",
        "pixels",
        ge=0,
    )
    init_seed: int = setting(
        0, "seed of the start model, of augmentation and of the network's random draws", ge=0
    )

    @property
    def width(self) -> int:
        """Bytes of a value in a message."""
        return 4 if self.precision == "float32" else 8

    def augmentation(self, samples: int, image: tuple[int, int, int] | None) -> Augmentation | None:
        """Return how images are changed in training, or None. Raise `SettingError` if the samples are not images.

        `image`: channels, rows and columns of a sample, or None.
        """
        if self._held_out or not (self.flip or self.crop):
            return None
        field = f"crop = {self.crop}" if self.crop else "flip = True"
        if image is None:
            why = "the samples are not known to be images; take a set of images, or leave it out"
            raise SettingError(f"problem_args.{field}: {why}")
        if self.crop > (most := min(image[1:])):
            why = f"is more than the side of the images of {image[1]} x {image[2]} pixels; take 0 to {most}"
            raise SettingError(f"problem_args.crop = {self.crop}: {why}")
        return Augmentation(samples, image, self.flip, self.crop, self.init_seed)


class BatchNormArgs(NetworkArgs):
    """Base of the problems whose networks may have layers of batch normalisation."""

    batch_norm: Literal["local"] | None = setting(
        None,
        "'local' = BatchNorm with the statistics of each worker's own pass, with which no scheme is exact; empty = none"
        " (resnet18 then has GroupNorm)",
    )

    @property
    def inexact(self) -> str:
        """Reason why no scheme commits the full gradient; empty without batch normalisation."""
        return INEXACT if self.batch_norm else ""
