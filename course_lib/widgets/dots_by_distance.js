const FARTHEST = 60, HEADS = 8;

// Distance k = how far back the key stands. A rotary key made to fit `look` tokens back peaks there.
export function compute({ d_model: d, base, look, head }) {
  const rates = Array.from({ length: d / 2 }, (_, i) => base ** ((-2 * i) / d));
  const mean = (k) => rates.reduce((sum, w) => sum + Math.cos(k * w), 0) / rates.length;
  const distances = Array.from({ length: FARTHEST + 1 }, (_, k) => k);
  const slope = 2 ** ((-8 * head) / HEADS);
  return {
    sinusoidal: distances.map(mean),
    rotary: distances.map((k) => mean(k - look)),
    alibi: distances.map((k) => Math.exp(-slope * k)),
  };
}

const LINES = [
  ["sinusoidal", "PE(t)·PE(t+k)", "currentColor", "none"],
  ["rotary", "rotary score", "#D55E00", "7 4"],
  ["alibi", "ALiBi, factor on the weight", "#1f9e89", "2 3"],
];
const W = 420, H = 230, LEFT = 34, BOTTOM = 34;
const across = (k) => LEFT + (k / FARTHEST) * (W - LEFT - 10), down = (v) => 10 + ((1 - v) / 2) * (H - BOTTOM - 10);

function words(x, y, text, anchor = "middle") {
  return element("text", { x, y, class: "cf-label", "text-anchor": anchor }, text);
}

function build(el, state, set) {
  const svg = element("svg", { viewBox: `0 0 ${W} ${H}`, role: "img", "aria-label": "score against distance" });
  svg.style.cssText = "width:100%;max-width:420px;flex:1 1 300px;min-width:0";
  [-1, 0, 1].forEach((v) => svg.append(element("line", { x1: LEFT, x2: W - 10, y1: down(v), y2: down(v), class: "cf-axis" }), words(LEFT - 6, down(v) + 5, `${v}`, "end")));
  [0, 20, 40, 60].forEach((k) => svg.append(words(across(k), H - BOTTOM + 16, `${k}`)));
  svg.append(words(W / 2, H - 4, "distance k"));
  const lines = LINES.map(([, , stroke, dash]) => {
    const line = document.createElementNS("http://www.w3.org/2000/svg", "polyline");
    Object.entries({ fill: "none", stroke, "stroke-width": 2.5, "stroke-dasharray": dash }).forEach(([n, v]) => line.setAttribute(n, v));
    svg.append(line);
    return line;
  });
  const key = LINES.map(([, name, stroke, dash]) => {
    const sample = element("svg", { viewBox: "0 0 36 8", width: 36, height: 8, "aria-hidden": "true" },
      element("line", { x1: 0, x2: 36, y1: 4, y2: 4, stroke, "stroke-width": 2.5, "stroke-dasharray": dash }));
    return element("div", {}, sample, ` ${name}`);
  });
  const width = slider("width D", { min: 2, max: 64, step: 2, value: 32, text: (v) => `${v}`, change: (v) => set("d_model", v) });
  const base = slider("base", { min: 0.3, max: 5, step: 0.1, value: 4, text: (v) => show(10 ** v, v < 2 ? 1 : 0), change: (v) => set("base", 10 ** v) });
  const look = slider("rotary looks back", { min: 0, max: FARTHEST, step: 1, value: 0, text: (v) => `${v}`, change: (v) => set("look", v) });
  const head = slider("ALiBi head", { min: 1, max: HEADS, step: 1, value: 2, text: (v) => `${v} of ${HEADS}`, change: (v) => set("head", v) });
  const said = element("p", { class: "cf-readout", "aria-live": "polite" });
  el.append(element("div", { class: "cf-row" }, svg, element("div", { class: "cf-side" }, ...key, width.node, base.node, look.node, head.node)), said);
  return (numbers, now) => {
    width.set(now.d_model); base.set(Math.log10(now.base)); look.set(now.look); head.set(now.head);
    LINES.forEach(([name], i) => lines[i].setAttribute("points", numbers[name].map((v, k) => `${across(k)},${down(v)}`).join(" ")));
    said.textContent = `At distance 10: ${LINES.map(([name, text]) => `${text} ${show(numbers[name][10])}`).join("; ")}.`;
  };
}

export default { render: (context) => mount(context, ["d_model", "base", "look", "head"], compute, build) };
