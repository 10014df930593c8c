"""Creation of a code by the first decoder, and decoding with it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import workbench as wb
from workbench.core.codes import GradientCode, cyclic
from workbench.core.contract.programs import decoder
from workbench.core.contract.protocol import CODED, Message, Node
from workbench.core.schemes import gradient_coding


def test_gc_code_is_made_once_by_the_first_decoder() -> None:
    made: list[int] = []

    def make() -> GradientCode:
        made.append(1)
        return cyclic(5, 2)

    combine, parts = decoder(make, first=1), np.arange(1.0, 6.0)
    assert made == []
    answers = cyclic(5, 2).matrix @ parts
    for late in ([1, 2], [3, 5]):
        came = [rank for rank in range(1, 6) if rank not in late]
        got = {(rank, 0): Message(rank, CODED, 0, 0, np.array([answers[rank - 1]])) for rank in came}
        value, residual = combine(0, got)
        np.testing.assert_allclose(value, parts.sum(), rtol=1e-9)
        assert residual < 1e-12
    assert made == [1]


@pytest.mark.parametrize("rank", [0, 3])
def test_gc_program_start_makes_no_code(rank: int, monkeypatch: pytest.MonkeyPatch) -> None:
    e = wb.Experiment(scheme="GC", scheme_args={"stragglers": 2}, workers=6)
    scheme, plan = e.built_scheme, e.plan
    made: list[Any] = []
    monkeypatch.setattr(gradient_coding, "cyclic", lambda *args: made.append(args))
    scheme.program(Node(rank, plan, 3, plan.parts, None, lambda: 0.0))
    assert made == []
