// The grid of itables, whose module is `itables` above, with names for screen readers. The user's view (search, conditions,
// order, page, columns) is kept when rows or columns change or the page is reloaded.

const WAIT = 5; // ms after a key in the search or a condition
const SETTLED = 250; // ms after a drawing until the kernel is told
const NAMES = { "dtsb-data": "column of the condition", "dtsb-condition": "comparison", "dtsb-value": "value" };
const NUMBERS = new Map([["___NaN___", null], ["___Infinity___", Infinity], ["___-Infinity___", -Infinity]]); // null: an empty cell
const rowsOf = ({ data_json }) => JSON.parse(data_json, (_, value) => (NUMBERS.has(value) ? NUMBERS.get(value) : value));
/** A missing number for conditions: empty, and neither above nor below any; it is sorted above all numbers. */
const NOTHING = { length: 0, valueOf: () => NaN, toString: () => "" };
const MISSING = { sort: Infinity, condition: NOTHING };
const rendered = (value, kind) => (value === null && kind in MISSING ? MISSING[kind] : value);
const without = ({ data_json, ...others }) => JSON.stringify(others);

/** Label the fields of conditions, which the grid creates without names for screen readers. */
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

/** Keep the conditions about existing columns. */
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
  /** Return the model for itables. It deselects all rows at each change of the selection, which takes half a second for
   * ten thousand rows. So it gets no rows, which are added here, and no changes of the selection. */
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
  /** Put other rows into the same grid if the columns are equal; for other columns the grid is made again. */
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
