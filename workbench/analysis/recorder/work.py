"""Work of a batch, taken from its shapes: samples, tokens, and the squared lengths of its sequences."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

TOKEN_FIELD = "input_ids"
WHOLE_TYPES = ("torch.int64", "torch.int32")  # types of token ids
MAX_DEPTH = 3  # max depth of batches within batches


def work_of(batch: Any) -> dict[str, float]:
    """Return the samples of a batch and, for 2-D token ids, its tokens and squares. Return {} if they are unknown.

    Padding counts, because it is computed too. `squares` is the sum of the squared lengths of the sequences. The cost
    of attention is proportional to it.

    >>> class Ids:
    ...     shape, dtype = (4, 16), "torch.int64"
    >>> work_of({"input_ids": Ids()})
    {'samples': 4.0, 'tokens': 64.0, 'squares': 1024.0}
    """
    tensor = _first(batch)
    if tensor is None:
        return {}
    samples, *others = tensor.shape
    if len(others) != 1 or str(tensor.dtype) not in WHOLE_TYPES:
        return {"samples": float(samples)}
    length = float(others[0])
    return {"samples": float(samples), "tokens": samples * length, "squares": samples * length**2}


def _first(batch: Any, depth: int = 0) -> Any:
    """Return the token ids of a batch, else its first tensor, or None if there is none."""
    if len(getattr(batch, "shape", ())) > 0:
        return batch
    if depth == MAX_DEPTH or isinstance(batch, str):
        return None
    found = (_first(each, depth + 1) for each in _members(batch))
    return next((each for each in found if each is not None), None)


def _members(batch: Any) -> Iterable[Any]:
    if isinstance(batch, Mapping):
        return [batch[TOKEN_FIELD]] if TOKEN_FIELD in batch else list(batch.values())
    return batch if isinstance(batch, Sequence) else ()
