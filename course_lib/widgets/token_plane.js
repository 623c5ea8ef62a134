const unit = (v) => { const length = Math.hypot(...v) || 1; return v.map((x) => x / length); };
const MEASURES = {
  "dot product": dot,
  cosine: (a, b) => dot(unit(a), unit(b)),
  distance: (a, b) => -a.reduce((sum, x, c) => sum + (x - b[c]) ** 2, 0) / 2,
};

export function compute({ vectors, measure }) {
  const scores = vectors.map((a) => vectors.map((b) => MEASURES[measure](a, b))), weights = scores.map(softmax);
  return { scores, weights, output: weights.map((row) => weighted(row, vectors)) };
}

const LIMIT = 2.5, SIZE = 300; // of the kit's plane
const at = (v) => SIZE / 2 + (v / LIMIT) * (SIZE / 2 - 12);

// Where a token's new vector lies: a small square, and a dotted line that leads to it.
function trace(svg) {
  const line = element("line", { stroke: "currentColor", "stroke-dasharray": "2 4", "pointer-events": "none" });
  const mark = element("rect", { width: 9, height: 9, fill: "#D55E00", stroke: "currentColor", "pointer-events": "none" });
  svg.append(line, mark);
  return ([x1, y1], [x2, y2]) => {
    Object.entries({ x1: at(x1), y1: at(-y1), x2: at(x2), y2: at(-y2) }).forEach(([k, v]) => line.setAttribute(k, v));
    mark.setAttribute("x", at(x2) - 4.5); mark.setAttribute("y", at(-y2) - 4.5);
  };
}

// The name above its dot, or below where the arrow points down: so that neither the arrow nor a square runs through it.
function place(label, [x, y]) {
  label.setAttribute("x", Math.min(SIZE - 24, Math.max(24, at(x)))); label.setAttribute("y", at(-y) + (y < 0 ? 23 : -13));
  label.setAttribute("text-anchor", "middle");
}

function build(el, { tokens, vectors }, set) {
  let now = vectors;
  const map = plane(LIMIT, SIZE);
  const traces = tokens.map(() => trace(map.node)); // below the arrows, so that names stay readable
  const arrows = tokens.map((token, i) => map.point(token, viridis(0.35).fill, true, (p) => set("vectors", now.map((v, j) => (j === i ? p : v)))));
  const names = map.node.querySelectorAll(".cf-label");
  const choice = element("select", { "aria-label": "similarity", onchange: () => set("measure", choice.value) },
    ...Object.keys(MEASURES).map((name) => element("option", { value: name }, name)));
  choice.dataset.lmSuppressShortcuts = "true";
  const scores = table("scores", tokens, tokens), weights = table("weights (rows attend)", tokens, tokens);
  const said = element("p", { class: "cf-readout", "aria-live": "polite" });
  el.append(element("label", { class: "cf-control" }, "similarity ", choice),
    element("div", { class: "cf-row" }, map.node, element("div", { class: "cf-side" }, scores.node, weights.node)),
    element("p", { class: "cf-readout" }, "Arrows: the tokens, to drag. Squares: their new vectors."), said);
  return (numbers, state) => {
    now = state.vectors;
    now.forEach((v, i) => { arrows[i](v); place(names[i], v); traces[i](v, numbers.output[i]); });
    choice.value = state.measure;
    scores.set(numbers.scores); weights.set(numbers.weights, true);
    const best = numbers.weights.map((row) => row.indexOf(Math.max(...row)));
    said.textContent = `Reads most: ${tokens.map((t, i) => `${t} → ${tokens[best[i]]}`).join(", ")}.`;
  };
}

export default { render: (context) => mount(context, ["tokens", "vectors", "measure"], compute, build) };
