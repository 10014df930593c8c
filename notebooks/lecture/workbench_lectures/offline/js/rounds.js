// Rounds on the virtual clock: a star, a ring, a regular tree. The same draws, rules and events as the package's own
// engine (workbench/core/engine/virtual, workbench/core/contract/round_times.py), and its Gantt chart of a round.

const evenSizes = (samples, parts) => Array.from({ length: parts }, (_, i) => Math.floor(samples / parts) + (i < samples % parts));

class Experiment {
  constructor(fields) {
    Object.assign(this, fields);
    this.link = { latency: 0, bandwidth: null, ...fields.link };
    this.link.model_dump = native(() => ({ latency: this.link.latency, bandwidth: this.link.bandwidth }));
  }
  get tree() {
    const { children, layers, stragglers } = this.scheme_args;
    return DATA.trees[[children, layers, stragglers].join()];
  }
  get samples() {
    return this.problem === "unit" ? this.problem_args.samples : DATA.digits.samples;
  }
  get floats() {
    if (this.problem !== "unit") return DATA.digits.floats;
    return this.scheme === "CR" ? this.tree.floats : this.workers;
  }
  /** Samples that every worker goes through. */
  get loads() {
    if (this.scheme === "CR") return this.tree.loads;
    const sizes = evenSizes(this.samples, this.workers);
    if (this.scheme !== "GC") return sizes;
    let held = sizes.slice(0, this.scheme_args.stragglers).reduce((a, b) => a + b, 0); // a window around the circle
    return sizes.map((size, i) => {
      const now = (held += sizes[(i + this.scheme_args.stragglers) % sizes.length]);
      held -= size;
      return now;
    });
  }
  get needed() {
    return (this.scheme === "CR" ? this.scheme_args.children : this.workers) - (this.scheme_args.stragglers ?? 0);
  }
  get transfer() {
    return this.link.bandwidth ? (8 * this.floats) / this.link.bandwidth : 0;
  }
  /** Seconds that every worker computes in a round. */
  seconds(round) {
    const { kind, shift = 5e-5, rate = 2e4, shape } = this.delays ?? { kind: "shifted_exponential" }, draws = DATA.draws[round];
    this.held ??= this.loads;
    return this.held.map((load, i) => (kind === "pareto" ? load * shift * Math.exp(draws[i] / shape) : load * (shift + draws[i] / rate)));
  }
  shape = native(() => [this.samples, this.floats]);
  replace = native((_, kw) => {
    const { shape, replace, ...fields } = this; // these are the old one's own, and would speak of it
    return new Experiment({ ...fields, held: undefined, ...kw });
  });
}
N["workbench.core.experiment.Experiment"] = native((_, kw) => new Experiment({ scheme_args: {}, ...kw }));
N["workbench.core.presets.codedreduce.baselines"] = native(([children, layers, stragglers], { rounds, link, ...common }) => {
  let workers = 0;
  for (let layer = 1; layer <= layers; layer++) workers += children ** layer;
  const late = Math.min(py.round([(stragglers * workers) / children]), workers - 1);
  const args = { UMW: {}, GC: { stragglers: late }, RAR: {}, SGD: { stragglers: late }, CR: { children, layers, stragglers } };
  return Object.entries(args).map(([scheme, scheme_args]) => new Experiment({ ...common, scheme, scheme_args, workers, rounds, link }));
});

/** When messages that arrive at a port are through, in order of arrival: [{from, sent, arrived, begun, end}]. */
function port(messages, transfer) {
  let free = -Infinity;
  messages.sort((a, b) => a.arrived - b.arrived);
  for (const message of messages) {
    message.begun = transfer ? Math.max(message.arrived, free) : message.arrived;
    free = message.end = message.begun + transfer;
  }
  return messages;
}

/** Parents from the lowest up, each with its children; ranks go layer by layer. */
function families(e) {
  const all = (from, count) => Array.from({ length: count }, (_, i) => from + i);
  if (e.scheme !== "CR") return [[0, all(1, e.workers)]];
  const { children, layers } = e.scheme_args, found = [];
  for (let layer = 0, first = 0, next = 1; layer < layers; layer++) {
    const count = children ** layer;
    for (let i = 0; i < count; i++) found.push([first + i, all(next + i * children, children)]);
    first = next;
    next += count * children;
  }
  return found.reverse();
}

/** One round: its end, and its events as the package logs them, times since the round's start. */
function simulate(e, round) {
  const { latency } = e.link, { transfer, needed } = e, bytes = 8 * e.floats;
  const own = [0, ...e.seconds(round)], ready = [...own], events = [];
  own.forEach((end, rank) => rank && events.push({ at: end, kind: "compute", rank, start: 0, begun: 0, end, to: -1, bytes: 0 }));
  for (const [parent, children] of families(e)) {
    const messages = port(children.map((from) => ({ from, sent: ready[from], arrived: ready[from] + latency })), transfer);
    const close = Math.max(own[parent], messages[needed - 1].end);
    messages.forEach(({ from, sent, arrived, begun, end }, i) => {
      const taken = i < needed || end <= own[parent], drop = Math.max(arrived, close);
      if (taken) events.push({ at: end, kind: "send", rank: from, start: sent, begun, end, to: parent, bytes });
      else events.push({ at: drop, kind: "drop", rank: from, start: sent, begun: drop, end: drop, to: parent, bytes });
      if (taken && i >= needed) events.push({ at: close, kind: "drop", rank: from, start: close, begun: close, end: close, to: parent, bytes: 0 });
    });
    ready[parent] = close;
  }
  const end = ready[0];
  return { end, own, events: events.filter(({ at }) => at <= end).sort((a, b) => a.at - b.at) };
}
N["workbench.core.running.start.run"] = native(([e]) => e);

/** When the k-th of some messages is through a port. */
function kth(arrivals, k, transfer) {
  arrivals.sort();
  if (!transfer) return arrivals[k - 1];
  let free = -Infinity;
  for (let j = 0; j < k; j++) free = Math.max(arrivals[j], free) + transfer;
  return free;
}

/** Mean seconds of a round, as `wb.forecast` finds it. */
function meanRound(e) {
  const { rounds, transfer, needed } = e, { latency } = e.link, n = e.workers;
  if (e.scheme !== "RAR") {
    let sum = 0;
    const parents = families(e), of = parents.map(([, children]) => new Float64Array(children.length));
    for (let r = 0; r < rounds; r++) {
      const ready = [0, ...e.seconds(r)];
      parents.forEach(([parent, children], i) => {
        for (let j = 0; j < children.length; j++) of[i][j] = ready[children[j]] + latency;
        ready[parent] = Math.max(ready[parent], kth(of[i], needed, transfer));
      });
      sum += ready[0];
    }
    return sum / rounds;
  }
  const slices = Float64Array.from(evenSizes(e.floats, n), (floats) => (e.link.bandwidth ? (8 * floats) / e.link.bandwidth : 0));
  const ready = new Float64Array(n), free = new Float64Array(n);
  for (let r = 0; r < rounds; r++) {
    e.seconds(r).forEach((t, i) => (ready[i] += t));
    for (let k = 0; k < 2 * (n - 1); k++) {
      let before = ready[n - 1], slice = (((-1 - k) % n) + n) % n;
      for (let i = 0; i < n; i++) {
        const own = ready[i], sent = before + latency, through = (sent > free[i] ? sent : free[i]) + slices[slice];
        free[i] = through;
        if (through > own) ready[i] = through;
        before = own;
        if (++slice === n) slice = 0;
      }
    }
  }
  return Math.max(...ready) / rounds;
}
N["workbench.core.forecasting.forecast"] = native(([e]) => ({ mean: meanRound(e) }));

// ---------------------------------------------------------------- the Gantt chart of a round

const short = (seconds) => py.format(seconds, ".4g");

function words({ kind, start, begun, end, to, bytes }) {
  const text = `${kind}: ${short(start)} s to ${short(end)} s`;
  return to < 0 ? text : `${text}${kind === "send" ? `, at the port from ${short(begun)} s` : ""}<br>to rank ${to}, ${bytes} bytes`;
}

function bar(name, bars, look, unit, few) {
  const hollow = look.color === DATA.gantt.clear, ends = bars.map(({ from, until }) => (until - from) * unit.scale);
  const line = hollow && !few ? { ...look.line, width: 1 } : look.line;
  return {
    type: "bar", name, orientation: "h", y: bars.map(({ row }) => row), base: bars.map(({ from }) => from * unit.scale), x: ends,
    width: look.width ?? 0.72, offset: look.offset, marker: { color: look.color, line }, text: few ? look.words : undefined,
    textposition: "inside", insidetextanchor: "end", textfont: { size: 14, color: look.ink },
    customdata: bars.map(({ text }) => text), hovertemplate: `<b>rank %{y}</b>: ${name}<br>%{customdata}<extra></extra>`,
  };
}

N["workbench.lab.figures.gallery.gantt.gantt"] = native(([e, round = 0], { theme = "light" }) => {
  const { end, own, events } = simulate(e, round), { muted, text: ink } = DATA.palettes[theme], ranks = e.workers + 1, few = ranks <= 40;
  const unit = end >= 1 ? { scale: 1, name: "s" } : end >= 1e-3 ? { scale: 1e3, name: "ms" } : { scale: 1e6, name: "µs" };
  const of = (kind) => events.filter((event) => event.kind === kind), sends = of("send"), drops = of("drop"), computed = of("compute");
  const bars = (list, row = "rank", since = "start", until = "end") => list.map((event) => ({ row: event[row], from: Math.min(event[since], end), until: Math.min(event[until], end), text: words(event) }));
  const lasting = (list) => list.filter(({ from, until }) => until > from);
  const parents = new Set(families(e).map(([parent]) => parent)), done = new Set(computed.map(({ rank }) => rank)), spoke = new Set([...sends, ...drops].map(({ rank }) => rank));
  const open = (list, text) => list.map(([row, from]) => ({ row, from, until: end, text }));
  const cut = own.flatMap((_, rank) => (rank && !done.has(rank) ? [[rank, 0]] : []));
  const silent = computed.filter(({ rank, end: at }) => !spoke.has(rank) && at < end).map(({ rank, end: at }) => [rank, at]);
  const overlapping = [...sends, ...drops].some(({ rank, start }) => start < own[rank] && done.has(rank));
  const lower = { width: 0.4, offset: 0 }, work = overlapping ? { width: 0.4, offset: -0.4 } : {}, talk = overlapping ? lower : {};
  const solid = (color) => ({ color, line: { width: 0 } }), hollow = (color) => ({ color: DATA.gantt.clear, line: { width: 1.5, color } });
  const layers = [
    ["computes", bars(computed), { ...solid(DATA.gantt.computing), ...work }],
    ["message travels, queues", lasting(bars(sends, "rank", "start", "begun")), { ...solid(DATA.gantt.travelling), ...talk }],
    ["message through the port", lasting(bars(sends, "rank", "begun")), { ...solid(DATA.gantt.sending), ...talk }],
    ["port receives", lasting(bars(sends.filter(({ to }) => parents.has(to)), "to", "begun")), { ...solid(DATA.gantt.receiving), ...lower }],
    ["answer too late: dropped", bars(drops), { ...hollow(DATA.gantt.sending), ...talk }],
    ["still computing: cut off", open(cut, "still computing when the round ended: cut off"), { ...hollow(DATA.gantt.computing), words: "cut off", ink: muted }],
    ["no answer in this round", open(silent, "computed, but no answer went out or arrived in this round"), { ...hollow(muted), words: "no answer", ink: muted }],
  ];
  const marks = [
    { type: "scatter", mode: "markers", name: "dropped", showlegend: false, x: drops.map((d) => d.end * unit.scale), y: drops.map((d) => d.rank + (overlapping ? 0.2 : 0)),
      marker: { symbol: "x-thin", size: 9, line: { width: 2.5, color: DATA.gantt.late } },
      customdata: drops.map((d) => `<b>rank ${d.rank}</b>: ${words(d)}`), hovertemplate: "%{customdata}<br>answer too late<extra></extra>" },
    { type: "scatter", mode: "markers", name: "commits", x: [end * unit.scale], y: [0], marker: { symbol: "diamond", size: 12, color: ink }, cliponaxis: false,
      hovertemplate: `<b>rank %{y}</b> has the gradient<br>%{x:.5g} ${unit.name}<extra></extra>` },
  ];
  const counts = [`${done.size} computed`, `${drops.length} too late`, `${cut.length} cut off`];
  const subtitle = `${py.format(end * unit.scale, ".4g")} ${unit.name} · ${counts.join(" · ")}`;
  const height = Math.max(400, Math.trunc(190 + ranks * Math.min(Math.max(900 / ranks, 5), 30)));
  const figure = py.call(N[`${F}new_figure`], [theme, `${e.scheme}, ${e.workers} workers: round ${round}`, subtitle, height]);
  figure.data.push(...layers.filter(([, list]) => list.length).map(([name, list, look]) => bar(name, list, look, unit, few)), ...marks.filter(({ y }) => y.length));
  const step = few ? 1 : [5, 10, 20, 50, 100, 200, 500].find((s) => ranks / s <= 20);
  const ticks = Array.from({ length: Math.ceil(ranks / step) }, (_, i) => i * step), last = end * unit.scale;
  figure.layout.xaxis = { title: { text: `time since the round’s start (${unit.name})` }, range: [-0.02 * last, 1.02 * last] };
  figure.layout.yaxis = { title: { text: "rank" }, range: [ranks - 0.4, -0.6], showgrid: false, tickmode: "array", tickvals: ticks, ticktext: ticks.map((rank) => (rank ? String(rank) : "master")) };
  figure.layout.shapes = [{ type: "line", xref: "x", y0: 0, y1: 1, yref: "y domain", x0: last, x1: last, line: { color: ink, width: 2 } }];
  return figure.update_layout([], { barmode: "overlay", legend_traceorder: "normal" });
});
