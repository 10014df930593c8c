export default { render: ({ model, el }) => drawPlot(model, el) };
