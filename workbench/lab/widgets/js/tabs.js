// A list of tabs. A narrow list scrolls, so names are never cut. The panels are the children of the next element.

function render({ model, el }) {
  ours(el, "wb-tabs");
  const id = unique("tab");
  el.setAttribute("role", "tablist");
  el.setAttribute("aria-label", "views");
  const choose = (i, focus) => {
    model.set("selected_index", i);
    model.save_changes();
    if (focus) el.children[i].focus();
  };
  const keys = { ArrowRight: (i, n) => (i + 1) % n, ArrowLeft: (i, n) => (i + n - 1) % n, Home: () => 0, End: (_, n) => n - 1 };
  el.addEventListener("keydown", (event) => {
    const to = keys[event.key];
    if (!to) return;
    event.preventDefault();
    choose(to(model.get("selected_index"), el.children.length), true);
  });
  const show = () => {
    const chosen = model.get("selected_index"), titles = model.get("titles");
    while (el.children.length < titles.length) {
      const i = el.children.length;
      el.append(element("button", { type: "button", role: "tab", id: `${id}-${i}`, onclick: () => choose(i) }, titles[i]));
    }
    [...el.children].forEach((tab, i) => {
      tab.setAttribute("aria-selected", i === chosen);
      tab.tabIndex = i === chosen ? 0 : -1;
    });
    [...(el.nextElementSibling?.children ?? [])].forEach((panel, i) => {
      panel.setAttribute("role", "tabpanel");
      panel.setAttribute("aria-labelledby", `${id}-${i}`);
      panel.classList.toggle("wb-off", i !== chosen);
    });
    const tab = el.children[chosen];
    if (tab) el.scrollLeft = tab.offsetLeft - el.offsetLeft - (el.clientWidth - tab.offsetWidth) / 2;
  };
  show();
  model.on("change:selected_index", show);
  let frame = 0; // animation frame in which the panels are looked for, until they exist
  const observer = new MutationObserver(show);
  const begin = () => {
    if (!el.nextElementSibling) return void (frame = requestAnimationFrame(begin));
    observer.observe(el.nextElementSibling, { childList: true });
    show();
  };
  begin();
  return () => {
    cancelAnimationFrame(frame);
    observer.disconnect();
    model.off("change:selected_index", show);
  };
}

export default { render };
