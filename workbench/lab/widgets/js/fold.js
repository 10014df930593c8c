// Button of a group of settings, with a summary of their values. On a wide page, it opens the settings below itself. On
// a narrow page, the buttons of all groups form a line, and one group at a time is opened above the picture.

const ARROW = '<svg class="wb-i" viewBox="0 0 16 16" aria-hidden="true"><path d="m6 4 4 4-4 4"/></svg>';

function render({ model, el }) {
  ours(el, "wb-fold");
  const what = element("span", { className: "wb-what" }), now = element("span", { className: "wb-now" });
  const dot = element("span", { className: "wb-dot" });
  const button = element("button", { type: "button", onclick: () => press() });
  button.innerHTML = ARROW;
  button.append(what, dot, now);
  el.append(button);
  const drawer = () => getComputedStyle(el).getPropertyValue("--wb-drawer").trim() === "1";
  const frame = () => el.closest(".wb-controls") ?? el;
  const open = () => (drawer() ? frame().drawn === model.get("title") : model.get("opened"));
  let before = null; // frame whose changes are observed
  const show = () => {
    if (frame() !== before) {
      before?.removeEventListener("wb-drawer", show);
      before = frame();
      before.addEventListener("wb-drawer", show);
      el.parentElement.addEventListener("keydown", leave);
    }
    const [title, value, bad] = ["title", "value", "bad"].map((name) => model.get(name));
    what.textContent = title;
    now.textContent = value;
    dot.hidden = !bad;
    button.setAttribute("aria-label", `${title}: ${value}${bad ? ", cannot be used" : ""}`);
    button.setAttribute("aria-expanded", open());
    el.classList.toggle("wb-open", open());
  };
  const press = () => {
    if (drawer()) {
      frame().drawn = open() ? null : model.get("title");
      frame().dispatchEvent(new Event("wb-drawer"));
    } else {
      model.set("opened", !open());
      model.save_changes();
    }
  };
  /** Close the drawer on Escape, and move the focus back to the button. */
  const leave = (event) => {
    if (event.key !== "Escape" || !drawer() || !open()) return;
    event.stopPropagation();
    press();
    button.focus();
  };
  model.on("change", show);
  const observer = new ResizeObserver(() => el.isConnected && show()); // called also when the element is first shown
  observer.observe(el);
  return () => {
    observer.disconnect();
    before?.removeEventListener("wb-drawer", show);
    model.off("change", show);
  };
}

export default { render };
