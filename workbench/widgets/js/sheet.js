// Brings the style sheet, and gives all beside it, widgets that are not ours included, their keys, and names where they
// have none: the grid's conditions come and go as the user wants them.

const CONDITION = { "dtsb-data": "column of the condition", "dtsb-condition": "comparison", "dtsb-value": "value" };

function name(root) {
  for (const e of root.querySelectorAll(".dtsb-criteria :is(select, input, button):not([aria-label])")) {
    const known = Object.keys(CONDITION).find((word) => e.classList.contains(word));
    e.setAttribute("aria-label", CONDITION[known] ?? (e.title || e.innerText));
  }
}

/** What was searched for is searched for again when the grid is drawn anew, as after words were written. */
function searchAgain(root) {
  let text = "", box = null;
  return () => {
    const found = root.querySelector("input[type=search]");
    if (!found || found === box) return;
    box = found;
    box.addEventListener("input", () => (text = box.value));
    if (!text) return;
    box.value = text;
    box.dispatchEvent(new Event("input", { bubbles: true }));
  };
}

export default {
  render({ el }) {
    let observer;
    const frame = requestAnimationFrame(() => {
      ownKeys(el.closest(".widget-vbox, .jupyter-widget-vbox, .jp-OutputArea") ?? el);
      const table = el.closest(".wb-pane");
      if (!table) return;
      const again = searchAgain(table);
      observer = new MutationObserver(() => (name(table), again()));
      observer.observe(table, { childList: true, subtree: true });
    });
    return () => (cancelAnimationFrame(frame), observer?.disconnect());
  },
};
