"""Texts about groups of settings: numbers are written as in the fields."""

from __future__ import annotations

import pytest

from workbench.core.contract.delays import delay_models
from workbench.lab.widgets.forms.fields import show
from workbench.lab.widgets.forms.form import ChoiceForm
from workbench.lab.widgets.forms.summaries import of_choice


@pytest.mark.parametrize(
    ("shift", "text"), [(1e5, "1e5"), (2.5e-5, "2.5e-5"), (1234.5678, "1235"), (3e12, "3e12")]
)
def test_summary_has_the_format_of_the_field(shift: float, text: str) -> None:
    form = ChoiceForm("", "kind", delay_models(), "constant")
    form.fill({"shift": show(shift)})
    assert of_choice(form) == f"constant, shift {text} s/sample"
    assert show(float(text)) == text
