// A figure with a time axis, shown in slow motion. Its future is covered. The user plays, steps between events, or scrubs.

const ROUND_TRIP = 8000; // ms for the whole span at normal speed
const SPEEDS = { 0.25: "¼ speed", 0.5: "½ speed", 1: "normal", 2: "twice", 4: "four times" };

function render({ model, el }) {
  const id = unique("player");
  let plot = null, now = 0, playing = 0, last = 0;
  const end = () => model.get("end");
  const moments = () => model.get("moments"); // [[time, text], ...] in order

  const button = (words, title, onclick) => element("button", { type: "button", title, onclick }, words);
  const play = button("▶ Play", "play or pause", () => (playing ? pause() : start()));
  const scrub = element("input", { id, type: "range", min: 0, max: 1000, step: 1, value: 0, oninput: () => (pause(), go((scrub.value / 1000) * end())) });
  const speed = element("select", { id: `${id}-speed` }, ...Object.entries(SPEEDS).map(([value, words]) => element("option", { value }, words)));
  speed.value = "1";
  const clock = element("output", { className: "wb-clock" });
  const words = element("div", { className: "wb-moment", role: "status", "aria-live": "polite" });
  const bar = element("div", { className: "wb-bar wb-player" },
    button("Start", "to the start", () => (pause(), go(0))), button("◀ Step", "one moment back", () => step(-1)), play,
    button("Step ▶", "one moment on", () => step(1)), button("End", "to the end", () => (pause(), go(end()))),
    element("label", { for: id }, "time"), scrub, clock,
    element("label", { for: `${id}-speed` }, "speed"), speed);
  const veil = element("div", { className: "wb-veil" });
  const figure = element("div", { className: "wb-veiled" });
  ours(el);
  el.append(bar, words, figure);

  /** Cover the part of the plot that is in the future. */
  const cover = () => {
    const area = plot?.querySelector(".nsewdrag")?.getBoundingClientRect();
    if (!area) return;
    if (veil.parentElement !== plot) plot.append(veil);
    const box = plot.getBoundingClientRect();
    const [from, to] = plot.layout.xaxis.range;
    const share = Math.min(1, Math.max(0, (now * model.get("unit") - from) / (to - from)));
    const left = share * area.width;
    Object.assign(veil.style, { left: `${area.left - box.left + left}px`, top: `${area.top - box.top}px`, width: `${area.width - left}px`,
      height: `${area.height}px`, display: now >= end() ? "none" : "block", background: plot.layout.plot_bgcolor ?? "transparent" });
  };
  const passed = () => moments().filter(([time]) => time <= now + 1e-15);
  const go = (time) => {
    now = Math.min(end(), Math.max(0, time));
    scrub.value = end() ? Math.round((now / end()) * 1000) : 0;
    clock.textContent = `${Number((now * model.get("unit")).toPrecision(4))} ${model.get("unit_name")}`;
    const done = passed();
    const latest = done.filter(([time]) => time === done.at(-1)[0]).map(([, text]) => text);
    const more = latest.length > 3 ? ` and ${latest.length - 3} more` : "";
    words.textContent = done.length ? `${done.length} of ${moments().length}: ${latest.slice(-3).join("; ")}${more}` : "the round begins";
    el.dataset.now = now;
    cover();
  };
  const step = (direction) => {
    pause();
    const times = [...new Set(moments().map(([time]) => time))];
    go(direction > 0 ? times.find((time) => time > now + 1e-15) ?? end() : times.findLast((time) => time < now - 1e-15) ?? 0);
  };
  const pause = () => {
    cancelAnimationFrame(playing);
    playing = 0;
    play.textContent = "▶ Play";
  };
  const start = () => {
    if (now >= end()) go(0);
    last = performance.now();
    play.textContent = "⏸ Pause";
    const tick = (time) => {
      go(now + ((time - last) / ROUND_TRIP) * Number(speed.value) * end());
      last = time;
      now >= end() ? pause() : (playing = requestAnimationFrame(tick));
    };
    playing = requestAnimationFrame(tick);
  };

  const after = (box) => {
    if (plot !== box) box.on("plotly_relayout", cover);
    plot = box;
    requestAnimationFrame(cover);
  };
  const remove = drawPlot(model, figure, after, false);

  /** Send the rank of a clicked row to the kernel. A drag zooms instead. */
  let down = null;
  const pressed = (event) => (down = event.target.closest(".nsewdrag") ? event : null);
  const released = (event) => {
    const still = down && Math.hypot(event.clientX - down.clientX, event.clientY - down.clientY) < 4;
    down = null;
    if (!still || !plot) return;
    const area = plot.querySelector(".nsewdrag").getBoundingClientRect();
    const [bottom, top] = plot.layout.yaxis.range;
    tells(model, { kind: "click", y: top + ((event.clientY - area.top) / area.height) * (bottom - top), trace: "row" });
  };
  figure.addEventListener("pointerdown", pressed, true);
  window.addEventListener("pointerup", released, true);
  const fresh = () => (pause(), go(end()));
  const observer = new ResizeObserver(() => requestAnimationFrame(cover));
  observer.observe(figure);
  model.on("change:moments", fresh);
  fresh();
  return () => {
    pause();
    observer.disconnect();
    window.removeEventListener("pointerup", released, true);
    model.off("change:moments", fresh);
    remove();
  };
}

export default { render };
