"""Codes inside a PyTorch script: started by torchrun, each rank computes coded gradients of the script's own model.

    torchrun --nproc-per-node=8 -m workbench.ddp --scheme GC --set stragglers=1 train.py

Each rank is a launcher, which starts the script as its child and stays when the child dies. The launcher of rank 0 is
the master: it combines the answers of the ranks. In the script, `prepare` returns the job.
"""

from typing import Any

__all__ = ["Job", "prepare"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'workbench.ddp' has no attribute {name!r}")
    from workbench.ddp import job

    return getattr(job, name)


def __dir__() -> list[str]:
    return sorted(__all__)
