// Adds the style sheet and key handling to everything beside it, widgets of other libraries included.

export default {
  render({ el }) {
    const frame = requestAnimationFrame(() => ownKeys(el.closest(".widget-vbox, .jupyter-widget-vbox, .jp-OutputArea") ?? el));
    return () => cancelAnimationFrame(frame);
  },
};
