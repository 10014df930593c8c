// Brings the style sheet, and gives all beside it, widgets that are not ours included, their keys.

export default {
  render({ el }) {
    const frame = requestAnimationFrame(() => ownKeys(el.closest(".widget-vbox, .jupyter-widget-vbox, .jp-OutputArea") ?? el));
    return () => cancelAnimationFrame(frame);
  },
};
