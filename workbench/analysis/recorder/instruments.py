"""Instruments in PyTorch that report to a timeline when data, backward passes, exchanges and optimisers begin and end.

The user's model is not changed. While a recorder is open, functions of PyTorch are wrapped, and hooks are called before
and after every optimiser. In a backward pass, a callback is queued before that of `DistributedDataParallel`, which
waits for the exchange. So the callback is called when the rank has all its gradients.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import ExitStack, suppress
from functools import wraps
from typing import Any
from weakref import WeakKeyDictionary

from workbench.analysis.recorder.timeline import PROBE, Timeline
from workbench.ddp.wire import Channel

NS_PER_S = 1e9
# functions of torch.distributed that wait for other ranks
EXCHANGES = (
    "_broadcast_coalesced",
    "all_gather",
    "all_gather_into_tensor",
    "all_reduce",
    "all_to_all",
    "all_to_all_single",
    "barrier",
    "broadcast",
    "gather",
    "monitored_barrier",
    "recv",
    "reduce",
    "reduce_scatter",
    "reduce_scatter_tensor",
    "scatter",
    "send",
)


class Instruments:
    """Wrapped functions and hooks, from `install` to `remove`.

    `batch`: called with every batch that a DataLoader returns. `step`: called when an optimiser has made its step.
    """

    def __init__(self, timeline: Timeline, batch: Callable[[Any], None], step: Callable[[Any], None]) -> None:
        self._timeline, self._batch, self._step = timeline, batch, step
        self._thread = threading.get_ident()
        self._inside = ""  # current phase; calls of other wrapped functions within it belong to it
        self._stack = ExitStack()
        self._gradients: WeakKeyDictionary[Any, float] = WeakKeyDictionary()  # bytes of each module
        # bytes of the gradients that DistributedDataParallel exchanges in a step; 0 if unknown, as with its hooks
        self.gradient_bytes = 0.0

    def exchanges(self) -> tuple[float, list[float]]:
        """Return the seconds of a backward pass after its first gradients are sent, and the bytes of each all-reduce.

        `DistributedDataParallel` measures these seconds in its first ten steps, and then in every hundredth one. The
        method that returns them is not public. Without it, and with a hook of the user, nothing is known: (0, []).
        """
        with suppress(AttributeError, KeyError, RuntimeError, ValueError):
            known = [module._get_ddp_logging_data() for module in self._gradients if self.gradient_bytes]
            overlap = sum(each.get("backward_compute_comm_overlap_time", 0) for each in known) / NS_PER_S
            texts = [each.get("rebuilt_bucket_sizes") or each["bucket_sizes"] for each in known]
            return overlap, [float(size) for text in texts for size in text.split(",")]
        return 0.0, []

    def install(self) -> None:
        """Wrap the functions. Raises `ImportError` without PyTorch."""
        import torch
        from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
        from torch.utils.data.dataloader import _BaseDataLoaderIter

        self._wrap(torch.autograd, "backward", self._backward)
        for name in ("send", "receive"):  # messages of `workbench.ddp`
            self._wrap(Channel, name, self._exchange)
        self._wrap(_BaseDataLoaderIter, "__next__", self._data)
        self._stack.callback(register_optimizer_step_pre_hook(self._optimiser_begins).remove)
        self._stack.callback(register_optimizer_step_post_hook(self._optimiser_ends).remove)
        if torch.distributed.is_available():
            self._wrap(torch.nn.parallel.DistributedDataParallel, "forward", self._forward)
            self._wrap(torch.distributed.Work, "wait", self._exchange)
            for module in (torch.distributed, torch.distributed.distributed_c10d):
                for name in EXCHANGES:
                    if hasattr(module, name):
                        self._wrap(module, name, self._exchange)

    def remove(self) -> None:
        """Restore the functions and remove the hooks."""
        self._stack.close()

    def _wrap(self, owner: Any, name: str, around: Callable[[Any, Any, Any], Any]) -> None:
        import torch

        given = getattr(owner, name)

        @wraps(given)
        def wrapped(*args: Any, **options: Any) -> Any:
            if torch.compiler.is_compiling() or not self._counts(around):
                return given(*args, **options)
            return around(given, args, options)

        setattr(owner, name, wrapped)
        self._stack.callback(_restore, owner, name, wrapped, given)

    def _counts(self, around: Any) -> bool:
        """Return whether this is the training thread, outside of other wrapped functions and of probes.

        An exchange within a backward pass counts as well.
        """
        apart = not self._inside or (self._inside == "backward" and around == self._exchange)
        return apart and self._timeline.phase != PROBE and threading.get_ident() == self._thread

    def _forward(self, given: Any, args: Any, options: Any) -> Any:
        if (module := args[0]) not in self._gradients:
            sizes = [each.numel() * each.element_size() for each in module.parameters() if each.requires_grad]
            self._gradients[module] = float(sum(sizes)) * (not module._comm_hooks)
            known = [*self._gradients.values()]
            self.gradient_bytes = sum(known) if all(known) else 0.0
        return given(*args, **options)

    def _data(self, given: Any, args: Any, options: Any) -> Any:
        self._timeline.data_begins()
        outside, self._inside = self._inside, "data"
        try:
            batch = given(*args, **options)
        finally:
            self._inside = outside
            self._timeline.data_ends()
        self._batch(batch)
        return batch

    def _backward(self, given: Any, args: Any, options: Any) -> Any:
        hook = self._last_callback(args[0] if args else options.get("tensors"))
        self._timeline.backward_begins()
        outside, self._inside = self._inside, "backward"
        try:
            return given(*args, **options)
        finally:
            self._inside = outside
            self._timeline.backward_ends()
            if hook is not None:
                hook.remove()

    def _last_callback(self, tensors: Any) -> Any:
        """Let the first operation of a backward pass queue a callback.

        Return the hook, or None if no hook can be set.
        """
        from torch.autograd import Variable

        first = tensors[0] if isinstance(tensors, list | tuple) and tensors else tensors
        engine = getattr(Variable, "_execution_engine", None)
        if engine is None or getattr(first, "grad_fn", None) is None:
            return None

        def queue(_: Any) -> None:
            engine.queue_callback(self._timeline.gradients_are_done)

        return first.register_hook(queue)

    def _exchange(self, given: Any, args: Any, options: Any) -> Any:
        self._timeline.exchange_begins()
        outside, self._inside = self._inside, "exchange"
        try:
            return given(*args, **options)
        finally:
            self._inside = outside
            self._timeline.leave()

    def _optimiser_begins(self, *_: Any) -> None:
        if threading.get_ident() == self._thread:
            self._timeline.optimiser_begins()

    def _optimiser_ends(self, optimiser: Any, *_: Any) -> None:
        if threading.get_ident() == self._thread:
            self._step(optimiser)


def _restore(owner: Any, name: str, wrapped: Any, given: Any) -> None:
    """Restore the function, unless other code has wrapped it in the meantime."""
    if getattr(owner, name) is wrapped:
        setattr(owner, name, given)
