"use strict";
const root = document.documentElement;
const { templates, config } = JSON.parse(document.getElementById("settings").textContent);
const button = document.getElementById("theme");
const preferred = window.matchMedia("(prefers-color-scheme: dark)");

function draw(plot) {
  const theme = root.dataset.theme;
  const words = JSON.parse(plot.parentElement.querySelector("script").textContent);
  const whole = { data: (theme === "dark" && words.darkData) || words.data, layout: { ...words[theme], template: templates[theme] } };
  const { data, layout: found } = workbenchFit.fitted(whole, plot.offsetWidth), layout = { ...found, autosize: true };
  plot.dataset.drawn = theme;
  Plotly.react(plot, data, layout, { responsive: true, ...config });
}

const watcher = new IntersectionObserver(
  (seen) => seen.filter((s) => s.isIntersecting && s.target.dataset.drawn !== root.dataset.theme).forEach((s) => draw(s.target)),
  { rootMargin: "800px" },
);

function show(theme) {
  root.dataset.theme = theme;
  button.textContent = theme === "dark" ? "light" : "dark";
  document.querySelectorAll(".plot").forEach((plot) => { watcher.unobserve(plot); watcher.observe(plot); });
}

button.addEventListener("click", () => show(root.dataset.theme === "dark" ? "light" : "dark"));
preferred.addEventListener("change", (event) => show(event.matches ? "dark" : "light"));
window.addEventListener("beforeprint", () => document.querySelectorAll(".plot").forEach(draw));
show(preferred.matches ? "dark" : "light");
