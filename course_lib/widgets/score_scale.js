const LIMIT = 40, BIN = 2, BINS = (2 * LIMIT) / BIN;

const median = (values) => {
  const sorted = [...values].sort((a, b) => a - b), half = sorted.length >> 1;
  return sorted.length % 2 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2;
};
const entropyOf = (weights) => -weights.reduce((sum, a) => sum + (a > 0 ? a * Math.log(a) : 0), 0);
// The root of the sum of all (a_i (δ_ij - a_j))².
const normOf = (weights) => Math.hypot(...weights.flatMap((a, i) => weights.map((b, j) => a * ((i === j ? 1 : 0) - b))));

export function compute({ queries, key_vectors: keys, d_k, temperature }) {
  const narrow = (rows) => rows.map((row) => row.slice(0, d_k)), k = narrow(keys);
  const scores = narrow(queries).map((q) => k.map((key) => dot(q, key) / temperature));
  const all = scores.flat(), mean = all.reduce((a, b) => a + b, 0) / all.length;
  const histogram = new Array(BINS).fill(0);
  all.forEach((s) => { histogram[Math.min(BINS - 1, Math.max(0, Math.floor((s + LIMIT) / BIN)))] += 1; });
  const weights = scores.map(softmax), entropy = weights.map(entropyOf), gradient = weights.map(normOf);
  return {
    histogram,
    spread: Math.sqrt(all.reduce((sum, s) => sum + (s - mean) ** 2, 0) / all.length),
    weights: weights[0],
    entropy: [entropy[0], median(entropy)],
    gradient: [gradient[0], median(gradient)],
  };
}

// Bars over an axis from -LIMIT to LIMIT; the tallest fills the height and carries its number.
function histogramOf() {
  const width = 320, height = 150, base = 112, left = 20, step = (width - 2 * left) / BINS;
  const svg = element("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", style: "width:320px;max-width:100%" });
  const rects = Array.from({ length: BINS }, (_, i) => element("rect", { x: left + i * step + 0.5, width: step - 1, fill: viridis(0.45).fill }));
  const text = (x, y, label) => element("text", { x, y, class: "cf-label", "text-anchor": "middle" }, label);
  const ticks = [-40, -20, 0, 20, 40].map((s) => text(left + ((s + LIMIT) / BIN) * step, base + 16, { [-LIMIT]: "≤ −40", [LIMIT]: "≥ 40" }[s] ?? `${s}`.replace("-", "−")));
  const top = text(0, 0, "");
  svg.append(...rects, element("line", { x1: left, x2: width - left, y1: base, y2: base, class: "cf-axis" }), ...ticks,
    text(width / 2, base + 34, "score / temperature"), top);
  const set = (counts, said) => {
    const most = Math.max(...counts), place = counts.indexOf(most);
    counts.forEach((c, i) => {
      const tall = (c / most) * (base - 20);
      rects[i].setAttribute("y", base - tall); rects[i].setAttribute("height", tall);
    });
    top.textContent = `${most}`;
    top.setAttribute("x", left + (place + 0.5) * step); top.setAttribute("y", 14);
    svg.setAttribute("aria-label", said);
  };
  return { node: svg, set };
}

function build(el, { queries, key_vectors: keys }, set) {
  let now = 1;
  const width = slider("d_k", {
    min: 0, max: Math.floor(Math.log2(keys[0].length)), step: 1, value: 0, text: (v) => `${Math.round(2 ** v)}`, change: (v) => set("d_k", 2 ** v),
  });
  const heat = slider("temperature", {
    min: -2, max: 6, step: 0.25, value: 0, text: (v) => show(2 ** v), change: (v) => set("temperature", 2 ** v),
  });
  const root = element("button", { type: "button", onclick: () => set("temperature", Math.sqrt(now)) }, "temperature = √d_k");
  const picture = histogramOf(), weights = bars(keys.map((_, i) => `key ${i + 1}`));
  const most = show(Math.log(keys.length));
  const rows = table("softmax", [`entropy (0 to ${most})`, "gradient norm"], ["query 1", "median"]);
  const said = element("p", { class: "cf-readout", "aria-live": "polite" });
  const count = `${queries.length * keys.length} scores of ${queries.length} queries and ${keys.length} keys`;
  el.append(width.node, heat.node, root,
    element("div", { class: "cf-row" },
      element("div", {}, element("strong", {}, count), element("br"), picture.node),
      element("div", { class: "cf-side" }, element("strong", {}, "weights of query 1"), weights.node)),
    rows.node, said);
  return (numbers, { d_k, temperature }) => {
    now = d_k;
    width.set(Math.log2(d_k)); heat.set(Math.log2(temperature));
    const spread = `The scores spread by ${show(numbers.spread)}; √d_k / temperature is ${show(Math.sqrt(d_k) / temperature)}.`;
    picture.set(numbers.histogram, `Histogram of the scores. ${spread}`);
    weights.set(numbers.weights);
    rows.set([numbers.entropy, numbers.gradient], false, 3);
    said.textContent = spread;
  };
}

export default { render: (context) => mount(context, ["queries", "key_vectors", "d_k", "temperature"], compute, build) };
