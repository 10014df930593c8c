"""Errors in user-defined programs: their messages contain the scheme, rank, round and line."""

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

    Raises `RunError` if a user-defined program fails at the start, or is not a generator.
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
    """Raise an error from user-defined code as a `RunError` of one sentence. Ignore other errors."""
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
    """Add the interrupted line of a user-defined program to a `KeyboardInterrupt`: the program may loop without end."""
    if (fault := fault_of(error)) is not None:
        error.add_note(
            f"{scheme.name}: the program of rank {rank} was at work in round {round} ({fault.line})"
        )
