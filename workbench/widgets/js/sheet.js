// Brings the style sheet, and gives all of the explorer its keys, widgets that are not ours included.

export default {
  render({ el }) {
    const frame = requestAnimationFrame(() => ownKeys(el.closest(".widget-vbox, .jupyter-widget-vbox, .jp-OutputArea") ?? el));
    return () => cancelAnimationFrame(frame);
  },
};
