// Rows of the table of runs, which are sorted, filtered and selected in the page. If the page is narrow, the least
// important columns are left out. `asked` stores the user's choices, so that new rows and a reload do not change them.

const MORE = 2.5; // factor by which "Show more" lengthens the table
const COMPARISONS = { number: ["at least", "at most", "is", "any"], text: ["contains", "is", "is not", "any"] };
const ICON = {
  done: '<path d="m3 8.5 3.5 3.5L13 5"/>', running: '<path d="M8 2a6 6 0 1 1-6 6"/>', bad: '<path d="M8 3v6M8 13h.01"/>',
  stopped: '<rect x="4" y="4" width="8" height="8" rx="1" fill="currentColor"/>', waiting: '<circle cx="8" cy="8" r="5"/>',
  more: '<path d="M3 8h.01M8 8h.01M13 8h.01" stroke-width="2.4"/>', search: '<circle cx="7" cy="7" r="4"/><path d="m10 10 4 4"/>',
  close: '<path d="m4 4 8 8m0-8-8 8"/>', plus: '<path d="M8 3v10M3 8h10"/>', columns: '<path d="M2.5 3h11v10h-11zM6.2 3v10M9.8 3v10"/>',
};
const icon = (name) => `<svg class="wb-i" viewBox="0 0 16 16" aria-hidden="true">${ICON[name]}</svg>`;
const marked = (made, name) => (made.insertAdjacentHTML("afterbegin", icon(name)), made);
const KINDS = { done: "done", running: "running", failed: "bad", damaged: "bad", lost: "bad", stopped: "stopped", interrupted: "stopped" };

/** Return a number with four digits, and with separators of thousands. */
function digits(value) {
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-4 || size >= 1e9)) return value.toExponential(2).replace(/\.?0+e/, "e").replace("e+", "e");
  const [whole, rest] = String(Number(size >= 1e4 ? value.toFixed(0) : value.toPrecision(4))).split(".");
  return whole.replace(/\B(?=(\d{3})+$)/g, "\u2009") + (rest ? `.${rest}` : "");
}

/** Return a time as text: 14:52, yesterday 18:04, or the date. */
function moment(text, now = new Date()) {
  const then = new Date(text), clock = then.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", hour12: false });
  if (Number.isNaN(then.getTime())) return text;
  const day = (date) => new Date(date.getFullYear(), date.getMonth(), date.getDate()).getTime();
  const days = Math.round((day(now) - day(then)) / 864e5), minutes = Math.floor((now - then) / 6e4);
  if (days === 0) return minutes < 60 && minutes >= 0 ? `${clock}, ${minutes ? `${minutes} min ago` : "now"}` : clock;
  if (days === 1) return `yesterday ${clock}`;
  return then.toLocaleDateString([], { day: "numeric", month: "short", ...(now.getFullYear() === then.getFullYear() ? {} : { year: "numeric" }) });
}

const missing = (value) => value === null || value === undefined || value === "";

/** Return a function that tests whether a row matches a filter. */
function test({ op, value }, column) {
  if (op === "any") return (i) => !missing(column[i]);
  const wanted = String(value).trim().toLowerCase(), number = Number(wanted);
  const same = (v) => (typeof v === "number" && wanted !== "" ? v === number : String(v ?? "").toLowerCase() === wanted);
  if (op === "at least") return (i) => !missing(column[i]) && column[i] >= number;
  if (op === "at most") return (i) => !missing(column[i]) && column[i] <= number;
  if (op === "contains") return (i) => String(column[i] ?? "").toLowerCase().includes(wanted);
  return op === "is not" ? (i) => !same(column[i]) : (i) => same(column[i]);
}

function render({ model, el }) {
  ours(el, "wb-runs");
  const get = (name) => model.get(name), put = (name, value) => (model.set(name, value), model.save_changes());
  const asked = () => ({ search: "", filters: [], order: ["when", "desc"], length: 10, ...get("asked") });
  const ask = (change) => (put("asked", { ...asked(), ...change }), draw());
  const act = (action, row) => tells(model, { kind: "act", action, row });
  const label = (name) => get("offered").find((each) => each.name === name)?.label ?? name;

  // ---- above the rows: search, filters, columns
  const search = element("input", { type: "search", placeholder: "Search", "aria-label": "Search", value: asked().search, oninput: () => ask({ search: search.value }) });
  const chips = element("span", { className: "wb-chips" });
  const pop = (name, mark, ...children) => {
    const made = element("details", { className: "wb-pop" }, marked(element("summary", {}, name), mark), element("div", { className: "wb-sheet" }, ...children));
    closing(made);
    return made;
  };
  const by = element("select", { "aria-label": "column of the filter", onchange: () => compare() });
  const op = element("select", { "aria-label": "comparison", onchange: () => (value.hidden = op.value === "any") });
  const value = element("input", { type: "text", "aria-label": "value", onkeydown: ({ key }) => key === "Enter" && add() });
  const compare = () => {
    const number = get("offered").find(({ name }) => name === by.value)?.number;
    op.replaceChildren(...COMPARISONS[number ? "number" : "text"].map((text) => element("option", { value: text }, text)));
    value.hidden = false;
  };
  const add = () => {
    if (!value.hidden && value.value.trim() === "") return void value.focus();
    filter.open = false;
    ask({ filters: [...asked().filters, { column: by.value, op: op.value, value: value.value }] });
    value.value = "";
  };
  const filter = pop("Filter", "plus", element("div", { className: "wb-filter" }, by, op, value, element("button", { type: "button", onclick: add }, "Add")));
  const boxes = element("div", { className: "wb-boxes" });
  const choose = pop("Columns", "columns", boxes);
  choose.classList.add("wb-right");
  const above = element("div", { className: "wb-bar" }, element("span", { className: "wb-search" }, search), chips, filter, element("span", { className: "wb-grow" }), choose);
  above.firstChild.insertAdjacentHTML("afterbegin", icon("search"));

  // ---- the rows
  const table = element("table", { className: "wb-grid" }), frame = element("div", { className: "wb-scroll" }, table);
  const none = element("div", { className: "wb-empty" });
  const info = element("span", { className: "wb-note", role: "status" });
  const more = element("button", { type: "button", className: "wb-bare", onclick: () => ask({ length: Math.ceil(asked().length * MORE) }) }, "Show more");
  const below = element("div", { className: "wb-bar" }, info, element("span", { className: "wb-grow" }), more);
  const menu = element("div", { className: "wb-menu", popover: "auto", role: "menu" });
  el.append(above, frame, none, below, menu);

  const selected = () => new Set(get("selected_rows"));
  const select = (rows) => (put("selected_rows", [...rows].sort((a, b) => a - b)), mark());
  const toggle = (i) => {
    const rows = selected();
    if (!rows.delete(i)) rows.add(i);
    select(rows);
  };

  /** Return the rows that match the search and all filters, in order. */
  const found = () => {
    const { search: text, filters, order } = asked(), rows = get("rows"), count = get("count");
    const words = text.toLowerCase().split(/\s+/).filter(Boolean);
    const tests = filters.filter(({ column }) => rows[column]).map((each) => test(each, rows[each.column]));
    const shown = get("columns").map(({ name }) => rows[name]);
    const texts = (i) => shown.map((column) => column[i]).join(" ").toLowerCase();
    const all = Array.from({ length: count }, (_, i) => i);
    const kept = all.filter((i) => tests.every((t) => t(i)) && (!words.length || ((row) => words.every((w) => row.includes(w)))(texts(i))));
    const column = rows[order[0]], sign = order[1] === "desc" ? -1 : 1;
    const before = (a, b) => (a < b ? -1 : a > b ? 1 : 0);
    return column ? kept.sort((a, b) => missing(column[a]) - missing(column[b]) || sign * before(column[a], column[b]) || a - b) : kept;
  };

  const cell = (column, i) => {
    const rows = get("rows"), it = rows[column.name][i], { kind } = column;
    const made = element("td", { className: `wb-c-${kind}${column.number ? " wb-number" : ""}` });
    made.dataset.column = column.label;
    if (kind === "scheme" && it) made.append(Object.assign(element("i"), { style: `background:${get("colours")[it] ?? "none"}` }), element("b", {}, it));
    else if (kind === "state") {
      const state = KINDS[it] ?? "waiting", title = rows.error?.[i] || "";
      made.append(marked(element("span", { className: `wb-state wb-is-${state}`, title }, it), state));
    } else if (kind === "when") Object.assign(made, { textContent: it ? moment(it) : "–", title: it });
    else if (kind === "tags") made.append(...String(it ?? "").split(",").map((each) => each.trim()).filter(Boolean).map((each) => element("span", { className: "wb-tag" }, each)));
    else if (missing(it)) made.textContent = column.number ? "–" : "";
    else if (kind === "of") made.textContent = it === rows.rounds?.[i] || missing(rows.rounds?.[i]) ? digits(it) : `${digits(it)} of ${digits(rows.rounds[i])}`;
    else if (typeof it === "number") made.textContent = digits(it);
    else if (kind === "choice") made.textContent = it.replaceAll("_", " ");
    else Object.assign(made, { textContent: it, title: String(it).length > 30 ? it : "" });
    return made;
  };

  const named = (i) => {
    const { run, scheme, when } = get("rows");
    return [scheme?.[i], run[i], when?.[i] && moment(when[i])].filter(Boolean).join(", ");
  };

  const open = (i, button) => {
    const items = get("actions").filter(({ states, real }) => (!states || states.includes(get("rows").state[i])) && (!real || get("rows").engine?.[i] !== "sim"));
    menu.replaceChildren(...items.map(({ key, text, other, danger }) =>
      element("button", { type: "button", role: "menuitem", className: danger ? "wb-danger" : "", onclick: () => (menu.hidePopover(), act(key, i)) },
        other && get("rows").archived?.[i] === true ? other : text)));
    showAt(menu, button, true);
    menu.firstChild?.focus();
  };
  menu.addEventListener("keydown", (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key], all = [...menu.children];
    if (event.key === "Escape") return void (event.stopPropagation(), menu.hidePopover());
    if (!step) return;
    event.preventDefault();
    all[(all.indexOf(document.activeElement) + step + all.length) % all.length]?.focus();
  });

  const tick = (about, onchange) => element("label", { className: "wb-tick" }, element("input", { type: "checkbox", "aria-label": about, onchange }));
  const all = tick("select all that are found", () => select(all.firstChild.checked ? found() : []));
  const head = (column) => {
    const [by, way] = asked().order, sorted = by === column.name;
    const text = `${column.label}${sorted ? (way === "desc" ? " ↓" : " ↑") : ""}`;
    const first = column.number || column.kind === "when" ? "desc" : "asc", other = way === "desc" ? "asc" : "desc";
    const turn = () => ask({ order: [column.name, sorted ? other : first] });
    const made = element("th", { scope: "col", className: column.number ? "wb-number" : "", title: column.name },
      element("button", { type: "button", className: sorted ? "wb-sorted" : "", onclick: turn }, text));
    if (sorted) made.setAttribute("aria-sort", way === "desc" ? "descending" : "ascending");
    return made;
  };
  const row = (columns, i) => {
    const button = marked(element("button", { type: "button", className: "wb-icon", "aria-label": `actions for ${named(i)}`, "aria-haspopup": "menu" }), "more");
    button.onclick = () => open(i, button);
    const made = element("tr", {}, element("td", { className: "wb-c-tick" }, tick(`select ${named(i)}`, () => toggle(i))),
      ...columns.map((column) => cell(column, i)), element("td", { className: "wb-c-menu" }, button));
    made.dataset.row = i;
    const result = columns.findIndex(({ name }) => name === "loss"), key = result < 0 ? columns.findLastIndex(({ kind }) => kind === "number") : result;
    made.children[key + 1]?.classList.toggle("wb-key", key >= 0); // the number that a phone shows
    made.onclick = ({ target }) => target.closest("button, input, label, a") || getSelection().toString() || toggle(i);
    return made;
  };

  const mark = () => {
    const rows = selected();
    for (const tr of table.querySelectorAll("tbody tr")) {
      const on = rows.has(Number(tr.dataset.row));
      tr.setAttribute("aria-selected", on);
      tr.querySelector("input").checked = on;
    }
    all.firstChild.checked = rows.size > 0 && rows.size === list.length;
    all.firstChild.indeterminate = rows.size > 0 && !all.firstChild.checked;
  };

  let list = [], width = 0;
  const fill = (columns) => {
    const shown = list.slice(0, asked().length);
    const titles = element("tr", {}, element("th", { className: "wb-c-tick" }, all), ...columns.map(head), element("th", { className: "wb-c-menu" }, element("span", { className: "wb-hide" }, "Actions")));
    const at = document.activeElement?.closest("th")?.title;
    table.replaceChildren(element("thead", {}, titles), element("tbody", {}, ...shown.map((i) => row(columns, i))));
    if (at) [...table.querySelectorAll("th")].find(({ title }) => title === at)?.querySelector("button").focus();
  };
  /** Draw as many columns as fit. Columns that the user chose are always drawn, and are reached by scrolling. */
  const draw = () => {
    width = el.clientWidth;
    list = found();
    const count = get("count"), length = asked().length, columns = [...get("columns")];
    let out = 0;
    frame.hidden = !list.length; // a hidden table has no width, and all columns would fit
    fill(columns);
    while (width && frame.scrollWidth > frame.clientWidth + 1) {
      const least = columns.reduce((worst, each, k) => (each.level > (columns[worst]?.level ?? 0) ? k : worst), -1);
      if (least < 0) break;
      columns.splice(least, 1);
      out += 1;
      fill(columns);
    }
    mark();
    none.hidden = Boolean(list.length);
    none.replaceChildren(...(count ? [element("b", {}, "No run matches"), element("button", { type: "button", onclick: () => ((search.value = ""), ask({ search: "", filters: [] })) }, "Clear search and filters")]
      : [element("b", {}, "No runs yet"), element("span", {}, get("empty"))]));
    more.hidden = list.length <= length;
    const parts = [`${digits(Math.min(length, list.length))} of ${digits(list.length)} runs`, list.length < count ? `from ${digits(count)} in all` : "",
      out ? `${out} column${out > 1 ? "s need" : " needs"} a wider page` : ""];
    info.textContent = count ? parts.filter(Boolean).join("; ") : "";
    chips.replaceChildren(...asked().filters.map((each, k) => {
      const text = [label(each.column), element("b", {}, ` ${each.op}${each.op === "any" ? "" : ` ${each.value}`}`)];
      const gone = marked(element("button", { type: "button", className: "wb-icon", "aria-label": `remove the filter ${label(each.column)}`, onclick: () => ask({ filters: asked().filters.filter((_, j) => j !== k) }) }), "close");
      return element("span", { className: "wb-chip" }, ...text, gone);
    }));
    el.dataset.drawn = list.length;
  };
  const offer = () => {
    const offered = get("offered"), chosen = get("columns").map(({ name }) => name), was = by.value;
    by.replaceChildren(...offered.map((each) => element("option", { value: each.name }, each.label)));
    if (offered.some(({ name }) => name === was)) by.value = was;
    else compare();
    const box = (text, checked, onchange) => element("label", { className: "wb-check" }, element("input", { type: "checkbox", checked, onchange }), text);
    const pick = ({ name }) => ({ target }) => tells(model, { kind: "columns", names: target.checked ? [...get("columns").map((c) => c.name), name] : get("columns").map((c) => c.name).filter((each) => each !== name) });
    boxes.replaceChildren(box("Archived runs", get("archived"), ({ target }) => put("archived", target.checked)), element("hr"),
      ...offered.map((each) => box(each.label, chosen.includes(each.name), pick(each))),
      element("button", { type: "button", className: "wb-bare", onclick: () => tells(model, { kind: "columns", names: [] }) }, "Usual columns"));
  };
  const soon = perFrame(() => (offer(), draw()));
  const traits = ["rows", "columns", "offered", "archived", "colours", "actions"].map((name) => `change:${name}`);
  for (const name of traits) model.on(name, soon);
  model.on("change:selected_rows", mark);
  const observer = new ResizeObserver(() => el.clientWidth !== width && soon());
  observer.observe(el);
  offer();
  draw();
  return () => {
    observer.disconnect();
    soon.cancel();
    for (const name of traits) model.off(name, soon);
    model.off("change:selected_rows", mark);
  };
}

export default { render };
