"""Faults of single workers, with the same meaning in the simulator and on MPI.

A fault changes the worker's program, which both engines execute: `Fault.begin` yields effects once, `Fault.change`
replaces effects. To add a fault, add a file with a subclass of `Fault` (or of `WrongAnswer`) that has a `kind`.
"""

from workbench.core.contract.faults.base import Fault, Faults, Lasting, fault_from, with_faults
from workbench.core.contract.faults.crashes import Exit, Kill, Segfault
from workbench.core.contract.faults.delayed import Pause, Slow
from workbench.core.contract.faults.wrong_answers import (
    Noise,
    SameValue,
    Scale,
    SignFlip,
    WrongAnswer,
    Zeros,
)

__all__ = [
    "Exit", "Fault", "Faults", "Kill", "Lasting", "Noise", "Pause", "SameValue", "Scale", "Segfault", "SignFlip",
    "Slow", "WrongAnswer", "Zeros", "fault_from", "with_faults"
]  # fmt: skip
