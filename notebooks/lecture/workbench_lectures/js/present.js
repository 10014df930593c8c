// A lecture that is projected: steps by key, the size of letters, a clock, the system's dark mode. Served pages and
// those without a server have it alike; in JupyterLab, which has keys of its own, nothing of it is there.

const STOPS = "h1, h2, .wb-lecture-view, .wb-quiz";
const TYPED = "input:not([type=range]), select, textarea, [contenteditable]";
const SIZES = [1, 1.15, 1.3, 1.5, 1.75, 2];

/** Light or dark as the system is, unless the address or the server says which. */
function follow() {
  const dark = matchMedia("(prefers-color-scheme: dark)"), { dataset } = document.body;
  if (dataset.jpThemeLight === "false" || new URLSearchParams(location.search).has("theme")) return () => {};
  const set = () => (dataset.jpThemeLight = String(!dark.matches));
  dark.addEventListener("change", set);
  set();
  return () => dark.removeEventListener("change", set);
}

/** To the next heading, figure with its sliders, or exercises: down (1) or up (-1). */
function step(way) {
  const stops = [...document.querySelectorAll(STOPS)].filter((e) => e.offsetParent), top = (e) => e.getBoundingClientRect().top;
  const found = way > 0 ? stops.find((e) => top(e) > 60) : (stops.findLast((e) => top(e) < -4) ?? stops[0]);
  found?.scrollIntoView({ block: "start" }); // Voila and a page of ours scroll different elements
}

/** What this tab remembers; a browser that keeps nothing forgets. */
const tab = {
  get(name) {
    try {
      return sessionStorage.getItem(`workbench ${name}`);
    } catch {
      return null;
    }
  },
  set(name, value) {
    try {
      sessionStorage.setItem(`workbench ${name}`, value);
    } catch {
      // private windows, say
    }
  },
};

function present() {
  const quiet = follow();
  if (document.querySelector(".wb-present")) return quiet;
  let size = Number(tab.get("size") ?? 0);
  const grow = (way) => {
    size = way ? Math.min(Math.max(size + way, 0), SIZES.length - 1) : 0;
    tab.set("size", size);
    document.documentElement.style.setProperty("--wb-scale", SIZES[size]);
  };
  const clock = element("button", { type: "button", className: "wb-clock", hidden: tab.get("clock") !== "on", title: "restart the clock" });
  const pad = (n) => String(n).padStart(2, "0");
  const tick = () => {
    const seconds = Math.floor((Date.now() - Number(tab.get("began"))) / 1000), now = new Date();
    clock.textContent = `${Math.floor(seconds / 60)}:${pad(seconds % 60)} · ${pad(now.getHours())}:${pad(now.getMinutes())}`;
    clock.setAttribute("aria-label", `${Math.floor(seconds / 60)} minutes since the start; restart`);
  };
  const restart = () => (tab.set("began", Date.now()), tick());
  clock.onclick = restart;
  const show = () => {
    clock.hidden = !clock.hidden;
    tab.set("clock", clock.hidden ? "off" : "on");
    if (!clock.hidden && !tab.get("began")) restart();
    tick();
  };
  const actions = [
    ["‹", "previous (← or Page Up)", () => step(-1), ["ArrowLeft", "PageUp"]],
    ["›", "next (→ or Page Down)", () => step(1), ["ArrowRight", "PageDown"]],
    ["A−", "smaller letters (−)", () => grow(-1), ["-"]],
    ["A+", "larger letters (+)", () => grow(1), ["+", "="]],
    ["◷", "clock (c)", show, ["c"]],
  ];
  const keys = { 0: () => grow(0), ...Object.fromEntries(actions.flatMap(([, , call, names]) => names.map((name) => [name, call]))) };
  const buttons = actions.map(([text, title, onclick]) => element("button", { type: "button", title, "aria-label": title, onclick }, text));
  const bar = element("nav", { className: "wb wb-present", "aria-label": "presenting" }, clock, ...buttons);
  const pressed = (event) => {
    const { key, target } = event, call = keys[key];
    if (!call || event.ctrlKey || event.metaKey || event.altKey || target.closest?.(TYPED)) return;
    if (key.startsWith("Arrow") && target.closest?.("input, .js-plotly-plot")) return; // a slider's own keys
    event.preventDefault();
    call();
  };
  document.body.append(bar);
  document.addEventListener("keydown", pressed);
  document.documentElement.style.setProperty("--wb-scale", SIZES[size]);
  if (!clock.hidden) tick();
  const timer = setInterval(() => clock.hidden || tick(), 1000);
  return () => {
    quiet();
    clearInterval(timer);
    document.removeEventListener("keydown", pressed);
    bar.remove();
  };
}
