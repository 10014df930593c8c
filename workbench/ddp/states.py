"""States of models and optimisers as bytes: a tree in JSON and the raw values of its tensors, without pickle."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from typing import Any

import numpy as np
import torch
from torch import Tensor

from workbench.core.base.settings import SettingError
from workbench.ddp.wire import digest

Tensors = list[tuple[str, Tensor]]  # names and tensors of a state
_PLAIN = (bool, int, float, str, type(None))
_DTYPES = {str(dtype): dtype for dtype in vars(torch).values() if isinstance(dtype, torch.dtype)}


def tree_of(state: Any, name: str, tensors: Tensors) -> Any:
    """Return a state as nested lists for JSON, and append its tensors with their names to `tensors`.

    `name`: name of the state. Raises `SettingError` for values or keys of other types.
    """
    if isinstance(state, Tensor):
        tensors.append((name, state.detach()))
        return ["tensor", len(tensors) - 1]
    if isinstance(state, Mapping):
        items = [[_key(key, name), tree_of(each, f"{name}.{key}", tensors)] for key, each in state.items()]
        return ["dict", items]
    if isinstance(state, list | tuple):
        kind = "list" if isinstance(state, list) else "tuple"
        return [kind, [tree_of(each, f"{name}.{i}", tensors) for i, each in enumerate(state)]]
    if not isinstance(state, _PLAIN):
        what = f"{name}: is of type {type(state).__name__}"
        raise SettingError(f"{what}; states consist of tensors, numbers, texts, lists and dicts")
    return ["plain", state]


def _key(key: Any, name: str) -> Any:
    if not isinstance(key, str | int):
        raise SettingError(f"{name}: has a key of type {type(key).__name__}; take texts or whole numbers")
    return key


def pack(state: Any) -> bytes:
    """Return a state as bytes.

    >>> unpack(pack({"step": 3, "w": torch.ones(2)}))
    {'step': 3, 'w': tensor([1., 1.])}
    """
    tensors: Tensors = []
    tree = tree_of(state, "state", tensors)
    forms = [[str(tensor.dtype), list(tensor.shape)] for _, tensor in tensors]
    head = json.dumps({"tree": tree, "tensors": forms}).encode() + b"\n"
    return b"".join([head, *(values_of(tensor) for _, tensor in tensors)])


def unpack(values: bytes | memoryview) -> Any:
    """Return the state that `pack` has packed."""
    line = next(re.finditer(b".*", values))  # the line of JSON, without a copy of the values
    head, rest, tensors = json.loads(line[0]), memoryview(values)[line.end() + 1 :], []
    for dtype, shape in head["tensors"]:
        empty = torch.empty(shape, dtype=_DTYPES[dtype])
        size = empty.numel() * empty.element_size()
        if size:
            np.copyto(empty.view(-1).view(torch.uint8).numpy(), np.frombuffer(rest[:size], np.uint8))
        tensors.append(empty)
        rest = rest[size:]
    return _state_of(head["tree"], tensors)


def _state_of(tree: Any, tensors: list[Tensor]) -> Any:
    kind, content = tree
    if kind == "tensor":
        return tensors[content]
    if kind == "dict":
        return {key: _state_of(each, tensors) for key, each in content}
    if kind in ("list", "tuple"):
        return (list if kind == "list" else tuple)(_state_of(each, tensors) for each in content)
    return content


def values_of(tensor: Tensor) -> memoryview:
    """Return the raw values of a tensor."""
    flat = tensor.cpu().contiguous().view(-1)
    return flat.view(torch.uint8).numpy().data if flat.numel() else memoryview(b"")


def digests(state: Any) -> dict[str, str]:
    """Return name -> hash for each tensor of a state. The key "settings" has the hash of all other values."""
    tensors: Tensors = []
    tree = tree_of(state, "", tensors)
    found = {name.removeprefix("."): digest(values_of(tensor)) for name, tensor in tensors}
    return {**found, "settings": digest(json.dumps(tree).encode())}


def floats_of(state: Any) -> Iterator[Tensor]:
    """Return the tensors of a state that contain floating point numbers, in order."""
    tensors: Tensors = []
    tree_of(state, "", tensors)
    return (tensor for _, tensor in tensors if tensor.is_floating_point())


def by_device(flat: Tensor, tensors: Iterable[Tensor]) -> Iterator[tuple[Tensor, list[Tensor]]]:
    """Yield successive tensors of one device, and their piece of `flat`, so that one transfer copies all of them.

    A transfer for each tensor would take longer, above all if several processes share a device.
    """
    place = 0
    for _, group in groupby(tensors, key=lambda tensor: tensor.device):
        found = list(group)
        size = sum(tensor.numel() for tensor in found)
        yield flat[place : place + size], found
        place += size


class Buffer:
    """Array in the memory of the host: the loss of a rank, and then the values of the tensors of an exchange."""

    def __init__(self) -> None:
        self._flat = torch.zeros(0)

    def filled(self, loss: float, tensors: list[Tensor]) -> Tensor:
        """Return the array with a loss and the values of tensors."""
        count = 1 + sum(tensor.numel() for tensor in tensors)
        if len(self._flat) != count:
            wide = any(tensor.dtype == torch.float64 for tensor in tensors)
            kind, pinned = torch.float64 if wide else torch.float32, torch.cuda.is_available()
            self._flat = torch.empty(count, dtype=kind, pin_memory=pinned)
        self._flat[0] = loss
        for flat, group in by_device(self._flat[1:], tensors):
            flat.copy_(torch.cat([tensor.detach().reshape(-1) for tensor in group]))
        return self._flat

    def spread(self, tensors: list[Tensor]) -> None:
        """Copy the values of the array into tensors."""
        for flat, group in by_device(self._flat[1:], tensors):
            pieces = torch.split(flat.to(group[0].device), [tensor.numel() for tensor in group])
            with torch.no_grad():
                for tensor, piece in zip(group, pieces, strict=True):
                    tensor.copy_(piece.view_as(tensor))
