// Live curves of runs. The kernel sends new rows; axes, theme and scales are handled by the page.

const X = { time: "time since start", round: "rounds", bytes: "bytes received", samples: "samples computed" };
const MOST_POINTS = 2000;
const RATIO = { x: 6, y: 20 }; // ratios of largest to smallest value above which an axis is logarithmic
const TICK = 48; // px of a tick's label with a space beside it
const NARROW_LIVE = 560; // px below which the legend is under the curves
const MOST_MARKED = 200; // max number of points with markers, on a curve with few evaluated rounds

/** Rows of all curves, as they arrive. A frame has the number of its first row. Missing rows are requested. */
class Store {
  constructor(model) {
    this.model = model;
    this.forget();
  }
  forget() {
    this.edition = this.model.get("edition");
    this.curves = this.model.get("curves").map(() => ({}));
  }
  rows = (i) => this.curves[i].round?.length ?? 0;
  ask = () => tells(this.model, { kind: "from", rows: this.curves.map((_, i) => this.rows(i)) });
  take({ edition, parts }, buffers) {
    if (edition !== this.model.get("edition")) return;
    if (edition !== this.edition) this.forget();
    let gap = false;
    parts.forEach(({ curve, first, columns }, k) => {
      if (first > this.rows(curve)) return (gap = true);
      const view = buffers[k];
      const all = new Float32Array(view.buffer.slice(view.byteOffset, view.byteOffset + view.byteLength));
      const count = all.length / columns.length;
      columns.forEach((name, c) => {
        const column = (this.curves[curve][name] ??= []);
        column.length = first;
        for (let j = 0; j < count; j++) column.push(all[c * count + j]);
      });
    });
    if (gap) this.ask();
  }
}

/** Return the indices of the drawn points of a long curve: evenly spaced, and dense at the start, where it is steep. */
function thinned(count) {
  if (count <= MOST_POINTS) return [...Array(count).keys()];
  const half = MOST_POINTS / 2, chosen = new Set();
  for (let i = 0; i < half; i++) {
    chosen.add(Math.round((i * (count - 1)) / (half - 1)));
    chosen.add(Math.round(count ** (i / (half - 1))) - 1);
  }
  return [...chosen].sort((a, b) => a - b);
}

function points(columns, x, y) {
  const xs = columns[x] ?? [], ys = columns[y] ?? [];
  const known = xs.map((_, i) => i).filter((i) => Number.isFinite(ys[i]) && Number.isFinite(xs[i]));
  const kept = thinned(known.length).map((k) => known[k]);
  const sparse = 2 * known.length < xs.length && known.length <= MOST_MARKED; // evaluated points get markers
  return { sparse, x: kept.map((i) => xs[i]), y: kept.map((i) => ys[i]) };
}

/** Return "log" if ratios matter more than differences. A logarithmic axis stays so until other data are shown. */
function scale(choice, axis, spans, before) {
  if (choice !== "auto") return choice;
  if (before === "log") return "log";
  const low = Math.min(...spans.map(([a]) => a)), high = Math.max(...spans.map(([, b]) => b));
  return low > 0 && Number.isFinite(high) && high > RATIO[axis] * low ? "log" : "linear";
}

const extent = (values) => values.reduce(([a, b], v) => [Math.min(a, v), Math.max(b, v)], [Infinity, -Infinity]);

/** Return markers at which a run changed its scheme, with the reason as hover text. */
function marks(changes, curves, rows, x, y) {
  const placed = changes.filter(({ curve, round }) => Number.isFinite(rows[curve]?.[y]?.[round - 1]));
  const at = (name) => placed.map(({ curve, round }) => rows[curve][name][round - 1]);
  return {
    x: at(x), y: at(y), type: "scatter", mode: "markers", name: "changes", showlegend: false, text: placed.map(({ words }) => words),
    marker: { color: placed.map(({ curve }) => curves[curve].color), symbol: "diamond-open", size: 14, line: { width: 3 } },
    hovertemplate: "%{text}<extra></extra>",
  };
}

function traces(curves, drawn) {
  const lines = curves.map(({ name, color, dash, width }, i) => ({
    x: drawn[i].x, y: drawn[i].y, name, type: "scatter", mode: drawn[i].sparse ? "lines+markers" : "lines", marker: { color, size: 7 }, line: { color, dash, width }, legendgroup: name,
    hovertemplate: `<b>${name}</b><br>%{y:.5g} at %{x:.5~g}<extra></extra>`,
  }));
  const heads = curves.map(({ name, color, symbol }, i) => ({
    x: drawn[i].x.slice(-1), y: drawn[i].y.slice(-1), name, type: "scatter", mode: "markers", legendgroup: name,
    marker: { color, symbol, size: 11 }, showlegend: false, hoverinfo: "skip",
  }));
  return [...lines, ...heads];
}

function targetLine(target, color) {
  return { type: "line", xref: "paper", x0: 0, x1: 1, y0: target, y1: target, line: { color, width: 3, dash: "dot" } };
}

function targetLabel(target, y, ground) {
  const words = `target ${Number(target.toPrecision(4))}`;
  return { name: "target", text: words, font: { size: 14 }, bgcolor: ground, showarrow: false, xref: "paper", x: 0, xanchor: "left", y, yanchor: "bottom" };
}

/** Return a labelled menu of choices {value: label}. `chosen` is called with the choice. */
function menu(label, choices, value, chosen) {
  const id = unique("live");
  const select = element("select", { id, onchange: () => chosen(select.value) });
  select.refill = (options, now) => {
    select.replaceChildren(...Object.entries(options).map(([v, words]) => element("option", { value: v }, words)));
    select.value = now;
  };
  select.refill(choices, value);
  return { select, node: element("span", { className: "wb-pair" }, element("label", { for: id }, label), select) };
}

function controls(model, changed, alive) {
  const set = (name) => (value) => (model.set(name, value), model.save_changes(), changed());
  const scales = { auto: "automatic", linear: "linear", log: "logarithmic" };
  const x = menu("horizontal axis", X, model.get("x"), set("x"));
  const y = menu("vertical axis", {}, "", set("y"));
  const logX = menu("horizontal scale", scales, model.get("scale_x"), set("scale_x"));
  const logY = menu("vertical scale", scales, model.get("scale_y"), set("scale_y"));
  const id = unique("live");
  const target = element("input", { id, type: "text", inputMode: "decimal", size: 8, placeholder: "none" });
  target.onchange = () => {
    const value = target.value.trim() === "" ? null : Number(target.value.replace(",", "."));
    target.setAttribute("aria-invalid", Number.isNaN(value));
    if (!Number.isNaN(value)) set("target")(value);
  };
  target.onkeydown = ({ key }) => void (key === "Enter" && target.onchange()); // void, because a handler that returns false suppresses the key
  const axes = element("details", { className: "wb-pop" }, element("summary", {}, "Axes"),
    element("div", { className: "wb-sheet" }, ...[x, logX, y, logY].map((m) => m.node)));
  closing(axes);
  const stop = element("button", { className: "wb-stop", type: "button", onclick: () => tells(model, { kind: "stop" }) }, "Stop");
  const pair = element("span", { className: "wb-pair" }, element("label", { for: id }, "target"), target);
  const refill = () => {
    const names = Object.fromEntries(Object.entries(model.get("metrics")).map(([k, words]) => [k, words.split(" ‖")[0]]));
    y.select.refill(names, model.get("y"));
    x.select.value = model.get("x");
    logX.select.value = model.get("scale_x");
    logY.select.value = model.get("scale_y");
    if (document.activeElement !== target) target.value = model.get("target") === null ? "" : Number(model.get("target").toPrecision(6));
    stop.disabled = !alive() || !model.get("active");
  };
  const node = element("div", { className: "wb-bar" }, axes, pair, element("span", { className: "wb-grow" }), stop);
  return { node, refill };
}

/** Return a table with the state of each run, which screen readers announce. */
function statusTable(model, alive) {
  const node = element("table", { className: "wb-table wb-status", "aria-label": "runs" });
  const rows = []; // bars are reused, because the animation of a new bar would begin again with every text
  const fill = () => {
    const status = model.get("status");
    status.forEach(({ name, state, note, share, begins }, i) => {
      const left = !alive() && ["waiting", "running"].includes(state);
      if (left) [state, note] = ["left", "its kernel has ended; run the cell again"];
      const track = () => element("td", {}, element("span", { className: "wb-track" }, element("progress", { max: 1 })));
      rows[i] ??= element("tr", {}, element("td"), element("td", {}, element("span")), track(), element("td"));
      const [first, , third, fourth] = rows[i].children, bar = third.firstChild.firstChild, second = rows[i].children[1].firstChild;
      rows[i].className = `wb-${state}`;
      third.classList.toggle("wb-begins", begins && !left);
      bar.setAttribute("aria-label", `progress of ${name}`);
      third.firstChild.hidden = left;
      if (share === null) bar.removeAttribute("value");
      else bar.value = share;
      for (const [cell, words] of [[first, name], [second, state], [fourth, note]]) if (cell.textContent !== words) cell.textContent = words;
    });
    rows.length = status.length;
    if (node.children.length !== rows.length || [...node.children].some((row, i) => row !== rows[i])) node.replaceChildren(...rows);
  };
  /** Show a moving bar after a request for runs, until the kernel reports on them. It may have to import libraries. */
  const begin = () => {
    const track = element("span", { className: "wb-track" }, element("progress", { max: 1, "aria-label": "progress" }));
    node.append(element("tr", {}, element("td"), element("td", {}, element("span", {}, "starting")), element("td", { className: "wb-begins" }, track), element("td")));
  };
  fill();
  return { node, fill, begin };
}

function render({ model, el }) {
  const store = new Store(model);
  const types = { x: "linear", y: "linear" };
  const spans = { x: [1, 1], y: [1, 1] }; // smallest and largest number on each logarithmic axis
  let snap, plot, shown = "", gone = false, left = false;

  const layout = (empty) => {
    const width = plot.box.offsetWidth, { grown, PHONE } = plot.Plotly.workbenchFit;
    const look = grown(model.get("styles")[theme()], letters() * (width < PHONE ? 0.86 : 1));
    const legend = width < NARROW_LIVE ? { ...look.legend, orientation: "h", x: 0, y: -0.22, yanchor: "top" } : look.legend;
    const { x, y, target } = Object.fromEntries(["x", "y", "target"].map((n) => [n, model.get(n)]));
    const axis = (name, title) => ({ ...look[`${name}axis`], title: { text: title }, type: types[name], showticklabels: !empty, showgrid: !empty, ticks: empty ? "" : "outside" });
    const ground = grounded(look, plot.box);
    const height = target !== null && types.y === "log" ? Math.log10(target) : target; // as annotations are placed
    const label = height !== null && Number.isFinite(height) ? [targetLabel(target, height, ground.paper_bgcolor)] : [];
    return {
      ...ground,
      ...(el.closest(".wb-explorer") ? { height: Math.min(look.height, Math.max(320, 0.54 * innerHeight)) } : {}), // so that the plot and the widgets above it fit the window
      xaxis: { ...axis("x", model.get("titles")[x]), ...ticks("x"), tickformat: x === "time" ? "~g" : "~s" },
      legend,
      yaxis: { ...axis("y", model.get("metrics")[y] ?? y), ...ticks("y") },
      annotations: [...(empty ? [{ text: absent(), showarrow: false, xref: "paper", yref: "paper", x: 0.5, y: 0.5, font: { size: 20 } }] : []), ...label],
      shapes: target === null ? [] : [targetLine(target, look.font.color)],
      uirevision: `${shown}`,
      autosize: true,
    };
  };

  /** Return ticks: 1, 2, 5, 10, ... over few decades, powers of ten over many, as `log_ticks` in figures/style.py. */
  const ticks = (axis) => {
    if (types[axis] !== "log") return {};
    const ratio = spans[axis][1] / spans[axis][0];
    if (!(ratio >= 3)) return { nticks: 10, tickformat: "~g" }; // also if nothing is drawn
    if (ratio < 8) return { dtick: "D1", tickformat: "~g" };
    const fit = axis === "y" || 3 * Math.log10(ratio) * TICK < plot.box.offsetWidth - 100; // three labels a decade
    return ratio < 1e4 && fit ? { dtick: "D2", tickformat: "~g" } : { dtick: Math.ceil(Math.log10(ratio) / 10), ...(ratio < 1e4 ? { tickformat: "~g" } : { exponentformat: "power" }) };
  };

  const absent = () => (!model.get("curves").length ? "no runs yet" : model.get("active") ? "no round has ended yet" : "no rounds");

  const draw = perFrame(async () => {
    if (!plot || gone || !visible(plot.box)) return;
    const [x, y] = [model.get("x"), model.get("y")];
    const now = [model.get("edition"), x, y, model.get("scale_x"), model.get("scale_y")].join();
    if (now !== shown) Object.assign(types, { x: "linear", y: "linear" });
    shown = now;
    const drawn = store.curves.map((columns) => points(columns, x, y));
    const some = drawn.filter((d) => d.x.length);
    types.x = x === "time" ? scale(model.get("scale_x"), "x", some.map((d) => [d.x[0], d.x.at(-1)]).map(([a, b]) => [a > 0 ? b : 0, b]), types.x) : model.get("scale_x") === "log" ? "log" : "linear";
    for (const axis of ["x", "y"]) spans[axis] = extent(some.flatMap((d) => extent(d[axis].filter((value) => value > 0))));
    types.y = model.get("rising").includes(y.split("_").at(-1)) && model.get("scale_y") === "auto" ? "linear" : scale(model.get("scale_y"), "y", some.map((d) => extent(d.y)), types.y);
    const first = !plot.box.data, began = theme();
    const marked = marks(model.get("changes"), model.get("curves"), store.curves, x, y);
    const look = layout(!some.length), whole = { data: [...traces(model.get("curves"), drawn), marked], layout: look };
    const { freed, worded } = plot.Plotly.workbenchFit, { data } = worded(whole, plot.box.offsetWidth, letters());
    await plot.Plotly.react(plot.box, data, freed({ data, layout: look }, plot.box.offsetWidth).layout, { ...CONFIG, edits: { shapePosition: true } });
    if (first) plot.box.on("plotly_relayout", moved);
    plot.box.dataset.points = drawn.reduce((sum, d) => sum + d.x.length, 0);
    plot.box.dataset.frames = Number(plot.box.dataset.frames ?? 0) + 1;
    if (began !== theme()) draw(); // it changed while the figure was drawn, and the later drawing may have ended earlier
    (snap ??= stills(model, () => imageOf(plot)))();
  });

  /** Handle a drag of the target line. */
  const moved = (change) => {
    const before = model.get("target");
    const ends = [change["shapes[0].y0"], change["shapes[0].y1"]].filter((v) => v !== undefined && v !== before);
    if (!ends.length) return;
    model.set("target", ends[0]);
    model.save_changes();
  };

  const alive = () => !left;
  const bar = controls(model, draw, alive), table = statusTable(model, alive);
  ours(el, "wb-live");
  el.append(bar.node);
  const figure = element("div", { role: "figure", "aria-label": "convergence while runs go on" });
  el.append(figure, table.node);
  plotBox(model, figure, () => draw()).then((made) => ((plot = made), gone ? made.remove() : draw()));

  const message = (content, buffers) => {
    if (content.kind === "answered") table.fill();
    if (content.kind === "rows") store.take(content, buffers), draw();
  };
  const clicked = ({ target }) => {
    const button = target.closest?.(".wb-starts:enabled");
    if (button?.closest(".wb-explorer, .wb-pane, .wb-lecture-view")?.contains(el)) table.begin();
  };
  document.addEventListener("click", clicked);
  // A kernel that has ended sends neither the end of a run nor an answer to Stop.
  const leave = () => ((left = true), table.fill(), bar.refill());
  const traits = { "change:status": table.fill, "msg:custom": message, comm_live_update: leave };
  for (const name of ["curves", "changes", "x", "y", "scale_x", "scale_y", "target", "metrics", "active"])
    traits[`change:${name}`] = () => (bar.refill(), draw());
  for (const [event, call] of Object.entries(traits)) model.on(event, call);
  const edition = () => (store.forget(), store.ask(), draw());
  model.on("change:edition", edition);
  const quiet = onTheme(draw);
  bar.refill();
  store.ask();
  return () => {
    gone = true;
    quiet();
    draw.cancel();
    document.removeEventListener("click", clicked);
    for (const [event, call] of Object.entries(traits)) model.off(event, call);
    model.off("change:edition", edition);
    plot?.remove();
  };
}

export default { render };
