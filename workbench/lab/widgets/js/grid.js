// The grid of itables, whose module stands above as `itables`, and what it lacks: names for screen readers, and that what the
// user asked of it (search, conditions, order, page, columns) stays, whether rows or columns change or the page is loaded again.

const WAIT = 5; // ms after a key in the search or a condition
const SETTLED = 250; // ms after a drawing until the kernel is told
const NAMES = { "dtsb-data": "column of the condition", "dtsb-condition": "comparison", "dtsb-value": "value" };
const NUMBERS = new Map([["___NaN___", null], ["___Infinity___", Infinity], ["___-Infinity___", -Infinity]]); // null: an empty cell
const rowsOf = ({ data_json }) => JSON.parse(data_json, (_, value) => (NUMBERS.has(value) ? NUMBERS.get(value) : value));
/** A missing number as conditions see it: empty, and neither above nor below any; it is sorted as above all numbers. */
const NOTHING = { length: 0, valueOf: () => NaN, toString: () => "" };
const MISSING = { sort: Infinity, condition: NOTHING };
const rendered = (value, kind) => (value === null && kind in MISSING ? MISSING[kind] : value);
const without = ({ data_json, ...others }) => JSON.stringify(others);

/** The grid names none of its conditions' fields, which come and go as the user wants them. */
function name(root) {
  for (const e of root.querySelectorAll(".dtsb-criteria :is(select, input, button):not([aria-label])")) {
    const known = Object.keys(NAMES).find((word) => e.classList.contains(word));
    e.setAttribute("aria-label", NAMES[known] ?? (e.title || e.innerText));
  }
}

function asked(api) {
  const columns = api.columns().indexes().toArray().map((i) => api.column(i).title());
  const order = api.order().map(([i, way]) => [columns[i], way]);
  return { columns, order, search: api.search(), length: api.page.len(), page: api.page(), conditions: api.searchBuilder.getDetails() };
}

/** Conditions about columns that there are. */
const about = (columns, { criteria = [], logic = "AND" }) => ({
  logic,
  criteria: criteria.map((each) => (each.criteria ? about(columns, each) : each)).filter((each) => each.criteria?.length || columns.includes(each.data)),
});

function render({ model, el }) {
  let api, redraw, timer, busy = true, known;
  const tell = () => {
    if (!el.isConnected) return;
    model.set("asked", asked(api));
    model.save_changes();
  };
  const defined = () => [...(known.columnDefs ?? []), { targets: "_all", render: rendered }];
  const drawn = function () {
    api = this.api();
    if (busy) return;
    clearTimeout(timer);
    timer = setTimeout(tell, SETTLED);
  };
  /** The model as itables sees it. It unmarks all rows whenever it is told of marks, which takes ten thousand rows half a
   * second: so it gets none of the rows, which are added here, and is not told. */
  const seen = {
    get: (key) => (key === "_dt_args" ? { ...known, data_json: "[]", searchDelay: WAIT, drawCallback: drawn, columnDefs: defined() } : model.get(key)),
    set: (key, value) => busy || model.set(key, value),
    save_changes: () => busy || model.save_changes(),
    on: (event, call) => {
      if (event === "change:_dt_args") redraw = call;
      else if (event !== "change:selected_rows") model.on(event, call);
    },
  };
  const mark = () => {
    const wanted = model.get("selected_rows"), there = api.rows({ selected: true }).indexes().toArray();
    if (String(wanted) === String(there)) return;
    const before = busy;
    busy = true;
    if (there.length) api.rows(there).deselect();
    if (wanted.length) api.rows(wanted).select();
    busy = before;
  };
  const fill = () => {
    const { columns, order, search, length, page, conditions } = model.get("asked");
    api.rows.add(rowsOf(known)).columns.adjust();
    if (!columns) return void api.draw();
    const now = asked(api).columns, places = order.map(([title, way]) => [now.indexOf(title), way]);
    api.search(search).page.len(length).order(places.filter(([i]) => i >= 0));
    if (conditions.criteria) api.searchBuilder.rebuild(about(now, conditions), false);
    api.draw().page(Math.min(page, Math.max(api.page.info().pages - 1, 0))).draw("page");
  };
  /** Other rows in the same columns go into the grid that is there; for other columns it is made anew. */
  const renew = () => {
    const before = known;
    known = model.get("_dt_args");
    busy = true;
    if (without(known) !== without(before)) {
      const fields = () => [...el.querySelectorAll("input, select, button")];
      const at = fields().indexOf(document.activeElement);
      redraw();
      fill();
      fields()[at]?.focus();
    } else if (known.data_json.startsWith(before.data_json.slice(0, -1))) {
      api.rows.add(rowsOf(known).slice(api.rows().count())).draw(false);
    } else api.clear().rows.add(rowsOf(known)).draw(false);
    mark();
    busy = false;
  };
  const hear = ({ kind }) => kind === "mark" && api.rows({ search: "applied" }).select();
  known = model.get("_dt_args");
  itables.render({ model: seen, el });
  fill();
  mark();
  busy = false;
  const observer = new MutationObserver(() => name(el));
  observer.observe(el, { childList: true, subtree: true });
  name(el);
  const heard = { "change:_dt_args": renew, "change:selected_rows": mark, "msg:custom": hear };
  for (const [event, call] of Object.entries(heard)) model.on(event, call);
  return () => {
    observer.disconnect();
    clearTimeout(timer);
    for (const [event, call] of Object.entries(heard)) model.off(event, call);
  };
}

export default { render };
