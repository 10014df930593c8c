"""Job of one rank, as a script uses it: batches, one weighted backward pass, and the exchange with the master.

A weighted sum of losses has the coded gradient as its gradient, so that one backward pass is enough for several parts.
With gradient schemes, the gradients of the parameters are then those of the batch, on every rank in time. The script's
own optimiser takes the same step there. With `LocalSGD` and `H-SGD`, models are averaged instead, after the optimiser's
step if an average is due, and at the end of each loop over batches.
"""

from __future__ import annotations

import atexit
import sys
import time
from collections.abc import Iterator, Mapping
from math import nan
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils.data import DataLoader

from workbench.core.base.errors import RunError
from workbench.core.base.settings import SettingError
from workbench.core.base.types import Array
from workbench.core.contract.exchanges import Group
from workbench.ddp import environment, states
from workbench.ddp.batches import JobBatches, RankBatches, input_digests
from workbench.ddp.replicas import first_pass
from workbench.ddp.rules import rule
from workbench.ddp.wire import Channel, digest

Reply = dict[str, Any]  # header of the master's reply
Loaded = tuple[Reply, memoryview]
# the states of ranks are compared after each exchange up to this one, and then after every `check_every`-th exchange
FIRST_CHECKED = 2


def prepare(model: nn.Module, optimiser: Optimizer, loader: DataLoader[Any], **more: Any) -> Job:
    """Return the job of this rank, with the same model and optimiser on every rank.

    Parameters
    ----------
    model
        The network, on its device. All ranks begin with the parameters of the first rank.
    optimiser
        Optimiser of the model's parameters. It must not need a closure.
    loader
        DataLoader whose batches are those of the whole job, as in a script of one process.
    more
        Other objects with `state_dict` and `load_state_dict`, such as a schedule. A late rank takes their states over.

    Without the launcher, the job has one rank, and the script trains as usual.
    """
    return Job(model, optimiser, loader, more)


class Job:
    """Training job of one rank. Iterating over it yields the rank's batches of one epoch.

    `step`: number of complete steps. `loss`: loss of the last committed batch. Between two averages of models it is the
    loss of the rank's own samples. `rank`, `ranks`: torchrun's rank and number of ranks.
    """

    def __init__(
        self, model: nn.Module, optimiser: Optimizer, loader: DataLoader[Any], more: dict[str, Any]
    ) -> None:
        self.model, self.optimiser, self._more = model, optimiser, more
        found = environment.read()
        self.rank, self.ranks, self._options = found.rank, found.ranks, found
        self.rule = rule(found.scheme, found.scheme_args, found.ranks)
        self.step, self.loss, self._own_loss, self._epoch = 0, nan, nan, 0
        batches = JobBatches(loader, found.seed)
        self._source = RankBatches(batches, self.rule.matrix[self.rank], self.rule.local)
        self.steps_per_epoch = batches.per_epoch
        self._parameters = list(model.parameters())
        self._buffer = states.Buffer()
        self._exchanges = 0
        self._averaged = 0  # number of steps after which the models of all ranks were averaged last
        self._loop = 1  # number of the loop over batches; after the end of a loop, that of the next one
        # newer state of another rank, from which this rank continues: reply of the master, and values
        self._next: Loaded | None = None
        # the last loaded state, if its rank was in a later loop of the script
        self._ahead: Loaded | None = None
        self._donate = False
        self._found: dict[str, Any] = {}  # reports for the comparison of replicas, sent with the next answer
        # whether `backward` was called for the current batch; None outside a batch
        self._computed: bool | None = None
        self._stepped = False  # whether the optimiser was called in that step
        optimiser.register_step_post_hook(self._after_optimiser)
        self._clock = Clock()
        self._channel: Channel | None = None
        if found.address:
            self._channel, token = found.connect()
            self._channel.send({"rank": self.rank, "token": token})
            self._join(batches)

    @property
    def late(self) -> bool:
        """Whether the rank's last gradient was dropped, so that the rank continues from a newer state."""
        return self._next is not None

    def __len__(self) -> int:
        """Return the number of steps of an epoch."""
        return self.steps_per_epoch

    def __iter__(self) -> Iterator[Any]:
        """Yield the batches of the next epoch. A rank that takes over a newer state skips the steps before it.

        After `break`, the next loop begins with the remaining batches of the epoch.
        """
        self._epoch += 1
        return self.until(self._epoch * self.steps_per_epoch)

    def until(self, steps: int) -> Iterator[Any]:
        """Yield batches until the job has done that many steps, over as many epochs as are needed."""
        if self._stepped or self._next:  # the script has left its loop after a step
            self._complete()
        if self._ahead and (self.step < steps or self._loop >= self._ahead[0]["loop"]):
            self._load(*self._ahead)
            self._ahead = None
        try:
            while self.step < steps:
                self._samples, self._weights = self._source.rows(self.step)
                self._batch, self._computed = self._source.take(self.step), False
                yield self._batch
                if not self._computed:
                    raise RunError(
                        f"step {self.step + 1}: has no gradient; call job.backward(losses) in each step"
                    )
                self._complete()
            if self.step == steps:
                self.average()
        finally:  # also after `break`
            if self._stepped or self._next:
                self._complete()
            self._loop += 1

    def average(self) -> None:
        """Average the models of all ranks now, with `LocalSGD` and `H-SGD`, after steps that fill no whole period.

        A loop that runs to its end does this. After `break`, call it before the model is evaluated or saved. All ranks
        must call it after the same step.
        """
        step = self.step + bool(self._computed)
        if self._channel and self.rule.local and step not in (0, self._averaged):
            self._exchange_models(step, self.rule.group(self.rule.period, self.rank))
            if not self._computed:
                self._take_over()

    def backward(self, losses: Tensor) -> None:
        """Compute the gradients of a batch, from the losses of its samples, and exchange them.

        `losses`: (samples, ...), with reduction="none". Further axes are averaged. Afterwards, `grad` of the parameters
        is the gradient of the job's batch, or None on a rank that was late. With `LocalSGD` and `H-SGD`, nothing is
        exchanged here, and `grad` is the gradient of the rank's own samples.
        """
        checked = self._channel and not self.rule.local and self._exchanges <= FIRST_CHECKED
        if why := misuse(self._computed, self._parameters if checked else []):
            raise RunError(f"step {self.step + 1}: {why}")
        per_sample = per_sample_losses(losses, len(self._weights))
        weights = torch.as_tensor(self._weights, dtype=per_sample.dtype, device=per_sample.device)
        loss = (weights * per_sample).sum()
        torch.autograd.backward([loss])
        self._computed, self._stepped, self._own_loss = True, False, float(loss.detach())
        if self._channel and self._exchanges == 0 and self.rule.replicated:
            self._found["pass"] = report(self.model, self._batch, self._samples, self._weights, per_sample)
        if self._channel and not self.rule.local:
            self._exchange_gradients()
        else:
            self.loss = self._own_loss

    # -------------------------------------------------------------- exchanges

    def _exchange_gradients(self) -> None:
        trained = [
            p for p in self._parameters if p.requires_grad
        ]  # scripts may freeze parameters for some steps
        grads = [p.grad.to_dense() if p.grad is not None else torch.zeros_like(p) for p in trained]
        buffers = [b for b in self.model.buffers() if b.is_floating_point()]
        self._found["unused"] = [i for i, p in enumerate(trained) if p.grad is None]
        event = self.step + 1
        reply = self._exchange([*grads, *buffers], len(grads), event, self.rule.group(event, self.rank))
        # without gradients, the optimiser does not change the parameters
        unused = set(range(len(grads)) if reply is None else reply["unused"])
        for i, (parameter, grad) in enumerate(zip(trained, grads, strict=True)):
            parameter.grad = None if i in unused else grad

    def _exchange_models(self, event: int, group: Group | None) -> None:
        tensors = list(states.floats_of([self.model.state_dict(), self.optimiser.state_dict()["state"]]))
        self._exchange(tensors, 0, event, group)
        if self.rule.is_whole(group):
            self._averaged = event

    def _exchange(self, tensors: list[Tensor], coded: int, event: int, group: Group | None) -> Reply | None:
        """Replace tensors, of which the first `coded` are gradients, by committed ones.

        Return the reply of the master, or None if the rank was late.
        """
        flat = self._buffer.filled(self._own_loss, tensors)
        values = 1 + sum(tensor.numel() for tensor in tensors[:coded])
        header = {"what": "answer", "event": event, "group": group, "coded": values, **self._found}
        header |= {"dtype": "f8" if flat.dtype == torch.float64 else "f4", "samples": len(self._weights)}
        header |= self._clock.lap()
        self._found = {}
        room = flat.numpy().data.cast("B")
        reply, found = self._ask(header, room, room)
        self._exchanges += 1
        if reply["do"] == "load":
            self._next = (reply, found)
        else:
            self._donate, self.loss = reply["donate"], reply["loss"]
            self._buffer.spread(tensors)
        self._clock.lap()
        return None if self._next else reply

    def _after_optimiser(self, *_: Any) -> None:
        """Average models after the optimiser's step if this is due, so that the script sees the average."""
        if self._computed and not self._stepped:
            self._stepped = True
            group = self.rule.group(self.step + 1, self.rank)
            if self._channel and self.rule.local and group:
                self._exchange_models(self.step + 1, group)

    def _complete(self) -> None:
        """End a step after the optimiser has updated the model: take or send a state."""
        self._after_optimiser()  # if the script has left the optimiser's step out
        self._computed, self._stepped = None, False
        self.step += self._next is None
        self._take_over()
        if self._channel and self.rule.is_whole(self.rule.group(self.step, self.rank)):
            every, number = self._options.check_every, self.step // self.rule.period
            if self._exchanges <= FIRST_CHECKED or (every and number % every == 0):
                compared = {name: state for name, state in self._state().items() if name != "more"}
                self._found["states"] = self.step, states.digests(compared)

    def _take_over(self) -> None:
        """Continue from a newer state of another rank, or send the own state, if the last reply said so."""
        if self._next:
            self._load(*self._next)
        if self._donate:
            self._send_state()

    # -------------------------------------------------------------- states

    def _state(self) -> dict[str, Any]:
        more = {name: each.state_dict() for name, each in self._more.items()}
        return {"model": self.model.state_dict(), "optimiser": self.optimiser.state_dict(), "more": more}

    def _send_state(self) -> None:
        """Send a copy of the state in another thread, because the other ranks may wait for this rank's next answer."""
        self._donate = False
        if self._channel:
            header = {"what": "state", "step": self.step, "loop": self._loop}
            self._channel.send_later(header, states.pack(self._state()))

    def _load(self, reply: Reply, values: memoryview) -> None:
        """Continue from the state of another rank or of a checkpoint.

        If the state is of a later loop, this script still runs its code between the loops before it, such as a
        schedule's step. So the state is loaded again at the beginning of that loop.
        """
        self._next, self.step, self._averaged = None, reply["step"], -1
        self._ahead = (reply, values) if reply["loop"] > self._loop else None
        state = states.unpack(values)
        self.model.load_state_dict(state["model"])
        self.optimiser.load_state_dict(state["optimiser"])
        for name, each in self._more.items():
            each.load_state_dict(state["more"][name])
        self._clock.lap()

    # -------------------------------------------------------------- messages

    def _join(self, batches: JobBatches) -> None:
        script = settings_of(self.model, self.optimiser, batches)
        reply, values = self._ask({"what": "join", "script": script})
        if reply["do"] == "load":
            self._load(reply, values)
        atexit.register(self._finish)

    def _finish(self) -> None:
        """Report to the master that this rank has finished. A script that failed only closes its connection."""
        if self._channel and getattr(sys, "last_type", None) is None:
            if self._stepped or self._next:
                self._complete()
            self._ask({"what": "finished", "step": self.step, **self._found})
            self._channel.close()

    def _ask(self, header: Mapping[str, Any], payload: Any = b"", room: memoryview | None = None) -> Any:
        """Send a request, and return header and values of the reply.

        Before its reply, the master may ask for the state of this rank.
        """
        assert self._channel is not None
        try:
            self._channel.send(header, payload)
            reply, values = self._channel.receive(room)
            while reply["do"] == "donate":
                self._send_state()
                reply, values = self._channel.receive(room)
        except OSError as error:
            why = f"the master is gone ({error}); start the job again"
            raise RunError(f"step {self.step + 1}: {why}") from None
        if reply["do"] == "fail":
            raise RunError(reply["why"])
        return reply, values


def settings_of(model: nn.Module, optimiser: Optimizer, batches: JobBatches) -> dict[str, str]:
    """Return what must be equal in the scripts of all ranks: hashes of the model and the batches, and the optimiser."""
    shapes = [[name, list(p.shape), str(p.dtype)] for name, p in model.named_parameters()]
    first = batches.per_epoch, batches.of(0)
    return {
        "model": digest(repr(shapes).encode()),
        "optimiser": type(optimiser).__name__,
        "batches": digest(repr(first).encode()),
    }


class Clock:
    """Clock of a rank's work between its exchanges."""

    def __init__(self) -> None:
        self._last = time.monotonic(), time.process_time()

    def lap(self) -> dict[str, float]:
        """Return the seconds since the last lap: by the wall clock, and of processor time."""
        last, self._last = self._last, (time.monotonic(), time.process_time())
        return {"seconds": self._last[0] - last[0], "cpu": self._last[1] - last[1]}


def report(model: nn.Module, batch: Any, samples: list[int], weights: Array, losses: Tensor) -> Any:
    """Return a rank's report of its first pass, with the modules that depend on chance or on other samples."""
    kinds = nn.modules.batchnorm._BatchNorm | nn.modules.dropout._DropoutNd
    random = [
        f"{type(module).__name__} {name!r}"
        for name, module in model.named_modules()
        if isinstance(module, kinds) and module.training and getattr(module, "p", 1) > 0
    ]
    used = [sample for sample, weight in zip(samples, weights, strict=True) if weight]
    inputs = input_digests(batch, len(weights))[: len(used)]
    return first_pass(used, inputs, losses.detach().tolist()[: len(used)], random)


def misuse(computed: bool | None, parameters: list[nn.Parameter]) -> str | None:
    """Return why a script cannot compute gradients now, or None.

    `computed`: whether it has computed those of the batch; None outside a batch. `parameters`: those whose gradients
    must be 0.
    """
    if computed is not False:
        return "backward is called without a batch or twice for it; add the losses, and call it once for each batch"
    if any(p.grad is not None and p.grad.to_dense().any() for p in parameters):
        return "has gradients of an earlier step, which are not accumulated; call optimiser.zero_grad() in each step"
    return None


def per_sample_losses(losses: Tensor, samples: int) -> Tensor:
    """Return the mean of each sample's losses, (samples,). Raises `SettingError` for other shapes."""
    if losses.dim() == 0 or len(losses) != samples:
        what = f"losses: have the shape {tuple(losses.shape)}, for {samples} samples"
        raise SettingError(f"{what}; take reduction='none', so that each sample has a loss")
    return losses.flatten(1).mean(1) if losses.dim() > 1 else losses
