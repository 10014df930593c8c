// Shared by every widget of the workbench that draws: plotly.js once a page, the page's theme, one plot in a box.

const PAGE = Symbol.for("workbench.plotly");
const QUIET = 1500; // ms without a change after which a picture is made
const PATIENCE = 5000; // ms after which another widget asks again

/** When the page has nothing else to do, or soon: reading plotly.js takes a slow page seconds, and a widget that begins
 * meanwhile is given up by anywidget after two: it then hears nothing of its kernel. */
const idle = () =>
  new Promise((done) => ("requestIdleCallback" in globalThis ? requestIdleCallback(done, { timeout: 3000 }) : setTimeout(done, 100)));

/** Tell the kernel. Where it has ended, or its notebook was closed, widgets are there for a moment longer: nobody is told. */
function tells(model, content) {
  try {
    model.send(content);
  } catch (error) {
    if (error.message !== "Cannot send") throw error; // what JupyterLab says of a comm that is gone
  }
}

/** What the widgets of a page share: plotly.js, once it is `ready`; it has `begun` to be read. */
function widgetsShare() {
  const page = (globalThis[PAGE] ??= {});
  page.ready ??= new Promise((resolve) => (page.resolve = resolve));
  return page;
}

/** Read plotly.js as a kernel sends it, packed, unless the page has it. */
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

/** plotly.js. Where no kernel has sent it ahead, whoever comes first asks for it, and all others wait; nothing of it is
 * kept in the notebook. */
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

/** "light" or "dark", as JupyterLab, Voila or VS Code say; else as the system says. */
function theme() {
  const { jpThemeLight, vscodeThemeKind } = document.body.dataset;
  if (jpThemeLight !== undefined) return jpThemeLight === "true" ? "light" : "dark";
  if (vscodeThemeKind !== undefined) return vscodeThemeKind.includes("dark") ? "dark" : "light";
  return matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
}

/** How many times as large as usual letters are: a lecture that is projected says so. */
const letters = () => Number(document.documentElement.style.getPropertyValue("--wb-scale")) || 1;

const ROWS = 16; // labels along an axis that stand beside one another however large they are

/** A figure's layout or traces with letters, and the room around them, so many times as large; of many labels fewer. */
function grown(value, by, of = "") {
  if (by === 1 || value === null || typeof value !== "object" || ArrayBuffer.isView(value)) return value;
  if (Array.isArray(value)) return typeof value[0] === "object" ? value.map((inner) => grown(inner, by, of)) : value;
  const grows = (name) => (of.endsWith("font") && name === "size") || (of === "margin" && "lrtb".includes(name));
  const cell = (name) => name === "textfont" && value.texttemplate === "%{text}"; // whose lines fill it as they are
  const fewer = (name, inner) =>
    ["tickvals", "ticktext"].includes(name) && inner?.length > ROWS ? inner.filter((_, i) => i % Math.ceil(by) === 0) : inner;
  const pair = ([name, inner]) => {
    if (cell(name)) return [name, inner];
    return [name, grows(name) && typeof inner === "number" ? inner * by : grown(fewer(name, inner), by, name)];
  };
  return Object.fromEntries(Object.entries(value).map(pair));
}

/** Call back whenever the page changes its theme, or the size of its letters; returns the way to end that. */
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

/** What is focused inside of an element keeps its keys: else JupyterLab takes arrows for moves from cell to cell. */
function ownKeys(el) {
  el.addEventListener("focusin", ({ target }) => (target.dataset.lmSuppressShortcuts = "true"));
}

/** Give a widget's element our style, and its keys. */
function ours(el, ...classes) {
  el.classList.add("wb", ...classes);
  ownKeys(el);
}

/** A name that no other element of the page has; every widget loads this file anew, so the page counts. */
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

/** At most one call per animation frame, with what is newest then. `now()` does not wait for the frame if none has been
 * made since the last: what follows a slider is drawn as it comes. */
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

/** Is a box to be drawn now? One that is hidden has no size to be drawn in; it is drawn when it is shown. */
function visible(box) {
  box.stale = !box.offsetWidth;
  return !box.stale;
}

/** PLOTLY_CONFIG: what every figure of ours is shown with, see base/page.py. */
const CONFIG = { ...PLOTLY_CONFIG, toImageButtonOptions: { scale: 2 } };

const watched = new IntersectionObserver((seen) => seen.forEach(({ target, isIntersecting }) => (target.inside = isIntersecting)));

/** Is some of a box in the window, as far as it is scrolled? The browser tells: to measure it anew at every move of a
 * slider would have the whole page laid out once more. */
function inWindow(box) {
  if (box.inside !== undefined) return box.inside;
  watched.observe(box);
  const { top, bottom } = box.getBoundingClientRect();
  return bottom > 0 && top < innerHeight;
}

/** Config of a plot whose picture is kept under `name()`, asked on the click: plotly makes a figure from scratch, which
 * takes far longer than changing it, where its config is not what it was. */
function named(Plotly, name) {
  const { toImageButtonOptions: options, ...others } = CONFIG;
  const click = (plot) => Plotly.downloadImage(plot, { format: "png", ...options, filename: name() });
  const button = { name: "picture", title: "Download plot as a PNG", icon: Plotly.Icons.camera, click };
  return { ...others, modeBarButtonsToRemove: ["toImage"], modeBarButtonsToAdd: [button] };
}

/** To be called after every drawing: sends the kernel a picture, if it wants one, once the plot is left alone. `taken`
 * makes its address, or nothing. */
function stills(model, taken) {
  let timer;
  const take = async () => {
    const url = model.get("still") && (await taken());
    if (url) tells(model, { kind: "still", png: url.split(",")[1] });
  };
  return () => (clearTimeout(timer), (timer = setTimeout(take, QUIET)));
}

/** A plot as it is, as an address; nothing where there is none to see. */
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
    else if (box.data) Plotly.Plots.resize(box);
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
