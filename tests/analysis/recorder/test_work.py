"""Work of a batch by its shapes."""

from __future__ import annotations

from collections import namedtuple
from types import SimpleNamespace
from typing import Any

import pytest

from workbench.analysis.recorder.work import work_of

Pair = namedtuple("Pair", "x y")


def tensor(*shape: int, dtype: str = "torch.float32") -> Any:
    return SimpleNamespace(shape=shape, dtype=dtype)


IDS = tensor(4, 16, dtype="torch.int64")
TOKENS = {"samples": 4.0, "tokens": 64.0, "squares": 1024.0}


@pytest.mark.parametrize(
    ("batch", "work"),
    [
        (tensor(32, 10), {"samples": 32.0}),
        ((tensor(32, 3, 8, 8), tensor(32)), {"samples": 32.0}),
        ([[tensor(7)]], {"samples": 7.0}),
        (Pair(tensor(5, 2), tensor(5)), {"samples": 5.0}),
        (IDS, TOKENS),
        ({"labels": tensor(9), "input_ids": IDS}, TOKENS),
        ({"image": tensor(3, 8)}, {"samples": 3.0}),
        ({}, {}),
        (None, {}),
        ("text", {}),
        (tensor(), {}),
        ([[[[[tensor(7)]]]]], {}),
    ],
)
def test_work_of_follows_the_shapes(batch: Any, work: dict[str, float]) -> None:
    assert work_of(batch) == work
