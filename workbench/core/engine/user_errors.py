"""Whose error it is: one in a user's own program names scheme, rank, round and the user's line."""

from collections.abc import Generator, Iterable
from inspect import CO_GENERATOR
from typing import Any

from workbench.core.base.errors import RunError
from workbench.core.base.user_code import fault_of
from workbench.core.contract.faults import Fault, with_faults
from workbench.core.contract.protocol import Node
from workbench.core.contract.scheme import Scheme


def program_of(scheme: Scheme, node: Node, faults: Iterable[Fault] = ()) -> Generator[Any, Any, Any]:
    """Return the program of one node, with its faults.

    Raises `RunError` where a user-defined one cannot begin, or yields nothing.
    """
    try:
        program = scheme.program(node)
    except Exception as error:
        reraise_as_user_error(error, scheme, node.rank, node.first)
        raise
    if not hasattr(program, "send"):
        why = "write it as a generator that yields effects, or return one"
        raise RunError(f"{scheme.name}: `program` of rank {node.rank} gives {program!r:.60}; {why}")
    return with_faults(program, node, faults)


def reraise_as_user_error(error: Exception, scheme: Scheme, rank: int, round: int) -> None:
    """Raise an error that arose in a user's own code as `RunError`, in one sentence; leave others alone."""
    if (fault := fault_of(error)) is None:
        return
    program = fault.code.co_flags & CO_GENERATOR or fault.code.co_name == "program"
    what = (
        f"the program of rank {rank} failed"
        if program
        else f"`{fault.code.co_qualname}` failed at rank {rank}"
    )
    raise RunError(f"{scheme.name}: {what} in round {round}: {fault.why} ({fault.line})") from error


def note_interrupt(error: KeyboardInterrupt, scheme: Scheme, rank: int, round: int) -> None:
    """Note on a Ctrl-C the line of a user's own program that it found at work: one that never yields is ended so."""
    if (fault := fault_of(error)) is not None:
        error.add_note(
            f"{scheme.name}: the program of rank {rank} was at work in round {round} ({fault.line})"
        )
