"""Layout faults of a page: text that is cut, covered, crossed, small or pale, menus that are cut, several backgrounds.

The JavaScript `FAULTS` measures bounding boxes and computed colours in the page.
"""

from __future__ import annotations

from playwright.sync_api import Page

LEAST_PX, LEAST_CONTRAST = 12, 4.5
LONGEST_WORD = 24  # letters of a word that may not be broken

FAULTS = """async ([selector, least, wanted, longest]) => {
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
  const pictures = await Promise.all([...root.querySelectorAll(".heatmaplayer image")].map(async (image) => {
    const picture = Object.assign(new Image(), { src: image.href.baseVal });
    await picture.decode();
    const { naturalWidth: width, naturalHeight: height } = picture;
    const pixels = new OffscreenCanvas(width, height).getContext("2d");
    pixels.drawImage(picture, 0, 0);
    return { frame: image.getBoundingClientRect(), width, height, pixels };
  }));
  const centre = (e) => {
    const { left, right, top, bottom } = e.getBoundingClientRect();
    return { x: (left + right) / 2, y: (top + bottom) / 2 };
  };
  const holds = (box, { x, y }) => x >= box.left && x <= box.right && y >= box.top && y <= box.bottom;
  /** The colour below a text: that of a heat map's cell, of a bar, or of a marker, else of the page. */
  const under = (e) => {
    const at = centre(e), page = behind(e);
    if (e.closest(".heatmap-label")) {
      const { frame, width, height, pixels } = pictures.find(({ frame }) => holds(frame, at)) ?? {};
      if (!frame) return page;
      const [x, y] = [((at.x - frame.left) / frame.width) * width, ((at.y - frame.top) / frame.height) * height];
      const [r, g, b, a] = pixels.getImageData(Math.min(x, width - 1), Math.min(y, height - 1), 1, 1).data;
      return over([r, g, b, a / 255], page);
    }
    const plot = e.closest(".bartext, .textpoint, .slicetext")?.closest(".wb-plot");
    const marks = [...(plot?.querySelectorAll(".point > path, path.point, .slice path.surface") ?? [])];
    const below = marks.filter((mark) => !hidden(mark) && holds(mark.getBoundingClientRect(), at));
    return below.reduce((ground, mark) => {
      const { fill, fillOpacity, opacity } = getComputedStyle(mark);
      const [r, g, b, a] = fill === "none" ? [0, 0, 0, 0] : rgba(fill);
      return over([r, g, b, a * fillOpacity * opacity], ground);
    }, page);
  };
  const contrast = (e, style) => {
    const ground = under(e), svg = e.namespaceURI.includes("svg");
    const text = over(rgba(svg ? style.fill : style.color), ground), [a, b] = [light(text), light(ground)];
    return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
  };
  const strips = ".wb-tabs, .widget-toggle-buttons > div, .wb-scroll"; // they scroll sideways
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
    if (parseFloat(style.fontSize) < 2) continue; // plotly's hidden texts
    const about = `${words.slice(0, 40)} (${e.closest("[class]")?.getAttribute("class")})`;
    const raised = e.closest("sub, sup, [style*='font-size: 70%'], [style*='font-size:70%']");
    if (parseFloat(style.fontSize) < least && !raised) found.add(`small, ${style.fontSize}: ${about}`);
    if (!e.closest(":disabled, [aria-disabled=true], select")) {
      const is = contrast(e, style);
      if (is < wanted) found.add(`pale, ${is.toFixed(2)}: ${about}`);
    }
    const range = document.createRange();
    range.selectNodeContents(node);
    const strip = e.closest(strips)?.getBoundingClientRect();
    for (const box of range.getClientRects()) {
      if (box.width < 1 || (strip && beyond(box, strip))) continue;
      const sheet = e.closest(":popover-open, .wb-sheet")?.getBoundingClientRect();
      if (sheet && (box.bottom > sheet.bottom || box.top < sheet.top)) continue; // reached by scrolling
      if (beyond(box, frame)) found.add(`outside, ${Math.round(box.left)} to ${Math.round(box.right)}: ${about}`);
      for (let p = e; p !== root.parentElement; p = p.parentElement) {
        const { overflowX, display } = getComputedStyle(p), clips = overflowX !== "visible" && display !== "contents";
        if (!p.namespaceURI.includes("xhtml") || p.matches(strips) || !clips) continue;
        if (beyond(box, p.getBoundingClientRect())) found.add(`cut: ${about}`);
      }
      const plot = e.closest(".wb-plot")?.getBoundingClientRect();
      const above = plot && (box.top < plot.top - 1 || box.bottom > plot.bottom + 1);
      if (/rotate\\(-46/.test(e.getAttribute("transform"))) continue; // beside one another, aslant
      if (plot && (beyond(box, plot) || above)) found.add(`cut by its figure: ${about}`);
      const top = document.elementFromPoint((box.left + box.right) / 2, (box.top + box.bottom) / 2);
      const own = !top || !root.contains(top) || top.contains(e) || e.contains(top);
      const beside = own || (plot && top.closest(".wb-plot") === e.closest(".wb-plot")) || e.closest("label, select");
      if (!beside && !top.closest(".wb-sheet, .wb-menu")) found.add(`covered by ${top.className}: ${about}`);
      if (!e.closest(".textpoint, .slicetext, .wb-sheet, .wb-menu")) boxes.push({ box, words, node });
      const button = e.closest("button")?.getBoundingClientRect();
      const high = button && (box.top < button.top - 1 || box.bottom > button.bottom + 1);
      if (button && (high || beyond(box, button))) found.add(`beyond its button: ${about}`);
    }
    if (strip || e.namespaceURI.includes("svg") || e.closest("pre, code, .wb-note")) continue;
    for (const { index, 0: word } of node.textContent.matchAll(/[^\\s\\u2013/-]+/gu)) {
      range.setStart(node, index);
      range.setEnd(node, index + word.length);
      const lines = [...range.getClientRects()].filter(({ width }) => width > 0);
      const tops = new Set(lines.map(({ top }) => Math.round(top)));
      if (tops.size > 1 && word.length <= longest) found.add(`broken word: ${word} in ${about}`);
    }
  }
  boxes.forEach((a, i) => boxes.slice(i + 1).forEach((b) => {
    if (a.node !== b.node && hit(a.box, b.box)) found.add(`overlap: ${a.words.slice(0, 30)} | ${b.words.slice(0, 30)}`);
  }));
  const ticks = [...root.querySelectorAll(".wb-plot .axis text, .wb-plot .xtick text")].filter((e) => !hidden(e));
  const placed = (e) => ({ words: e.textContent, box: e.getBoundingClientRect(), plot: e.closest(".wb-plot") });
  const places = ticks.map(placed);
  for (const a of places) for (const b of places) {
    const gap = b.box.left - a.box.right, level = Math.abs(a.box.top - b.box.top) < 4 && a.plot === b.plot;
    if (level && gap > -2 && gap < 4 && a.words && b.words) found.add(`run together: ${a.words} ${b.words}`);
  }
  for (const e of root.querySelectorAll("input[type=text], input:not([type]), select")) {
    if (hidden(e) || e.closest(strips)) continue;
    if (e.matches("input") && e.scrollWidth > e.clientWidth + 1) found.add(`cut: ${e.value}`);
    if (beyond(e.getBoundingClientRect(), frame)) found.add(`outside: ${e.getAttribute("aria-label") ?? e.id}`);
  }
  for (const e of root.querySelectorAll("select:not([multiple])")) {
    if (hidden(e)) continue;
    if (e.closest(".wb-top") && e.selectedOptions[0]?.text.length > 20) continue; // a preset is known by its first word
    const style = getComputedStyle(e), [left, right] = [style.paddingLeft, style.paddingRight].map(parseFloat);
    const room = e.clientWidth - left - right;
    pen.font = `${style.fontWeight} ${style.fontSize} ${style.fontFamily}`;
    const shown = e.options[0]?.value === "" ? e.selectedOptions : e.options; // a menu that begins empty adds things
    for (const { text } of shown) if (pen.measureText(text).width > room + 1) found.add(`cut choice: ${text}`);
  }
  for (const e of root.querySelectorAll(":popover-open, .wb-pop[open] > .wb-sheet")) {
    const box = e.getBoundingClientRect(), about = e.textContent.slice(0, 30), { overflowY } = getComputedStyle(e);
    const frame = { left: 0, top: 0, right: innerWidth, bottom: innerHeight };
    for (let p = e.parentElement; p !== document.documentElement && !e.matches(":popover-open"); p = p.parentElement) {
      const clip = p.getBoundingClientRect(), style = getComputedStyle(p);
      if (style.overflowY === "visible" || style.display === "contents" || p === document.body) continue;
      [frame.top, frame.bottom] = [Math.max(frame.top, clip.top), Math.min(frame.bottom, clip.bottom)];
    }
    const above = box.top < frame.top - 1 || box.bottom > frame.bottom + 1;
    if (above || beyond(box, frame)) found.add(`menu beyond the page: ${about}`);
    const scrolls = ["auto", "scroll"].includes(overflowY);
    if (e.scrollHeight > e.clientHeight + 1 && !scrolls) found.add(`menu cannot scroll: ${about}`);
    if (box.height < Math.min(e.scrollHeight, 120)) found.add(`menu of ${Math.round(box.height)} px: ${about}`);
  }
  const curves = [...root.querySelectorAll(".scatterlayer .js-line")].filter((path) => !hidden(path));
  const traced = curves.map((path) => {
    const length = path.getTotalLength(), count = Math.min(2000, Math.ceil(length / 3)), screen = path.getScreenCTM();
    const at = (_, i) => path.getPointAtLength((length * i) / count).matrixTransform(screen);
    return { plot: path.closest(".wb-plot"), points: Array.from({ length: count }, at) };
  });
  for (const e of root.querySelectorAll(".annotation-text, .shape-label text")) {
    const ground = e.closest(".annotation-text-g")?.querySelector("rect.bg");
    const opacity = ground ? rgba(getComputedStyle(ground).fill)[3] * getComputedStyle(ground).fillOpacity : 0;
    if (hidden(e) || opacity > 0.8) continue;
    const { left, right, top, bottom } = e.getBoundingClientRect(), plot = e.closest(".wb-plot");
    const text = { left: left + 2, right: right - 2, top: top + 4, bottom: bottom - 4 };
    const crossed = traced.some((each) => each.plot === plot && each.points.some((point) => holds(text, point)));
    if (crossed) found.add(`crossed by a curve: ${e.textContent.slice(0, 30)}`);
  }
  for (const e of root.querySelectorAll("input, select, textarea, button, canvas, .wb-unit")) {
    if (hidden(e) || e.closest(strips) || e.closest(".wb-sheet, .wb-menu, .modebar, .wb-present")) continue;
    const box = e.getBoundingClientRect(), words = e.textContent.slice(0, 30);
    const about = e.getAttribute("aria-label") || words || e.labels?.[0]?.textContent || e.className;
    for (let p = e.parentElement; p !== root.parentElement; p = p.parentElement) {
      const { display, position } = getComputedStyle(p);
      if (display !== "contents" && display !== "inline" && beyond(box, p.getBoundingClientRect())) {
        found.add(`control beyond its ${p.className || p.tagName}: ${about}`);
        break;
      }
      if (position === "absolute") break;
    }
  }
  return [...found];
}"""

GROUNDS = """(selector) => {
  const root = document.querySelector(selector), all = root.getBoundingClientRect(), found = new Set();
  const add = (color) => /, 0\\)$|^transparent$/.test(color) || found.add(color);
  for (const e of [root, ...root.querySelectorAll("*")]) {
    const box = e.getBoundingClientRect(), style = getComputedStyle(e);
    if (!e.checkVisibility() || box.width * box.height < 0.05 * all.width * Math.min(all.height, innerHeight)) continue;
    if (e.closest(".wb-sheet, .wb-menu")) continue; // menus are raised
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
    """Return text that is cut, outside, covered, crossed, below 12 px or of a contrast below 4.5, and cut menus."""
    found: list[str] = page.evaluate(FAULTS, [selector, LEAST_PX, LEAST_CONTRAST, LONGEST_WORD])
    return found


def grounds(page: Page, selector: str = ".wb-explorer") -> list[str]:
    """Return the background colours of all large elements of a part of the page, and of the page."""
    found: list[str] = page.evaluate(GROUNDS, selector)
    return found
