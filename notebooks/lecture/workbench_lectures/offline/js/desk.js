// A lecture without a kernel: what Python does behind the widgets, here done in the page. The widgets are the served
// pages' own; each has a model that it believes to be anywidget's.

/** A widget's traits and messages. `heard(content, model)` gets what the widget sends, `saved(model)` what it sets. */
class Model {
  constructor(traits, heard = () => {}, saved = () => {}) {
    Object.assign(this, { traits, heard, saved, calls: {} });
  }
  get = (name) => this.traits[name];
  on = (event, call) => void (this.calls[event] ??= new Set()).add(call);
  off = (event, call) => void this.calls[event]?.delete(call);
  emit = (event, ...args) => this.calls[event]?.forEach((call) => call(...args));
  send = (content) => queueMicrotask(() => this.heard(content, this));
  save_changes = () => queueMicrotask(() => this.saved(this));
  set(name, value) {
    if (JSON.stringify(this.traits[name]) === JSON.stringify(value)) return;
    this.traits[name] = value;
    this.emit(`change:${name}`);
  }
  put(traits) {
    for (const [name, value] of Object.entries(traits)) this.set(name, value);
  }
}

const unpack = async (text) => {
  const bytes = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
};

/** Hand plotly.js to whichever widget asks first. */
const giveLibrary = (content, model) => {
  if (content.kind !== "library") return false;
  const bytes = Uint8Array.from(atob(globalThis.WORKBENCH_PLOTLY), (c) => c.charCodeAt(0));
  model.emit("msg:custom", { kind: "library" }, [bytes]);
  return true;
};

/** Return a time as text in a suitable unit, as `quantity_of` of the package. */
function timeText(value) {
  if (value >= 1000) return `${py.format(value, ",.0f")} s`;
  const [scale, unit] = value >= 1 ? [1, "s"] : value >= 1e-3 ? [1e3, "ms"] : [1e6, "µs"];
  return `${py.format(scale * value, ".3g")} ${unit}`;
}

/** The finite number that a student typed, as `exercises.read_number` reads it; null: it is not one. */
function readNumber(text) {
  const bare = text.replace(/[ \t\n\u00a0\u2009\u202f]/g, "").replaceAll(",", ".").replaceAll("−", "-");
  const [, number, below, percent] = /^([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:e[+-]?[0-9]+)?)(?:\/([0-9]+))?(%?)$/i.exec(bare) ?? [];
  if (number === undefined || (below !== undefined && /[.e]/i.test(number))) return null;
  const top = Number(number), bottom = Number(below ?? 1);
  return Number.isFinite(top) && Number.isFinite(bottom) && bottom !== 0 ? top / bottom / (percent ? 100 : 1) : null;
}

const escaped = (text) => text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");

/** Verdict and words for an answer, as `Exercise.judge` finds them. */
function judge(exercise, knobs, given) {
  const ask = (f) => py.call(f, [knobs]), { choices, unit = "", whole = false, tolerance = 0.01, absolute = 1e-9 } = exercise;
  const meets = (value, wanted) => {
    if (typeof value === "string" || typeof wanted === "string" || whole) return value === wanted;
    return math.isclose([value, wanted], { rel_tol: tolerance, abs_tol: absolute });
  };
  if (!given.trim()) return ["unclear", choices ? "choose one first" : "type a number first"];
  const bare = given.trim(), value = choices ? given : readNumber(unit && bare.endsWith(unit) ? bare.slice(0, -unit.length) : given);
  if (value === null) return ["unclear", `“${escaped([...bare].slice(0, 20).join(""))}” is not a finite number; write one such as 0.25 or 4/15`];
  if (meets(value, ask(exercise.answer))) return ["right", "Right."];
  const slip = (exercise.slips ?? []).find(([wrong]) => meets(value, ask(wrong)));
  return ["wrong", `Not yet. ${slip ? slip[1] : ask(exercise.hint)}`];
}

/** The lecture of this page: HERE has its fields, its first positions and tables; LECTURE its functions. */
class Desk {
  constructor() {
    this.values = { ...HERE.first };
    this.panels = [];
    this.listeners = [];
    this.fields = Object.fromEntries(HERE.fields.map((field) => [field.name, field]));
    this.fit();
  }
  /** Where sliders may stand that tables need; and what one slider lets another be. */
  fit() {
    for (const [name, places] of Object.entries(HERE.places)) {
      const value = this.values[name];
      if (typeof value === "number") this.values[name] = places.reduce((best, place) => (Math.abs(place - value) < Math.abs(best - value) ? place : best));
    }
    this.knobs = LECTURE.knobs.of(this.values);
    this.values = Object.fromEntries(HERE.fields.map(({ name }) => [name, this.knobs[name]]));
  }
  panel(names) {
    const fields = HERE.fields.filter(({ name }) => names.includes(name));
    const texts = () => Object.fromEntries(fields.map(({ name }) => [name, String(this.values[name])]));
    const model = new Model({ title: "", opened: true, fields, values: texts(), reasons: {}, heard: {} }, ({ kind, view, count, texts: typed }) => {
      if (kind !== "typed") return;
      model.traits.heard = { ...model.traits.heard, [view]: count };
      const [values, reasons] = this.read(typed);
      model.traits.values = { ...model.traits.values, ...typed };
      if (!Object.keys(reasons).length) this.move(values, model);
      model.set("reasons", reasons);
      model.emit("change:heard");
    });
    model.names = names;
    model.show = () => {
      const now = texts(), old = model.traits.values; // what is being typed stays where it says the same
      model.set("values", Object.fromEntries(Object.entries(now).map(([name, text]) => [name, Number(old[name]) === Number(text) ? old[name] : text])));
      model.set("reasons", {});
    };
    this.panels.push(model);
    return model;
  }
  /** Values of what was typed, and what cannot be used. */
  read(typed) {
    const values = {}, reasons = {};
    for (const [name, text] of Object.entries(typed)) {
      const { kind, low, high, choices } = this.fields[name], value = kind === "choice" ? text : Number(text);
      if (!text.trim()) reasons[name] = `${name}: is empty; write a value, e.g. ${this.fields[name].default}`;
      else if (kind === "choice" ? !choices.includes(text) : Number.isNaN(value)) reasons[name] = `${name} = ${text}: is not a number`;
      else if (kind === "whole" && !Number.isInteger(value)) reasons[name] = `${name} = ${text}: take a whole number`;
      else if (kind !== "choice" && (value < low || value > high)) reasons[name] = `${name} = ${text}: take ${low} to ${high}, the nearest is ${value < low ? low : high}`;
      else values[name] = value;
    }
    return [values, reasons];
  }
  onMove(names, call) {
    this.listeners.push([names, call]);
  }
  move(values) {
    const before = { ...this.values };
    Object.assign(this.values, values);
    this.fit();
    for (const panel of this.panels) panel.show();
    const changed = Object.keys(before).filter((name) => before[name] !== this.values[name]);
    for (const [names, call] of this.listeners) if (names.some((name) => changed.includes(name))) call();
  }
}

/** A figure under the sliders that move it. */
function showFigure(desk, el, name) {
  const { names, table } = HERE.parts[name], draw = LECTURE.figures[name];
  const model = new Model({ figure: "", label: "", serial: 0, page: theme() }, giveLibrary, () => redraw());
  let tables = null, stale = true;
  const made = (theme) => {
    if (!table) return py.call(draw, [desk.knobs, theme]);
    const key = names.map((each) => desk.values[each]).join();
    return recoloured(fromTable(tables, key), theme);
  };
  const redraw = () => {
    if (table && !tables) return;
    stale = false;
    const figure = made(model.get("page"));
    model.traits.label = figure.layout.title?.text ?? "";
    model.traits.serial += 1;
    model.set("figure", JSON.stringify(plain({ data: figure.data, layout: figure.layout })));
  };
  const box = element("div", { className: "wb-view-form" }), plot = element("div", { className: "wb-view-plot" });
  el.classList.add("wb-lecture-view");
  el.append(box, plot);
  FORM.render({ model: desk.panel(names), el: box });
  PLOT.render({ model, el: plot });
  const later = () => ((stale = true), idle().then(() => stale && redraw()));
  desk.onMove(names, () => (inWindow(plot) ? redraw() : later())); // eyes are on what is in the window
  const stops = names.filter((each) => table && HERE.places[each]).map((each) => `${desk.fields[each].label}: ${HERE.places[each].join(", ")}`);
  const why = `Figures were made beforehand here, so sliders stop at places (${stops.join("; ")}). Those of the lecture that is served stand anywhere.`;
  if (stops.length) el.append(element("p", { className: "wb wb-note" }, why));
  if (table) unpack(table).then((text) => ((tables = JSON.parse(text)), redraw()));
  else later();
}

/** Tables keep every figure as its difference from the first: {path: number of a value}; each different value once. */
function fromTable({ base, values, figures }, key) {
  const figure = structuredClone(base);
  for (const [path, number] of Object.entries(figures[key])) {
    const steps = path.split("/"), last = steps.pop(), at = steps.reduce((node, step) => node[step], figure);
    if (number < 0) delete at[last];
    else at[last] = values[number];
  }
  return figure;
}

/** A figure that was made for a light page, in a theme. */
function recoloured(figure, theme) {
  const { light, [theme]: wanted } = DATA.palettes, text = JSON.stringify(figure);
  const changed = theme === "light" ? text : Object.keys(light).reduce((all, name) => all.replaceAll(`"${light[name]}"`, `"${wanted[name]}"`), text);
  const { data, layout } = JSON.parse(changed);
  return { data, layout: { ...layout, template: DATA.templates[theme] } };
}

function quiz(desk, el) {
  const score = element("div", { className: "wb wb-score" });
  const models = LECTURE.exercises.map((exercise) => {
    const ask = (f) => py.call(f, [desk.knobs]);
    const check = (given) => {
      const [verdict, words] = judge(exercise, desk.knobs, given);
      model.put({ given, verdict, words });
      count();
    };
    const model = new Model({ title: exercise.title, unit: exercise.unit ?? "", text: "", choices: [], given: "", verdict: "", words: "", why: "" }, ({ kind, given }) => {
      if (kind === "check") check(String(given ?? ""));
      else if (kind === "why") model.set("why", model.get("why") ? "" : ask(exercise.why));
      HERE.changed();
    });
    model.check = check;
    model.explain = () => model.set("why", ask(exercise.why));
    model.ask = () => {
      model.put({ text: ask(exercise.text), choices: exercise.choices ? Object.entries(ask(exercise.choices)) : [] });
      if (model.get("verdict") && String(judge(exercise, desk.knobs, model.get("given"))) !== String([model.get("verdict"), model.get("words")])) model.put({ verdict: "", words: "" });
      if (model.get("why")) model.explain();
    };
    model.ask();
    const box = element("div");
    el.append(box);
    QUESTION.render({ model, el: box });
    return model;
  });
  const count = () => {
    const right = models.filter((model) => model.get("verdict") === "right").length;
    score.textContent = right ? `${right} of ${models.length} right` : "";
  };
  el.classList.add("wb-quiz");
  el.append(score);
  desk.onMove(Object.keys(desk.values), () => (models.forEach((model) => model.ask()), count()));
  return models;
}

/** The recorded run: its rows appear at the pace of a film. */
function race(el) {
  const { curves, columns, metrics, titles, styles, rising, x, y, target, table } = HERE.race;
  const seconds = { 10: "10 seconds", 30: "half a minute", 120: "two minutes" };
  const idle = curves.map(({ name }) => ({ name, state: "waiting", note: "", share: 0 }));
  const model = new Model({ curves: [], changes: [], status: [], edition: 0, active: false, x, y, scale_x: "auto", scale_y: "auto", target: null, metrics, titles, styles, rising, page: "" }, (content) => {
    if (giveLibrary(content, model)) return;
    if (content.kind === "from") send(content.rows);
    if (content.kind === "stop") stop();
  });
  const times = columns.map((of) => of.time), length = Math.max(...times.map((of) => of.at(-1)));
  let began = 0, pace = 1, shown = curves.map(() => 0), sent = shown, timer = 0;
  const send = (first) => {
    const parts = curves.flatMap((_, curve) => (shown[curve] > first[curve] ? [{ curve, first: first[curve], columns: Object.keys(columns[curve]) }] : []));
    if (!parts.length) return;
    const buffers = parts.map(({ curve, first: from }) => new DataView(Float32Array.from(Object.values(columns[curve]).flatMap((of) => of.slice(from, shown[curve]))).buffer));
    model.emit("msg:custom", { kind: "rows", edition: model.get("edition"), parts }, buffers);
  };
  const tell = (state) => model.set("status", curves.map(({ name }, i) => {
    const over = shown[i] === times[i].length, at = shown[i] ? `round ${shown[i]} of ${times[i].length}, ${timeText(times[i][shown[i] - 1])} on the virtual clock` : "in its first round";
    return { name, state: over ? "finished" : state, note: at, share: shown[i] / times[i].length };
  }));
  const look = () => {
    const now = ((Date.now() - began) / 1000) * pace;
    shown = times.map((of) => of.filter((t) => t <= now).length);
    send(sent);
    sent = shown;
    tell("running");
    if (now < length) return;
    clearInterval(timer);
    model.put({ active: false, target });
    said.hidden = false;
  };
  const stop = () => {
    clearInterval(timer);
    model.set("active", false);
    tell("stopped");
  };
  const lasts = element("select", { id: unique("lasts") }, ...Object.entries(seconds).map(([value, words]) => element("option", { value }, words)));
  const run = element("button", { type: "button", className: "wb-run" }, "Run");
  run.onclick = () => {
    clearInterval(timer);
    [began, pace, shown, sent] = [Date.now(), length / Number(lasts.value), curves.map(() => 0), curves.map(() => 0)];
    said.hidden = true;
    model.traits.target = null;
    model.put({ curves, edition: model.get("edition") + 1, active: true, status: idle });
    timer = setInterval(look, 100);
  };
  const said = element("div", { hidden: true });
  said.innerHTML = table;
  const plot = element("div");
  const note = element("p", { className: "wb-note" }, "A recorded run, made at the sliders’ first positions. It does not follow the sliders; the lecture that is served does.");
  el.classList.add("wb", "wb-lecture-view");
  el.append(element("div", { className: "wb-bar" }, run, element("span", { className: "wb-pair" }, element("label", { for: lasts.id }, "show it in"), lasts)), note, plot, said);
  LIVE.render({ model, el: plot });
}

function open() {
  const desk = new Desk();
  const memory = new Model({ kept: "", recalled: "" }, () => {}, () => recall());
  let models = [];
  HERE.changed = () => {
    const answers = models.map((model) => ({ given: model.get("given"), checked: Boolean(model.get("verdict")), why: Boolean(model.get("why")) }));
    memory.set("kept", JSON.stringify({ knobs: desk.values, quiz: answers, race: {} }));
  };
  const recall = () => {
    try {
      const { knobs, quiz: kept } = JSON.parse(memory.get("recalled"));
      const [values, reasons] = desk.read(Object.fromEntries(Object.entries(knobs).filter(([name]) => name in desk.fields).map(([name, value]) => [name, String(value)])));
      if (!Object.keys(reasons).length) desk.move(values);
      kept.slice(0, models.length).forEach(({ given, checked, why }, i) => {
        models[i].set("given", String(given ?? ""));
        if (checked) models[i].check(models[i].get("given"));
        if (why) models[i].explain();
      });
    } catch {
      // of an older version, say: left alone
    }
    HERE.changed();
  };
  const box = element("div");
  document.body.append(box);
  MEMORY.render({ model: memory, el: box }); // first: it says which theme the page has; recall() waits until all is there
  for (const el of document.querySelectorAll("[data-figure]")) showFigure(desk, el, el.dataset.figure);
  const asked = document.querySelector("[data-quiz]"), ran = document.querySelector("[data-race]");
  if (asked && LECTURE.exercises) models = quiz(desk, asked);
  if (ran) race(ran);
  desk.onMove(Object.keys(desk.values), HERE.changed);
}

open();
