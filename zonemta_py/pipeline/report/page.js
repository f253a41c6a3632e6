"use strict";
// Draws what the page carries as JSON; switches layers; on paper everything has the paper's width.
(() => {
  const options = {
    responsive: true, displaylogo: false, displayModeBar: "hover", showTips: false,
    modeBarButtons: [["toImage"]], doubleClick: false, scrollZoom: false,
  };
  const drawn = [];
  for (const holder of document.querySelectorAll("[data-plot]")) {
    const figure = JSON.parse(document.getElementById(holder.dataset.plot + "-data").textContent);
    options.toImageButtonOptions = { filename: holder.dataset.plot };
    drawn.push(Plotly.newPlot(holder, figure.data, figure.layout, { ...options }));
  }
  for (const choice of document.querySelectorAll("input[data-layer]")) {
    choice.addEventListener("change", () => {
      const holder = document.querySelector(`[data-plot="${choice.name}"]`);
      Plotly.restyle(holder, { visible: holder.data.map((layer) => layer.name === choice.dataset.layer) });
    });
  }
  const fit = () => document.querySelectorAll("[data-plot]").forEach((holder) => Plotly.Plots.resize(holder));
  window.addEventListener("beforeprint", fit);
  window.addEventListener("afterprint", fit);
  Promise.all(drawn).then(() => { document.documentElement.dataset.drawn = String(drawn.length); });
})();
