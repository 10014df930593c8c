// What a page must know when it is loaded anew. JupyterLab's kernel outlives the page and knows it all; Voila gives
// every page a kernel of its own, so there the browser tab remembers.

export default {
  render({ model, el }) {
    el.style.display = "none";
    if (document.body.dataset.voila === undefined) return;
    const name = `workbench ${location.pathname}`;
    const store = globalThis.sessionStorage;
    const recalled = store.getItem(name);
    if (recalled && !model.get("kept")) {
      model.set("recalled", recalled);
      model.save_changes();
    }
    const keep = () => store.setItem(name, model.get("kept"));
    if (model.get("kept")) keep();
    model.on("change:kept", keep);
    return () => model.off("change:kept", keep);
  },
};
