// Fit a figure to the width at which it is shown: texts are broken into lines, and legends are moved below the axes.

// widths in px below which titles are smaller, legends are below the axes, and all text is smaller
const NARROW = 900, BELOW = 720, PHONE = 480;
const ROWS = 16; // number of labels along an axis up to which all are kept, in any text size
const LINE = 1.3; // height of a line, in its font's size
const TICKS = 420; // px of an axis below which its ticks are thinned
const SMALL = 12; // min px of a font that is made smaller
const NAMES = 0.4; // max share of the width that names along a vertical axis take
const GAP = 66; // px between panels that are stacked, without their titles
const pen = document.createElement("canvas").getContext("2d");

/** Scale text and margins of a figure's layout or traces. If an axis has many labels, some are left out. */
function grown(value, by, of = "") {
  if (by === 1 || value === null || typeof value !== "object" || ArrayBuffer.isView(value)) return value;
  if (Array.isArray(value)) return typeof value[0] === "object" ? value.map((inner) => grown(inner, by, of)) : value;
  const grows = (name) => (of.endsWith("font") && name === "size") || (of === "margin" && "lrtb".includes(name));
  const cell = (name) => name === "textfont" && value.texttemplate === "%{text}"; // its text fills the cell already, and is not scaled
  const fewer = (name, inner) =>
    ["tickvals", "ticktext"].includes(name) && inner?.length > ROWS ? inner.filter((_, i) => i % Math.ceil(by) === 0) : inner;
  const pair = ([name, inner]) => {
    if (cell(name)) return [name, inner];
    return [name, grows(name) && typeof inner === "number" ? Math.max(inner * by, Math.min(inner, name === "size" ? SMALL : 0)) : grown(fewer(name, inner), by, name)];
  };
  return Object.fromEntries(Object.entries(value).map(pair));
}

/** Return the width of a text in px, without its markup. */
function wide(text, font) {
  pen.font = `${text.includes("<b>") ? "bold " : ""}${font.size}px ${font.family}`;
  return pen.measureText(text.replace(/<[^>]*>/g, "")).width;
}

/** Break a text into lines that are not wider than a number of pixels. */
function broken(text, font, width) {
  const lines = text.split("<br>").flatMap((whole) => {
    const made = [""];
    for (const word of whole.split(" ")) {
      const longer = made.at(-1) ? `${made.at(-1)} ${word}` : word;
      if (made.at(-1) && wide(longer, font) > width) made.push(word);
      else made[made.length - 1] = longer;
    }
    return made;
  });
  return { text: lines.join("<br>"), more: lines.length - text.split("<br>").length };
}

const family = (layout) => layout.template?.layout?.font?.family ?? layout.font?.family ?? "sans-serif";
const size = (layout, ...fonts) => fonts.find((font) => font?.size)?.size ?? layout.template?.layout?.font?.size ?? 12;
const margins = (layout) => ({ l: 80, r: 80, t: 100, b: 80, ...layout.template?.layout?.margin, ...layout.margin });
const span = (axis) => (axis?.domain ?? [0, 1])[1] - (axis?.domain ?? [0, 1])[0];
const higher = (layout, more) => ({ ...layout, height: (layout.height ?? 480) + more });

const BINARY = { f8: Float64Array, f4: Float32Array, i1: Int8Array, u1: Uint8Array, i2: Int16Array, u2: Uint16Array, i4: Int32Array, u4: Uint32Array };

/** Return a list of values, which plotly's JSON may have in binary. */
function listed(values) {
  if (values?._inputArray) return Array.from(values._inputArray);
  if (values?.bdata) return Array.from(new BINARY[values.dtype](Uint8Array.from(atob(values.bdata), (c) => c.charCodeAt(0)).buffer));
  return Array.isArray(values) || ArrayBuffer.isView(values) ? Array.from(values) : [];
}

const axisFont = (layout, name) => ({ family: family(layout), size: size(layout, layout[name]?.tickfont, layout.template?.layout?.[name.slice(0, 5)]?.tickfont) });

/** Return the names along an axis in their order: its texts, its categories, or those of the data. */
function namesAlong({ data, layout }, name) {
  const { ticktext, categoryarray, type } = layout[name] ?? {}, given = listed(ticktext ?? categoryarray);
  if (given.length || (type && type !== "category")) return given.map(String);
  const mine = data.filter((trace) => (trace[name.slice(0, 5)] ?? name[0]) === name.replace("axis", ""));
  return [...new Set(mine.flatMap((trace) => listed(trace[name[0]])).filter((value) => typeof value === "string"))];
}

/** Break long names along vertical axes into lines, so that the plot keeps most of the width. The figure grows by them. */
function named(figure, width) {
  const { layout } = figure, margin = margins(layout), made = { ...layout };
  const inner = (layout.height ?? 480) - margin.t - margin.b;
  let more = 0;
  for (const name of new Set(["yaxis", ...Object.keys(layout)].filter((each) => /^yaxis\d*$/.test(each)))) {
    const names = namesAlong(figure, name), font = axisFont(layout, name);
    if (!names.some((text) => wide(text, font) > NAMES * width)) continue;
    const texts = names.map((text) => broken(text, font, NAMES * width).text), lines = Math.max(...texts.map((text) => text.split("<br>").length));
    made[name] = { ...layout[name], tickmode: "array", tickvals: listed(layout[name]?.ticktext).length ? layout[name].tickvals : names, ticktext: texts };
    more = Math.max(more, ((LINE * font.size * lines + 4) * names.length) / span(layout[name]) - inner);
  }
  return { ...figure, layout: more > 0 ? higher(made, more) : made };
}

/** Break names along horizontal axes into lines, or else leave some out, instead of rotating them. */
function abreast(figure, width) {
  const { layout } = figure, made = { ...layout }, over = inside(figure, width);
  let more = 0;
  for (const name of new Set(["xaxis", ...Object.keys(layout)].filter((each) => /^xaxis\d*$/.test(each)))) {
    if (layout[name]?.ticktext || layout[name]?.visible === false) continue;
    const names = namesAlong(figure, name), font = axisFont(layout, name), room = (over * span(layout[name])) / names.length - 6;
    if (!names.some((text) => wide(text, font) > room)) continue;
    const texts = names.map((text) => broken(text, font, room)), most = () => Math.max(...texts.flatMap(({ text }) => text.split("<br>").map((line) => wide(line, font))));
    font.size = Math.max(Math.min(SMALL, font.size), Math.min(font.size, Math.floor((font.size * room) / most())));
    const widest = most();
    const kept = (_, i) => i % Math.ceil(widest / room) === 0;
    made[name] = { ...layout[name], tickmode: "array", tickangle: 0, tickfont: { ...layout[name]?.tickfont, size: font.size }, tickvals: names.filter(kept), ticktext: texts.map(({ text }) => text).filter(kept) };
    more = Math.max(more, LINE * font.size * Math.max(...texts.map((each) => each.more)));
  }
  return { ...figure, layout: higher({ ...made, margin: { ...margins(made), b: margins(made).b + more } }, more) };
}

/** Return the widths of the entries of the legend, px. */
function legend({ data, layout }) {
  const all = data.filter((trace) => trace.showlegend !== false && !BARE.includes(trace.type)), look = layout.template?.layout?.legend;
  if (!(layout.showlegend ?? all.length > 1)) return [];
  const font = { family: family(layout), size: size(layout, layout.legend?.font, look?.font) }, line = (layout.legend?.itemwidth ?? 30) + 16;
  return all.map(({ name }) => line + Math.max(...`${name ?? ""}`.split("<br>").map((text) => wide(text, font))));
}

/** Return the px beside one another that the labels of the vertical axis leave to the plot. */
function inside(figure, width) {
  const { layout } = figure, margin = margins(layout), font = axisFont(layout, "yaxis");
  const labels = namesAlong(figure, "yaxis").flatMap((text) => text.split("<br>"));
  const left = Math.max(margin.l, ...labels.map((text) => wide(text, font) + 20));
  const beside = width >= BELOW && layout.legend?.orientation !== "h" && legend(figure).length ? Math.max(...legend(figure)) : 0;
  return width - left - margin.r - beside;
}

/** Keep texts beside points, and notes at lines, inside of the figure: an axis gets longer, a note is put on the other side. */
function inward(figure, width) {
  const { data, layout } = figure, over = inside(figure, width), made = { ...layout };
  const place = (axis, x) => (x - axis.range[0]) / (axis.range[1] - axis.range[0]);
  for (const trace of data.filter(({ mode, textposition }) => mode?.includes("text") && textposition === "middle right")) {
    const name = (trace.xaxis ?? "x").replace("x", "xaxis"), axis = made[name], font = { family: family(layout), size: size(layout, trace.textfont) };
    if (!axis?.range || axis.type === "log") continue;
    const texts = listed(trace.text), needed = listed(trace.x).map((x, i) => (place(axis, x) * over) / Math.max(over / 3, over - wide(`${texts[i]}`, font) - 14));
    const longer = Math.max(1, ...needed.filter(Number.isFinite));
    made[name] = { ...axis, range: [axis.range[0], axis.range[0] + longer * (axis.range[1] - axis.range[0])] };
  }
  const annotations = layout.annotations?.map((each) => {
    const axis = made[(each.xref ?? "x").replace("x", "xaxis")];
    if (each.showarrow !== false || each.xanchor !== "left" || !axis?.range) return each;
    const font = { family: family(layout), size: size(layout, each.font) }, left = place(axis, each.x) * over * span(axis), room = over * span(axis) - left;
    const turned = wide(each.text ?? "", font) + (each.xshift ?? 0) > room && left > room;
    return turned ? { ...each, xanchor: "right", xshift: -(each.xshift ?? 0) } : each;
  });
  return { data, layout: { ...made, ...(annotations ? { annotations } : {}) } };
}

const TOP = 96, PAD = 12; // px above the axes of a usual figure; px above a title
const ASCENT = 0.95; // height of a line above its base line, as a multiple of the font's size

/** Return a layout whose title and subtitle are broken into lines that fit a width. The figure grows by these lines. */
function titled(layout, width, scale) {
  const look = layout.template?.layout ?? {}, title = layout.title, narrow = width < NARROW * scale;
  if (!title?.text) return layout;
  const margin = margins(layout), small = (px, least) => (narrow ? Math.min(px, least * scale) : px);
  const main = { family: family(layout), ...look.title?.font, ...title.font }, below = { family: family(layout), ...title.subtitle?.font };
  main.size = small(main.size ?? 22, 18);
  below.size = small(below.size ?? 16, 14);
  const lines = (text, font, room) => (text ? broken(text, font, room) : { text: "", more: -1 });
  const find = (room) => [lines(title.text, main, room), lines(title.subtitle?.text, below, room)];
  const count = ([one, two]) => one.text.split("<br>").length * main.size + (two.text ? two.text.split("<br>").length * below.size : 0);
  const beside = find(width - margin.l - 72), whole = find(width - 16); // labels may widen the margin
  const [one, two] = narrow || count(beside) > count(whole) ? whole : beside;
  const place = narrow || count(beside) > count(whole) ? { xref: "container", x: 0, pad: { l: 6 } } : {};
  const needed = PAD + LINE * count([one, two]) + (narrow ? 22 : 32), usual = look.margin?.t ?? TOP;
  const top = narrow ? needed + Math.max(0, margin.t - usual) : Math.max(margin.t, needed + Math.max(0, margin.t - usual));
  const height = (layout.height ?? 480) + top - margin.t;
  const subtitle = { ...title.subtitle, text: two.text, font: below };
  return {
    ...layout, height, margin: { ...margin, t: top },
    title: { ...title, ...place, yanchor: "bottom", y: 1 - (PAD + ASCENT * main.size) / height, text: one.text, font: main, subtitle },
  };
}

const BARE = ["heatmap", "parcoords", "table", "image"]; // traces without an entry in the legend

/** Move the legend below the axes, with as many entries in a row as fit. The figure grows by the legend's height. */
function lowered(layout, data, width, scale) {
  const entries = legend({ data, layout }), look = layout.template?.layout?.legend;
  if (width >= BELOW * scale || !entries.length) return layout;
  const font = { family: family(layout), size: size(layout, layout.legend?.font, look?.font) }, each = Math.max(...entries);
  const words = layout.legend?.title?.text, head = words ? broken(words, font, width - 24) : null;
  const title = head ? { title: { ...layout.legend.title, text: head.text, side: "top" } } : {};
  const extra = data.reduce((sum, { name, showlegend }) => sum + (showlegend === false ? 0 : `${name ?? ""}`.split("<br>").length - 1), 0);
  const rows = extra + Math.ceil(entries.length / Math.max(1, Math.floor(width / each))) + (head ? head.text.split("<br>").length : 0);
  const place = { orientation: "h", x: 0, xref: "container", xanchor: "left", y: 0, yref: "container", yanchor: "bottom" };
  const beside = layout.legend?.orientation === "h" ? 0 : LINE * font.size * rows;
  return higher({ ...layout, legend: { ...layout.legend, ...title, ...place } }, beside + 12);
}

/** Break the names of a legend below the axes into lines that are not wider than the figure. */
function worded(figure, width, scale) {
  const { data, layout } = figure, font = { family: family(layout), size: size(layout, layout.legend?.font, layout.template?.layout?.legend?.font) };
  if (width >= BELOW * scale) return figure;
  return { layout, data: data.map((trace) => (trace.name && trace.showlegend !== false ? { ...trace, name: broken(trace.name, font, width - 30 - 28).text } : trace)) };
}

/** Return the objects that may have a colour bar: traces, and the layout's colour axis. */
const scales = ({ data, layout }) => [...data, ...(layout.coloraxis ? [layout.coloraxis] : [])];

/** Put colour bars below the axes, so that the axes keep the whole width. */
function flat(figure, width, scale) {
  const { layout } = figure, bars = scales(figure).some(({ colorbar, showscale }) => colorbar && showscale !== false && colorbar.orientation !== "h");
  if (width >= BELOW * scale || !bars) return figure;
  const font = { family: family(layout), size: size(layout) }, margin = margins(layout), inner = (layout.height ?? 480) - margin.t - margin.b;
  const lay = (of) => {
    if (!of?.colorbar || of.colorbar.orientation === "h") return of;
    const { title, ...bar } = of.colorbar, text = (title?.text ?? "").replaceAll("<br>", " ");
    const ticks = bar.ticktext ? sparse(layout, { tickvals: bar.tickvals, ticktext: bar.ticktext, range: [of.zmin ?? of.cmin, of.zmax ?? of.cmax] }, inside(figure, width)) : {};
    const place = { ...ticks, orientation: "h", x: 0.5, xanchor: "center", y: -(3.6 * font.size) / inner, yanchor: "top", len: 1, thickness: 12 };
    return { ...of, colorbar: { ...bar, ...place, title: { ...title, text: broken(text, font, width - 40).text, side: "top" } } };
  };
  const grown = higher(layout, 72), coloraxis = layout.coloraxis ? { coloraxis: lay(layout.coloraxis) } : {};
  return { data: figure.data.map(lay), layout: { ...grown, ...coloraxis, margin: { ...margin, b: margin.b + 72 } } };
}

/** Stack panels that are side by side, so that each has the whole width, if the figure sets `layout.meta.stacks`. */
function stacked(layout, width, scale) {
  if (!layout.meta?.stacks || width >= BELOW * scale) return layout;
  const axes = Object.keys(layout).filter((name) => /^xaxis\d*$/.test(name));
  const panels = axes.map((x) => [x, (layout[x].anchor ?? "y").replace("y", "yaxis")]);
  const margin = margins(layout), inner = (layout.height ?? 480) - margin.t - margin.b, made = { ...layout };
  const square = ([, y], px) => (layout[y].scaleanchor ? Math.min(px, width - margin.l - margin.r) : px);
  const heights = panels.map((panel) => square(panel, span(layout[panel[1]]) * inner)), gap = GAP + 2 * LINE * size(layout);
  const whole = heights.reduce((a, b) => a + b, 0) + gap * (panels.length - 1), annotations = layout.annotations?.map((each) => ({ ...each }));
  let top = 0;
  panels.forEach(([x, y], i) => {
    const [left, right] = layout[x].domain ?? [0, 1], [low, high] = layout[y].domain ?? [0, 1];
    const domain = [Math.max(0, 1 - (top + heights[i]) / whole), 1 - top / whole];
    made[x] = { ...layout[x], domain: [0, 1] };
    made[y] = { ...layout[y], domain, ...(layout[y].matches ? { showticklabels: true } : {}) };
    for (const each of annotations ?? []) {
      const mine = each.xref === "paper" && each.yref === "paper" && each.x >= left && each.x <= right && each.y >= low && each.y <= high + 0.01;
      if (mine && !each.placed) Object.assign(each, { x: 0.5, xanchor: "center", y: domain[1], placed: true });
    }
    top += heights[i] + gap;
  });
  annotations?.forEach((each) => delete each.placed);
  return higher({ ...made, ...(annotations ? { annotations } : {}) }, whole - inner);
}

/** Break the titles of axes and panels into lines that are not longer than the axis or panel. */
function lined({ data, layout }, width) {
  const margin = margins(layout), made = { ...layout }, over = inside({ data, layout }, width), down = (layout.height ?? 480) - margin.t - margin.b;
  let more = 0;
  for (const [name, axis] of Object.entries(layout)) {
    if (!/^[xy]axis\d*$/.test(name) || !axis.title?.text) continue;
    const look = layout.template?.layout?.[name.slice(0, 5)]?.title?.font;
    const font = { family: family(layout), size: size(layout, axis.title.font, look) }, across = name.startsWith("x");
    const found = broken(axis.title.text, font, Math.max(80, span(axis) * (across ? over : down)));
    made[name] = { ...axis, title: { ...axis.title, text: found.text } };
    if (across) more = Math.max(more, found.more * LINE * font.size);
  }
  const panel = (x) => Object.entries(made).filter(([name]) => /^xaxis\d*$/.test(name)).map(([, axis]) => axis).find(({ domain = [0, 1] }) => domain[0] <= x && x <= domain[1]);
  const annotations = layout.annotations?.map((each) => {
    if (each.xref !== "paper" || each.yref !== "paper" || each.xanchor === "left") return each;
    const font = { family: family(layout), size: size(layout, each.font) };
    return { ...each, text: broken(each.text ?? "", font, Math.max(80, span(panel(each.x)) * over)).text };
  });
  return higher({ ...made, ...(annotations ? { annotations } : {}) }, more);
}

/** Break named ticks of a horizontal axis into lines if neighbours would overlap, or else keep every second or third.
 * Labels are not rotated. */
function sparse(layout, axis, px) {
  const texts = listed(axis.ticktext).map(String), values = listed(axis.tickvals), scale = axis.type === "log" ? Math.log10 : Number;
  const places = values.map(scale), [low, high] = axis.range?.map(Number) ?? [Math.min(...places) - 0.5, Math.max(...places) + 0.5];
  if (texts.length < 3 || texts.length !== values.length || !places.every(Number.isFinite)) return axis;
  const font = { family: family(layout), size: size(layout, axis.tickfont, layout.template?.layout?.xaxis?.tickfont) }, unit = px / Math.abs(high - low);
  const least = (names) => {
    const half = names.map((text) => Math.max(...text.split("<br>").map((line) => wide(line, font))) / 2);
    const apart = (every, i) => i + every >= names.length || half[i] + half[i + every] + 6 <= unit * Math.abs(places[i + every] - places[i]);
    let every = 1;
    while (every < names.length && !names.every((_, i) => i % every || apart(every, i))) every += 1;
    return every;
  };
  const nearest = unit * Math.min(...places.slice(1).map((place, i) => Math.abs(place - places[i]))) - 6;
  const lines = texts.map((text) => broken(text, font, nearest).text), names = least(lines) === 1 ? lines : texts, every = least(names);
  const kept = (_, i) => i % every === 0;
  return { ...axis, tickvals: values.filter(kept), ticktext: names.filter(kept), tickangle: 0 };
}

/** Return the decades that a logarithmic axis spans. */
function decades({ data, layout }, name) {
  const { range } = layout[name];
  if (range) return Math.abs(range[1] - range[0]);
  const values = data.filter((trace) => (trace[name.slice(0, 5)] ?? name[0]) === name.replace("axis", "")).flatMap((trace) => listed(trace[name[0]])).filter((value) => value > 0);
  return values.length ? Math.log10(Math.max(...values) / Math.min(...values)) : 1;
}

/** Leave out ticks of horizontal axes that are too short for all of them, instead of rotating the labels. */
function thinned(figure, width) {
  const { layout } = figure, made = { ...layout }, over = inside(figure, width);
  for (const name of Object.keys(layout)) {
    if (!/^xaxis\d*$/.test(name) || layout[name].type === "category" || layout[name].visible === false) continue;
    const px = over * span(layout[name]), axis = (made[name] = sparse(layout, layout[name], px));
    if (px > TICKS) continue;
    const { dtick, ...rest } = axis, log = typeof dtick === "string";
    made[name] = { ...(log || (dtick === 1 && px < 240) ? rest : axis), nticks: Math.max(3, Math.floor(px / 52)), tickangle: 0, ...(log && px > 160 ? { dtick: 156 * decades(figure, name) < px ? "D2" : 1 } : {}) };
  }
  return made;
}

const TICK_GAP = 6; // min px between a text at an axis and the axis beside it, or the text at that axis

/** Make space for the labels of parallel axes: broken into lines if the axes are far apart, else rotated. */
function spaced(figure, width) {
  const place = figure.data.findIndex((trace) => trace.type === "parcoords");
  if (place < 0) return figure;
  const trace = figure.data[place], { layout } = figure, margin = margins(layout), all = trace.dimensions;
  const ticks = { family: family(layout), size: trace.tickfont?.size ?? 12 }, font = { family: family(layout), size: trace.labelfont?.size ?? 12 };
  const left = Math.min(width / 3, Math.max(40, ...(all[0].ticktext ?? []).map((text) => wide(text, ticks) + 20)));
  const room = (width - left - 60) / Math.max(1, all.length - 1), flat = room > 84;
  const labels = all.map(({ label }) => (flat ? broken(label, font, room - 14).text : label));
  const rows = Math.max(...labels.map((text) => text.split("<br>").length)), longest = Math.max(...labels.map((text) => wide(text, font)));
  const more = flat ? LINE * font.size * (rows - 1) : 0.72 * longest;
  const last = Math.max(...labels.at(-1).split("<br>").map((line) => wide(line, font)));
  const side = Math.max(60, flat ? last / 2 + 12 : 0.72 * last), apart = (width - left - side) / Math.max(1, all.length - 1) - TICK_GAP;
  const isNumber = (text) => text.trim() !== "" && Number.isFinite(Number(text));
  const powers = (text) => [text, Number(text).toExponential(), Number(text).toExponential(1)].map((each) => each.replace("e+", "e"));
  const fits = (text, px) => wide(text, ticks) + 14 <= px;
  /** A text is at the left of its axis, and ends before the axis beside it. Numbers are shortened, and other texts are cut. */
  const cut = (text, px) => {
    if (isNumber(text)) return powers(text).reduce((least, each) => (wide(each, ticks) < wide(least, ticks) ? each : least));
    if (fits(text, px)) return text;
    return `${text.slice(0, Math.max(1, Math.floor((text.length * px) / (wide(text, ticks) + 24))))}…`;
  };
  /** If one number of an axis does not fit, all are written as powers. */
  const texted = (texts, px) => (texts.every((text) => fits(text, px)) ? texts : texts.map((text) => cut(text, isNumber(text) ? 0 : px)));
  const dimensions = all.map((each, i) => ({ ...each, label: labels[i], ...(each.ticktext ? { ticktext: texted([...each.ticktext], i ? apart : left) } : {}) }));
  const made = { ...trace, dimensions, ...(flat ? {} : { labelangle: -46 }) };
  return { data: figure.data.with(place, made), layout: higher({ ...layout, margin: { ...margin, l: left, r: side, t: margin.t + more } }, more) };
}

const extent = (values) => values.reduce(([a, b], value) => [Math.min(a, value), Math.max(b, value)], [Infinity, -Infinity]);
const LABEL = { height: 0.1, margin: 0.005 }; // shares of the axis: height of a label, distance of a curve that touches the line
const ENDS = { left: { x: 0, xanchor: "left" }, right: { x: 1, xanchor: "right" } }, SIDES = { bottom: 1, top: -1 };

/** Return the place of a label at a horizontal line at which curves are farthest: at the left or right, above or below.
 * `share`: width of the label, as a share of the axis. */
function free({ data, layout }, y, share) {
  const along = (axis, values) => (layout[axis]?.type === "log" ? listed(values).map(Math.log10) : listed(values).map(Number));
  const curves = data.filter(({ mode, x }) => mode?.includes("lines") && x?.length !== 0).map((each) => [along("xaxis", each.x), along("yaxis", each.y)]);
  const xs = curves.flatMap(([x]) => x).filter(Number.isFinite), ys = [y, ...curves.flatMap(([, each]) => each)].filter(Number.isFinite);
  const [first, last] = extent(xs), [low, high] = extent(ys), reach = share * (last - first);
  let best = { room: -Infinity };
  for (const [end, place] of Object.entries(ENDS)) {
    const beside = (x) => (end === "left" ? x <= first + reach : x >= last - reach);
    const off = curves.flatMap(([x, values]) => values.flatMap((value, i) => {
      const next = Math.min(i + 1, values.length - 1); // between two points, a curve passes all heights
      return beside(x[i]) || beside(x[next]) ? [0, 0.25, 0.5, 0.75].map((part) => (value + part * (values[next] - value) - y) / (high - low || 1)) : [];
    }));
    for (const [yanchor, sign] of Object.entries(SIDES)) {
      const room = off.reduce((least, each) => (sign * each > -LABEL.margin ? Math.min(least, sign * each) : least), LABEL.height);
      if (room > best.room) best = { room, place: { ...place, yanchor, yshift: 3 * sign } };
    }
  }
  return best.place;
}

/** Move the labels of horizontal lines, which are annotations named "target", to where no curve crosses them. */
function freed({ data, layout }, width) {
  const share = ({ text, font }) => (wide(text, { family: family(layout), size: size(layout, font) }) + 12) / Math.max(1, inside({ data, layout }, width));
  const annotations = layout.annotations?.map((each) => (each.name === "target" ? { ...each, ...free({ data, layout }, each.y, share(each)) } : each));
  return { data, layout: { ...layout, ...(annotations ? { annotations } : {}) } };
}

const CELL = "%{text}", SIDE = 4; // template of a cell's text; px beside the text
const FEW = 3; // min number of letters of a shortened name

/** Return the text of a cell, with lines of at most `width` px: names are shortened, and numbers are left out. Return
 * null if a name does not fit. */
function shortened(text, font, width, high) {
  const whole = broken(text, font, width).text, given = text.split("<br>").some((line) => wide(line, font) > width);
  const room = LINE * font.size * whole.split("<br>").length <= high;
  const lines = (given && room ? whole : text).split("<br>").flatMap((line) => {
    if (wide(line, font) <= width) return [line];
    const bare = line.replace(/<[^>]*>/g, ""), bold = line.includes("<b>") ? ["<b>", "</b>"] : ["", ""];
    if (!Number.isNaN(parseFloat(bare))) return [];
    const kept = Math.floor((bare.length * width) / wide(`${bold[0]}${bare}…`, font));
    return [kept < FEW ? null : `${bold[0]}${bare.slice(0, kept)}…${bold[1]}`];
  });
  return lines.includes(null) ? null : lines.join("<br>");
}

/** Fit texts into their cells. If one does not fit, and the legend has the names of the colours, cells have no text. */
function celled(figure, width, scale) {
  const place = figure.data.findIndex(({ type, texttemplate }) => type === "heatmap" && texttemplate === CELL);
  if (place < 0) return figure;
  const trace = figure.data[place], rows = Array.from(trace.text, (row) => [...row]), { layout } = figure, margin = margins(layout);
  const axis = layout[(trace.xaxis ?? "x").replace("x", "xaxis")], columns = Math.max(...rows.map((row) => row.length));
  const room = (inside(figure, width) * span(axis)) / columns - SIDE, high = ((layout.height ?? 480) - margin.t - margin.b) / rows.length - SIDE;
  const font = { family: family(layout), size: size(layout, trace.textfont) };
  const lines = rows.flat().flatMap((words) => `${words}`.split("<br>")), most = Math.max(...lines.map((line) => wide(line, font)));
  font.size = Math.min(font.size, Math.max(SMALL * scale, Math.floor((font.size * room) / most)));
  const text = rows.map((row) => row.map((words) => shortened(`${words}`, font, room, high)));
  const gone = text.some((row) => row.includes(null));
  const named = gone && figure.data.some(({ name, showlegend }, i) => i !== place && name && showlegend !== false);
  const made = { ...trace, text: text.map((row) => row.map((words) => (named ? "" : (words ?? "")))), textfont: { ...trace.textfont, size: font.size } };
  return { data: figure.data.with(place, made), layout: named ? { ...layout, showlegend: true } : layout };
}

/** Return the figure fitted to a width (px). `scale`: scale of the page's text. */
function fitted(figure, width, scale = 1) {
  if (!width) return figure;
  const large = grown(figure, scale * (width < PHONE ? 0.86 : 1));
  const whole = inward(abreast(celled(worded(named(large, width), width, scale), width, scale), width), width);
  const { data, layout } = freed(spaced(flat({ ...whole, layout: stacked(whole.layout, width, scale) }, width, scale), width), width);
  return { data, layout: titled(lined({ data, layout: thinned({ data, layout: lowered(layout, data, width, scale) }, width) }, width), width, scale) };
}

const lying = (figure) => scales(figure).some(({ colorbar }) => colorbar?.orientation === "h");

/** Draw a fitted figure. A colour bar is removed before it changes its orientation, because Plotly leaves its ticks. Space
 * that Plotly reserved for a legend is released, because it would stay when the next figure has none. */
async function redraw(Plotly, plot, figure, config) {
  delete plot._fullLayout?._reservedMargin?.legend;
  if (plot.data && lying(plot) !== lying(figure)) {
    const bare = (of) => ({ ...of, showscale: false });
    const layout = figure.layout.coloraxis ? { ...figure.layout, coloraxis: bare(figure.layout.coloraxis) } : figure.layout;
    await Plotly.react(plot, figure.data.map((trace) => (trace.colorbar ? bare(trace) : trace)), layout, config);
  }
  return Plotly.react(plot, figure.data, figure.layout, config);
}

/** Move the buttons, which are shown while the pointer is over the figure, from the title to below the axis. */
function lowerButtons(plot) {
  const style = plot.querySelector(".modebar-container")?.style;
  for (const [name, value] of [["top", "auto"], ["bottom", "0"], ["height", "32px"]]) style?.setProperty(name, value, "important");
}

/** Fit a drawn figure to its box whenever the box changes. `config`: config of the first drawing. */
function keepFitted(Plotly, plot, config) {
  const figure = { data: plot.data, layout: structuredClone(plot.layout) };
  let known = 0;
  const fit = async () => {
    const width = plot.offsetWidth;
    if (!width || width === known) return;
    known = width;
    const { data, layout } = fitted(figure, width);
    if (figure.layout.height) plot.style.height = `${layout.height}px`;
    await redraw(Plotly, plot, { data, layout: { ...layout, autosize: true, uirevision: "page" } }, config);
    lowerButtons(plot);
  };
  new ResizeObserver(fit).observe(plot);
  return fit();
}
