// Colour scheme, and the charts: drawn as wide as the page is, again when its width or the scheme changes.
(() => {
  "use strict";
  const settings = JSON.parse(document.getElementById("settings").textContent);
  const prefersDark = matchMedia("(prefers-color-scheme: dark)");
  const button = document.getElementById("scheme");
  let chosen = null;

  const scheme = () => chosen ?? (prefersDark.matches ? "dark" : "light");

  function showScheme() {
    document.documentElement.dataset.scheme = scheme();
    button.textContent = scheme() === "dark" ? "Light colours" : "Dark colours";
    button.hidden = false;
    document.dispatchEvent(new Event("schemechange"));
  }

  // Titles of axes do not wrap on their own.
  function wrapTitle(title, width) {
    const perLine = Math.max(18, Math.floor(width / 6.5));
    const lines = [""];
    for (const word of title.split(" ")) {
      const last = lines[lines.length - 1];
      if (last && last.length + word.length >= perLine) lines.push(word);
      else lines[lines.length - 1] = last ? `${last} ${word}` : word;
    }
    return lines.length > 1 ? lines : title;
  }

  function fit(spec, width) {
    const copy = structuredClone(spec);
    const inner = copy.spec ?? copy;
    inner.width = width;
    for (const layer of inner.layer ?? [inner]) {
      const x = layer.encoding?.x;
      if (typeof x?.title === "string") x.title = wrapTitle(x.title, width);
    }
    return copy;
  }

  function inScheme(text) {
    const ink = settings.inks[scheme() === "dark" ? 1 : 0];
    return JSON.parse(text.replace(/"(?:black|#000000)"/g, `"${ink}"`));
  }

  // The values of a mark that it has: not every row of a chart is claimed, or a seed's.
  function told(values, sanitize) {
    const rows = Object.entries(values).filter(([, value]) => value !== "NaN");
    const cells = ([name, value]) => `<td class="key">${sanitize(name)}</td><td class="value">${sanitize(String(value))}</td>`;
    return `<table>${rows.map((row) => `<tr>${cells(row)}</tr>`).join("")}</table>`;
  }

  function options(narrow) {
    const config = structuredClone(settings.themes[scheme()]);
    config.legend.columns = narrow ? 2 : 5;
    config.legend.layout = { bottom: { anchor: "start", direction: narrow ? "vertical" : "horizontal" } };
    // ast: expressions are interpreted, for the page's policy allows no code from strings.
    const logLevel = 1; // errors alone: it also warns of scales without data, which a panel without seeds has
    return { mode: "vega-lite", actions: false, renderer: "svg", ast: true, logLevel, config, tooltip: { theme: scheme(), formatTooltip: told } };
  }

  async function draw(section) {
    const box = section.querySelector(".chart");
    const spec = inScheme(section.querySelector(".spec").textContent);
    const room = box.clientWidth;
    let width = room - 60;
    for (let attempt = 0; attempt < 3; attempt++) {
      section.view?.finalize();
      const drawn = await vegaEmbed(box, fit(spec, width), options(room < 560));
      section.view = drawn.view;
      const excess = Math.ceil(box.querySelector("svg").getBoundingClientRect().width) - room;
      if (excess <= 0 || width <= 120) break;
      width = Math.max(120, width - excess);
    }
    section.width = width;
    section.querySelector(".zoom")?.removeAttribute("hidden");
    section.dataset.drawn = scheme();
  }

  // Other numbers on an axis are wider or narrower: lay out anew, and take no more room than there is.
  async function refit(section) {
    const { view, width } = section, box = section.querySelector(".chart");
    const name = box.querySelector(".cell") ? "child_width" : "width";
    for (let attempt = 0; attempt < 3; attempt++) {
      await view.resize().runAsync();
      const excess = Math.ceil(box.querySelector("svg").getBoundingClientRect().width) - box.clientWidth;
      const fitting = Math.min(width, Math.max(120, view.signal(name) - excess));
      if (fitting === view.signal(name)) break;
      view.signal(name, fitting);
    }
  }

  const MARKS = ".mark-symbol.role-mark path";
  const middle = (element) => {
    const box = element.getBoundingClientRect();
    return { x: box.x + box.width / 2, y: box.y + box.height / 2 };
  };
  const distance = (a, b) => Math.hypot(a.x - b.x, a.y - b.y);
  const nearest = (places, to) => places.reduce((a, b) => (distance(b, to) < distance(a, to) ? b : a));

  // Of the marks that a panel shows the one in their midst: whoever zooms about it keeps some; without any, the middle.
  function midst(panel) {
    const box = panel.getBoundingClientRect();
    const shown = [...panel.parentNode.querySelectorAll(MARKS)].map(middle)
      .filter(({ x, y }) => x >= box.left && x <= box.right && y >= box.top && y <= box.bottom);
    if (!shown.length) return middle(panel);
    const mean = (axis) => shown.reduce((sum, place) => sum + place[axis], 0) / shown.length;
    return nearest(shown, { x: mean("x"), y: mean("y") });
  }

  const mouseAt = (x, y) => ({ bubbles: true, cancelable: true, view: window, pointerType: "mouse", clientX: x, clientY: y });

  // Zoom by buttons, for fingers and keyboards: what a mouse would do in the midst of the first panel's marks.
  const STEP_PX = 60;
  const MOVES = { left: [STEP_PX, 0], right: [-STEP_PX, 0], up: [0, STEP_PX], down: [0, -STEP_PX] };
  function move(section, name) {
    const panel = section.querySelector(".chart .cell .background") ?? section.querySelector(".chart .root .background");
    const from = midst(panel);
    const at = (x, y) => mouseAt(from.x + x, from.y + y);
    if (name === "whole") panel.dispatchEvent(new MouseEvent("dblclick", at(0, 0)));
    else if (name in MOVES) {
      panel.dispatchEvent(new PointerEvent("pointerdown", at(0, 0)));
      panel.dispatchEvent(new PointerEvent("pointermove", at(...MOVES[name])));
      panel.dispatchEvent(new PointerEvent("pointerup", at(...MOVES[name])));
    } else panel.dispatchEvent(new WheelEvent("wheel", { ...at(0, 0), ctrlKey: true, deltaY: name === "in" ? -400 : 400 }));
  }
  document.addEventListener("click", (event) => {
    const pressed = event.target.closest?.("[data-move]");
    if (pressed) move(pressed.closest("section.figure"), pressed.dataset.move);
  });
  const waiting = new Map();
  function refitSoon(event) {
    const section = event.target.closest?.(".chart")?.closest("section.figure");
    if (!section?.querySelector(".zoom") || (event.type === "wheel" ? !event.ctrlKey : event.pointerType === "touch")) return;
    clearTimeout(waiting.get(section));
    waiting.set(section, setTimeout(() => { queue = queue.then(() => refit(section)); }, 150));
  }
  for (const type of ["wheel", "pointerup", "dblclick"]) document.addEventListener(type, refitSoon, { capture: true, passive: true });

  // A finger cannot point: a tap on or near a mark shows what a mouse over it does, any other and scrolling hide it.
  const FINGER_PX = 24;
  const hideTooltip = () => document.getElementById("vg-tooltip-element")?.classList.remove("visible");
  document.addEventListener("click", (event) => {
    if (event.pointerType === "mouse" || event.detail === 0) return; // a keyboard's click has no place
    hideTooltip();
    const chart = event.target.closest?.(".chart");
    if (!chart) return;
    const marks = [...chart.querySelectorAll(MARKS)].map((mark) => ({ mark, ...middle(mark) }));
    const tapped = { x: event.clientX, y: event.clientY };
    const found = marks.length && nearest(marks, tapped);
    if (found && distance(found, tapped) <= FINGER_PX) found.mark.dispatchEvent(new PointerEvent("pointermove", mouseAt(found.x, found.y)));
  });
  addEventListener("scroll", hideTooltip, { passive: true });

  let queue = Promise.resolve();
  function drawAll() {
    for (const section of document.querySelectorAll("section.figure")) {
      delete section.dataset.drawn;
      queue = queue.then(() => draw(section));
    }
  }

  button.addEventListener("click", () => {
    chosen = scheme() === "dark" ? "light" : "dark";
    showScheme();
    drawAll();
  });
  prefersDark.addEventListener("change", () => { showScheme(); drawAll(); });
  let width = innerWidth, timer = 0;
  addEventListener("resize", () => {
    if (innerWidth === width) return; // a phone's bars come and go
    width = innerWidth;
    clearTimeout(timer);
    timer = setTimeout(drawAll, 200);
  });
  // A link to what lies in a closed part opens it.
  function openTarget() {
    const target = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
    for (let part = target; part; part = part.parentElement) if (part.tagName === "DETAILS") part.open = true;
  }
  addEventListener("hashchange", openTarget);
  showScheme();
  openTarget();
  drawAll();
})();
