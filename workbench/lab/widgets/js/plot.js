// A plotly figure that the kernel replaces as often as it likes; clicks go back.

const plain = (value) => (["number", "string"].includes(typeof value) ? value : null);

function clicked({ points: [point] }) {
  const { x, y, z, pointIndex, customdata } = point;
  return { kind: "click", x: plain(x), y: plain(y), z: plain(z), index: plain(pointIndex), about: plain(customdata), trace: point.data.name ?? "" };
}

/** Draws model's figure into el; `after` is called with the box after every drawing. `points`: clicks on them go back. */
function drawPlot(model, el, after = () => {}, points = true) {
  let plot, config, snap, gone = false;
  const tell = () => {
    if (model.get("page") === theme()) return;
    model.set("page", theme());
    model.save_changes();
  };
  const draw = perFrame(async () => {
    if (!plot || gone || !model.get("figure") || !visible(plot.box)) return;
    const { data, layout } = grown(JSON.parse(model.get("figure")), letters());
    config ??= named(plot.Plotly, () => model.get("label"));
    const first = !plot.box.data;
    await plot.Plotly.react(plot.box, data, { ...layout, autosize: true }, config);
    if (first && points) plot.box.on("plotly_click", (event) => tells(model, clicked(event)));
    el.setAttribute("aria-label", model.get("label"));
    after(plot.box);
    plot.box.dataset.drawn = model.get("serial");
    (snap ??= stills(model, () => imageOf(plot)))();
  });
  // What is looked at is drawn first; what lies outside of the window follows once the page has time.
  const changed = () => (!plot || inWindow(plot.box) ? draw.now() : idle().then(draw));
  el.setAttribute("role", "figure");
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
