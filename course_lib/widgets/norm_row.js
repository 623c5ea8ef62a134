const LIMIT = 10, EPS = 1e-5;
const average = (values) => values.reduce((a, b) => a + b, 0) / values.length;
const variance = (values) => { const mean = average(values); return average(values.map((v) => (v - mean) ** 2)); };

export function compute({ row, gain, bias }) {
  const mean = average(row), sigma = Math.sqrt(variance(row) + EPS);
  const normal = row.map((v) => (v - mean) / sigma), output = normal.map((v) => v * gain + bias);
  return { normal, output, mean: [mean, average(output)], variance: [variance(row), variance(output)] };
}

const W = 420, H = 190, EDGE = 20, LINES = [62, 138];
const at = (v) => EDGE + ((v + LIMIT) / (2 * LIMIT)) * (W - 2 * EDGE);
const COLOURS = ["#D55E00", "#0072B2", "#009E73", "#AA4499", "#CC9900", "#666666"];

// Two number lines, the row above and what becomes of it below; a grey band from μ − σ to μ + σ on each.
function lines(count) {
  const svg = element("svg", { viewBox: `0 0 ${W} ${H}`, role: "img", style: "width:100%;max-width:420px;flex:1 1 300px;min-width:0" });
  const words = (x, y, text) => element("text", { x, y, class: "cf-label", "text-anchor": "middle" }, text);
  const band = LINES.map((y) => element("rect", { y: y - 13, height: 26, fill: "currentColor", opacity: 0.15 }));
  const middle = LINES.map((y) => element("line", { y1: y - 15, y2: y + 15, stroke: "currentColor", "stroke-width": 2 }));
  svg.append(...band, ...middle, ...LINES.map((y) => element("line", { x1: EDGE, x2: W - EDGE, y1: y, y2: y, class: "cf-axis" })),
    words(W / 2, 14, "the row x"), words(W / 2, H - 6, "LN(x)"), ...[-10, -5, 0, 5, 10].map((v) => words(at(v), (LINES[0] + LINES[1]) / 2 + 5, `${v}`.replace("-", "−"))));
  const made = Array.from({ length: count }, (_, i) => {
    const stroke = COLOURS[i % COLOURS.length];
    const parts = { link: element("line", { y1: LINES[0], y2: LINES[1], stroke, opacity: 0.6 }), above: element("circle", { r: 7, cy: LINES[0], fill: stroke }),
      below: element("circle", { r: 7, cy: LINES[1], fill: stroke }), name: words(0, LINES[0] - 18, `${i + 1}`), named: words(0, LINES[1] + 28, `${i + 1}`) };
    svg.append(...Object.values(parts));
    return parts;
  });
  const place = (e, name, v) => e.setAttribute(name, at(v));
  const set = (row, { output, mean, variance: spread }, said) => {
    [0, 1].forEach((k) => {
      const sigma = Math.sqrt(spread[k]);
      place(middle[k], "x1", mean[k]); place(middle[k], "x2", mean[k]);
      place(band[k], "x", mean[k] - sigma); band[k].setAttribute("width", at(sigma) - at(-sigma));
    });
    made.forEach(({ link, above, below, name, named }, i) => {
      place(above, "cx", row[i]); place(below, "cx", output[i]); place(link, "x1", row[i]); place(link, "x2", output[i]); place(name, "x", row[i]); place(named, "x", output[i]);
    });
    svg.setAttribute("aria-label", said);
  };
  return { node: svg, set };
}

function build(el, { row }, set) {
  let now = row;
  const change = (i) => (v) => set("row", now.map((old, j) => (j === i ? v : old)));
  const numbers = row.map((v, i) => slider(`x${i + 1}`, { min: -LIMIT, max: LIMIT, step: 0.5, value: v, text: (t) => show(t, 1), change: change(i) }));
  const gain = slider("gain", { min: -2, max: 3, step: 0.1, value: 1, text: (v) => show(v, 1), change: (v) => set("gain", v) });
  const bias = slider("bias", { min: -3, max: 3, step: 0.1, value: 0, text: (v) => show(v, 1), change: (v) => set("bias", v) });
  const moves = [["all + 1", (v) => v + 1], ["all − 1", (v) => v - 1], ["all × 2", (v) => v * 2], ["all ÷ 2", (v) => v / 2]];
  const buttons = moves.map(([text, f]) => element("button", { type: "button", onclick: () => { if (now.map(f).every((v) => Math.abs(v) <= LIMIT)) set("row", now.map(f)); } }, text));
  const picture = lines(row.length), rows = table("each number", ["x", "LN(x)"], row.map((_, i) => `${i + 1}`)), stats = table("all of them", ["x", "LN(x)"], ["mean", "variance"]);
  const said = element("p", { class: "cf-readout", "aria-live": "polite" });
  el.append(element("div", { class: "cf-row" }, picture.node, element("div", { class: "cf-side" }, ...numbers.map((s) => s.node), gain.node, bias.node)),
    group("the whole row", buttons), element("div", { class: "cf-row" }, rows.node, stats.node), said);
  return (result, state) => {
    now = state.row;
    now.forEach((v, i) => numbers[i].set(v));
    gain.set(state.gain); bias.set(state.bias);
    buttons.forEach((b, i) => { b.disabled = now.map(moves[i][1]).some((v) => Math.abs(v) > LIMIT); });
    rows.set([now, result.output]);
    stats.set([0, 1].map((k) => [result.mean[k], result.variance[k]]));
    const words = `Mean ${show(result.mean[0])} and variance ${show(result.variance[0])} become ${show(result.mean[1])} and ${show(result.variance[1])}.`;
    picture.set(now, result, words);
    said.textContent = words;
  };
}

export default { render: (context) => mount(context, ["row", "gain", "bias"], compute, build) };
