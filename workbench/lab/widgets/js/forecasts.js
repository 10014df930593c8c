// A table with pictures, as the kernel writes it. Only its static image, made once the page is idle, needs plotly.js.

/** Request the figure of the table from the kernel, and return its image as a data address. */
function imageOfFigure(model, width) {
  return new Promise((resolve) => {
    const answer = async ({ kind, figure }) => {
      if (kind !== "figure") return;
      model.off("msg:custom", answer);
      const Plotly = await library(model), { data, layout } = Plotly.workbenchFit.fitted(JSON.parse(figure), width);
      resolve(Plotly.toImage({ data, layout }, { format: "png", width, height: layout.height }));
    };
    model.on("msg:custom", answer);
    tells(model, { kind: "figure" });
  });
}

function render({ model, el }) {
  ours(el);
  el.setAttribute("role", "figure");
  const box = el.appendChild(element("div", { className: "wb-forecast" }));
  const snap = stills(model, () => (box.offsetWidth ? imageOfFigure(model, box.offsetWidth) : ""));
  const draw = () => {
    const opened = [...box.querySelectorAll("details")].map((each) => each.open);
    box.innerHTML = model.get("html");
    box.querySelectorAll("details").forEach((each, i) => (each.open = opened[i] ?? false));
    el.setAttribute("aria-label", model.get("label"));
    box.dataset.drawn = model.get("serial");
    snap();
  };
  const tell = () => {
    if (model.get("page") === theme()) return;
    model.set("page", theme());
    model.save_changes();
  };
  model.on("change:serial", draw);
  const quiet = onTheme(() => (tell(), snap()));
  tell();
  draw();
  return () => {
    quiet();
    model.off("change:serial", draw);
  };
}

export default { render };
