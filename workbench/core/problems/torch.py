"""User-defined network in PyTorch, seen as a flat vector of its parameters.

Schemes, optimisers and engines see only NumPy arrays. A model is (p,) numbers: the trained parameters in the order of
`module.parameters()`. A gradient is the weighted sum over samples of the gradients of their losses. The result of a
sample must therefore not depend on the other samples of its pass. Layers that mix the samples of a batch are refused.

Random numbers of training (dropout) are drawn by commit and sample, in groups of `SAMPLES_PER_DRAW`. They do not depend
on the worker or on the round in which it computes. Workers with the same part therefore agree, and all exact schemes
have the same iterates.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from functools import lru_cache
from importlib import import_module
from threading import RLock
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import model_validator

from workbench.core.base.settings import SettingError, setting
from workbench.core.base.sources import digest_of
from workbench.core.base.types import Array
from workbench.core.base.user_code import fault_of, thing_of
from workbench.core.contract.plan import Plan
from workbench.core.contract.problem import rows_of, stretch
from workbench.core.problems.base import Evaluation, Named, Problem, Request, Slice, curvature
from workbench.core.problems.data import DataError, DataSet, catalogue, held_out, held_out_count
from workbench.core.problems.on_data import OnData

Precision = Literal["float32", "float64"]
Device = Literal["auto", "cpu", "cuda"]
# samples that share a draw: a part that begins within such a group computes the whole group
SAMPLES_PER_DRAW = 16
CURVATURE_SAMPLES = 512  # max number of samples of the curvature estimate
DIFFERENCE_STEPS = {"float32": 1e-2, "float64": 1e-4}  # relative step of its finite differences
MAX_TENSOR_BYTES = 2**26  # max bytes of samples that are converted to tensors only once
# beginnings of the names of layers that mix samples
MIXING_LAYERS = ("BatchNorm", "SyncBatchNorm", "LazyBatchNorm", "InstanceNorm")


def pytorch(problem: str = "torch") -> Any:
    """Return the module PyTorch. Raise `SettingError` if it is not installed."""
    try:
        return import_module("torch")
    except ImportError:
        raise SettingError(
            f"problem = {problem!r}: PyTorch is not installed; pip install 'straggler-workbench[{problem}]', or take"
            " problem = 'softmax', whose round times are the same for the same numbers of samples and parameters"
        ) from None


def device_of(name: str) -> Any:
    """Return the device of that name, where "auto" is CUDA if available.

    Raise `SettingError` for CUDA without a device.
    """
    there = pytorch().cuda.is_available()
    if name == "cuda" and not there:
        raise SettingError("problem_args.device = 'cuda': PyTorch finds no CUDA device; take 'cpu' or 'auto'")
    return pytorch().device("cuda" if name != "cpu" and there else "cpu")


def all_digits(t: Any) -> Any:
    """Return a context in which CUDA's convolutions round as float32 does, and are deterministic."""
    return t.backends.cudnn.flags(enabled=True, deterministic=True, allow_tf32=False)


class Network:
    """Mean loss of a PyTorch module; a `Problem`.

    `make()`: returns the module. `loss(outputs, targets)`: returns one loss per sample, or several, whose mean is
    taken. X, y: arrays or tensors with one row per sample; real numbers are converted to `precision` on `device`.
    `at_once`: samples in one pass. On a CPU, the same samples in the same order give the same bits.
    """

    rough = "of a network it is an estimate, at the first model"  # reason why `smoothness` is not a bound

    def __init__(
        self,
        make: Callable[[], Any],
        loss: Callable[[Any, Any], Any],
        X: Any,
        y: Any,
        l2: float = 0.0,
        precision: Precision = "float32",
        device: str = "auto",
        at_once: int = 256,
        init_seed: int = 0,
    ) -> None:
        self.torch = t = pytorch()
        self.device, self.kind, self.step = (
            device_of(device),
            getattr(t, precision),
            DIFFERENCE_STEPS[precision],
        )
        self.loss, self.l2, self.at_once, self.seed = loss, l2, at_once, init_seed
        self.round: int | None = None  # round whose draws are used; None = without draws
        self.batch: NDArray[np.int64] | None = None  # samples of the mini-batch, ascending; None: all
        self.samples = len(X)
        self.truth: Array | None = None
        self.lock = RLock()  # one pass at a time uses the module
        self.X, self.y = X, y
        if (
            self.device.type == "cuda"
            or isinstance(X, t.Tensor)
            or X.size * self.kind.itemsize <= MAX_TENSOR_BYTES
        ):
            self.X, self.y = self._tensor(X), self._tensor(y)
        self.module = made(make, init_seed).to(self.device, self.kind)
        trained = [p for p in self.module.parameters() if p.requires_grad]
        self.flat = t.cat([p.detach().ravel() for p in trained])
        self.slope = t.zeros_like(self.flat)
        self.size, a = len(self.flat), 0
        for p in trained:  # views of the two vectors, so that nothing is copied after a pass
            p.data, p.grad = (v[a : a + p.numel()].view(p.shape) for v in (self.flat, self.slope))
            a += p.numel()
        self.first = self.flat.cpu().numpy().astype(np.float64)
        self.draws = self._tried()

    def start(self) -> Array:
        """Return the initial parameters of the module, drawn with `init_seed`."""
        return self.first.copy()

    def at(self, round: int) -> Network:
        """Return the problem with the draws of a commit, or this problem if the network draws nothing."""
        if not self.draws:
            return self
        other = copy(self)
        other.round = round
        return other

    def among(self, batch: NDArray[np.int64]) -> Network:
        """Return the problem whose samples share draws by their place in a mini-batch, (samples,), ascending."""
        if self.round is None:
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
        """Evaluate each request in one pass over the data, and a second one for the gradient if the network draws."""
        return [self._evaluate(request) for request in requests]

    def _evaluate(self, request: Request) -> Evaluation:
        rows = np.arange(self.samples)
        weights = np.ones(self.samples) if request.weights is None else request.weights
        drawn = request.gradient and self.draws and request.round is not None
        backward = weights if request.gradient and not drawn else None
        loss, right, gradient = self._pass(request.model, rows, backward)
        if drawn:
            assert request.round is not None
            gradient = self.at(request.round)._pass(request.model, rows, weights)[2]
        metrics = {} if right is None else {"accuracy": right / self.samples}
        penalty = 0.5 * self.l2 * float(request.model @ request.model) if self.l2 else 0.0
        return Evaluation(loss / self.samples + penalty, gradient if request.gradient else None, metrics)

    def scores(self, model: Array) -> Array | None:
        """Return the score of the second class over the first for each sample, (samples,), for two classes."""
        found = []
        with self.lock, all_digits(self.torch), self.torch.no_grad():
            self._put(model)
            self.module.train(False)
            for a in range(0, self.samples, self.at_once):
                x, y = self._rows(np.arange(a, min(a + self.at_once, self.samples)))
                out = self.module(x)
                if hits(out, y) is None or tuple(out.shape[1:]) != (2,):
                    return None
                found.append((out[:, 1] - out[:, 0]).double().cpu().numpy())
        return np.concatenate(found)

    def smoothness(self, slices: Sequence[Slice] | None = None) -> float:
        """Estimate the largest curvature at the start model, on at most 512 samples; no bound holds everywhere."""
        rows, _ = rows_of([(0, self.samples, 1.0)] if slices is None else slices)
        return self.l2 + (self._curvature(rows[:: -(-len(rows) // CURVATURE_SAMPLES)]) if len(rows) else 0.0)

    def _curvature(self, rows: NDArray[np.int64]) -> float:
        """Estimate the curvature by differences of gradients, because not every layer has second derivatives."""

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
        self.module.train(self.round is not None)
        self.slope.zero_()
        with t.set_grad_enabled(weights is not None), forked(t, self.round is not None):
            for key, chosen, weight in self._blocks(rows, weights):
                if self.round is not None:
                    t.manual_seed(seed_of(self.seed, self.round, key))
                x, y = self._rows(chosen)
                out = self.module(x)
                each = a_sample(self.loss(out, y))
                if weight is not None:
                    (each * self._tensor(weight)).sum().backward()
                loss += float(each.detach().sum(dtype=t.float64))
                if (hit := hits(out, y)) is not None:
                    right = (right or 0.0) + hit
        return loss, right, self.slope.cpu().numpy().copy()

    def _blocks(
        self, rows: NDArray[np.int64], weights: Array | None
    ) -> Iterator[tuple[int, NDArray[np.int64], Array | None]]:
        """Yield the number, rows and weights of the samples of each pass."""
        if self.round is None:
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

    # ---------------------------------------------------------------- checks of the module

    def _tried(self) -> bool:
        """Return whether the network draws random numbers. Raise `SettingError` if samples affect each other."""
        few = min(4, self.samples)
        rows, others = np.arange(few), np.arange(self.samples)[-few:]
        others[0] = 0
        with self.lock, self.torch.no_grad():
            noise = self.torch.as_tensor(np.random.default_rng(0).standard_normal(self.size))
            self.flat += 0.05 * noise.to(self.flat)  # avoid parameters that are still 0
            self.module.train()
            buffers = {name: value.clone() for name, value in self.module.named_buffers()}
            one, beside, again = (self._try(*at) for at in ((rows, 1), (others, 1), (rows, 2)))
            changed = [n for n, value in self.module.named_buffers() if not value.equal(buffers[n])]
            self._put(self.first)
        slack = 1e-3 if self.kind == self.torch.float32 else 1e-9
        if few > 1 and not self.torch.allclose(one[0], beside[0], slack, slack):
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

    def _try(self, rows: NDArray[np.int64], seed: int) -> Any:
        """Return losses of some samples in training, with these draws. Raise `SettingError` with the user's line."""
        x, y = self._rows(rows)
        shapes = f"samples of shape {tuple(x.shape)} and targets of shape {tuple(y.shape)}"
        try:
            with forked(self.torch, True):
                self.torch.manual_seed(seed)
                each = self.loss(self.module(x), y)
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


@contextmanager
def forked(t: Any, draws: bool) -> Iterator[None]:
    """Return a context whose draws do not change the global generators."""
    if not draws:
        yield
        return
    with t.random.fork_rng(devices=range(t.cuda.device_count())):
        yield


def seed_of(seed: int, round: int, group: int) -> int:
    """Return the seed of the draws of a group of samples in a round."""
    return int(np.random.SeedSequence([seed, round, group]).generate_state(1, np.uint64)[0] >> 1)


def made(make: Callable[[], Any], seed: int) -> Any:
    """Return the module, drawn with `seed`. Raise `SettingError` if it cannot be trained by sums over samples."""
    t = pytorch()
    with forked(t, True):
        t.manual_seed(seed)
        module = make()
    if not isinstance(module, t.nn.Module):
        why = f"makes a {type(module).__name__}; give a class or function that makes a torch.nn.Module"
        raise SettingError(f"problem_args.module: {why}")
    for name, layer in module.named_modules():
        kind = type(layer).__name__
        remembers = not kind.startswith("InstanceNorm") or layer.track_running_stats
        if kind.startswith(MIXING_LAYERS) and remembers:
            raise SettingError(
                f"problem_args.module: what layer {name or kind!r} ({kind}) makes of a sample depends on the others in"
                " its batch, which differs from worker to worker; use GroupNorm or LayerNorm"
            )
    trained = [p for p in module.parameters() if p.requires_grad]
    if any(isinstance(p, t.nn.parameter.UninitializedParameter) for p in trained):
        raise SettingError("problem_args.module: has lazy layers; say how many inputs each of them has")
    if not trained:
        raise SettingError("problem_args.module: has no parameters to train; give it some layers")
    return module


@lru_cache(maxsize=16)
def size_of(make: Callable[[], Any], digest: str) -> int:
    """Count the trained parameters. A new hash of the network's code, or of code that it uses, gives a new count."""
    return sum(p.numel() for p in made(make, 0).parameters() if p.requires_grad)


def a_sample(each: Any) -> Any:
    """Return one loss per sample: the mean if there are several, as for a text."""
    return each.flatten(1).mean(1) if each.dim() > 1 else each


def hits(out: Any, y: Any) -> float | None:
    """Return the number of right answers, or None if the scores are not of classes.

    With several targets per sample, the share of right ones counts.
    """
    shape = getattr(out, "shape", ())
    if y.is_floating_point() or len(shape) < 2 or (*shape[:1], *shape[2:]) != tuple(y.shape):
        return None
    return float(a_sample((out.detach().argmax(dim=1) == y).double()).sum())


def cross_entropy(out: Any, y: Any) -> Any:
    """Return the loss of scores (samples, classes, ...) and labels (samples, ...)."""
    return pytorch().nn.functional.cross_entropy(out, y, reduction="none")


def mse(out: Any, y: Any) -> Any:
    """Return squared differences; outputs (samples, 1) fit targets (samples,)."""
    return (out.reshape(y.shape) - y) ** 2


LOSSES = {"cross_entropy": cross_entropy, "mse": mse}


@lru_cache(maxsize=4)
def samples_of(make: Callable[[], Any], digest: str) -> tuple[Any, Any]:
    """Return the samples of a user-defined data set, as two tensors or arrays."""
    t, found = pytorch(), make()
    found = getattr(found, "tensors", found)
    if not isinstance(found, tuple):
        pairs = [found[i] for i in range(len(found))]
        found = tuple(t.stack([t.as_tensor(part) for part in column]) for column in zip(*pairs, strict=True))
    if len(found) != 2 or len(found[0]) != len(found[1]):
        why = "give as many samples as targets: pairs (x, y), or arrays (X, y)"
        raise DataError(f"problem_args.dataset: {why}")
    return found[0], found[1]


class TorchArgs(OnData):
    """User-defined network in PyTorch, on data of the workbench or of the user.

    >>> from workbench.core.problems.torch import TorchArgs
    >>> TorchArgs.model_fields["precision"].default
    'float32'
    """

    name: ClassVar[str] = "torch"
    module: Named = setting(
        ...,
        "class or function that makes the network, called without arguments; or 'FILE.py:NAME'",
    )
    loss: Named = setting(
        "cross_entropy",
        "'cross_entropy', 'mse', or a function of outputs and targets with one loss per sample; or 'FILE.py:NAME'",
    )
    dataset: Named | None = setting(
        None, "instead of data: function that returns a Dataset of pairs, or two arrays; or 'FILE.py:NAME'"
    )
    targets: Literal["classes", "numbers"] | None = setting(
        None,
        "targets; empty = numbers with 'mse' or if the data have no classes, else classes",
    )
    precision: Precision = setting("float32", "type of the numbers in the network and in messages")
    device: Device = setting("auto", "device; auto = CUDA if there is one")
    at_once: int = setting(256, "samples in one pass through the network", "samples", ge=1)
    init_seed: int = setting(0, "seed of the start model, and of the network's random draws", ge=0)

    @model_validator(mode="after")
    def _own_data(self) -> Self:
        others = {"data", "target", "features", "intercept", "scale", "targets"}
        others |= {"data_seed"} if self.test is None else set()  # seed of the held-out samples
        if self.dataset is not None and isinstance(self.test, str):
            why = "dataset brings its own samples; take a share of them, such as 0.2"
            raise SettingError(f"test = {self.test!r}: {why}")
        if self.dataset is not None and (more := sorted(others & self.model_fields_set)):
            why = "dataset brings its own samples; leave one of the two empty"
            raise SettingError(f"{more[0]} = {getattr(self, more[0])!r}: {why}")
        return self

    @property
    def width(self) -> int:
        return 4 if self.precision == "float32" else 8

    def model_args(self) -> dict[str, Any]:
        names = {"module": self.module, "loss": self.loss, "dataset": self.dataset}
        given = {field: name for field, name in names.items() if name is not None}
        return {f: LOSSES.get(name) or thing_of(name, f"problem_args.{f}") for f, name in given.items()}

    def suits(self) -> str:
        info = catalogue().get(self.data)
        numbers = self.loss == "mse" or (info is not None and "multiclass" not in info.tasks)
        targets = self.targets or ("numbers" if numbers else "classes")
        return "regression" if targets == "numbers" else "multiclass"

    def prepared(self) -> DataSet | None:
        """Return the data of the workbench; None if the user gives the samples."""
        return None if self.dataset else self.open()

    def count(self) -> int:
        return len(self._samples()[0]) if self.dataset else super().count()

    def declared_samples(self) -> int | None:
        if not self.dataset:
            return super().declared_samples()
        return None if self.samples is None else self._learnt_from(self.samples)

    def size(self, plan: Plan | None) -> int:
        """Return the number of the network's trained parameters."""
        module = self.model_args()["module"]
        return size_of(module, digest_of(module))

    def _samples(self) -> tuple[Any, Any]:
        if self.dataset is None:
            data = self.open()
            return data.X, data.y.astype(np.int64) if data.classes else data.y
        dataset = self.model_args()["dataset"]
        X, y = samples_of(dataset, digest_of(dataset))
        if self.samples is not None and self.samples > len(X):
            raise DataError(f"problem_args.samples: {self.samples} is too large; dataset has {len(X)}")
        X, y = X[: self.samples], y[: self.samples]
        if self.test is None:
            return X, y
        assert not isinstance(self.test, str)
        classes = getattr(y, "ndim", 1) == 1 and not np.issubdtype(np.asarray(y).dtype, np.inexact)
        try:
            count = held_out_count(self.test, len(X))
            apart = held_out(y, int(np.max(np.asarray(y))) + 1 if classes else 0, count, self.data_seed)
        except DataError as error:
            raise DataError(f"problem_args.{error}") from None
        wanted = apart if self._held_out else ~apart
        return X[wanted], y[wanted]

    def build(self, plan: Plan) -> Problem:
        """Build the network and open the data.

        Raise `SettingError` without PyTorch, or if samples affect each other.
        """
        pytorch()  # before the data are prepared
        X, y = self._samples()
        args, more = self.model_args(), (self.l2, self.precision, self.device, self.at_once, self.init_seed)
        return Network(args["module"], args["loss"], X, y, *more)
