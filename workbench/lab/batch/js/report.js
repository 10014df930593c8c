// Draws the figures of a report. The page contains plotly.js, compressed. Figures are dark if the reader's system is,
// and light in print.

const dark = matchMedia("(prefers-color-scheme: dark)"), { dataset } = document.body;
const theme = () => (dataset.jpThemeLight = String(!dark.matches));
const text = (id) => document.getElementById(id).textContent;

async function unpacked(packed) {
  const bytes = Uint8Array.from(atob(packed), (c) => c.charCodeAt(0));
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
}

async function draw() {
  const url = URL.createObjectURL(new Blob([await unpacked(text("library"))], { type: "text/javascript" }));
  const script = Object.assign(document.createElement("script"), { src: url });
  await new Promise((done, failed) => (Object.assign(script, { onload: done, onerror: failed }), document.head.append(script)));
  const config = JSON.parse(text("config"));
  for (const plot of document.querySelectorAll(".wb-plot")) {
    const { data, layout } = JSON.parse(plot.nextElementSibling.textContent);
    await Plotly.newPlot(plot, data, layout, { responsive: true, ...config });
    await workbenchFit.keep(plot);
    plot.dataset.drawn = "true";
  }
  document.body.dataset.drawn = "true";
}

theme();
dark.addEventListener("change", theme);
addEventListener("beforeprint", () => (dataset.jpThemeLight = "true"));
addEventListener("afterprint", theme);
draw();
