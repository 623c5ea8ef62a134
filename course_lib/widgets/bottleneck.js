export function compute({ lengths, accuracy, gradient, place }) {
  const share = gradient.map((row) => row[place] / row[0]), words = Math.max(1, lengths[place] - lengths[0]);
  return {
    accuracy: accuracy.map((row) => row[place]),
    gradient: gradient.map((row) => row[place]),
    share,
    factor: share.map((s) => s ** (1 / words)),
  };
}

// Curves are told apart by dashes and by the shape of their points, not only by colour.
const DASHES = ["", "7 4", "2 4", "9 3 2 3"], COLOURS = ["#0072B2", "#D55E00", "#009E73", "#AA4499"];
const small = (x) => (x >= 0.01 ? x.toFixed(2) : x.toExponential(0));

function mark(i, x, y) {
  const fill = COLOURS[i];
  if (i === 0) return element("circle", { cx: x, cy: y, r: 3.5, fill });
  if (i === 1) return element("rect", { x: x - 3.2, y: y - 3.2, width: 6.4, height: 6.4, fill });
  const points = i === 2 ? [[0, -4.5], [4, 3], [-4, 3]] : [[0, -4.8], [4.8, 0], [0, 4.8], [-4.8, 0]];
  return element("polygon", { points: points.map(([a, b]) => `${x + a},${y + b}`).join(" "), fill });
}

const sample = (i) => element("svg", { viewBox: "0 0 34 12", width: 34, height: 12, "aria-hidden": "true" },
  element("line", { x1: 0, y1: 6, x2: 34, y2: 6, stroke: COLOURS[i], "stroke-width": 2, "stroke-dasharray": DASHES[i] }), mark(i, 17, 6));

// A plot of rows against lengths; `height(value)` is between 0 (bottom) and 1 (top), `ticks` are values with a label.
function plot(title, lengths, rows, height, ticks, choose) {
  const W = 320, H = 210, L = 44, R = 10, T = 24, B = 34;
  const x = (n) => L + ((n - lengths[0]) / (lengths.at(-1) - lengths[0])) * (W - L - R), y = (v) => H - B - height(v) * (H - B - T);
  const svg = element("svg", { viewBox: `0 0 ${W} ${H}`, style: "width: 100%; max-width: 340px; cursor: pointer", role: "img", "aria-label": `${title}, against the words in the sentence` },
    element("text", { x: L, y: 14, class: "cf-label" }, title),
    element("text", { x: (L + W - R) / 2, y: H - 4, class: "cf-label", "text-anchor": "middle" }, "words in the sentence"));
  for (const [value, label] of ticks)
    svg.append(element("line", { x1: L, x2: W - R, y1: y(value), y2: y(value), class: "cf-axis" }),
      element("text", { x: L - 5, y: y(value) + 4, class: "cf-label", "text-anchor": "end" }, label));
  lengths.forEach((n) => svg.append(element("text", { x: x(n), y: H - B + 15, class: "cf-label", "text-anchor": "middle" }, `${n}`)));
  const here = element("line", { y1: T, y2: H - B, stroke: "currentColor", "stroke-width": 1.5 });
  svg.append(here);
  rows.forEach((row, i) => {
    row.slice(1).forEach((v, k) => svg.append(element("line", { x1: x(lengths[k]), y1: y(row[k]), x2: x(lengths[k + 1]), y2: y(v),
      stroke: COLOURS[i], "stroke-width": 2, "stroke-dasharray": DASHES[i] })));
    row.forEach((v, k) => svg.append(mark(i, x(lengths[k]), y(v))));
  });
  svg.addEventListener("click", (e) => {
    const box = svg.getBoundingClientRect(), at = ((e.clientX - box.left) / box.width) * W;
    choose(lengths.reduce((best, n, k) => (Math.abs(x(n) - at) < Math.abs(x(lengths[best]) - at) ? k : best), 0));
  });
  return { node: svg, set: (place) => { here.setAttribute("x1", x(lengths[place])); here.setAttribute("x2", x(lengths[place])); } };
}

function readings(caption, names, columns) {
  const made = table(caption, names.map(() => ""), columns);
  made.node.querySelectorAll("th[scope=row]").forEach((th, i) => { th.append(sample(i), ` ${names[i]}`); th.style.textAlign = "left"; });
  return { node: made.node, set: (rows) => rows.forEach((row, i) => row.forEach((text, j) => { made.cells[i][j].textContent = text; })) };
}

function build(el, { lengths, models, accuracy, sources, gradient }, set) {
  const choose = (place) => set("place", place);
  const length = slider("length", { min: 0, max: lengths.length - 1, step: 1, value: 0, text: (v) => `${lengths[v]} word${lengths[v] === 1 ? "" : "s"}`, change: choose });
  const low = Math.floor(Math.log10(Math.min(...gradient.flat()))), high = Math.ceil(Math.log10(Math.max(...gradient.flat()))), span = high - low || 1;
  const powers = Array.from({ length: span + 1 }, (_, i) => low + i).map((p) => [10 ** p, p >= -2 ? `${10 ** p}` : `1e${p}`]);
  const exact = plot("share of sentences copied exactly", lengths, accuracy, (v) => v, [0, 0.25, 0.5, 0.75, 1].map((v) => [v, `${100 * v}%`]), choose);
  const arrives = plot("gradient at the first word", lengths, gradient, (v) => (Math.log10(v) - low) / span, powers, choose);
  const right = readings("copied exactly", models, ["share"]);
  const grads = readings("gradient at the first word", sources, ["size", "remains", "per word"]);
  const said = element("p", { class: "cf-readout", "aria-live": "polite" });
  const side = (...nodes) => element("div", { class: "cf-side", style: "flex-basis: 290px" }, ...nodes);
  el.append(length.node, element("div", { class: "cf-row" }, side(exact.node, right.node), side(arrives.node, grads.node)), said);
  return (numbers, { place }) => {
    length.set(place);
    exact.set(place); arrives.set(place);
    right.set(numbers.accuracy.map((a) => [`${(100 * a).toFixed(0)}%`]));
    grads.set(numbers.gradient.map((g, i) => [small(g), small(numbers.share[i]), place ? `× ${numbers.factor[i].toFixed(2)}` : "–"]));
    const words = lengths[place] === 1 ? "1 word" : `${lengths[place]} words`;
    said.textContent = `Of 100 sentences of ${words}, “${models[0]}” copies ${(100 * numbers.accuracy[0]).toFixed(0)} without a mistake.`;
  };
}

export default { render: (context) => mount(context, ["lengths", "models", "accuracy", "sources", "gradient", "place"], compute, build) };
