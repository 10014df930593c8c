"""Plans reach the ranks as they were drawn."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np
import pytest

import workbench as wb
from workbench.launch.task import pack, unpack

SPECS: list[dict[str, Any]] = [
    {"scheme": "UMW"},
    {"scheme": "RAR"},  # several committers
    {"scheme": "CR", "scheme_args": {"children": 2, "layers": 2}},
]


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec["scheme"])
def test_a_plan_survives_the_way(spec: dict[str, Any]) -> None:
    plan = wb.Experiment(**spec, workers=6, rounds=3).plan
    state = {"step": np.float64(0.5), "mean": np.arange(3.0)}
    again, model, back = unpack(pack(plan, np.ones(4), state))
    for field in fields(plan):
        if field.name != "notes":
            np.testing.assert_array_equal(getattr(again, field.name), getattr(plan, field.name))
            assert type(getattr(again, field.name)) is type(getattr(plan, field.name)), field.name
    np.testing.assert_array_equal(model, np.ones(4))
    assert back["step"] == 0.5
    assert isinstance(back["step"], float)
    np.testing.assert_array_equal(back["mean"], state["mean"])
