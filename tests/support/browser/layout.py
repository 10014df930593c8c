"""Layout faults of a page: text that is cut, covered, small or pale, and different backgrounds.

The JavaScript `FAULTS` measures bounding boxes and computed colours in the page.
"""

from __future__ import annotations

from playwright.sync_api import Page

LEAST_PX, LEAST_CONTRAST = 12, 4.5

FAULTS = """([selector, least, wanted]) => {
  const root = document.querySelector(selector), frame = root.getBoundingClientRect(), found = new Set();
  const pen = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  pen.canvas.width = pen.canvas.height = 1;
  const rgba = (color) => {
    pen.clearRect(0, 0, 1, 1);
    pen.fillStyle = color;
    pen.fillRect(0, 0, 1, 1);
    const [r, g, b, a] = pen.getImageData(0, 0, 1, 1).data;
    return [r, g, b, a / 255];
  };
  const over = (a, b) => [0, 1, 2].map((i) => a[i] * a[3] + b[i] * (1 - a[3]));
  const light = (color) => {
    const [r, g, b] = color.map((v) => ((v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = (e) => {
    const layers = [];
    for (let p = e; p; p = p.parentElement) layers.unshift(rgba(getComputedStyle(p).backgroundColor));
    return layers.reduce((below, layer) => over(layer, below), [255, 255, 255]);
  };
  const contrast = (e, style) => {
    const ground = behind(e), svg = e.namespaceURI.includes("svg");
    const text = over(rgba(svg ? style.fill : style.color), ground), [a, b] = [light(text), light(ground)];
    return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
  };
  const strips = ".wb-tabs, .widget-toggle-buttons > div, .wb-scroll, .wb-boxes"; // they scroll sideways
  const common = (a, b, from, to) => Math.min(a[to], b[to]) - Math.max(a[from], b[from]);
  const hit = (a, b) => common(a, b, "left", "right") > 2 && common(a, b, "top", "bottom") > 3;
  const beyond = (a, b) => a.left < b.left - 1 || a.right > b.right + 1;
  const boxes = [];
  const walker = document.createTreeWalker(root, NodeFilter.SHOW_TEXT);
  const ignored = "option, style, script, .hoverlayer, .modebar, [aria-hidden=true]:not(svg)";
  const hidden = (e) => !e.checkVisibility({ visibilityProperty: true, opacityProperty: true }) ||
    e.closest(ignored) || getComputedStyle(e).clipPath === "inset(50%)";
  while (walker.nextNode()) {
    const node = walker.currentNode, e = node.parentElement, words = node.textContent.trim();
    if (!words || hidden(e)) continue;
    const style = getComputedStyle(e);
    const about = `${words.slice(0, 40)} (${e.closest("[class]")?.getAttribute("class")})`;
    if (parseFloat(style.fontSize) < least) found.add(`small, ${style.fontSize}: ${about}`);
    if (!e.closest(":disabled, [aria-disabled=true], select, .pointtext, .slicetext, .bartext, .heatmap-label")) {
      const is = contrast(e, style);
      if (is < wanted) found.add(`pale, ${is.toFixed(2)}: ${about}`);
    }
    const range = document.createRange();
    range.selectNodeContents(node);
    const strip = e.closest(strips)?.getBoundingClientRect();
    for (const box of range.getClientRects()) {
      if (box.width < 1 || (strip && beyond(box, strip))) continue;
      if (beyond(box, frame)) found.add(`outside, ${Math.round(box.left)} to ${Math.round(box.right)}: ${about}`);
      for (let p = e; p !== root.parentElement; p = p.parentElement) {
        const { overflowX, display } = getComputedStyle(p), clips = overflowX !== "visible" && display !== "contents";
        if (!p.namespaceURI.includes("xhtml") || p.matches(strips) || !clips) continue;
        if (beyond(box, p.getBoundingClientRect())) found.add(`cut: ${about}`);
      }
      const plot = e.closest(".wb-plot")?.getBoundingClientRect();
      const above = plot && (box.top < plot.top - 1 || box.bottom > plot.bottom + 1);
      if (plot && (beyond(box, plot) || above)) found.add(`cut by its figure: ${about}`);
      const top = document.elementFromPoint((box.left + box.right) / 2, (box.top + box.bottom) / 2);
      const own = !top || !root.contains(top) || top.contains(e) || e.contains(top);
      const beside = own || (plot && top.closest(".wb-plot") === e.closest(".wb-plot")) || e.closest("label, select");
      if (!beside && !top.closest(".wb-sheet, .wb-menu")) found.add(`covered by ${top.className}: ${about}`);
      if (!e.closest(".pointtext, .slicetext, .wb-sheet")) boxes.push({ box, words });
    }
  }
  boxes.forEach((a, i) => boxes.slice(i + 1).forEach((b) => {
    if (hit(a.box, b.box)) found.add(`overlap: ${a.words.slice(0, 30)} | ${b.words.slice(0, 30)}`);
  }));
  for (const e of root.querySelectorAll("input[type=text], input:not([type]), select")) {
    if (hidden(e) || e.closest(strips)) continue;
    if (e.matches("input") && e.scrollWidth > e.clientWidth + 1) found.add(`cut: ${e.value}`);
    if (beyond(e.getBoundingClientRect(), frame)) found.add(`outside: ${e.getAttribute("aria-label") ?? e.id}`);
  }
  return [...found];
}"""

GROUNDS = """(selector) => {
  const root = document.querySelector(selector), all = root.getBoundingClientRect(), found = new Set();
  const add = (color) => /, 0\\)$|^transparent$/.test(color) || found.add(color);
  for (const e of [root, ...root.querySelectorAll("*")]) {
    const box = e.getBoundingClientRect(), style = getComputedStyle(e);
    if (!e.checkVisibility() || box.width * box.height < 0.05 * all.width * Math.min(all.height, innerHeight)) continue;
    if (e.tagName === "svg" || e.namespaceURI.includes("xhtml")) add(style.backgroundColor);
    if (e.matches("rect.bg")) add(style.fill);
  }
  for (let p = root; p; p = p.parentElement) {
    add(getComputedStyle(p).backgroundColor);
    if (p.matches(".jp-Notebook:not(body)")) break;
  }
  return [...found].filter((color) => !color.startsWith("color(") && !/rgba\\(.*0\\.\\d+\\)/.test(color));
}"""


def faults(page: Page, selector: str = ".wb-explorer") -> list[str]:
    """Return text that is cut, outside, covered by text, below 12 px or of a contrast below 4.5, with the reason."""
    found: list[str] = page.evaluate(FAULTS, [selector, LEAST_PX, LEAST_CONTRAST])
    return found


def grounds(page: Page, selector: str = ".wb-explorer") -> list[str]:
    """Return the background colours of all large elements of a part of the page, and of the page."""
    found: list[str] = page.evaluate(GROUNDS, selector)
    return found
