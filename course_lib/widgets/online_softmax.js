export function compute({ scores, values, tile, step, rescale }) {
  const count = Math.min(step, Math.ceil(scores.length / tile)), history = { top: [], factor: [], sum: [], out: [] };
  let top = -Infinity, total = 0, out = values[0].map(() => 0);
  for (let first = 0; first < count * tile; first += tile) {
    const seen = scores.slice(first, first + tile), higher = Math.max(top, ...seen), factor = rescale ? Math.exp(top - higher) : 1;
    const weights = seen.map((s) => Math.exp(s - higher));
    total = total * factor + weights.reduce((a, b) => a + b, 0);
    out = out.map((o, c) => o * factor + weights.reduce((sum, w, j) => sum + w * values[first + j][c], 0));
    top = higher;
    history.top.push(top); history.factor.push(factor); history.sum.push(total); history.out.push(out);
  }
  return { ...history, output: out.map((o) => o / total), exact: weighted(softmax(scores), values) };
}

function build(el, start, set) {
  const n = start.scores.length, width = start.values[0].length;
  let now = start, shape = "", told = null;
  const last = () => Math.ceil(n / now.tile);
  const go = (v) => set("step", Math.max(1, Math.min(last(), v)));
  const tile = slider("keys in a tile", { min: 1, max: n, step: 1, value: start.tile, text: String, change: (v) => {
    set("tile", v); if (now.step > Math.ceil(n / v)) set("step", Math.ceil(n / v)); } });
  const step = slider("tiles read", { min: 1, max: n, step: 1, value: start.step, text: (v) => `${Math.min(v, last())} of ${last()}`, change: go });
  const back = element("button", { type: "button", onclick: () => go(Math.min(now.step, last()) - 1) }, "← back");
  const next = element("button", { type: "button", onclick: () => go(now.step + 1) }, "next tile →");
  const rescale = element("input", { type: "checkbox", "aria-label": "rescale" });
  rescale.addEventListener("change", () => set("rescale", rescale.checked));
  const keys = start.scores.map((_, j) => {
    const input = element("input", { type: "number", step: 1, "aria-label": `score ${j + 1}` });
    input.value = start.scores[j];
    input.style.width = "3.4em";
    input.addEventListener("input", () => { if (input.value !== "" && isFinite(+input.value)) set("scores", now.scores.map((s, i) => (i === j ? +input.value : s))); });
    return { input, cell: element("td", {}, input), weight: element("td"), values: Array.from({ length: width }, () => element("td")) };
  });
  const row = (name, cells) => element("tr", {}, element("th", { scope: "row" }, name), ...cells);
  const input = element("table", { class: "cf-table" }, element("caption", {}, "What comes in: change a score"),
    row("key", keys.map((_, j) => element("th", { scope: "col" }, String(j + 1)))), row("score", keys.map((k) => k.cell)),
    ...Array.from({ length: width }, (_, c) => row(`value ${c + 1}`, keys.map((k) => k.values[c]))), row("e^(score − max)", keys.map((k) => k.weight)));
  const place = element("div"), said = element("p", { class: "cf-readout", "aria-live": "polite" });
  const wide = (node) => { const box = element("div", {}, node); box.style.overflowX = "auto"; return box; };
  el.append(element("div", { class: "cf-words" }, back, next), step.node, tile.node,
    element("label", { class: "cf-control", style: "flex-wrap: nowrap" }, rescale, " rescale what was summed before, by e^(old max − new max)"), wide(input), wide(place), said);

  return (numbers, state) => {
    now = state;
    const count = numbers.top.length, names = ["max so far", "factor", "sum", ...numbers.exact.map((_, c) => `out ${c + 1}`)];
    if (shape !== `${last()}`) {
      told = table("What is kept, after each tile", names, Array.from({ length: last() }, (_, t) => `tile ${t + 1}`));
      place.replaceChildren(told.node); shape = `${last()}`;
    }
    tile.set(state.tile); step.set(Math.min(state.step, last())); rescale.checked = state.rescale;
    step.node.querySelector("input").max = last();
    back.disabled = count <= 1; next.disabled = count >= last();
    keys.forEach((k, j) => {
      const read = j < count * state.tile, fresh = read && j >= (count - 1) * state.tile;
      if (document.activeElement !== k.input && k.input.getRootNode().activeElement !== k.input) k.input.value = state.scores[j];
      k.values.forEach((cell, c) => { cell.textContent = show(state.values[j][c], 0); });
      k.weight.textContent = read ? show(Math.exp(state.scores[j] - numbers.top[count - 1]), 3) : "…";
      [k.cell, k.weight, ...k.values].forEach((cell) => { cell.classList.toggle("cf-changed", fresh); cell.classList.toggle("cf-hidden", !read); });
    });
    const rows = [numbers.top, numbers.factor, numbers.sum, ...numbers.exact.map((_, c) => numbers.out.map((o) => o[c]))];
    told.cells.forEach((cells, r) => cells.forEach((cell, t) => {
      cell.textContent = t < count ? show(rows[r][t], r === 0 ? 0 : 4) : "";
      cell.classList.toggle("cf-changed", t === count - 1);
    }));
    const list = (v) => v.map((x) => show(x, 4)).join(", "), done = count === last();
    const right = Math.max(...numbers.output.map((o, c) => Math.abs(o - numbers.exact[c]))) < 1e-6;
    said.textContent = `out / sum = ${list(numbers.output)}${done ? ` after all keys; softmax of all at once gives ${list(numbers.exact)}. ${right ? "The same." : "Not the same!"}` : ` for the keys read so far (the end is at ${list(numbers.exact)}).`}`;
  };
}

export default { render: (context) => mount(context, ["scores", "values", "tile", "step", "rescale"], compute, build) };
