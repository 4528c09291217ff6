// Keeps the status page up to date, and reads values off its charts. The page
// is whole without it.
"use strict";

(() => {
  const EVERY_MS = 2000;
  const TIMEOUT_MS = 5000;
  let answeredAt = Date.now();

  // Puts the parts of a newer page in the place of the old ones. What a person
  // has opened stays open, what has the focus keeps it.
  function renew(fresh) {
    document.title = fresh.title;
    for (const part of document.querySelectorAll("[data-live]")) {
      const next = fresh.getElementById(part.id);
      if (!next) continue;
      const open = new Set([...part.querySelectorAll("details[open]")].map((it) => it.dataset.key));
      for (const it of next.querySelectorAll("details")) it.open = open.has(it.dataset.key);
      if (next.outerHTML === part.outerHTML) continue;
      const focused = part.contains(document.activeElement)
        ? document.activeElement.closest("[data-key]")?.dataset.key
        : undefined;
      part.replaceWith(document.adoptNode(next));
      if (focused) next.querySelector(`[data-key="${CSS.escape(focused)}"] summary`)?.focus();
    }
    read();
  }

  function tellStale(isStale) {
    const line = document.getElementById("stale");
    const seconds = Math.round((Date.now() - answeredAt) / 1000);
    line.hidden = !isStale;
    line.textContent = isStale ? `No answer for ${seconds} s. What you see is from before that.` : "";
    document.body.classList.toggle("is-stale", isStale);
    if (isStale) document.title = "No answer · Headwater";
  }

  // Whoever selects text wants it to stay where it is.
  const isBusy = () => document.hidden || !document.getSelection().isCollapsed;

  async function look() {
    if (isBusy()) return;
    try {
      const answer = await fetch(location.href, {
        headers: { accept: "text/html" },
        signal: AbortSignal.timeout(TIMEOUT_MS),
      });
      if (!answer.ok) throw new Error(answer.statusText);
      const text = await answer.text();
      answeredAt = Date.now();
      tellStale(false);
      if (!isBusy()) renew(new DOMParser().parseFromString(text, "text/html"));
    } catch {
      tellStale(true);
    }
  }

  async function keepLooking() {
    for (;;) {
      await new Promise((done) => setTimeout(done, EVERY_MS));
      await look();
    }
  }

  // Reading a chart: so many seconds ago, the same in all charts.
  let ago = null;

  function shown(unit, text) {
    if (text === "") return "–";
    const value = Number(text);
    if (unit === "perSecond") return `${value.toLocaleString("en")}/s`;
    if (value < 1e3) return `${value} µs`;
    const [of, word] = value < 1e6 ? [1e3, "ms"] : [1e6, "s"];
    const part = value / of;
    return `${part < 100 ? Math.floor(part * 10) / 10 : Math.floor(part)} ${word}`;
  }

  function element(name, className, text) {
    const it = document.createElement(name);
    it.className = className;
    if (text !== undefined) it.textContent = text;
    return it;
  }

  function read() {
    for (const it of document.querySelectorAll(".cursor, .reading")) it.remove();
    if (ago === null) return;
    for (const chart of document.querySelectorAll(".chart")) readOne(chart);
  }

  function readOne(chart) {
    const plot = chart.querySelector(".plot");
    const last = Number(chart.dataset.span) - 1;
    const reading = element("div", "reading");
    reading.append(element("p", "note", ago === 0 ? "now" : `${ago} s ago`));
    let isEmpty = true;
    chart.querySelectorAll(".line").forEach((line, n) => {
      const values = line.dataset.values === "" ? [] : line.dataset.values.split(",");
      const text = values[values.length - 1 - ago];
      if (text === undefined) return;
      isEmpty = false;
      const row = element("p", "");
      row.append(element("span", `key s${n + 1}`), element("span", "name", line.dataset.name));
      row.append(element("b", "", shown(chart.dataset.unit, text)));
      reading.append(row);
    });
    if (isEmpty) return;
    const cursor = element("div", "cursor");
    plot.append(cursor, reading);
    const x = ((last - ago) / last) * plot.clientWidth;
    cursor.style.left = `${x}px`;
    const isLeft = x < plot.clientWidth / 2;
    reading.style.left = `${isLeft ? x + 8 : x - 8 - reading.offsetWidth}px`;
  }

  addEventListener("pointermove", (event) => {
    const plot = event.target.closest?.(".plot");
    const before = ago;
    if (plot) {
      const box = plot.getBoundingClientRect();
      const part = Math.min(1, Math.max(0, (box.right - event.clientX) / box.width));
      ago = Math.round(part * (Number(plot.closest(".chart").dataset.span) - 1));
    } else {
      ago = null;
    }
    if (ago !== before) read();
  });
  document.addEventListener("pointerleave", () => { ago = null; read(); });
  document.addEventListener("visibilitychange", look);
  keepLooking();
})();
