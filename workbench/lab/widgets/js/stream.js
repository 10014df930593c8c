// Stream of rounds on a canvas: a row per worker, a column per round. The kernel sends new or changed columns.

const LEFT = 52, BOTTOM = 38, TOP = 20; // px around the table
const RIGHT = 164, NARROW_RIGHT = 164, NARROW_STREAM = 480; // px to the right of the table; px in a canvas narrower than NARROW_STREAM
const TO_COME = 255; // state of slices of the current round that are still in the future
const SPANS = { 30: "30 rounds", 100: "100 rounds", 300: "300 rounds", 1000: "1000 rounds", 0: "all rounds" };

// max product of workers and rounds for which single rounds are drawn; else, max number of blocks of rounds, and min
// number of rounds in a block
const MAX_CELLS = 2500, BLOCKS = 25, MIN_ROUNDS = 20;

const known = (state) => (state === TO_COME ? -1 : state);

/** Bytes of all received rounds, worker by worker within a round. Missing columns are requested. */
class Table {
  constructor(model) {
    this.model = model;
    this.forget();
  }
  forget() {
    this.edition = this.model.get("edition");
    [this.workers, this.slices] = this.model.get("shape");
    this.rounds = 0;
    this.bytes = new Uint8Array(1 << 16);
    this.worst = new Uint8Array(1 << 16); // the most important state of each worker in each round
    this.shares = new Float32Array(2 * this.workers);
  }
  get width() {
    return this.workers * this.slices;
  }
  get base() {
    return this.model.get("shape")[2];
  }
  ask = () => tells(this.model, { kind: "from", first: this.rounds });
  take({ edition, first, count, rounds }, [columns, shares]) {
    if (edition !== this.model.get("edition")) return;
    if (edition !== this.edition) this.forget();
    if (first > this.rounds) return void this.ask();
    const end = (first + count) * this.width;
    if (end > this.bytes.length) {
      const larger = new Uint8Array(2 * end);
      larger.set(this.bytes);
      this.bytes = larger;
      const worst = new Uint8Array(Math.ceil(larger.length / this.slices));
      worst.set(this.worst.subarray(0, this.rounds * this.workers));
      this.worst = worst;
    }
    this.bytes.set(new Uint8Array(columns.buffer, columns.byteOffset, columns.byteLength), first * this.width);
    for (let at = first * this.workers; at < (first + count) * this.workers; at++) {
      let state = -1;
      for (let s = at * this.slices; s < (at + 1) * this.slices; s++) state = Math.max(state, known(this.bytes[s]));
      this.worst[at] = state; // -1 becomes TO_COME
    }
    this.rounds = Math.min(Math.max(this.rounds, first + count), rounds); // an unfinished round may be removed
    this.shares = new Float32Array(shares.buffer.slice(shares.byteOffset, shares.byteOffset + shares.byteLength));
  }
  state = (round, worker, slice) => this.bytes[round * this.width + worker * this.slices + slice];
}

const rgb = (color) => [1, 3, 5].map((i) => parseInt(color.slice(i, i + 2), 16));
const percent = (share) => `${(100 * share).toFixed(share < 0.1 ? 1 : 0)} %`;

/** Return the step between labelled rows or columns, for at most `most` labels: 1, 2, 5, 10, ... */
function stride(count, most) {
  for (let unit = 1; ; unit *= 10) for (const step of [unit, 2 * unit, 5 * unit]) if (count / step <= most) return step;
}

/** Draw the visible part of the table. A pixel is one slice, several slices, or several rounds. In a pixel, the states
 * late, dropped and dead have priority over others. */
function picture(table, first, count, palette, most) {
  const units = count > most ? 1 : table.slices, bytes = units === 1 ? table.worst : table.bytes; // number of units in a round
  const every = Math.max(1, Math.ceil((count * units) / most)); // number of units in a pixel
  const width = Math.max(1, Math.ceil((count * units) / every)), row = table.workers * units;
  const there = Math.min(count, table.rounds - first) * units;
  const image = new ImageData(width, Math.max(1, table.workers));
  const out = new Uint32Array(image.data.buffer);
  for (let x = 0; x < width; x++) {
    const end = Math.min((x + 1) * every, there);
    for (let w = 0; w < table.workers; w++) {
      let state = -1;
      for (let unit = x * every; unit < end; unit++) {
        const round = Math.floor(unit / units);
        state = Math.max(state, known(bytes[(first + round) * row + w * units + unit - round * units]));
      }
      out[w * width + x] = state < 0 ? 0 : palette[state];
    }
  }
  return image;
}

/** Return shares over blocks of rounds, because states of many rounds would be too small to see: the share of late or
 * refused answers, or of the time of computing. `rows`: workers from the top. `states`: names of the states. `colors`:
 * colours of the shares 0 and 1. */
function shares(table, first, count, rows, states, some, colors) {
  const [late, dropped, dead, computes] = ["late", "dropped", "dead", "computes"].map((name) => states.indexOf(name));
  const width = Math.max(Math.ceil(count / BLOCKS), MIN_ROUNDS), blocks = Math.ceil(count / width), [from, to, gone] = colors.map(rgb);
  const image = new ImageData(blocks, Math.max(1, table.workers)), out = new Uint32Array(image.data.buffer);
  for (let x = 0; x < blocks; x++) {
    const begin = first + x * width, end = Math.min(begin + width, first + count, table.rounds);
    for (let row = 0; row < table.workers && begin < end; row++) {
      const w = rows[row];
      let sum = 0, died = 0;
      for (let r = begin; r < end; r++) {
        const worst = table.worst[r * table.workers + w];
        died += worst === dead;
        if (some) sum += worst === late || worst === dropped;
        else for (let s = 0; s < table.slices; s++) sum += (table.state(r, w, s) === computes) / table.slices;
      }
      const share = sum / (end - begin), [a, b] = died === end - begin ? [gone, gone] : [from, to];
      const [red, green, blue] = a.map((value, i) => Math.round(value + share * (b[i] - value)));
      out[row * blocks + x] = ((255 << 24) | (blue << 16) | (green << 8) | red) >>> 0;
    }
  }
  return { image, span: blocks * width };
}

function render({ model, el }) {
  const table = new Table(model);
  const view = { span: 100, end: null, round: -1, worker: 0 }; // end: last shown round, null for the newest; round, worker: position of the cursor
  let gone = false, frames = 0;
  const canvas = element("canvas", { tabIndex: 0, role: "application", "aria-roledescription": "rounds as a stream" });
  const sheet = document.createElement("canvas");
  const found = element("div", { className: "wb-finding" });
  const read = element("div", { className: "wb-read", "aria-live": "polite" });
  const status = element("div", { className: "wb-note", role: "status" });

  const id = unique("stream"), slide = unique("stream");
  const options = Object.entries(SPANS).map(([value, words]) => element("option", { value, selected: value === "100" }, words));
  const span = element("select", { id, onchange: () => ((view.span = Number(span.value)), draw()) }, ...options);
  const last = element("input", { id: slide, type: "range", min: 1, max: 1, value: 1 });
  last.oninput = () => ((view.end = Number(last.value) >= table.rounds ? null : Number(last.value)), draw());
  const stop = element("button", { className: "wb-stop", type: "button", onclick: () => tells(model, { kind: "stop" }) }, "Stop");
  const pair = (label, control) => element("span", { className: "wb-pair" }, element("label", { for: control.id }, label), control);
  const bar = element("div", { className: "wb-bar" }, pair("show", span), pair("up to round", last), stop);
  const legend = element("div", { className: "wb-legend", "aria-hidden": true });

  const shown = () => {
    const count = Math.max(1, Math.min(view.span || table.rounds, Math.max(table.rounds, 1)));
    const end = Math.min(Math.max(view.end ?? table.rounds, count), Math.max(table.rounds, count));
    return { first: end - count, count };
  };
  const beside = () => (canvas.clientWidth < NARROW_STREAM ? NARROW_RIGHT : RIGHT);
  const late = () => table.shares.subarray(table.workers).some((share) => share > 0);
  const blocked = () => shown().count * table.workers > MAX_CELLS;
  const sorted = () => blocked() && model.get("order").length === table.workers;
  /** Return the workers from the top: those first that were late most often, if blocks of a finished run are drawn. */
  const rows = () => (sorted() ? model.get("order") : Array.from({ length: table.workers }, (_, w) => w));
  /** Return names and colours of the legend: of states, or of shares over blocks of rounds. */
  const entries = () => {
    const colors = look();
    if (!blocked()) return model.get("states").map((name) => [name, colors[name]]);
    const ends = [rgb(colors.waits), rgb(late() ? colors.late : colors.computes)], words = late() ? "of rounds late" : "of the time computing";
    const mixed = (share) => `#${ends[0].map((v, i) => Math.round(v + share * (ends[1][i] - v)).toString(16).padStart(2, "0")).join("")}`;
    return [0, 0.5, 1].map((share) => [`${100 * share} % ${words}`, mixed(share)]);
  };
  let explained = "";
  const explain = () => {
    const names = entries(), words = sorted() ? model.get("finding") : "";
    if (explained === `${names}${words}`) return;
    explained = `${names}${words}`;
    const swatch = ([name, color]) => element("span", {}, Object.assign(element("i"), { style: `background:${color}` }), name);
    legend.replaceChildren(...names.map(swatch));
    found.textContent = words.slice(0, 1).toUpperCase() + words.slice(1);
    found.hidden = !words;
  };
  const look = () => ({ ...model.get("styles")[theme()], ground: getComputedStyle(canvas).backgroundColor });
  /** Return an image of the canvas, with the legend above it. */
  const image = () => {
    const made = document.createElement("canvas"), scale = devicePixelRatio || 1, pen = made.getContext("2d"), colors = look();
    Object.assign(made, { width: canvas.width, height: canvas.height + 28 * scale });
    Object.assign(pen, { fillStyle: colors.ground, font: `${13 * scale}px system-ui, sans-serif`, textBaseline: "middle" });
    pen.fillRect(0, 0, made.width, made.height);
    let x = LEFT * scale;
    for (const [name, color] of entries()) {
      pen.fillStyle = color;
      pen.fillRect(x, 8 * scale, 12 * scale, 12 * scale);
      pen.fillStyle = colors.ink;
      pen.fillText(name, x + 17 * scale, 14 * scale);
      x += 34 * scale + pen.measureText(name).width;
    }
    pen.drawImage(canvas, 0, 28 * scale);
    return made.toDataURL("image/png");
  };
  const snap = stills(model, () => table.rounds && image());

  const draw = perFrame(() => {
    if (gone || !visible(canvas)) return;
    const scale = devicePixelRatio || 1, width = canvas.clientWidth;
    const height = TOP + BOTTOM + Math.round(Math.min(520, Math.max(160, 14 * table.workers)));
    if (canvas.width !== Math.round(width * scale) || canvas.height !== Math.round(height * scale)) {
      Object.assign(canvas, { width: Math.round(width * scale), height: Math.round(height * scale) });
      canvas.style.height = `${height}px`;
    }
    const box = { x: LEFT, y: TOP, w: width - LEFT - beside(), h: height - TOP - BOTTOM };
    const pen = canvas.getContext("2d"), colors = look();
    pen.setTransform(scale, 0, 0, scale, 0, 0);
    pen.fillStyle = colors.ground;
    pen.fillRect(0, 0, width, height);
    const { first, count } = shown();
    const palette = model.get("states").map((name) => {
      const [r, g, b] = rgb(colors[name]);
      return (255 << 24) | (b << 16) | (g << 8) | r;
    });
    const many = blocked(), [from, to] = entries().map(([, color]) => color).filter((_, i) => i !== 1);
    const { image, span } = many ? shares(table, first, count, rows(), model.get("states"), late(), [from, to, colors.dead]) : { image: picture(table, first, count, palette, Math.round(box.w * scale)), span: count };
    Object.assign(sheet, { width: image.width, height: image.height });
    sheet.getContext("2d").putImageData(image, 0, 0);
    pen.imageSmoothingEnabled = false;
    pen.save();
    pen.beginPath();
    pen.rect(box.x, box.y, box.w, box.h);
    pen.clip();
    pen.drawImage(sheet, box.x, box.y, (box.w * span) / count, box.h); // the last block may be cut
    pen.restore();
    explain();
    axes(pen, box, colors, first, count);
    sides(pen, box, colors);
    cursor(pen, box, colors, first, count);
    Object.assign(last, { min: 1, max: Math.max(1, table.rounds), value: view.end ?? table.rounds });
    snap();
    canvas.dataset.frames = ++frames;
    canvas.dataset.rounds = table.rounds;
  });

  const axes = (pen, { x, y, w, h }, colors, first, count) => {
    Object.assign(pen, { fillStyle: colors.soft, font: "12px system-ui, sans-serif", textAlign: "right", textBaseline: "middle" });
    const each = stride(table.workers, Math.floor(h / 18)), row = h / Math.max(table.workers, 1);
    rows().forEach((worker, i) => (i === 0 || (i + 1) % each === 0) && pen.fillText(worker + 1, x - 6, y + (i + 0.5) * row));
    Object.assign(pen, { textAlign: "center", textBaseline: "top" });
    const step = stride(count, Math.floor(w / 64)), column = w / count;
    for (let r = first; r < first + count; r++) if ((r + table.base) % step === 0) pen.fillText(r + table.base, x + (r - first + 0.5) * column, y + h + 5);
    pen.fillText("round", x + w / 2, y + h + 21);
    Object.assign(pen, { strokeStyle: colors.ground, lineWidth: 1 });
    if (column > 24) for (let r = 1; r < count; r++) pen.strokeRect(x + r * column, y, 0, h);
    pen.save();
    pen.translate(12, y + h / 2);
    pen.rotate(-Math.PI / 2);
    pen.fillText(sorted() ? `worker, ${late() ? "most often late" : "least busy"} on top` : "worker", 0, -6);
    pen.restore();
  };

  /** Draw utilisation and lateness of every worker, in its row. */
  const sides = (pen, { x, y, w, h }, colors) => {
    const row = h / Math.max(table.workers, 1), room = (beside() - 30) / 2;
    for (const [k, [words, color]] of [["computing", colors.computes], ["late", colors.late]].entries()) {
      const left = x + w + 14 + k * (room + 10);
      const values = [...table.shares.subarray(k * table.workers, (k + 1) * table.workers)];
      const top = Math.max(0.01, ...values);
      Object.assign(pen, { fillStyle: colors.soft, textAlign: "left", textBaseline: "bottom" });
      pen.fillText(words, left, y - 3);
      Object.assign(pen, { textAlign: "right", textBaseline: "top" });
      pen.fillText(percent(top), left + room, y + h + 5);
      pen.fillStyle = color;
      rows().forEach((worker, i) => pen.fillRect(left, y + i * row + row * 0.1, (room * values[worker]) / top, Math.max(0.8, row * 0.8)));
    }
  };

  const cursor = (pen, { x, y, w, h }, colors, first, count) => {
    if (view.round < first || view.round >= first + count) return;
    const row = h / table.workers, column = w / count;
    Object.assign(pen, { strokeStyle: colors.ink, lineWidth: 1.5 });
    pen.strokeRect(x + (view.round - first) * column, y, Math.max(column, 2), h);
    pen.strokeRect(x, y + rows().indexOf(view.worker) * row, w, Math.max(row, 2));
  };

  /** Show what is under the cursor. */
  const tell = () => {
    if (view.round < 0 || view.round >= table.rounds) return;
    const counts = new Map();
    for (let s = 0; s < table.slices; s++) {
      const name = model.get("states")[table.state(view.round, view.worker, s)] ?? "to come";
      counts.set(name, (counts.get(name) ?? 0) + 1);
    }
    const parts = [...counts].map(([name, n]) => `${name} ${percent(n / table.slices)}`);
    const [busy, late] = [0, 1].map((k) => table.shares[k * table.workers + view.worker]);
    const sum = `computing ${percent(busy)} of all time, late in ${percent(late)} of its rounds`;
    read.textContent = `round ${view.round + table.base}, worker ${view.worker + 1}: ${parts.join(", ")}; ${sum}; Enter or a click opens the round`;
  };
  const move = (round, worker) => {
    view.round = Math.min(Math.max(round, 0), table.rounds - 1);
    view.worker = Math.min(Math.max(worker, 0), table.workers - 1);
    const { first, count } = shown();
    if (view.round < first) view.end = view.round + count;
    else if (view.round >= first + count) view.end = view.round + 1;
    tell();
    draw();
  };
  const pick = () => view.round >= 0 && tells(model, { kind: "pick", round: view.round + table.base, worker: view.worker + 1 });
  const under = (event) => {
    const { left, top, width, height } = canvas.getBoundingClientRect();
    const { first, count } = shown();
    const x = (event.clientX - left - LEFT) / (width - LEFT - beside()), y = (event.clientY - top - TOP) / (height - TOP - BOTTOM);
    return x < 0 || x >= 1 || y < 0 || y >= 1 ? null : [first + Math.floor(x * count), rows()[Math.floor(y * table.workers)]];
  };
  canvas.onpointermove = (event) => {
    const at = under(event);
    if (at && (at[0] !== view.round || at[1] !== view.worker) && at[0] < table.rounds) ([view.round, view.worker] = at), tell(), draw();
  };
  canvas.onclick = (event) => under(event) && (move(...under(event)), pick());
  canvas.onkeydown = (event) => {
    const now = view.round < 0 ? table.rounds - 1 : view.round, all = rows(), row = all.indexOf(view.worker);
    const to = { ArrowLeft: [now - 1, view.worker], ArrowRight: [now + 1, view.worker], ArrowUp: [now, all[row - 1] ?? view.worker], ArrowDown: [now, all[row + 1] ?? view.worker], PageUp: [now - 10, view.worker], PageDown: [now + 10, view.worker], Home: [0, view.worker], End: [table.rounds - 1, view.worker] }[event.key];
    if (to) move(...to);
    else if (event.key === "Enter") pick();
    else return;
    event.preventDefault();
    event.stopPropagation();
  };

  const words = () => {
    canvas.setAttribute("aria-label", `${model.get("label")}; arrow keys move, Enter opens a round`);
    el.setAttribute("aria-label", model.get("label"));
    stop.hidden = !model.get("active");
    explain();
  };
  const note = () => (status.textContent = model.get("status")); // called with every picture, so it does nothing else
  ours(el, "wb-stream");
  el.setAttribute("role", "figure");
  el.append(bar, found, legend, canvas, read, status);
  const message = (content, buffers) => content.kind === "columns" && (table.take(content, buffers), draw());
  const restart = () => (table.forget(), Object.assign(view, { round: -1, end: null }), table.ask(), draw());
  const traits = { "msg:custom": message, "change:edition": restart, "change:shape": draw, "change:order": draw, "change:status": note };
  for (const name of ["label", "active"]) traits[`change:${name}`] = words;
  for (const [event, call] of Object.entries(traits)) model.on(event, call);
  const observer = new ResizeObserver(draw);
  observer.observe(canvas);
  const quiet = onTheme(() => (words(), draw()));
  words();
  note();
  table.ask();
  return () => {
    gone = true;
    quiet();
    observer.disconnect();
    draw.cancel();
    for (const [event, call] of Object.entries(traits)) model.off(event, call);
  };
}

export default { render };
