// Buttons of the header: settings (on a wide page), undo, redo, reset.

const LOOK = 2000; // ms between two checks whether the kernel still exists
const SHAPES = { side: "M2.5 3h11v10h-11zM6.5 3v10", undo: "M6 3 3 6l3 3M3 6h6a4 4 0 0 1 0 8H7", redo: "m10 3 3 3-3 3m3-3H7a4 4 0 0 0 0 8h2" };

/** Restart the kernel and run all cells, as the notebook's own button does. Outside of a notebook, reload the page. */
function again({ target }) {
  const button = target.closest(".jp-NotebookPanel")?.querySelector('[data-command="notebook:restart-run-all"]');
  if (button) button.dispatchEvent(new MouseEvent("mousedown", { bubbles: true, button: 0 })); // the button ignores clicks
  else location.reload();
}

/** Return whether the server has removed a kernel. It sends no message about that to a page of its own (Voila). */
const removed = ({ id, serverSettings: { baseUrl } }) => fetch(`${baseUrl}api/kernels/${id}`).then(({ status }) => status === 404, () => false);

function render({ model, el }) {
  ours(el, "wb-tools");
  const make = (kind, name, onclick) => {
    const made = element("button", { type: "button", className: `wb-icon wb-${kind}`, title: name, "aria-label": name, onclick });
    made.innerHTML = `<svg class="wb-i" viewBox="0 0 16 16" aria-hidden="true"><path d="${SHAPES[kind]}"/></svg>`;
    return made;
  };
  const ask = (kind) => () => tells(model, { kind });
  const frame = () => el.closest(".wb-explorer");
  const side = make("side", "settings", () => {
    model.set("folded", !model.get("folded"));
    model.save_changes();
  });
  const undo = make("undo", "undo", ask("undo")), redo = make("redo", "redo", ask("redo"));
  const reset = element("button", { type: "button", className: "wb-bare", title: "the settings of the beginning", onclick: ask("reset") }, "Reset");
  const banner = element("div", { className: "wb-banner", role: "alert", hidden: true },
    element("span", {}, "The kernel has stopped. What you see is the last state."), element("button", { type: "button", onclick: again }, "Start it and run all again"));
  /** Show a banner, and disable fields and buttons, because the kernel has ended or was restarted. */
  const ended = () => {
    banner.hidden = false;
    const dead = ".wb-body, .wb-top > :not(.wb-tools), .wb-tools > button:not(.wb-side)";
    for (const each of frame()?.querySelectorAll(dead) ?? []) each.inert = true;
  };
  document.addEventListener("wb-ended", ended);
  let alive = false;
  /** Check whether the kernel still exists. A notebook's kernel can be shut down without a message to its widgets. */
  const look = () => {
    const manager = model.widget_manager, kernel = manager && "kernel" in manager ? manager.kernel : undefined;
    const gone = kernel === null || kernel?.isDisposed || kernel?.status === "dead";
    if (gone && alive) ended();
    else if (kernel && banner.hidden && "voila" in document.body.dataset) removed(kernel).then((gone) => gone && ended());
    alive ||= Boolean(kernel) && !gone;
  };
  look(); // checked at once, because the kernel may end before the next check
  const timer = setInterval(look, LOOK);
  el.append(banner, side, undo, redo, reset, element("span", { className: "wb-grow" }));
  const show = () => {
    const folded = model.get("folded");
    frame()?.classList.toggle("wb-folded", folded);
    side.setAttribute("aria-pressed", !folded);
    side.title = folded ? "show the settings beside the picture" : "the settings in one line above the picture";
    for (const [button, name] of [[undo, "undo"], [redo, "redo"]]) {
      const step = model.get(name);
      button.disabled = !step;
      button.title = step ? `${name}: ${step}` : name;
      button.setAttribute("aria-label", button.title);
    }
  };
  model.on("change", show);
  model.on("comm_live_update", ended);
  let waiting = 0;
  const begin = () => (frame() ? show() : void (waiting = requestAnimationFrame(begin)));
  show();
  begin();
  return () => {
    cancelAnimationFrame(waiting);
    clearInterval(timer);
    model.off("change", show);
    model.off("comm_live_update", ended);
    document.removeEventListener("wb-ended", ended);
  };
}

export default { render };
