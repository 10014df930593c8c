"""Help of settings: fields with meaning, unit and range, without pydantic's internals."""

from __future__ import annotations

import inspect
import pydoc
from typing import Any

import pytest
from IPython.core.inputtransformer2 import TransformerManager
from IPython.core.interactiveshell import InteractiveShell

import workbench as wb
from workbench.core.base.settings import Settings, setting
from workbench.core.contract.delays import Pareto
from workbench.core.contract.links import Link


class Vessel(Settings):
    """A thing that is filled."""

    volume: float = setting(description="how much it holds", unit="l", gt=0, le=50)
    colour: str | None = setting(None, "seen from outside")


def shown(settings: type[Settings]) -> str:
    return pydoc.render_doc(settings, renderer=pydoc.plaintext)


def test_setting_signature_has_kind_range_default_and_unit() -> None:
    assert inspect.getdoc(Vessel) == (
        "A thing that is filled.\n\nParameters\n----------\n"
        "volume : float > 0 and <= 50\n    how much it holds [l]\n"
        "colour : str | None, default None\n    seen from outside"
    )
    assert str(inspect.signature(Vessel)) == "(*, volume: float, colour: str | None = None)"


@pytest.mark.parametrize(
    "settings", [wb.Experiment, wb.Fault, Pareto, Link, wb.schemes.get("CR"), wb.batch.Sweep]
)
def test_settings_help_shows_only_fields(settings: type[Settings]) -> None:
    text = shown(settings)
    for field in settings.fields():
        assert field["name"] in inspect.signature(settings).parameters
        assert field.get("description", "") in text
        assert f"[{field['unit']}]" in text if field.get("unit") else True
    for word in ("model_dump", "model_config", "__pydantic", "__class_vars__", "parse_raw", "AfterValidator"):
        assert word not in text


def test_settings_help_lists_own_methods() -> None:
    assert {"replace", "fields", "read", "write", "plan", "load"} <= set(dir(wb.Experiment))
    assert "Read a .json, .yaml or .yml file" in shown(wb.Experiment)


@pytest.mark.parametrize("found_text", ["wb.Experiment?", "e?"])
def test_settings_help_in_jupyter(found_text: str, capsys: pytest.CaptureFixture[str]) -> None:
    shell = InteractiveShell()
    shell.user_ns.update(wb=wb, e=wb.Experiment())
    pages: list[Any] = []
    shell.display_page = True  # type: ignore[assignment]
    shell.set_hook("show_in_pager", lambda _, data, *more: pages.append(data["text/plain"]), 0)
    shell.run_cell(TransformerManager().transform_cell(found_text))
    text = pages[0] if pages else capsys.readouterr().out
    assert "speed of decoding; empty = decoding takes no time, as in the papers [floats/s]" in text
    assert "model_dump" not in text
