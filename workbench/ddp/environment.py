"""Environment variable by which a launcher passes the rank, the scheme and the master's address to its script."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from importlib import import_module
from typing import Any

from workbench.core.base.errors import RunError
from workbench.ddp.wire import Channel, connect

VARIABLE = "WORKBENCH_DDP"
STORE_KEY = "workbench/ddp/master"  # key of the master's address in the store of torchrun
CONNECT_TIMEOUT_S = 300.0  # max time until the master listens, s
CONNECT_INTERVAL_S = 0.1  # s between two attempts


@dataclass(frozen=True)
class Environment:
    """Contents of the environment variable for one rank.

    `address`: path of the master's socket, "store" if torchrun's store has its host and port, or "" without a master.
    """

    rank: int = 0
    ranks: int = 1
    scheme: str = "UMW"
    scheme_args: Mapping[str, Any] = field(default_factory=dict)
    address: str = ""
    seed: int = 0
    check_every: int = 100

    def text(self) -> str:
        """Return the value of the environment variable."""
        return json.dumps(asdict(self))

    def connect(self, timeout: float = CONNECT_TIMEOUT_S) -> tuple[Channel, str]:
        """Return a connection to the master, and the secret that the first message must contain.

        Raises `RunError` at a timeout.
        """
        until = time.monotonic() + timeout
        while True:
            try:
                address, token = from_store() if self.address == "store" else (self.address, "")
                return connect(address), token
            except OSError as error:
                if time.monotonic() > until:
                    what = f"rank {self.rank}: the master cannot be reached ({error})"
                    raise RunError(f"{what}; start all ranks by one torchrun command") from None
                time.sleep(CONNECT_INTERVAL_S)


def read() -> Environment:
    """Return the environment from the launcher's variable. Without a launcher, return that of a job with one rank."""
    text = os.environ.get(VARIABLE)
    return Environment(**json.loads(text)) if text else Environment()


def store() -> Any:
    """Return the store that torchrun keeps at MASTER_ADDR and MASTER_PORT."""
    distributed = import_module("torch.distributed")
    return distributed.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), is_master=False)


def from_store() -> tuple[str, str]:
    """Return the address and the secret of a master on another host, from torchrun's store."""
    address, token = store().get(STORE_KEY).decode().split()
    return address, token
