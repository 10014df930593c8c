// Shared by every widget of the workbench that draws: plotly.js once a page, the page's theme, one plot in a box.

const PAGE = Symbol.for("workbench.plotly");
const QUIET = 1500; // ms without a change after which a picture is made
const PATIENCE = 5000; // ms after which another widget asks again

/** Wait until the page is idle, or briefly: loading plotly.js takes a slow page seconds, and anywidget gives up a widget
 * that starts meanwhile after two: it is then not connected to its kernel. */
const idle = () =>
  new Promise((done) => ("requestIdleCallback" in globalThis ? requestIdleCallback(done, { timeout: 3000 }) : setTimeout(done, 100)));

/** Send a message to the kernel. Where it has ended, or its notebook was closed, widgets remain for a moment: nothing is sent. */
function tells(model, content) {
  try {
    model.send(content);
  } catch (error) {
    if (error.message !== "Cannot send") throw error; // what JupyterLab says of a comm that is gone
    document.dispatchEvent(new Event("wb-ended"));
  }
}

/** State shared by the widgets of a page: plotly.js, once it is `ready`; `begun`: it is being loaded. */
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
  Plotly.setPlotConfig({ logging: 0 }); // it warns of every bar whose colour is a number, at length
  page.resolve(Plotly);
  URL.revokeObjectURL(url);
}

/** Return plotly.js. If no kernel has sent it, the first widget requests it, and all others wait; it is not stored in
 * the notebook. */
function library(model) {
  const page = widgetsShare();
  if (page.begun) return page.ready;
  const take = ({ kind }, buffers) => void (kind === "library" && readLibrary(buffers[0]));
  let asked = 0; // who has asked for nothing lets others go first: on a slow page, a widget may be deaf from the start
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

/** Return the scale of text: projected lectures set it. */
const letters = () => Number(document.documentElement.style.getPropertyValue("--wb-scale")) || 1;

/** Call back whenever the page changes its theme or its text size; returns a function that ends that. */
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

/** Keep key presses inside of a focused element: else JupyterLab takes arrows for moves between cells. */
function ownKeys(el) {
  el.addEventListener("focusin", ({ target }) => (target.dataset.lmSuppressShortcuts = "true"));
}

/** Give a widget's element our style and key handling. */
function ours(el, ...classes) {
  el.classList.add("wb", ...classes);
  ownKeys(el);
}

/** Return a name that is unique in the page; every widget loads this file again, so the page stores the counter. */
function unique(word) {
  const page = (globalThis[PAGE] ??= {});
  return `wb-${word}-${(page.serial = (page.serial ?? 0) + 1)}`;
}

/** Make an element: element("button", {className: "x", onclick: f}, "text or children"). */
function element(tag, properties = {}, ...children) {
  const made = Object.assign(document.createElement(tag), properties);
  for (const [name, value] of Object.entries(properties))
    if (name.startsWith("aria-") || name === "role" || name === "for") made.setAttribute(name, value);
  made.append(...children);
  return made;
}

/** Close a menu by Escape, and by a click elsewhere. */
function closing(details) {
  const outside = ({ target }) => details.contains(target) || (details.open = false);
  details.addEventListener("toggle", () => document[details.open ? "addEventListener" : "removeEventListener"]("pointerdown", outside));
  details.addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || !details.open) return;
    event.stopPropagation();
    details.open = false;
    details.firstChild.focus();
  });
}

/** Call at most once per animation frame, with the newest arguments. `now()` does not wait for the frame if there was no
 * call since the last: figures that follow a slider are drawn at once. */
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

/** Return a layout whose ground is that of the page: a dark page has one, whatever its theme. */
function grounded(layout, box) {
  const ground = getComputedStyle(box).backgroundColor;
  return { paper_bgcolor: ground, plot_bgcolor: ground, ...layout };
}

/** Return whether a box is to be drawn now. A hidden one has no size; it is drawn when it is shown. */
function visible(box) {
  box.stale = !box.offsetWidth;
  return !box.stale;
}

/** PLOTLY_CONFIG: config of every figure of ours, see base/page.py. */
const CONFIG = { ...PLOTLY_CONFIG, toImageButtonOptions: { scale: 2 } };

const watched = new IntersectionObserver((seen) => seen.forEach(({ target, isIntersecting }) => (target.inside = isIntersecting)));

/** Return whether some of a box is visible in the window. An observer of the browser reports it: measuring it at every
 * move of a slider would repeat the layout of the whole page. */
function inWindow(box) {
  if (box.inside !== undefined) return box.inside;
  watched.observe(box);
  const { top, bottom } = box.getBoundingClientRect();
  return bottom > 0 && top < innerHeight;
}

/** Return the config of a plot whose picture is saved as `name()`, called on the click: a changed config would make
 * plotly build the figure again, which takes far longer than changing it. */
function named(Plotly, name) {
  const { toImageButtonOptions: options, ...others } = CONFIG;
  const click = (plot) => Plotly.downloadImage(plot, { format: "png", ...options, filename: name() });
  const button = { name: "picture", title: "Download plot as a PNG", icon: Plotly.Icons.camera, click };
  return { ...others, modeBarButtonsToRemove: ["toImage"], modeBarButtonsToAdd: [button] };
}

/** Send the kernel a picture, if it wants one, once the plot has not changed for a while; call it after every drawing.
 * `taken` returns its address, or nothing. */
function stills(model, taken) {
  let timer;
  const take = async () => {
    const url = model.get("still") && (await taken());
    if (url) tells(model, { kind: "still", png: url.split(",")[1] });
  };
  return () => (clearTimeout(timer), (timer = setTimeout(take, QUIET)));
}

/** Return a plot as a data address; nothing where there is none. */
function imageOf({ box, Plotly }) {
  const { offsetWidth: width, offsetHeight: height } = box;
  return box.data && width ? Plotly.toImage(box, { format: "png", width, height }) : "";
}

/** A box that holds a plotly figure as wide as the page lets it be; `shown` is called when it becomes visible. */
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
