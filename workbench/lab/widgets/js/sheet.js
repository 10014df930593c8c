// Adds the style sheet and key handling to all elements beside this one, including widgets of other libraries.

export default {
  render({ el }) {
    const frame = requestAnimationFrame(() => ownKeys(el.closest(".widget-vbox, .jupyter-widget-vbox, .jp-OutputArea") ?? el));
    return () => cancelAnimationFrame(frame);
  },
};
