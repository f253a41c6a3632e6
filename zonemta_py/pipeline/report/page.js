"use strict";
// Unpacks plotly, which the policy knows by its hash, and draws what the page carries as JSON; switches layers; on paper
// everything has the paper's width. A browser that cannot unpack has the tables.
(async () => {
  if (!window.DecompressionStream) return;
  const packed = Uint8Array.from(atob(document.getElementById("plotly").textContent), (one) => one.charCodeAt(0));
  const library = document.createElement("script");
  const unpacked = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  library.textContent = await new Response(unpacked).text();
  document.head.append(library);
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
