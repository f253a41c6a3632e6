// What changes while a page is open: one stream of figures, and parts that are loaded again. Nothing of it runs while
// the page is hidden.
"use strict";
(() => {
  const address = document.body.dataset.live;
  if (!address) return;
  const pulse = document.getElementById("pulse"), away = document.getElementById("away");
  const again = document.querySelector("[data-again]");
  const count = (value, digits) => value.toLocaleString("en", { maximumFractionDigits: digits }).replace(/,/g, "\u202f");
  let source = null, wasAway = false, silent = 0;

  function say(up, text) {
    pulse.className = `pulse ${up ? "up" : "down"}`;
    const words = pulse.querySelector(".pulse-text");
    if (words.textContent !== text) words.textContent = text;
    away.hidden = up;
    if (up && again) location.reload();
    if (up && wasAway) refresh();
    wasAway = !up;
  }

  function show(figures) {
    clearTimeout(silent);
    for (const [name, value] of Object.entries(figures.rates))
      for (const one of document.querySelectorAll(`[data-rate="${name}"]`)) one.textContent = count(value, value >= 100 ? 0 : 1);
    for (const [name, value] of Object.entries(figures.sizes))
      for (const one of document.querySelectorAll(`[data-size="${name}"]`)) one.textContent = count(value, 0);
    const chart = document.getElementById("chart");
    window.lastHistory = figures.history;
    if (chart) window.drawRates(chart, figures.history);
    say(true, "live");
  }

  function open() {
    if (source || document.hidden) return;
    source = new EventSource(address);
    source.addEventListener("now", (event) => show(JSON.parse(event.data)));
    source.addEventListener("away", () => say(false, "queue away"));
    source.addEventListener("error", () => {
      const ended = source.readyState === EventSource.CLOSED;
      clearTimeout(silent);
      silent = setTimeout(() => say(false, "server away"), 1500);
      if (!ended) return;
      source = null;
      setTimeout(again_or_login, 2000);
    });
  }

  // A server that answers with a redirect has no session of ours any more: the page leads to the login, and back.
  async function again_or_login() {
    try {
      const answer = await fetch(address.replace(/live$/, "queue"), { redirect: "manual" });
      if (answer.type === "opaqueredirect") location.reload();
      else open();
    } catch {
      setTimeout(again_or_login, 2000);
    }
  }

  function close() {
    if (source) source.close();
    source = null;
  }

  // Not while somebody reads with a selection, or has the focus in it: nothing is pulled from under anybody's hands.
  function busy(part) {
    const chosen = getSelection();
    return part.contains(document.activeElement) || (chosen && !chosen.isCollapsed && part.contains(chosen.anchorNode));
  }

  function refresh() {
    const part = document.getElementById("fresh");
    if (!part || document.hidden || busy(part)) return;
    htmx.ajax("GET", location.pathname + location.search, { target: "#fresh", select: "#fresh", swap: "outerHTML" });
  }

  function tick() {
    const part = document.getElementById("fresh");
    if (part && !wasAway) refresh();
    setTimeout(tick, 1000 * (part ? Number(part.dataset.fresh) : 15));
  }
  const here = document.querySelector("nav [aria-current]");
  if (here && innerWidth <= 760) here.scrollIntoView({ inline: "center", block: "nearest" });
  const first = document.getElementById("fresh");
  if (first) setTimeout(tick, 1000 * Number(first.dataset.fresh));
  document.addEventListener("visibilitychange", () => { if (document.hidden) close(); else { open(); refresh(); } });
  addEventListener("pagehide", close);
  addEventListener("pageshow", open);
  open();
})();
