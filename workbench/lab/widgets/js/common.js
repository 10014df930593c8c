// Shared by every widget that draws: one plotly.js for the page, the page's theme, and a plot in a box.

const PAGE = Symbol.for("workbench.plotly");
const QUIET = 1500; // ms without a change of the plot after which an image is made
const PATIENCE = 5000; // ms without an answer after which another widget requests plotly.js

/** Wait until the page is idle, for 3 s at most. On a slow page, loading plotly.js takes seconds. If a widget starts
 * meanwhile and takes more than 2 s, anywidget does not connect it to its kernel. */
const idle = () =>
  new Promise((done) => ("requestIdleCallback" in globalThis ? requestIdleCallback(done, { timeout: 3000 }) : setTimeout(done, 100)));

/** Send a message to the kernel. If the kernel has ended, or the notebook was closed, nothing is sent. */
function tells(model, content) {
  try {
    model.send(content);
  } catch (error) {
    if (error.message !== "Cannot send") throw error; // JupyterLab's error for a comm that was closed
    document.dispatchEvent(new Event("wb-ended"));
  }
}

/** Return the state that the widgets of a page share. `ready`: promise of plotly.js. `begun`: whether it is loading. */
function widgetsShare() {
  const page = (globalThis[PAGE] ??= {});
  page.ready ??= new Promise((resolve) => (page.resolve = resolve));
  return page;
}

/** Load plotly.js as a kernel sends it, compressed, unless the page has it. */
async function readLibrary(packed) {
  const page = widgetsShare();
  if (page.begun) return;
  page.begun = true;
  const unpacked = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  const text = await new Response(unpacked).text();
  const wrapped = ["const module = {exports: {}}, exports = module.exports;\n", text, "\n;export default module.exports;"];
  const url = URL.createObjectURL(new Blob(wrapped, { type: "text/javascript" }));
  await idle();
  const Plotly = (await import(url)).default;
  Plotly.setPlotConfig({ logging: 0 }); // it logs a long warning for each bar whose colour is a number
  page.resolve(Plotly);
  URL.revokeObjectURL(url);
}

/** Return plotly.js. If no kernel has sent it, the first widget requests it, and all others wait. plotly.js is not
 * stored in the notebook. */
function library(model) {
  const page = widgetsShare();
  if (page.begun) return page.ready;
  const take = ({ kind }, buffers) => void (kind === "library" && readLibrary(buffers[0]));
  // number of requests without an answer; the more, the longer this widget waits, because it may not be connected
  let asked = 0;
  const ask = () => {
    if (page.begun || Date.now() - (page.asked ?? -Infinity) < PATIENCE * (1 + asked)) return;
    page.asked = Date.now();
    asked += 1;
    tells(model, { kind: "library" });
  };
  model.on("msg:custom", take);
  ask();
  const timer = setInterval(ask, 500);
  page.ready.then(() => {
    clearInterval(timer);
    model.off("msg:custom", take);
  });
  return page.ready;
}

/** Return "light" or "dark", as set by JupyterLab, Voila or VS Code, else by the system. */
function theme() {
  const { jpThemeLight, vscodeThemeKind } = document.body.dataset;
  if (jpThemeLight !== undefined) return jpThemeLight === "true" ? "light" : "dark";
  if (vscodeThemeKind !== undefined) return vscodeThemeKind.includes("dark") ? "dark" : "light";
  return matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
}

/** Return the scale of text, which pages of lectures set for projection. */
const letters = () => Number(document.documentElement.style.getPropertyValue("--wb-scale")) || 1;

/** Call `callback` whenever the page changes its theme or text size. Return a function that ends the observation. */
function onTheme(callback) {
  const look = () => `${theme()} ${letters()}`;
  let known = look();
  const observer = new MutationObserver(() => {
    if (look() === known) return;
    known = look();
    callback();
  });
  for (const of of [document.body, document.documentElement]) observer.observe(of, { attributes: true });
  return () => observer.disconnect();
}

/** Keep key presses inside of a focused element. Otherwise, JupyterLab moves between cells on arrow keys. */
function ownKeys(el) {
  el.addEventListener("focusin", ({ target }) => (target.dataset.lmSuppressShortcuts = "true"));
}

/** Give a widget's element the package's style and key handling. */
function ours(el, ...classes) {
  el.classList.add("wb", ...classes);
  ownKeys(el);
}

/** Return a name that is unique in the page. The page stores the counter, because each widget has a copy of this file. */
function unique(word) {
  const page = (globalThis[PAGE] ??= {});
  return `wb-${word}-${(page.serial = (page.serial ?? 0) + 1)}`;
}

/** Return a new element: element("button", {className: "x", onclick: f}, "text or children"). */
function element(tag, properties = {}, ...children) {
  const made = Object.assign(document.createElement(tag), properties);
  for (const [name, value] of Object.entries(properties))
    if (name.startsWith("aria-") || name === "role" || name === "for") made.setAttribute(name, value);
  made.append(...children);
  return made;
}

const GAP = 4; // px between a menu and its button, and between a menu and the edge of the window

/** Show a popover at its button: below it, or above it if there is more space. It stays inside of the window, and scrolls
 * if it is higher. It follows its button when the page scrolls. `right`: their right sides are aligned, as
 * for every button in the right half of the window. */
function showAt(popover, button, right) {
  const place = (event) => {
    if (event?.target instanceof Node && popover.contains(event.target)) return;
    if (!popover.isConnected) return ended();
    const at = button.getBoundingClientRect(), below = innerHeight - at.bottom - 2 * GAP, above = at.top - 2 * GAP;
    popover.style.setProperty("--wb-room", `${Math.max(below, above)}px`);
    const { width, height } = popover.getBoundingClientRect(), up = height > below;
    const start = right || at.left > innerWidth / 2 ? at.right - width : at.left, top = up ? at.top - GAP - height : at.bottom + GAP;
    const left = Math.max(GAP, Math.min(start, innerWidth - width - GAP));
    Object.assign(popover.style, { left: `${left}px`, top: `${Math.max(GAP, Math.min(top, innerHeight - GAP - height))}px` });
  };
  const ended = (event) => {
    if (event && event.newState !== "closed") return;
    removeEventListener("scroll", place, true);
    removeEventListener("resize", place);
    popover.removeEventListener("toggle", ended);
  };
  popover.showPopover();
  place();
  addEventListener("scroll", place, true);
  addEventListener("resize", place);
  popover.addEventListener("toggle", ended);
}

/** Show the sheet of a menu while the menu is open. Close it on Escape, and on a click elsewhere. */
function closing(details) {
  const outside = ({ target }) => details.contains(target) || (details.open = false);
  const [button, sheet] = details.children;
  sheet.popover = "manual"; // above everything else, so that nothing cuts it
  details.addEventListener("toggle", () => {
    if (details.open && details.isConnected) showAt(sheet, button, details.matches(".wb-right"));
    else sheet.hidePopover();
    document[details.open ? "addEventListener" : "removeEventListener"]("pointerdown", outside);
  });
  details.addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || !details.open) return;
    event.stopPropagation();
    details.open = false;
    details.firstChild.focus();
  });
}

/** Return a function that calls `callback` at most once per animation frame. Its `now()` calls at once if there was no
 * call in this frame, so that figures follow a slider without delay. */
function perFrame(callback) {
  let frame = 0, due = false;
  const next = () => {
    frame = due ? requestAnimationFrame(next) : 0;
    if (due) (due = false), callback();
  };
  const soon = () => ((due = true), (frame ||= requestAnimationFrame(next)));
  soon.now = () => {
    if (frame) return soon();
    frame = requestAnimationFrame(next);
    callback();
  };
  soon.cancel = () => (cancelAnimationFrame(frame), (frame = 0), (due = false));
  return soon;
}

/** Return a layout with the background of the page. */
function grounded(layout, box) {
  const ground = getComputedStyle(box).backgroundColor;
  return { paper_bgcolor: ground, plot_bgcolor: ground, ...layout };
}

/** Return whether a box must be drawn now. A hidden box has no size, and is drawn when it is shown. */
function visible(box) {
  box.stale = !box.offsetWidth;
  return !box.stale;
}

/** Config of all figures of the package. For PLOTLY_CONFIG, see assets.py. */
const CONFIG = { ...PLOTLY_CONFIG, toImageButtonOptions: { scale: 2 } };

const watched = new IntersectionObserver((seen) => seen.forEach(({ target, isIntersecting }) => (target.inside = isIntersecting)));

/** Return whether some part of a box is visible in the window, as an observer of the browser reports. Measuring the box
 * at every move of a slider would repeat the layout of the whole page. */
function inWindow(box) {
  if (box.inside !== undefined) return box.inside;
  watched.observe(box);
  const { top, bottom } = box.getBoundingClientRect();
  return bottom > 0 && top < innerHeight;
}

/** Return the config of a plot whose image is saved as `name()`, which is called on the click. With another config for
 * each name, plotly would build the figure again, which takes far longer than a change of the figure. */
function named(Plotly, name) {
  const { toImageButtonOptions: options, ...others } = CONFIG;
  const click = (plot) => Plotly.downloadImage(plot, { format: "png", ...options, filename: name() });
  const button = { name: "picture", title: "Download plot as a PNG", icon: Plotly.Icons.camera, click };
  return { ...others, modeBarButtonsToRemove: ["toImage"], modeBarButtonsToAdd: [button] };
}

/** Return a function to call after every drawing. When the plot has not changed for a while, it sends an image to the
 * kernel, if the kernel wants one. `taken`: returns the image's data address, or nothing. */
function stills(model, taken) {
  let timer;
  const take = async () => {
    const url = model.get("still") && (await taken());
    if (url) tells(model, { kind: "still", png: url.split(",")[1] });
  };
  return () => (clearTimeout(timer), (timer = setTimeout(take, QUIET)));
}

/** Return an image of a plot as a data address, or "" without a plot. */
function imageOf({ box, Plotly }) {
  const { offsetWidth: width, offsetHeight: height } = box;
  return box.data && width ? Plotly.toImage(box, { format: "png", width, height }) : "";
}

/** Return a box as wide as the page, for a plotly figure. `shown` is called when the box becomes visible. */
async function plotBox(model, parent, shown) {
  const box = element("div", { className: "wb-plot" });
  parent.append(box);
  const Plotly = await library(model);
  const fit = perFrame(() => {
    if (!box.offsetWidth) return;
    if (box.stale) shown();
    else if (box.data) Plotly.Plots.resize(box).then(shown); // titles may have other lines
  });
  const observer = new ResizeObserver(fit);
  observer.observe(box);
  const remove = () => {
    observer.disconnect();
    fit.cancel();
    Plotly.purge(box);
  };
  return { box, Plotly, remove };
}
