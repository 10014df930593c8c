"""What pages of lectures look like: a centred column, typeset mathematics, and a complete list."""

from __future__ import annotations

import re
from typing import Any

from playwright.sync_api import Page

SCREENS = ((1440, 900), (1920, 1080))  # px
MAX_OFF_CENTRE, MAX_TEXT = 2, 800  # px
# distance of the middle of each text, form, figure and exercise from the middle of the page, its width, px, and
# whether it is text. A page is what is beside the scroll bar.
PLACED = """() => [...document.querySelectorAll(
    '.jp-RenderedMarkdown > *, .wb-lecture-view .wb-form, [role=figure], .wb-question, .wb-index > *')]
  .filter((e) => e.offsetWidth && !e.matches('.anchor-link, .wb-row .wb-form')).map((e) => {
    const page = e.closest('#rendered_cells, body'), { left, right } = e.getBoundingClientRect();
    const middle = page.getBoundingClientRect().left + page.clientWidth / 2;
    return [e.innerText.slice(0, 40), (left + right) / 2 - middle, right - left, !!e.closest('.jp-RenderedMarkdown')];
  })"""
# whether symbols are set in a serif and italic, below or above the line and smaller, as in print
TYPESET = """() => [...document.querySelectorAll('.jp-RenderedMarkdown :is(em, sub, sup)')]
  .filter((e) => !e.closest('strong')).map((e) => {
    const style = getComputedStyle(e), around = getComputedStyle(e.closest('p, li, td, h1, h2, h3'));
    const serif = /serif$/.test(style.fontFamily) && !/sans-serif$/.test(style.fontFamily);
    const italic = !e.matches('em') || style.fontStyle === 'italic';
    const shifted = !e.matches('sub, sup') || style.verticalAlign === e.localName.replace('sup', 'super');
    const small = !e.closest('sub, sup') || parseFloat(style.fontSize) < 0.9 * parseFloat(around.fontSize);
    return [e.innerText, serif && italic && shifted && small];
  })"""
# text of each formula with a line of its own, which is not a sentence, and the distance of its middle from that of the
# column, px
FORMULAS = r"""() => [...document.querySelectorAll('.jp-RenderedMarkdown > blockquote')]
  .filter((e) => e.querySelector('em') && !/\.$/.test(e.innerText.trim())).map((e) => {
    const range = document.createRange(), { left, right } = e.parentElement.getBoundingClientRect();
    range.selectNodeContents(e.querySelector('p'));
    const boxes = [...range.getClientRects()].filter(({ width }) => width > 0);
    const [first, last] = [Math.min(...boxes.map((b) => b.left)), Math.max(...boxes.map((b) => b.right))];
    return [e.innerText, (first + last - left - right) / 2];
  })"""
# source of mathematics that was not rendered
RAW = re.compile(r"\$|\\[a-zA-Z(\[]|[_^]\{|\*\w+\*|</?(sub|sup|em)>")
# entries of the list: number of marks with a size in the thumbnail, its size, the sentence, and the minutes
ENTRIES = """() => [...document.querySelectorAll('.wb-index li')].map((each) => {
  const picture = each.querySelector('.wb-thumb svg'), { width, height } = picture?.getBoundingClientRect() ?? {};
  const marks = [...(picture?.querySelectorAll('path, rect, circle') ?? [])].filter((mark) => {
    const { width, height } = mark.getBoundingClientRect();
    return width + height > 0;
  }).length;
  const [sentence, minutes] = ['p', 'span'].map((name) => each.querySelector(name).innerText);
  return { marks, width, height, sentence, minutes };
})"""


def off_centre(page: Page, most: float = MAX_TEXT) -> list[Any]:
    """Return the parts of a page that are not in the middle of the window, and texts wider than `most` px."""
    places = page.evaluate(PLACED)
    assert len(places) > 1
    wide = [each for each in places if each[2] > most and each[3]]
    return [each for each in places if abs(each[1]) > MAX_OFF_CENTRE] + wide


def not_typeset(page: Page) -> list[Any]:
    """Return mathematics of a lecture that is not set as in print, or of which the source is shown."""
    symbols, formulas = page.evaluate(TYPESET), page.evaluate(FORMULAS)
    assert symbols
    bad = [each for each, well in symbols if not well]
    bad += [text for text, off in formulas if abs(off) > MAX_OFF_CENTRE]
    return bad + [found[0] for found in RAW.finditer(page.locator("body").inner_text())]


def incomplete(page: Page, count: int) -> list[Any]:
    """Return the entries of the list of lectures without a picture that is drawn, one sentence, and minutes."""
    entries = page.evaluate(ENTRIES)
    assert len(entries) == count
    return [
        each
        for each in entries
        if each["marks"] < 3
        or min(each["width"] or 0, each["height"] or 0) < 50
        or not re.fullmatch(r"[A-Z][^.!?]{20,120}\.", each["sentence"])
        or not re.fullmatch(r"\d+ min, \d exercises", each["minutes"])
    ]
