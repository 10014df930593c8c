// plotly.js, sent before there is anything to draw. The kernel lets go of it as soon as a page has it.

export default {
  initialize({ model }) {
    const packed = model.get("packed");
    if (packed?.byteLength) readLibrary(packed);
    model.send({ kind: "taken" });
  },
};
