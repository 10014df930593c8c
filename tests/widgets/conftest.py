"""Widgets of a test are closed after it: each that is open follows every class that a later test defines."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from ipywidgets import Widget


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    """None is left open."""
    yield
    Widget.close_all()
