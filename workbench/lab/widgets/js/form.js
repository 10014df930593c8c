// A form made from field metadata. Every control has a label, a unit, a slider if that helps, and a place for the
// reason why its value is invalid.

const STEPS = 200;

const digits = (value) => Number(value.toPrecision(3));

/** Convert a value to its position on a slider, 0 to STEPS, and back. The left end of a logarithmic slider may be 0. */
const scales = {
  place({ low, high, log }, value) {
    if (!log) return ((value - low) / (high - low)) * STEPS;
    const bottom = low || high * 1e-7;
    if (value <= 0) return 0;
    return Math.max(low ? 0 : 1, (Math.log(value / bottom) / Math.log(high / bottom)) * STEPS);
  },
  value({ low, high, log, kind }, place) {
    const share = place / STEPS;
    if (log) {
      const bottom = low || high * 1e-7;
      return !low && place === 0 ? 0 : digits(bottom * (high / bottom) ** share);
    }
    const value = low + share * (high - low);
    return kind === "whole" ? Math.round(value) : digits(value);
  },
};

function options({ choices, labels, empty, kind }) {
  const values = kind === "flag" ? ["yes", "no"] : choices;
  const made = values.map((value, i) => element("option", { value }, labels?.[i] || value));
  return empty ? [element("option", { value: "" }, "not set"), ...made] : made;
}

const LONGEST_CHOICE = 20; // letters of a choice up to which its menu is beside its label

/** Return one line: {node, show(text), blame(reason), reach(high)}. `typed(text)` is called with every change. */
function line(field, id, typed) {
  const help = `${id}-help`, why = `${id}-why`;
  const common = { id, "aria-describedby": `${help} ${why}` };
  const whole = field.kind === "whole" && !field.log; // its slider has the whole numbers as positions, others have 0 to STEPS
  let input, range = null;
  if (field.kind === "choice") {
    input = element("select", { ...common, onchange: () => typed(input.value) }, ...options(field));
  } else if (field.kind === "flag" && field.empty) {
    input = element("select", { ...common, onchange: () => typed(input.value) }, ...options(field));
  } else if (field.kind === "flag") {
    input = element("input", { ...common, type: "checkbox", onchange: () => typed(input.checked ? "yes" : "no") });
  } else {
    input = element("input", { ...common, type: "text", spellcheck: false, autocomplete: "off", oninput: () => typed(input.value) });
    if (field.empty) input.placeholder = "not set";
    if (field.kind !== "text") input.className = "wb-value";
  }
  const amount = field.kind === "whole" || field.kind === "number", unit = element("span", { className: "wb-unit" }, field.unit);
  const control = [amount ? element("span", { className: "wb-amount" }, input, unit) : input]; // a number and its unit are in one box
  if (field.kind === "text" && field.choices.length) {
    input.setAttribute("list", `${id}-list`);
    control.push(element("datalist", { id: `${id}-list` }, ...field.choices.map((value) => element("option", { value }))));
  }
  if (field.low !== null && field.high !== null) {
    const slid = () => typed(String(scales.value(field, Number(range.value))));
    const span = whole ? { min: field.low, max: field.high, step: 1 } : { min: 0, max: STEPS, step: 1 };
    range = element("input", { type: "range", ...span, "aria-label": `${field.label}, slider`, oninput: whole ? () => typed(range.value) : slid });
    control.push(range);
  }
  const reason = element("div", { id: why, className: "wb-why", role: "alert" });
  const menu = field.choices[0] === ""; // "choose …" is shown again after each choice
  const long = !menu && [...(input.options ?? [])].some(({ text }) => text.length > LONGEST_CHOICE);
  const node = element("div", { className: `wb-line wb-${field.kind}${long ? " wb-list" : ""}`, title: field.help },
    element("label", { for: id }, field.label),
    element("div", { className: "wb-control" }, ...control, ...(amount ? [] : [unit])),
    element("div", { id: help, className: "wb-help" }, field.help), reason);
  const show = (text) => {
    if (input.type === "checkbox") input.checked = text === "yes";
    else if (input.value !== text) input.value = text;
    const value = Number(text);
    if (!range || text === "" || Number.isNaN(value)) return;
    if (whole) range.max = Math.max(field.high, value); // typed beyond the slider's end
    range.value = whole ? value : scales.place(field, value);
  };
  const reach = (high) => {
    field = { ...field, high };
    if (range && whole) range.max = Math.max(high, Number(range.value));
  };
  const blame = (text) => {
    reason.textContent = text;
    input.setAttribute("aria-invalid", Boolean(text));
    node.classList.toggle("wb-bad", Boolean(text));
  };
  return { node, show, blame, reach };
}

function render({ model, el }) {
  ours(el, "wb-form");
  const id = unique("form"), view = Math.random().toString(36).slice(2);
  const typed = {}; // name -> typed text, and number of the message that sends it (Infinity: not sent yet)
  let lines = {}, known = null, count = 0, detail = null;
  const heard = () => model.get("heard")[view] ?? 0;
  const send = () => {
    const waiting = Object.entries(typed).filter(([, mine]) => mine.count === Infinity);
    if (!waiting.length) return;
    count += 1;
    for (const [, mine] of waiting) mine.count = count;
    tells(model, { kind: "typed", view, count, texts: Object.fromEntries(waiting.map(([name, { text }]) => [name, text])) });
  };
  /** Send one message at a time while a slider moves. When a slider is released or a field is left, send at once. */
  const type = (name) => (text) => {
    typed[name] = { text, count: Infinity };
    if (heard() >= count) send();
    lines[name].show(text);
  };
  const acknowledged = () => (heard() >= count && send(), show());
  el.addEventListener("change", send);
  /** Return the kernel's value, or the typed text if the kernel has not received it yet. */
  const current = (name) => (typed[name]?.count > heard() ? typed[name].text : (model.get("values")[name] ?? ""));
  /** Change only the sliders' ends if the fields are the same, because a new slider would lose the pointer. */
  const refill = () => {
    const fields = model.get("fields"), same = ({ high: _, ...rest }) => JSON.stringify(rest);
    if (!known || fields.map(same).join() !== known.map(same).join()) return fill();
    known = fields;
    for (const { name, high } of fields) lines[name].reach(high);
    show();
  };
  const fill = () => {
    const fields = (known = model.get("fields")), focused = el.contains(document.activeElement) ? document.activeElement.id : "";
    lines = Object.fromEntries(fields.map((field) => [field.name, line(field, `${id}-${field.name}`, type(field.name))]));
    const nodes = (minor) => fields.filter((field) => field.minor === minor).map((field) => lines[field.name].node);
    const more = nodes(true).length ? [element("details", { className: "wb-more" }, element("summary", {}, "more"), ...nodes(true))] : [];
    const wasOpen = (selector) => el.querySelector(selector)?.open; // parts that the user opened stay open
    const [all, rest] = [wasOpen("details:has(> .wb-title)"), wasOpen(".wb-more")];
    if (rest) more[0].open = true;
    const title = model.get("title"), inner = [...nodes(false), ...more];
    const [name, ...about] = title.split(" · "), colour = model.get("colour");
    detail = element("span", { className: "wb-detail" }, model.get("detail"));
    const dot = colour ? [Object.assign(element("i"), { style: `background:${colour}` })] : [];
    const head = colour ? [...dot, element("b", { title: about.join(" · ") }, name), " ", detail] : [title];
    el.replaceChildren(...(title ? [element("details", { open: all ?? model.get("opened") }, element("summary", { className: "wb-title" }, ...head), ...inner)] : inner));
    show();
    blame();
    if (focused) document.getElementById(focused)?.focus();
  };
  const show = () => Object.entries(lines).forEach(([name, { show }]) => show(current(name)));
  const blame = () => {
    const reasons = model.get("reasons");
    for (const [name, { blame, node }] of Object.entries(lines)) {
      blame(reasons[name] ?? "");
      if (reasons[name]) for (let box = node.closest("details"); box; box = box.parentElement.closest("details")) box.open = true;
    }
  };
  fill();
  const traits = { "change:fields": refill, "change:title": fill, "change:values": show, "change:heard": acknowledged, "change:reasons": blame, "change:detail": () => detail && (detail.textContent = model.get("detail")) };
  for (const [event, call] of Object.entries(traits)) model.on(event, call);
  return () => {
    el.removeEventListener("change", send);
    for (const [event, call] of Object.entries(traits)) model.off(event, call);
  };
}

export default { render };
