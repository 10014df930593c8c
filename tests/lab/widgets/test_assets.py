"""plotly.js: sent once to the page that runs the cell, before the first figure."""

from __future__ import annotations

import gzip
from types import SimpleNamespace
from typing import Any

import pytest
from ipywidgets import Widget

from workbench.lab import widgets
from workbench.lab.widgets import assets


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[Widget]:
    """Return the widgets of a kernel that has sent nothing yet."""
    found: list[Widget] = []
    monkeypatch.setattr(Widget, "_widget_construction_callback", found.append)
    assets.send_ahead.cache_clear()
    return found


def asked(monkeypatch: pytest.MonkeyPatch, **metadata: str) -> None:
    """Simulate the request of a page to run a cell."""
    kernel = SimpleNamespace(get_parent=lambda: {"metadata": metadata})
    monkeypatch.setattr(assets, "get_ipython", lambda: SimpleNamespace(kernel=kernel))


def test_assets_are_sent_once_to_a_page(opened: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    asked(monkeypatch, cellId="one")
    for name in ("LivePlot", "explore"):
        monkeypatch.delitem(vars(widgets), name, raising=False)
        getattr(widgets, name)
    (ahead,) = [each for each in opened if isinstance(each, assets._Ahead)]
    assert gzip.decompress(ahead.packed).startswith(b"/**\n* plotly.js v")
    assert ahead.comm is not None
    ahead._handle_custom_msg({"kind": "taken"}, [])
    assert ahead.comm is None


@pytest.mark.parametrize("shell", [None, "nbclient"])
def test_assets_are_not_sent_without_a_page(
    opened: list[Any], monkeypatch: pytest.MonkeyPatch, shell: str | None
) -> None:
    if shell is None:
        monkeypatch.setattr(assets, "get_ipython", lambda: None)
    else:
        asked(monkeypatch)
    assets.send_ahead()
    assert opened == []
