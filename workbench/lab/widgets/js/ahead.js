// Sends plotly.js before there is anything to draw. The kernel removes this widget as soon as a page has plotly.js.

export default {
  initialize({ model }) {
    const packed = model.get("packed");
    if (packed?.byteLength) readLibrary(packed);
    model.send({ kind: "taken" });
  },
};
