"""Job of one rank, as a script uses it: batches, one weighted backward pass, and the exchange with the master.

A weighted sum of losses has the coded gradient as its gradient, so that one backward pass is enough for several parts.
With gradient schemes, the gradients of the parameters are then those of the batch, on every rank in time. The script's
own optimiser takes the same step there. With `LocalSGD` and `H-SGD`, models are exchanged instead.
"""

from __future__ import annotations

import atexit
import sys
import time
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

from workbench.core.base.errors import RunError
from workbench.core.base.settings import SettingError
from workbench.ddp import environment, states
from workbench.ddp.batches import JobBatches, RankBatches, input_digests
from workbench.ddp.replicas import first_pass
from workbench.ddp.rules import rule
from workbench.ddp.wire import Channel, digest

Loaded = tuple[dict[str, Any], memoryview]
NORMALISATION = nn.modules.batchnorm._BatchNorm
DROPOUT = nn.modules.dropout._DropoutNd
# the states of ranks are compared after each exchange up to this one, and then after every `check_every`-th exchange
FIRST_CHECKED = 2


def prepare(model: nn.Module, optimiser: torch.optim.Optimizer, loader: DataLoader[Any], **more: Any) -> Job:
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
        self,
        model: nn.Module,
        optimiser: torch.optim.Optimizer,
        loader: DataLoader[Any],
        more: dict[str, Any],
    ) -> None:
        self.model, self.optimiser, self._more = model, optimiser, more
        found = environment.read()
        self.rank, self.ranks, self._options = found.rank, found.ranks, found
        self.rule = rule(found.scheme, found.scheme_args, found.ranks)
        self.step, self.loss, self._epoch = 0, float("nan"), 0
        self._own_loss = float("nan")
        batches = JobBatches(loader, found.seed)
        self._source = RankBatches(batches, self.rule.matrix[self.rank], self.rule.local)
        self.steps_per_epoch = batches.per_epoch
        self._parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        self._buffer = states.Buffer()
        self._exchanges = 0
        self._loop = 1  # number of the loop over batches; after the end of a loop, that of the next one
        # newer state of another rank, from which this rank continues: reply of the master, and values
        self._next: Loaded | None = None
        # the last loaded state, if its rank was in a later loop of the script
        self._ahead: Loaded | None = None
        self._donate = False
        self._found: dict[str, Any] = {}  # reports for the comparison of replicas, sent with the next answer
        self._computed = False  # whether `backward` was called in a step that is not complete
        self._stepped = False  # whether the optimiser was called in that step
        optimiser.register_step_post_hook(self._after_optimiser)
        self._clock()
        self._channel: Channel | None = None
        if found.address:
            self._channel, token = found.connect()
            self._join(batches, token)

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
                    why = "has no gradient; call job.backward(losses) for each batch"
                    raise RunError(f"step {self.step + 1}: {why}")
                self._complete()
        finally:  # also after `break`
            self._loop += 1

    def backward(self, losses: Tensor) -> None:
        """Compute the gradients of a batch, from the losses of its samples, and exchange them.

        `losses`: (samples, ...), with reduction="none". Further axes are averaged. Afterwards, `grad` of the parameters
        is the gradient of the job's batch, or None on a rank that was late. With `LocalSGD` and `H-SGD`, nothing is
        exchanged here, and `grad` is the gradient of the rank's own samples.
        """
        per_sample = per_sample_losses(losses, len(self._weights))
        weights = torch.as_tensor(self._weights, dtype=per_sample.dtype, device=per_sample.device)
        loss = (weights * per_sample).sum()
        torch.autograd.backward([loss])
        self._computed, self._stepped, self._own_loss = True, False, float(loss.detach())
        if self._channel and self._exchanges == 0 and self.rule.replicated:
            self._found["pass"] = self._first_pass(per_sample)
        if self._channel and not self.rule.local:
            self._exchange_gradients()
        else:
            self.loss = self._own_loss

    def _first_pass(self, losses: Tensor) -> Any:
        samples = [sample for sample, weight in zip(self._samples, self._weights, strict=True) if weight]
        inputs = input_digests(self._batch, len(self._weights))
        random = [
            f"{type(module).__name__} {name!r}"
            for name, module in self.model.named_modules()
            if isinstance(module, NORMALISATION | DROPOUT) and module.training and getattr(module, "p", 1) > 0
        ]
        return first_pass(samples, inputs[: len(samples)], losses.detach().tolist()[: len(samples)], random)

    # -------------------------------------------------------------- exchanges

    def _exchange_gradients(self) -> None:
        grads = [p.grad if p.grad is not None else torch.zeros_like(p) for p in self._parameters]
        buffers = [b for b in self.model.buffers() if b.is_floating_point()]
        self._found["unused"] = [i for i, p in enumerate(self._parameters) if p.grad is None]
        reply = self._exchange([*grads, *buffers], len(grads))
        # without gradients, the optimiser does not change the parameters
        unused = set(range(len(grads)) if reply is None else reply["unused"])
        for i, (parameter, grad) in enumerate(zip(self._parameters, grads, strict=True)):
            parameter.grad = None if i in unused else grad

    def _exchange_models(self) -> None:
        tensors = list(states.floats_of([self.model.state_dict(), self.optimiser.state_dict()["state"]]))
        self._exchange(tensors, 0)

    def _exchange(self, tensors: list[Tensor], coded: int) -> dict[str, Any] | None:
        """Replace tensors, of which the first `coded` are gradients, by committed ones.

        Return the reply of the master, or None if the rank was late.
        """
        group = self.rule.group(self.step + 1, self.rank)
        flat = self._buffer.filled(self._own_loss, tensors)
        values = 1 + sum(tensor.numel() for tensor in tensors[:coded])
        header = {"what": "answer", "event": self.step + 1, "group": group, "coded": values, **self._found}
        header |= {"dtype": "f8" if flat.dtype == torch.float64 else "f4", "samples": len(self._weights)}
        header |= dict(zip(("seconds", "cpu"), self._clock(), strict=True))
        self._found = {}
        room = flat.numpy().data.cast("B")
        reply, found = self._ask(header, room, room)
        self._exchanges += 1
        if reply["do"] == "load":
            self._next = (reply, found)
        else:
            self._donate, self.loss = reply["donate"], reply["loss"]
            self._buffer.spread(tensors)
        self._clock()
        return None if self._next else reply

    def _complete(self) -> None:
        """End a step after the optimiser has updated the model: average models if this is due, take or send a state."""
        self._computed = self._stepped = False
        group = self.rule.group(self.step + 1, self.rank) if self._channel else None
        if self.rule.local and group:
            self._exchange_models()
        if self._next:
            self._load(*self._next)
        else:
            self.step += 1
        if self._donate:
            self._send_state()
        every = self._options.check_every
        if group and len(self.rule.members(group)) == self.ranks:
            number = self.step // self.rule.period
            if self._exchanges <= FIRST_CHECKED or (every and number % every == 0):
                compared = {name: state for name, state in self._state().items() if name != "more"}
                self._found["states"] = self.step, states.digests(compared)

    def _after_optimiser(self, *_: Any) -> None:
        self._stepped = self._computed

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

    def _load(self, reply: dict[str, Any], values: memoryview) -> None:
        """Continue from the state of another rank or of a checkpoint.

        If the state is of a later loop, this script still runs its code between the loops before it, such as a
        schedule's step. So the state is loaded again at the beginning of that loop.
        """
        self._next, self.step = None, reply["step"]
        self._ahead = (reply, values) if reply["loop"] > self._loop else None
        state = states.unpack(values)
        self.model.load_state_dict(state["model"])
        self.optimiser.load_state_dict(state["optimiser"])
        for name, each in self._more.items():
            each.load_state_dict(state["more"][name])
        self._clock()

    # -------------------------------------------------------------- messages

    def _join(self, batches: JobBatches, token: str) -> None:
        shapes = [[name, list(p.shape), str(p.dtype)] for name, p in self.model.named_parameters()]
        script = {
            "model": digest(repr(shapes).encode()),
            "optimiser": type(self.optimiser).__name__,
            "batches": digest(repr((batches.per_epoch, batches.of(0))).encode()),
        }
        if self._channel:
            self._channel.send({"rank": self.rank, "token": token})
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

    def _clock(self) -> tuple[float, float]:
        """Return the seconds since the last call: by the wall clock, and of processor time."""
        now = time.monotonic(), time.process_time()
        last = getattr(self, "_started", now)
        self._started = now
        return now[0] - last[0], now[1] - last[1]


def per_sample_losses(losses: Tensor, samples: int) -> Tensor:
    """Return the mean of each sample's losses, (samples,). Raises `SettingError` for other shapes."""
    if losses.dim() == 0 or len(losses) != samples:
        what = f"losses: have the shape {tuple(losses.shape)}, for {samples} samples"
        raise SettingError(f"{what}; take reduction='none', so that each sample has a loss")
    return losses.flatten(1).mean(1) if losses.dim() > 1 else losses
