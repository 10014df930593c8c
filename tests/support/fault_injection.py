"""Damage to messages and checkpoints of real runs: `start_real(e, substitutes=damaging({3: {4: "flip"}}))`.

A `FaultyTransport` damages answers of a worker: "nan", "inf", "flip" (one bit of the values), "truncate", "twice",
"foreign" (marked with another run), "impostor" (marked with another rank). A `CrashingRecorder` kills the master while
it writes a checkpoint.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from workbench.core.base.files import atomic_write
from workbench.core.base.types import Array
from workbench.core.contract.optimisers import State
from workbench.core.trace.layout import CHECKPOINT
from workbench.core.trace.records import RunRecorder
from workbench.mpi.engine.transport import Transport
from workbench.mpi.engine.wire import (
    HEADER,
    Buffer,
    Envelope,
    NonFinitePayload,
    decode_message,
    encode_message,
)

HOW = ("nan", "inf", "flip", "truncate", "twice", "foreign", "impostor")


Substitutes = Callable[[type, int], type]


def damaging(plans: Mapping[int, Mapping[int, str]]) -> Substitutes:
    """Return a hook that damages answers. `plans`: rank -> round -> kind of damage."""

    def substitutes(cls: type, rank: int) -> type:
        if cls is not Transport or rank not in plans:
            return cls
        return type("Damaging", (FaultyTransport,), {"plans": dict(plans[rank])})

    return substitutes


def crashing(number: int, share: float) -> Substitutes:
    """Return a hook that kills the master when a share of a checkpoint is written. Checkpoints count from 1."""

    def substitutes(cls: type, rank: int) -> type:
        if cls is not RunRecorder:
            return cls
        return type("Crashing", (CrashingRecorder,), {"number": number, "share": share})

    return substitutes


class FaultyTransport(Transport):
    """Transport that damages the answers of some rounds. Models and goodbyes are sent unchanged."""

    plans: Mapping[int, str]  # round -> kind of damage

    def send(self, to: Sequence[int], envelope: Envelope, value: Any, newest: bool = False) -> None:
        """Send a message, with damaged values in the planned rounds."""
        how = self.plans.get(envelope.round)
        if how in ("nan", "inf") and not newest and np.ndim(value) == 1:
            value = np.array(value)
            value[len(value) // 2] = np.nan if how == "nan" else np.inf
        super().send(to, envelope, value, newest)

    def _isend(self, peer: int, sheet: Buffer, length: int, newest: bool) -> None:
        try:
            envelope, value = decode_message(sheet, length, self.run, self.rank)
        except NonFinitePayload as spoilt:  # its values are not finite
            envelope, value = spoilt.envelope, sheet.numbers[: spoilt.envelope.floats]
        how = None if newest or np.ndim(value) != 1 else self.plans.get(envelope.round)
        if how == "flip":
            sheet.bytes[(HEADER + length) // 2] ^= 1
        elif how == "truncate":
            length -= 8 * max(1, (length - HEADER) // 16)
        elif how == "foreign":
            encode_message(sheet, envelope._replace(run=self.run ^ 1), np.array(value))
        elif how == "impostor":
            encode_message(sheet, envelope._replace(sender=self.rank + 1), np.array(value))
        super()._isend(peer, sheet, length, newest)
        if how == "twice":
            super()._isend(peer, sheet, length, newest)


class CrashingRecorder(RunRecorder):
    """Recorder that kills the master in the middle of a checkpoint."""

    number: int  # number of the checkpoint, from 1
    share: float  # share of the checkpoint's bytes that is written

    def checkpoint(self, model: Array, state: State) -> None:
        """Write a checkpoint, or kill this process while writing it."""
        self.number -= 1
        if self.number:
            super().checkpoint(model, state)
            return
        data = self.packed(model, state)
        with atomic_write(self.folder / CHECKPOINT) as out:
            out.write(data[: int(len(data) * self.share)])
            out.flush()
            os.kill(os.getpid(), signal.SIGKILL)
