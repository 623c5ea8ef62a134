// `mask[i][j]` is true where query i may attend to key j. A query that may attend to nothing gets weights of 0.
export function compute({ scores, mask }) {
  const weights = scores.map((row, i) => {
    const seen = row.filter((_, j) => mask[i][j]), shares = seen.length ? softmax(seen) : [];
    let next = 0;
    return row.map((_, j) => (mask[i][j] ? shares[next++] : 0));
  });
  const leak = weights.map((row, i) => row.reduce((sum, w, j) => (j > i ? sum + w : sum), 0));
  return { weights, leak, empty: mask.map((row) => (row.some(Boolean) ? 0 : 1)) };
}

const HATCHED = "repeating-linear-gradient(45deg, #8a8a8a 0 2px, #c8c8c8 2px 7px)";
const ARROWS = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };

// One button for each pair. `paint(i, j, value)` is called by mouse, finger or key; arrows walk, with Shift they paint.
function pairs(tokens, paint) {
  let now = [], brush = null;
  const cells = tokens.map((_, i) => tokens.map((_, j) => {
    const cell = element("button", { type: "button", role: "switch", tabindex: i + j ? -1 : 0, "data-pair": `${i} ${j}` });
    cell.style.cssText = "display:block;width:100%;min-width:3.1em;height:2.3em;padding:0;border-radius:0;border-width:0;font-size:12px;outline-offset:-3px";
    cell.addEventListener("click", (e) => { if (e.detail === 0) paint(i, j, !now[i][j]); }); // by key; the mouse paints below
    cell.addEventListener("keydown", (e) => walk(e, i, j));
    return cell;
  }));
  const go = (cell) => { cells.flat().forEach((c) => { c.tabIndex = c === cell ? 0 : -1; }); cell.focus(); };
  const walk = (e, i, j) => {
    const step = ARROWS[e.key], next = step && cells[i + step[0]]?.[j + step[1]];
    if (!step) return;
    e.preventDefault();
    if (!next) return;
    go(next);
    if (e.shiftKey) paint(i + step[0], j + step[1], now[i][j]);
  };
  const at = (e) => e.currentTarget.getRootNode().elementFromPoint(e.clientX, e.clientY)?.closest?.("[data-pair]");
  const stroke = (cell) => {
    const [i, j] = cell.dataset.pair.split(" ").map(Number);
    if (cells[i][j] === cell && now[i][j] !== brush) paint(i, j, brush);
  };
  const down = (e) => {
    const cell = at(e);
    if (!cell || e.button > 0) return;
    const [i, j] = cell.dataset.pair.split(" ").map(Number);
    e.preventDefault();
    if (e.target.hasPointerCapture(e.pointerId)) e.target.releasePointerCapture(e.pointerId); // a finger may move on
    brush = !now[i][j];
    go(cell); stroke(cell);
  };
  const move = (e) => {
    if (!(e.buttons & 1)) brush = null;
    const cell = brush === null ? null : at(e);
    if (cell) stroke(cell);
  };
  return { cells, down, move, set: (mask) => { now = mask; } };
}

function build(el, { tokens, real }, set) {
  let mask = [];
  const paint = (i, j, value) => set("mask", mask.map((row, a) => (a === i ? row.map((m, b) => (b === j ? value : m)) : row)));
  const grid = pairs(tokens, paint), meters = tokens.map(() => meter());
  const narrow = (allowed) => () => set("mask", mask.map((row, i) => row.map((m, j) => m && allowed(i, j))));
  const buttons = [
    ["causal", "take the future away", narrow((i, j) => j <= i)],
    ["padding", "take padded keys away", narrow((i, j) => real[j])],
    ["all", "let every query attend to every key", () => set("mask", mask.map((row) => row.map(() => true)))],
  ].map(([name, title, onclick]) => element("button", { type: "button", title, onclick }, name));
  const head = element("tr", {}, element("th"), ...[...tokens, "leak"].map((t) => element("th", { scope: "col" }, t)));
  const rows = grid.cells.map((row, i) => element("tr", {}, element("th", { scope: "row" }, tokens[i]),
    ...row.map((cell) => { const td = element("td", {}, cell); td.style.padding = "0"; return td; }), element("td", {}, meters[i].node)));
  const caption = element("caption", {}, "Paint: rows are queries (attend), columns are keys (attended to)");
  const node = element("table", { class: "cf-table", onpointerdown: grid.down, onpointermove: grid.move }, caption, head, ...rows);
  node.style.cssText = "touch-action:none;font-size:12px"; // a finger paints, and does not scroll
  node.querySelectorAll("th").forEach((th) => { th.style.padding = ".15em .3em"; });
  const said = element("p", { class: "cf-readout", "aria-live": "polite" });
  el.append(element("div", { class: "cf-words" }, ...buttons), node, said);
  return (numbers, state) => {
    mask = state.mask;
    grid.set(mask);
    grid.cells.forEach((row, i) => row.forEach((cell, j) => fill(cell, tokens[i], tokens[j], mask[i][j], numbers.weights[i][j])));
    meters.forEach((m, i) => m.set(numbers.leak[i]));
    said.textContent = verdict(tokens, numbers);
  };
}

// How much of a query's attention goes to the future, from 0 to 1.
function meter() {
  const bar = element("div", { class: "cf-fill" }), track = element("div", { class: "cf-track" }, bar), number = element("span");
  bar.style.background = "#D55E00"; track.style.cssText = "flex:none;width:2.4em;height:.8em";
  const node = element("span", {}, number, track);
  node.style.cssText = "display:flex;gap:.4em;align-items:center;justify-content:flex-end";
  return { node, set: (x) => { bar.style.width = `${100 * x}%`; number.textContent = show(x); } };
}

function fill(cell, query, key, allowed, weight) {
  const { fill: colour, ink } = viridis(weight);
  cell.style.background = allowed ? colour : HATCHED;
  cell.style.color = ink;
  cell.textContent = allowed ? show(weight) : "";
  cell.setAttribute("aria-checked", allowed);
  cell.setAttribute("aria-label", `query ${query}, key ${key}: ${allowed ? `weight ${show(weight)}` : "masked"}`);
}

function verdict(tokens, { leak, empty }) {
  const seeing = tokens.filter((_, i) => leak[i] > 0), blind = tokens.filter((_, i) => empty[i]);
  const mean = leak.reduce((a, b) => a + b, 0) / leak.length;
  const first = seeing.length
    ? `${seeing.join(", ")} can see the future: on average ${show(mean)} of a query's attention goes there.`
    : "No query sees the future.";
  return blind.length ? `${first} ${blind.join(", ")} may attend to nothing, and gets weights of 0.` : first;
}

export default { render: (context) => mount(context, ["scores", "mask", "tokens", "real"], compute, build) };
