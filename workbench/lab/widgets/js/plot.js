// A plotly figure that the kernel may replace many times per second. Clicks are sent to the kernel.

const plain = (value) => (["number", "string"].includes(typeof value) ? value : null);

function clicked({ points: [point] }) {
  const { x, y, z, pointIndex, customdata } = point;
  return { kind: "click", x: plain(x), y: plain(y), z: plain(z), index: plain(pointIndex), about: plain(customdata), trace: point.data.name ?? "" };
}

/** Draw the model's figure into el. `after` is called with the box after every drawing. `points`: send clicks. */
function drawPlot(model, el, after = () => {}, points = true) {
  let plot, config, snap, gone = false;
  const tell = () => {
    if (model.get("page") === theme()) return;
    model.set("page", theme());
    model.save_changes();
  };
  const draw = perFrame(async () => {
    if (!plot || gone || !model.get("figure") || !visible(plot.box)) return;
    const fit = plot.Plotly.workbenchFit;
    const { data, layout } = fit.fitted(JSON.parse(model.get("figure")), plot.box.offsetWidth, letters());
    config ??= named(plot.Plotly, () => model.get("label"));
    const first = !plot.box.data;
    await fit.redraw(plot.Plotly, plot.box, { data, layout: { ...grounded(layout, plot.box), autosize: true } }, config);
    if (first && points) plot.box.on("plotly_click", (event) => tells(model, clicked(event)));
    el.setAttribute("aria-label", model.get("label"));
    after(plot.box);
    plot.box.dataset.drawn = model.get("serial");
    (snap ??= stills(model, () => imageOf(plot)))();
  });
  // Visible figures are drawn at once, and figures outside of the window when the page is idle.
  const changed = () => (!plot || inWindow(plot.box) ? draw.now() : idle().then(draw));
  el.setAttribute("role", "figure");
  el.classList.add("wb");
  plotBox(model, el, () => draw()).then((made) => ((plot = made), gone ? made.remove() : draw()));
  model.on("change:figure", changed);
  const quiet = onTheme(() => (tell(), draw()));
  tell();
  return () => {
    gone = true;
    quiet();
    draw.cancel();
    model.off("change:figure", changed);
    plot?.remove();
  };
}
