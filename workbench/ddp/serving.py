"""Master of a job, served in threads of a launcher, on a socket file of this host or on its network interface."""

from __future__ import annotations

import argparse
import contextlib
import os
import secrets
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

from workbench.core.base.files import private_folder
from workbench.ddp import environment
from workbench.ddp.environment import Environment
from workbench.ddp.master import Master, Options
from workbench.ddp.record import Recorder, saved_state
from workbench.ddp.rules import rule
from workbench.ddp.wire import Channel

BACKLOG = 128  # max number of connections that wait to be accepted


@contextlib.contextmanager
def served(here: Environment, options: argparse.Namespace) -> Iterator[Master]:
    """Serve the master of a job in threads of this process. Raises `SettingError` for wrong options."""
    found = rule(here.scheme, here.scheme_args, here.ranks)
    state = saved_state(options.folder) if options.folder and options.resume else None
    recorder = Recorder(options.folder, (state.step if state else 0) if options.resume else None)
    token = secrets.token_hex() if here.address == "store" else ""
    settings = Options(options.checkpoint_every, options.tolerance, token)
    master = Master(found, recorder, settings, state)
    with listening(here.address) as listener:
        threading.Thread(target=accept, args=(listener, master), daemon=True).start()
        if here.address == "store":
            host, port = listener.getsockname()[:2]
            environment.store().set(environment.STORE_KEY, f"{host}:{port} {token}")
        yield master


@contextlib.contextmanager
def listening(address: str) -> Iterator[socket.socket]:
    """Return a socket that listens at a path, or on the interface of MASTER_ADDR."""
    if address == "store":
        with socket.create_server((os.environ["MASTER_ADDR"], 0), backlog=BACKLOG) as listener:
            yield listener
        return
    path = Path(address)
    private_folder(path.parent)
    path.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX) as listener:
        try:
            listener.bind(address)
            listener.listen(BACKLOG)
            yield listener
        finally:
            path.unlink(missing_ok=True)


def accept(listener: socket.socket, master: Master) -> None:
    """Serve each connection in a thread of its own."""
    while True:
        try:
            connection, _ = listener.accept()
        except OSError:  # the listener was closed
            return
        threading.Thread(target=master.serve, args=(Channel(connection),), daemon=True).start()
