"""The page of the book: one file without a network, escaped text, light and dark."""

from __future__ import annotations

import re
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from plotly.offline import get_plotlyjs
from workbench_book import Claim, Line, Outcome, Result, Setting, drawing, find, get
from workbench_book.page import html, write
from workbench_book.texts import code
from workbench_book.values import number, printed

NASTY = '<script>alert("x")</script> & </script>'
CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")


def nasty() -> list[Outcome]:
    """Return entries with texts that would break a page without escaping."""
    picture = drawing.curves({f"CR {NASTY}": ([0, 1], [1, 2])}, NASTY, NASTY, NASTY, NASTY)
    result = Result(
        lines=[Line(NASTY, 2.0, {"ours": 2.0, "measured": 1.0}, NASTY, NASTY)],
        claims=[Claim(NASTY, True, NASTY, NASTY)],
        pictures=[picture],
        text=[NASTY],
        data=[NASTY],
        measured=NASTY,
        specs={NASTY: {"a": NASTY}},
        reasons={"ours": NASTY},
    )
    entry = replace(get("fig8"), title=NASTY)
    return [Outcome(entry, result), Outcome(get("table3"), None, NASTY)]


def test_html_escapes_every_text() -> None:
    text = html(nasty(), Setting())
    assert "<script>alert" not in text
    assert text.count("&lt;script&gt;alert") > 10


def test_write_makes_one_file_with_plotly_once(tmp_path: Path, quick: Setting, found_before: Path) -> None:
    names = ("table3", "cada-misprints", "agc-fig1", "mmc-fig1a")
    found = [find(name, quick, found_before)[-1] for name in names]
    path = write(found, quick, tmp_path / "deep" / "page.html")
    text = path.read_text()
    assert text.count("/**\n* plotly.js v") == 1
    own = text.replace(get_plotlyjs(), "")
    assert len(own) < len(text)
    assert not re.search(r'(?:src|href)="(?:https?:)?//', own)
    for outcome in found:
        assert f'id="{outcome.entry.name}"' in text
        assert text.count(f'href="#{outcome.entry.name}"') == 1
    assert "Quick form" in text
    assert text.count("agrees within 0.1 %") >= 2  # in the entry and in the overview


def test_html_marks_real_results() -> None:
    text = html(nasty(), Setting())
    assert '<span class="tag real">real</span>' in text
    assert '<td class="n real">' in text


def test_html_pictures_have_captions() -> None:
    line = Line("a", 2.0, {"ours": 2.0})
    seen = {
        drawing.numbers([line], "", "", "").kind: "simulated",
        drawing.numbers([replace(line, values={"measured": 1.0})], "", "", "").kind: "real",
        drawing.heat(np.eye(2), ["a", "b"], ["c", "d"], "", ("", ""), "").kind: "computed",
    }
    assert all(kind == tag for kind, tag in seen.items())
    text = html(
        [
            Outcome(
                get("fig8"),
                Result(pictures=[drawing.heat(np.eye(2), ["a", "b"], ["c", "d"], "", ("", ""), "")]),
            )
        ],
        Setting(),
    )
    assert '<figcaption><span class="tag computed">computed</span>' in text


def test_printed_keeps_the_digits() -> None:
    """Every number that a paper prints has the same digits in the book."""
    from workbench_book.cegc import PUBLISHED

    from workbench.core.presets.codedreduce import presets

    values = [v for row in PUBLISHED for v in row] + [
        v for p in presets.values() for v in p.published.values()
    ]
    assert len(values) > 70
    assert [float(printed(value)) for value in values] == values


def test_code_may_break_and_is_escaped() -> None:
    assert code("wb.theory.f(a_b, 0.1)") == "<code>wb.<wbr>theory.<wbr>f(<wbr>a_<wbr>b, 0.1)</code>"
    assert code("<b>") == "<code>&lt;b&gt;</code>"


@pytest.mark.parametrize(
    ("value", "text"), [(12345.0, "12345"), (0.00012, "0.00012"), (float("nan"), "never"), (7, "7")]
)
def test_number_is_short(value: float, text: str) -> None:
    assert number(value) == text


@pytest.mark.browser
@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium")
def test_page_in_a_browser_light_and_dark(tmp_path: Path) -> None:
    from playwright.sync_api import sync_playwright

    path = write(nasty(), Setting(), tmp_path / "page.html")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1280, "height": 900}, color_scheme="dark")
        wrong: list[str] = []
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on(
            "request",
            lambda r: None if r.url.startswith(("file:", "data:", "blob:")) else wrong.append(r.url),
        )
        page.goto(path.as_uri())
        page.locator("#fig8-0").scroll_into_view_if_needed()
        page.wait_for_selector("#fig8-0 .main-svg")
        assert page.evaluate("document.documentElement.scrollWidth") == 1280
        backgrounds = []
        for theme in ("dark", "light"):
            page.wait_for_function(f"document.getElementById('fig8-0').dataset.drawn === '{theme}'")
            backgrounds.append(page.evaluate("document.getElementById('fig8-0')._fullLayout.paper_bgcolor"))
            page.click("#theme")
        assert backgrounds == ["#111111", "#FFFFFF"]
        assert wrong == []
        browser.close()
