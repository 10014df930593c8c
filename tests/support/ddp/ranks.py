"""Ranks without a script: connections to a master in this process, over pairs of sockets."""

from __future__ import annotations

import socket
import threading
from pathlib import Path
from typing import Any

import numpy as np

from workbench.ddp.master import Master, Options
from workbench.ddp.record import Recorder, State
from workbench.ddp.rules import rule
from workbench.ddp.wire import Channel

Reply = tuple[dict[str, Any], memoryview]
REPLY_TIMEOUT_S = 60.0
SCRIPT = {"model": "m", "optimiser": "SGD", "batches": "b"}


class Rank:
    """One rank of a master. Its state is the text "state STEP of RANK", which it sends when the master asks for it."""

    def __init__(self, master: Master, number: int) -> None:
        mine, other = socket.socketpair()
        mine.settimeout(REPLY_TIMEOUT_S)
        self.master, self.number, self.channel, self.step = master, number, Channel(mine), 0
        threading.Thread(target=master.serve, args=(Channel(other),), daemon=True).start()
        self.channel.send({"rank": number, "token": ""})

    def send(self, what: str, payload: Any = b"", **header: Any) -> None:
        self.channel.send({"what": what, **header}, payload)

    def state(self) -> None:
        """Send this rank's state."""
        self.send("state", f"state {self.step} of {self.number}".encode(), step=self.step)

    def receive(self) -> Reply:
        """Return the next reply, after the states that the master asks for."""
        while (reply := self.channel.receive())[0]["do"] == "donate":
            self.state()
        return reply

    def join(self, **script: str) -> None:
        self.send("join", script={**SCRIPT, **script})

    def answer(self, event: int, value: float, group: tuple[int, int] = (0, 0), **header: Any) -> None:
        """Send an answer: the loss `value`, and a gradient of one number, twice `value`."""
        values = np.array([value, 2 * value], dtype="f4")
        self.send("answer", values, event=event, group=group, dtype="f4", coded=2, **header)

    def answer_late(self, event: int) -> None:
        """Answer an exchange that has ended, and return once the master has the rank as late."""
        self.answer(event, 99.0)
        with self.master.changed:
            assert self.master.changed.wait_for(lambda: self.number in self.master._late.until, timeout=60)

    def commit(self) -> tuple[int, list[float]]:
        """Return the number of the next commit and its values, and send the state if it is asked for."""
        header, values = self.receive()
        assert header["do"] == "commit", header
        self.step = header["event"]
        if header["donate"]:
            self.state()
        return header["event"], np.frombuffer(values, dtype="f4").tolist()

    def loaded(self) -> tuple[int, str]:
        """Return the step and the text of a newer state."""
        header, values = self.receive()
        assert header["do"] == "load", header
        self.step = header["step"]
        return header["step"], bytes(values).decode()

    def failure(self) -> str:
        header, _ = self.receive()
        assert header["do"] == "fail", header
        return header["why"]

    def die(self) -> None:
        self.channel.close()


def started(
    scheme: str,
    ranks: int,
    folder: Path | None = None,
    state: State | None = None,
    every: int = 0,
    **args: Any,
) -> tuple[Master, list[Rank]]:
    """Return a master and ranks that have joined. Rank 0 has sent its state, unless `state` is given."""
    options = Options(checkpoint_every=every)
    master = Master(rule(scheme, args, ranks), Recorder(folder), options, state)
    made = [Rank(master, number) for number in range(ranks)]
    for rank in made:
        rank.join()
    if state is None:
        assert made[0].receive()[0]["do"] == "go"
        expected = (0, "state 0 of 0")
    else:
        expected = (state.step, bytes(state.values).decode())
        assert made[0].loaded() == expected
    assert [rank.loaded() for rank in made[1:]] == [expected] * (ranks - 1)
    return master, made


def exchange(ranks: list[Rank], event: int, value: float = 1.0) -> None:
    """Let all ranks answer and receive the commit."""
    for rank in ranks:
        rank.answer(event, value)
    assert {rank.commit()[0] for rank in ranks} == {event}
