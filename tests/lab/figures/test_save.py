"""Saved figures: complete, offline, readable again."""

from __future__ import annotations

import json
import re
import struct
from pathlib import Path

import plotly.graph_objects as go
import pytest
from choreographer.browsers.chromium import Chromium

import workbench as wb
from workbench.core.base.settings import SettingError
from workbench.lab.figures import NoBrowser, convergence, save
from workbench.lab.figures.save import one_browser

BROWSER = Chromium.find_browser(skip_local=False)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_save_html_is_self_contained(traces: list[wb.Trace], tmp_path: Path, theme: str) -> None:
    figure = convergence(traces, theme="dark" if theme == "dark" else "light")
    page = save(figure, tmp_path / "figure.html").read_text(encoding="utf-8")
    assert not re.search(r"<script[^>]*\ssrc=", page)
    assert "plotly.js v" in page
    call = page[page.rindex("Plotly.newPlot(") :]
    data, end = json.JSONDecoder().raw_decode(call, call.index("["))
    layout, _ = json.JSONDecoder().raw_decode(call, call.index("{", end))
    assert go.Figure(data=data, layout=layout).to_json() == go.Figure(json.loads(figure.to_json())).to_json()


@pytest.mark.browser
@pytest.mark.skipif(not BROWSER, reason="no Chrome or Chromium is installed")
def test_save_pictures_are_1280_pixels_wide(traces: list[wb.Trace], tmp_path: Path) -> None:
    with one_browser():
        check_pictures(traces, tmp_path)


def check_pictures(traces: list[wb.Trace], tmp_path: Path) -> None:
    figure = convergence(traces)
    png = save(figure, tmp_path / "figure.png").read_bytes()
    assert png[:8] == b"\x89PNG\r\n\x1a\n"
    assert struct.unpack(">II", png[16:24]) == (1280, figure.layout.height)
    assert 'width="1280"' in save(figure, tmp_path / "figure.svg").read_text(encoding="utf-8")
    pdf = save(figure, tmp_path / "figure.pdf").read_bytes()
    assert pdf[:5] == b"%PDF-"
    box = re.search(rb"/MediaBox \[0 0 ([\d.]+) ([\d.]+)\]", pdf)
    assert box
    width, height = map(float, box.groups())
    assert width / height == pytest.approx(1280 / figure.layout.height, rel=0.01)


def test_save_without_a_browser_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BROWSER_PATH", str(tmp_path / "nowhere"))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(Chromium, "find_browser", classmethod(lambda cls, **options: None))
    with pytest.raises(NoBrowser, match=r"^no Chrome or Chromium was found.*install.*chromium.*BROWSER_PATH"):
        save(go.Figure(), tmp_path / "figure.png")
    assert list(tmp_path.iterdir()) == []


def test_save_refuses_wrong_names(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match=r"no format for '\.jpeg'; end it in \.html, \.png, \.svg, \.pdf$"):
        save(go.Figure(), tmp_path / "figure.jpeg")
    with pytest.raises(SettingError, match="there is no folder"):
        save(go.Figure(), tmp_path / "missing" / "figure.html")
