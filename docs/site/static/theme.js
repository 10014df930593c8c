// Figures follow the page: the package's style sheet for dark pages asks for JupyterLab's attribute.
(() => {
  const system = window.matchMedia("(prefers-color-scheme: dark)");
  const tell = () => {
    const chosen = document.body.dataset.theme || "auto";
    const dark = chosen === "dark" || (chosen === "auto" && system.matches);
    const light = String(!dark);
    if (document.body.dataset.jpThemeLight !== light) document.body.dataset.jpThemeLight = light;
  };
  document.addEventListener("DOMContentLoaded", () => {
    tell();
    new MutationObserver(tell).observe(document.body, { attributes: true, attributeFilter: ["data-theme"] });
    system.addEventListener("change", tell);
  });
})();
