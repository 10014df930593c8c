"""Codes inside a PyTorch script: started by torchrun, each rank computes coded gradients of the script's own model.

    torchrun --nproc-per-node=8 -m workbench.ddp --scheme GC --set stragglers=1 train.py

Each rank is a launcher, which starts the script as its child and stays when the child dies. The launcher of rank 0 is
the master: it combines the answers of the ranks. In the script, `prepare` returns the job.
"""

from importlib import import_module as _import_module
from typing import Any

from workbench.core.base.extras import not_installed as _not_installed

__all__ = ["Job", "prepare"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'workbench.ddp' has no attribute {name!r}")
    try:
        return getattr(_import_module("workbench.ddp.job"), name)
    except ModuleNotFoundError as error:
        raise _not_installed(f"workbench.ddp.{name}", error) from None


def __dir__() -> list[str]:
    return sorted(__all__)
