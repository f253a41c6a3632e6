// The charts: recipients a second, and a campaign's burn-down. Colours are those of the style sheet.
"use strict";
(() => {
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
  const count = (value) => (value == null ? "" : Math.round(value * 10) / 10).toLocaleString("en").replace(/,/g, "\u202f");

  const STEPS = [1, 10, 100, 1e3, 1e4, 1e5, 1e6, 1e7].flatMap((one) => [one, 2 * one, 5 * one]);
  const clock = (seconds) => new Date(seconds * 1000).toISOString().slice(11, 19);

  function axes(first) {
    const look = { stroke: colour("quiet"), grid: { stroke: colour("line"), width: 1 }, ticks: { show: false },
                   font: "12px system-ui, sans-serif" };
    return [{ ...look, ...first }, { ...look, size: 56, incrs: STEPS, values: (_, all) => all.map((one) => count(one)) }];
  }

  function make(box, names, data, x, scale) {
    const series = names.map(([label, tint]) => ({ label, stroke: colour(tint), width: 1.5, points: { show: false } }));
    const plot = new uPlot({
      width: Math.max(box.clientWidth, 100), height: box.clientHeight || 200, cursor: { show: false },
      select: { show: false }, legend: { show: false }, axes: axes(x), series: [{}, ...series],
      scales: { x: scale, y: { range: (_, low, high) => [0, Math.max(high * 1.1, 1)] } },
    }, data, box);
    box.plot = plot;
    return plot;
  }

  const NAMES = [["in", "in"], ["out", "out"], ["deferred", "deferred"], ["bounced", "bounced"]];
  const SECONDS = Array.from({ length: 60 }, (_, at) => at - 59);

  window.drawRates = (box, history) => {
    const data = [SECONDS, ...NAMES.map(([name]) => {
      const all = history[name] || [];
      return [...Array(Math.max(0, 60 - all.length)).fill(null), ...all].slice(-60);
    })];
    if (box.plot) box.plot.setData(data);
    else make(box, NAMES, data, { size: 30, values: (_, all) => all.map((one) => `${one} s`) }, { time: false, range: [-59, 0] });
  };

  window.drawBurn = (box) => {
    if (box.plot || !box.dataset.points) return;
    const data = JSON.parse(box.dataset.points);
    make(box, [["waiting", "deferred"], ["delivered", "out"]], data, { size: 30, space: 80, values: (_, all) => all.map(clock) }, { time: true });
  };

  function redraw() {
    const chart = document.getElementById("chart");
    if (chart) {
      if (chart.plot) chart.plot.destroy();
      chart.plot = null;
      window.drawRates(chart, window.lastHistory || {});
    }
    const burn = document.getElementById("burn");
    if (burn) {
      if (burn.plot) burn.plot.destroy();
      burn.plot = null;
      window.drawBurn(burn);
    }
  }
  let later = 0;
  addEventListener("resize", () => { clearTimeout(later); later = setTimeout(redraw, 150); });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  redraw();
  document.addEventListener("htmx:afterSettle", () => {
    const burn = document.getElementById("burn");
    if (burn) window.drawBurn(burn);
  });
})();
