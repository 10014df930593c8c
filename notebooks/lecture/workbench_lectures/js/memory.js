// State of a page for its reload, and for links to it. JupyterLab's kernel outlives the page and
// knows it all; Voila gives every page a kernel of its own, so there the browser tab remembers answers and runs, and
// the address where the sliders stand.

/** The sliders' positions that the address carries: #workers=30&tail=2. */
function linked() {
  const found = [...new URLSearchParams(location.hash.slice(1))];
  return Object.fromEntries(found.map(([name, text]) => [name, text.trim() === "" || Number.isNaN(Number(text)) ? text : Number(text)]));
}

function render({ model, el }) {
  el.style.display = "none";
  if (document.body.dataset.voila === undefined) return;
  const end = present(), page = location.pathname;
  const before = JSON.parse(tab.get(page) ?? "{}"), positions = linked();
  if (!model.get("kept") && (before.knobs || Object.keys(positions).length)) {
    const { knobs = {}, quiz = [], race = {} } = before;
    model.set("recalled", JSON.stringify({ knobs: { ...knobs, ...positions }, quiz, race }));
    model.save_changes();
  }
  const write = () => model.get("kept") && tab.set(page, model.get("kept"));
  let due = false;
  let gone = false;
  const keep = () => {
    if (due) return; // browsers allow few changes of the address a second, and they hold up the picture
    due = true;
    idle().then(() => {
      if (gone) return;
      due = false;
      write();
      history.replaceState(history.state, "", `#${new URLSearchParams(JSON.parse(model.get("kept")).knobs)}`);
    });
  };
  if (model.get("kept")) keep();
  model.on("change:kept", keep);
  addEventListener("pagehide", write);
  return () => {
    end();
    gone = true;
    if (due) write();
    removeEventListener("pagehide", write);
    model.off("change:kept", keep);
  };
}

export default { render, follow };
