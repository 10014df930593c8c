"""Errors as plain words, so that they can cross from one process to another."""

from typing import Any

from workbench.base.errors import ClusterError, QuorumLost, RunError
from workbench.base.own import fault_of
from workbench.launch.processes import Place


def described(error: BaseException, places: dict[int, Place]) -> dict[str, Any]:
    """An error as a word for another rank, or for a file; says where the dead were."""
    if isinstance(error, QuorumLost):
        why = {r: error.why.get(r) or f"{places[r]} died" for r in error.missing}
        words = {"parent": error.parent, "round": error.round, "missing": list(error.missing)}
        return {"kind": "QuorumLost", **words, "why": {str(r): text for r, text in why.items()}}
    if isinstance(error, RunError):
        return {"kind": type(error).__name__, "text": str(error)}
    fault = fault_of(error)
    return {"kind": "RunError", "text": fault.sentence if fault else f"{type(error).__name__}: {error}"}


def not_finite(word: dict[str, Any]) -> bool:
    """May the error that `described` described come from numbers that have grown beyond all bounds?"""
    missed = word.get("why", {}).values()
    return word["kind"] == "Diverged" or (bool(missed) and set(missed) == {"not finite"})


def rebuilt(word: dict[str, Any]) -> RunError:
    """The error that `described` described."""
    if word["kind"] == "QuorumLost":
        why = {int(r): text for r, text in word["why"].items()}
        return QuorumLost(word["parent"], word["round"], word["missing"], why)
    return {"ClusterError": ClusterError}.get(word["kind"], RunError)(word["text"])
