"""JavaScript that measures response times in a page, by the clock of the page."""

# Move a slider, wait until the plot is drawn and painted again, and return the ms.
SLIDE = """([slider, value, plot]) => new Promise((resolve, reject) => {
  setTimeout(() => reject("the figure is not drawn again"), 60_000);
  const before = plot.dataset.drawn, began = performance.now();
  const seen = new MutationObserver(() => {
    if (plot.dataset.drawn === before) return;
    seen.disconnect();
    requestAnimationFrame(() => requestAnimationFrame(() => resolve(performance.now() - began)));
  });
  seen.observe(plot, { attributes: true });
  slider.value = value;
  slider.dispatchEvent(new Event("input", { bubbles: true }));
})"""
# Return frames and rounds per second, and the rounds by which the page is behind the run at the end.
DRAWN = """(seconds) => new Promise((resolve) => {
  const canvas = document.querySelector(".wb-stream canvas"), note = document.querySelector(".wb-stream .wb-note");
  const now = () => ["frames", "rounds"].map((name) => Number(canvas.dataset[name] ?? 0));
  const first = now(), began = performance.now();
  setTimeout(() => {
    const passed = (performance.now() - began) / 1000;
    const known = Number(/round (\\d+)/.exec(note.textContent)?.[1]);
    resolve([...now().map((value, i) => (value - first[i]) / passed), Math.max(0, known - now()[1])]);
  }, 1000 * seconds);
})"""
# Wait for the first round on the screen. Return its time, s, and the positions of the progress bar as
# [s, x, y, width, height], where s is the time at which the bar first had that position.
FIRST = """(limit) => new Promise((resolve, reject) => {
  const began = Date.now() / 1000, places = [];
  const look = () => {
    const now = Date.now() / 1000, row = document.querySelector(".wb-status tr");
    const box = row?.querySelector(".wb-track")?.getBoundingClientRect();
    const place = box?.width ? [box.x, box.y, box.width, box.height] : null;
    if (place && String(place) !== String(places.at(-1)?.slice(1))) places.push([now, ...place]);
    const points = document.querySelector(".wb-plot[data-points]")?.dataset.points;
    if (/round \\d+ of/.test(row?.innerText ?? "") && Number(points) > 0) return resolve([now, places]);
    if (now - began > limit) return reject(`no round on screen after ${limit} s: ${row?.innerText}`);
    requestAnimationFrame(look);
  };
  look();
})"""
# Return the times of the screenshots in which the progress bar differs from the previous one.
MOVES = """async ([pictures, places]) => {
  const pen = document.createElement("canvas").getContext("2d", { willReadFrequently: true }), moves = [];
  let known;
  for (const [time, data] of pictures) {
    const place = places.findLast(([since]) => since <= time)?.slice(1).map(Math.round);
    if (!place) continue;
    const bytes = Uint8Array.from(atob(data), (c) => c.charCodeAt(0));
    pen.drawImage(await createImageBitmap(new Blob([bytes]), ...place), 0, 0);
    const now = pen.getImageData(0, 0, place[2], place[3]).data;
    const differs = now.reduce((sum, value, i) => sum + Math.abs(value - (known?.[i] ?? 0)), 0);
    if (differs > 2 * now.length) moves.push(time); // more than JPEG compression changes
    known = now;
  }
  return moves;
}"""
FRAMES = """(seconds) => new Promise((resolve) => {
  const plot = document.querySelector(".wb-plot[data-frames]"), first = Number(plot.dataset.frames);
  const began = performance.now();
  setTimeout(() => resolve(1000 * (Number(plot.dataset.frames) - first) / (performance.now() - began)), 1000 * seconds);
})"""
STOP = """() => new Promise((resolve, reject) => {
  setTimeout(() => reject("not stopped after a minute"), 60_000);
  const began = performance.now(), button = document.querySelector(".wb-stop");
  const timer = setInterval(() => {
    if (![...document.querySelectorAll(".wb-status tr")].every((row) => row.className === "wb-stopped")) return;
    clearInterval(timer);
    resolve(performance.now() - began);
  }, 2);
  button.click();
})"""
# Move a slider to a value in every animation frame. Return the frames in which the figure was not there,
# and the number of figures that were drawn until a second after the last move.
DRAG = """([slider, plot, values]) => new Promise((resolve) => {
  let missing = 0, ended = 0;
  const drawn = new Set(), left = [...values];
  const look = () => {
    missing += !plot.isConnected || !plot.offsetHeight || !plot.querySelector("svg, canvas");
    drawn.add(plot.dataset.drawn);
    if (left.length) {
      slider.value = left.shift();
      slider.dispatchEvent(new Event("input", { bubbles: true }));
      ended = performance.now();
    } else if (performance.now() - ended > 1000) return resolve([missing, drawn.size - 1]);
    requestAnimationFrame(look);
  };
  look();
})"""
# Click Run, and return the ms until a curve of the new runs is drawn.
CURVE = """(count) => new Promise((resolve, reject) => {
  setTimeout(() => reject("no curve after a minute"), 60_000);
  const began = performance.now(), plot = document.querySelector(".wb-plot[data-frames]");
  if (plot) plot.dataset.points = 0;
  const timer = setInterval(() => {
    const shown = document.querySelector(".wb-plot[data-points]"), lines = shown?.data?.slice(0, count) ?? [];
    const drawn = lines.filter(({ x }) => x.length).length, some = Number(shown?.dataset.points) > 0;
    if (!some || drawn < count || !document.querySelector(".wb-status .wb-running, .wb-status .wb-finished")) return;
    clearInterval(timer);
    requestAnimationFrame(() => requestAnimationFrame(() => resolve(performance.now() - began)));
  }, 2);
  document.querySelector(".wb-top .wb-starts").click();
})"""
_ROWS_CHANGE = """
  setTimeout(() => reject("the table is not filtered"), 60_000);
  const began = performance.now();
  const seen = new MutationObserver(() => {
    seen.disconnect();
    requestAnimationFrame(() => requestAnimationFrame(() => resolve(performance.now() - began)));
  });
  const info = document.querySelector(".wb-runs .wb-bar [role=status]");
  seen.observe(info, { childList: true, characterData: true, subtree: true });
"""
# Type into the last field of a kind, wait for the new number of rows and for two frames; return the ms.
FILTER = f"""([field, text]) => new Promise((resolve, reject) => {{{_ROWS_CHANGE}
  const box = [...document.querySelectorAll(field)].at(-1);
  box.value = text;
  box.dispatchEvent(new Event("input", {{ bubbles: true }}));
}})"""
# Add the filter that was typed, and wait likewise.
FILTERED = f"""() => new Promise((resolve, reject) => {{{_ROWS_CHANGE}
  document.querySelector(".wb-filter button").click();
}})"""
