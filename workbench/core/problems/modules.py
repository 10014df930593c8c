"""PyTorch modules: how they are made, checked and seeded, their losses, and their layers of batch normalisation."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from importlib import import_module
from typing import Any

import numpy as np

from workbench.core.base.settings import SettingError

# prefixes of layers with which a sample's result depends on the other samples of its pass
MIXING_LAYERS = ("BatchNorm", "SyncBatchNorm", "LazyBatchNorm", "InstanceNorm")
LOCAL_LAYERS = ("BatchNorm1d", "BatchNorm2d", "BatchNorm3d")  # layers that batch_norm = "local" allows


def pytorch(problem: str = "torch") -> Any:
    """Return the module PyTorch. Raise `SettingError` if it is not installed."""
    try:
        return import_module("torch")
    except ImportError:
        extra = "cnn" if problem == "cnn" else "torch"
        raise SettingError(
            f"problem = {problem!r}: PyTorch is not installed; pip install 'straggler-workbench[{extra}]', or take"
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


def made(make: Callable[[], Any], seed: int, local: bool = False) -> Any:
    """Return the module, drawn with `seed`. Raise `SettingError` if it cannot be trained by sums over samples.

    `local`: allow layers of `LOCAL_LAYERS`.
    """
    t = pytorch()
    with forked(t, True):
        t.manual_seed(seed)
        module = make()
    if not isinstance(module, t.nn.Module):
        why = f"makes a {type(module).__name__}; give a class or function that makes a torch.nn.Module"
        raise SettingError(f"problem_args.module: {why}")
    _check_layers(module, local)
    trained = [p for p in module.parameters() if p.requires_grad]
    if any(isinstance(p, t.nn.parameter.UninitializedParameter) for p in trained):
        raise SettingError("problem_args.module: has lazy layers; say how many inputs each of them has")
    if not trained:
        raise SettingError("problem_args.module: has no parameters to train; give it some layers")
    return module


def _check_layers(module: Any, local: bool) -> None:
    """Raise `SettingError` for layers whose result for a sample depends on the other samples of its pass."""
    for name, layer in module.named_modules():
        kind = type(layer).__name__
        remembers = not kind.startswith("InstanceNorm") or layer.track_running_stats
        if not kind.startswith(MIXING_LAYERS) or not remembers:
            continue
        where = f"problem_args.module: what layer {name or kind!r} ({kind}) makes of a sample depends on the others"
        if not local or kind not in LOCAL_LAYERS:
            inexact = ", or accept inexact gradients with problem_args.batch_norm = 'local'"
            more = inexact if kind in LOCAL_LAYERS else ""
            why = f"in its batch, which differs from worker to worker; use GroupNorm or LayerNorm{more}"
            raise SettingError(f"{where} {why}")
        if not layer.track_running_stats:
            why = "also in evaluations, as it has track_running_stats=False; leave that out"
            raise SettingError(f"{where} {why}")


def local_layers(module: Any) -> list[Any]:
    """Return the layers of batch normalisation, set to average the statistics of several passes equally."""
    found = [layer for layer in module.modules() if type(layer).__name__ in LOCAL_LAYERS]
    for layer in found:
        layer.momentum = None
    return found


@lru_cache(maxsize=16)
def size_of(make: Callable[[], Any], digest: str, local: bool = False) -> int:
    """Count the trained parameters. The count is cached by the hash of the network's code, and of code that it uses."""
    return sum(p.numel() for p in made(make, 0, local).parameters() if p.requires_grad)


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
