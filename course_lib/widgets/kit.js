// The figures' kit: arithmetic, elements with names, a plane with arrows, colours. Each figure's own file follows it.

const dot = (a, b) => a.reduce((sum, x, i) => sum + x * b[i], 0);
const softmax = (scores) => {
  const top = Math.max(...scores), exps = scores.map((s) => Math.exp(s - top));
  const total = exps.reduce((a, b) => a + b, 0);
  return exps.map((e) => e / total);
};
const weighted = (weights, rows) => rows[0].map((_, c) => weights.reduce((sum, w, j) => sum + w * rows[j][c], 0));
const show = (x, digits = 2) => (Math.abs(x) < 0.5 * 10 ** -digits ? 0 : x).toFixed(digits);

// Viridis, from a few of its colours; the text on it is dark or light: at 0.435 both have a contrast of 4.5, elsewhere one has more.
const VIRIDIS = [[68, 1, 84], [59, 82, 139], [33, 145, 140], [94, 201, 98], [253, 231, 37]];
const viridis = (x) => {
  const t = Math.min(1, Math.max(0, x)) * 4, i = Math.min(3, Math.floor(t)), f = t - i;
  const rgb = VIRIDIS[i].map((c, n) => Math.round(c + f * (VIRIDIS[i + 1][n] - c)));
  return { fill: `rgb(${rgb})`, ink: x > 0.435 ? "#000" : "#fff" };
};

function element(tag, attributes = {}, ...children) {
  const svg = ["svg", "g", "line", "polyline", "path", "circle", "text", "polygon", "rect"].includes(tag);
  const e = svg ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) e.addEventListener(name.slice(2), value);
    else e.setAttribute(name, value);
  }
  if (["input", "select", "button", "circle"].includes(tag)) e.dataset.lmSuppressShortcuts = "true"; // its keys are not JupyterLab's
  e.append(...children);
  return e;
}

// A native slider with a name and its value beside it.
function slider(name, { min, max, step, value, text, change }) {
  const out = element("output", {}, text(value));
  const input = element("input", { type: "range", min, max, step, "aria-label": name });
  input.value = value;
  input.addEventListener("input", () => change(+input.value));
  const set = (v) => { input.value = v; out.textContent = text(v); input.setAttribute("aria-valuetext", text(v)); };
  set(value);
  return { node: element("label", { class: "cf-control" }, `${name} `, input, " ", out), set };
}

// Buttons of which one is pressed; the arrow keys move on to the next. `pick` is called with its place.
function choices(name, labels, pick, { hover = false, style = "" } = {}) {
  const buttons = labels.map((label, i) => {
    const point = () => pick(i); // on mousemove: when the page scrolls under a mouse that rests, mouseenter fires and would steal the choice
    const events = hover ? { onmousemove: point, onfocus: point, onclick: point } : { onclick: point };
    return element("button", { type: "button", class: style, "aria-label": `${name} ${label}`, ...events }, label);
  });
  buttons.forEach((button, i) => button.addEventListener("keydown", (e) => {
    const step = { ArrowDown: 1, ArrowRight: 1, ArrowUp: -1, ArrowLeft: -1 }[e.key];
    if (!step) return;
    e.preventDefault();
    const next = (i + step + buttons.length) % buttons.length;
    buttons[next].focus(); pick(next);
  }));
  const set = (chosen) => buttons.forEach((b, i) => b.setAttribute("aria-pressed", i === chosen));
  return { buttons, set };
}

// Things side by side under one name.
const group = (title, nodes) => element("div", { class: "cf-words", role: "group", "aria-label": title }, element("strong", {}, `${title}: `), ...nodes);

// Bars from 0 to 1 with a name and a number each.
function bars(names) {
  const rows = names.map((name) => {
    const fill = element("div", { class: "cf-fill" }), number = element("span", { class: "cf-number" });
    const track = element("div", { class: "cf-track" }, fill);
    return { fill, number, node: element("div", { class: "cf-bar" }, element("span", { class: "cf-name" }, name), track, number) };
  });
  const set = (values) => rows.forEach((r, i) => {
    r.fill.style.width = `${100 * values[i]}%`;
    r.fill.style.background = viridis(values[i]).fill;
    r.number.textContent = show(values[i], 3);
  });
  return { node: element("div", { class: "cf-bars", role: "img", "aria-label": "attention weights" }, ...rows.map((r) => r.node)), set };
}

// A table of numbers; cells are coloured by `colour(row, column)` when it is given.
function table(caption, rowNames, columnNames) {
  const cells = rowNames.map(() => columnNames.map(() => element("td")));
  const head = element("tr", {}, element("th"), ...columnNames.map((c) => element("th", { scope: "col" }, c)));
  const body = cells.map((row, i) => element("tr", {}, element("th", { scope: "row" }, rowNames[i]), ...row));
  const node = element("table", { class: "cf-table" }, element("caption", {}, caption), head, ...body);
  const set = (values, coloured = false, digits = 2) => values.forEach((row, i) => row.forEach((x, j) => {
    const cell = cells[i][j], { fill, ink } = viridis(x);
    cell.textContent = show(x, digits);
    cell.style.background = coloured ? fill : "";
    cell.style.color = coloured ? ink : "";
  }));
  return { node, cells, set };
}

// A plane from -limit to limit. Points are dragged by mouse or finger, or moved by the arrow keys.
function plane(limit, size = 300) {
  const at = (v) => size / 2 + (v / limit) * (size / 2 - 12);
  const svg = element("svg", { viewBox: `0 0 ${size} ${size}`, class: "cf-plane", role: "group", "aria-label": "plane" },
    element("line", { x1: 0, y1: size / 2, x2: size, y2: size / 2, class: "cf-axis" }),
    element("line", { x1: size / 2, y1: 0, x2: size / 2, y2: size, class: "cf-axis" }));
  const clip = (v) => Math.round(Math.min(limit, Math.max(-limit, v)) * 100) / 100;
  function point(name, colour, arrow, move) {
    const shaft = element("line", { x1: at(0), y1: at(0), stroke: colour, class: "cf-shaft" });
    const handle = element("circle", { r: 9, fill: colour, tabindex: 0, role: "slider", "aria-label": name, class: "cf-handle" });
    const label = element("text", { class: "cf-label" });
    let here = [0, 0];
    handle.addEventListener("keydown", (e) => {
      const step = { ArrowLeft: [-0.1, 0], ArrowRight: [0.1, 0], ArrowUp: [0, 0.1], ArrowDown: [0, -0.1] }[e.key];
      if (!step) return;
      e.preventDefault();
      move([clip(here[0] + step[0]), clip(here[1] + step[1])]);
    });
    handle.addEventListener("pointerdown", (e) => { handle.setPointerCapture(e.pointerId); e.preventDefault(); handle.focus(); });
    handle.addEventListener("pointermove", (e) => {
      if (!handle.hasPointerCapture(e.pointerId)) return;
      const box = svg.getBoundingClientRect(), scale = size / box.width, half = size / 2 - 12;
      const x = ((e.clientX - box.left) * scale - size / 2) / half, y = (size / 2 - (e.clientY - box.top) * scale) / half;
      move([clip(x * limit), clip(y * limit)]);
    });
    svg.append(...(arrow ? [shaft] : []), handle, label);
    return ([x, y], text) => {
      here = [x, y];
      const cx = at(x), cy = at(-y);
      shaft.setAttribute("x2", cx); shaft.setAttribute("y2", cy);
      handle.setAttribute("cx", cx); handle.setAttribute("cy", cy);
      handle.setAttribute("aria-valuetext", `${show(x)}, ${show(y)}`);
      handle.setAttribute("aria-valuenow", show(x));
      const left = cx > size * 0.62; // near the right edge the name stands on the left
      label.setAttribute("x", cx + (left ? -13 : 13)); label.setAttribute("y", cy + 5);
      label.setAttribute("text-anchor", left ? "end" : "start");
      label.textContent = text ?? name;
    };
  }
  return { node: svg, point };
}

// Ties state, arithmetic and picture together. `names` are the traits; `compute` is pure; `build` returns paint.
function mount({ model, el }, names, compute, build) {
  el.classList.add("cf");
  const state = () => Object.fromEntries(names.map((n) => [n, model.get(n)]));
  const set = (name, value) => { model.set(name, value); model.save_changes(); };
  const paint = build(el, state(), set);
  const draw = () => {
    const now = state(), numbers = compute(now);
    paint(numbers, now);
    el.dataset.state = JSON.stringify(now);
    el.dataset.numbers = JSON.stringify(numbers);
    el.dataset.drawn = 1 + (+el.dataset.drawn || 0);
  };
  names.forEach((n) => model.on(`change:${n}`, draw));
  draw();
  return () => names.forEach((n) => model.off(`change:${n}`, draw));
}
