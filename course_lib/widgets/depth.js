const D = 8, F = 32, TOKENS = 4, DEEPEST = 32, NORMS = ["none", "pre", "post"], FLOOR = 1e-300;

// Whole numbers of 32 bits, so that NumPy draws the very same weights: no file, no table, only a seed.
const drawn = {};
function draw(seed) {
  if (drawn[seed]) return drawn[seed];
  let state = (Math.imul(seed, 2654435761) + 12345) >>> 0;
  const next = () => { state = (Math.imul(state, 1664525) + 1013904223) >>> 0; return state / 2 ** 31 - 1; };
  const rows = (n, width, size) => Array.from({ length: n }, () => Array.from({ length: width }, () => next() * size));
  const x = rows(TOKENS, D, Math.sqrt(3)), top = rows(TOKENS, D, 1);
  const blocks = Array.from({ length: DEEPEST }, () => [rows(D, F, 1 / Math.sqrt(D)), rows(F, D, 1 / Math.sqrt(F))]);
  return (drawn[seed] = { x, top, blocks });
}

const plus = (a, b) => a.map((v, i) => v + b[i]);
const times = (a, w, gain) => w[0].map((_, c) => { let sum = 0; for (let i = 0; i < a.length; i++) sum += a[i] * w[i][c]; return gain * sum; });
const back = (a, w, gain) => w.map((row) => gain * dot(a, row));
const size = (rows) => Math.max(FLOOR, Math.sqrt(rows.reduce((sum, r) => sum + dot(r, r), 0)));

// A row of mean 0 and variance 1, and the way back for a gradient.
function norm(x) {
  const mean = x.reduce((a, b) => a + b, 0) / D, centred = x.map((v) => v - mean), sigma = Math.sqrt(dot(centred, centred) / D + 1e-5);
  const y = centred.map((v) => v / sigma);
  return [y, (g) => {
    const flat = g.reduce((a, b) => a + b, 0) / D, along = dot(g, y) / D;
    return g.map((v, i) => (v - flat - y[i] * along) / sigma);
  }];
}
const as_it_is = (x) => [x, (g) => g];

// One token through one block: what comes out, and the function that takes its gradient back.
function step(x, [w_1, w_2], residual, kind, gain) {
  const [inside, back_1] = (kind === "pre" ? norm : as_it_is)(x);
  const hidden = times(inside, w_1, gain), f = times(hidden.map((v) => Math.max(0, v)), w_2, gain);
  const [out, back_2] = (kind === "post" ? norm : as_it_is)(residual ? plus(x, f) : f);
  const gradient = (g) => {
    const above = back_2(g), open = back(above, w_2, gain).map((v, i) => (hidden[i] > 0 ? v : 0));
    const below = back_1(back(open, w_1, gain));
    return residual ? plus(above, below) : below;
  };
  return [out, gradient];
}

function through({ x, top, blocks }, depth, residual, kind, gain) {
  const states = [x], ways = [], gradients = [top];
  for (const block of blocks.slice(0, depth)) {
    const made = states.at(-1).map((row) => step(row, block, residual, kind, gain));
    states.push(made.map(([out]) => out)); ways.push(made.map(([, way]) => way));
  }
  for (const way of ways.reverse()) gradients.push(gradients.at(-1).map((g, t) => way[t](g)));
  return { states, gradients: gradients.reverse() };
}

function alike(rows) {
  const unit = rows.map((r) => { const n = size([r]); return r.map((v) => v / n); });
  let sum = 0;
  unit.forEach((a, i) => unit.forEach((b, j) => { if (i !== j) sum += dot(a, b); }));
  return sum / (rows.length * (rows.length - 1));
}

// All sizes are powers of ten: -3 means 0.001.
export function compute({ depth, residual, norm: kind, gain, seed }) {
  const drawing = draw(seed), log = (rows, whole) => Math.log10(size(rows) / size(whole));
  const all = [false, true].map((way) => NORMS.map((n) => through(drawing, depth, way, n, gain)));
  const { states, gradients } = all[+residual][NORMS.indexOf(kind)];
  return {
    gradient: gradients.map((g) => log(g, gradients.at(-1))),
    state: states.map((s) => log(s, states[0])),
    bottom: all.map((row) => row.map((run) => log(run.gradients[0], run.gradients.at(-1)))),
    alike: all.map((row) => row.map((run) => alike(run.states.at(-1)))),
  };
}

const W = 420, H = 260, LEFT = 56, RIGHT = 12, TOP = 12, BOTTOM = 40, LOW = -24, HIGH = 12;
const LINES = [["gradient", "gradient, 1 at the top", "#D55E00", "none"], ["state", "size of the state, 1 at the bottom", "#0072B2", "6 4"]];
const power = (p) => (p === 0 ? "1" : `1e${p}`.replace("-", "−"));
const plain = (p) => (p > -3 && p < 4 ? show(10 ** p, p < -1 ? 4 : p < 1 ? 2 : 0) : (10 ** Math.max(-299, p)).toExponential(0).replace("-", "−").replace("+", ""));

function plot() {
  const y = (v) => TOP + ((HIGH - Math.min(HIGH, Math.max(LOW, v))) / (HIGH - LOW)) * (H - TOP - BOTTOM);
  const svg = element("svg", { viewBox: `0 0 ${W} ${H}`, role: "img", style: "width:100%;max-width:420px;flex:1 1 300px;min-width:0" });
  const words = (x, at, text, anchor) => element("text", { x, y: at, class: "cf-label", "text-anchor": anchor }, text);
  for (let p = LOW; p <= HIGH; p += 6)
    svg.append(element("line", { x1: LEFT, x2: W - RIGHT, y1: y(p), y2: y(p), class: "cf-axis", "stroke-width": p === 0 ? 2 : 1 }), words(LEFT - 5, y(p) + 4, power(p), "end"));
  svg.append(words((LEFT + W - RIGHT) / 2, H - 4, "after block number (0: the input, at the bottom)", "middle"));
  const ticks = element("g"), lines = LINES.map(([, , stroke, dash]) => element("polyline", { fill: "none", stroke, "stroke-width": 2.5, "stroke-dasharray": dash }));
  svg.append(ticks, ...lines);
  const set = (numbers, depth, said) => {
    const x = (n) => LEFT + (n / depth) * (W - LEFT - RIGHT), stride = depth > 16 ? 8 : depth > 6 ? 4 : 1;
    ticks.replaceChildren(...Array.from({ length: depth + 1 }, (_, n) => n).filter((n) => n % stride === 0).map((n) => words(x(n), H - BOTTOM + 16, `${n}`, "middle")));
    LINES.forEach(([name], i) => lines[i].setAttribute("points", numbers[name].map((v, n) => `${x(n)},${y(v)}`).join(" ")));
    svg.setAttribute("aria-label", said);
  };
  return { node: svg, set };
}

function build(el, state, set) {
  const depth = slider("depth", { min: 1, max: DEEPEST, step: 1, value: 24, text: (v) => `${v} block${v === 1 ? "" : "s"}`, change: (v) => set("depth", v) });
  const gain = slider("size of the weights", { min: 1, max: 3, step: 0.05, value: 1, text: (v) => `× ${show(v)}`, change: (v) => set("gain", v) });
  const ways = choices("residual", ["off", "on"], (i) => set("residual", i === 1)), norms = choices("norm", NORMS, (i) => set("norm", NORMS[i]));
  const again = element("button", { type: "button", onclick: () => set("seed", seed + 1) }, "draw other weights");
  let seed = state.seed;
  const picture = plot(), rows = ["no residual", "residual"], columns = ["no norm", "pre-norm", "post-norm"];
  const bottom = table("gradient at the bottom", rows, columns), same = table("likeness of the tokens at the top", rows, columns);
  const key = LINES.map(([, name, stroke, dash]) => element("div", {},
    element("svg", { viewBox: "0 0 36 8", width: 36, height: 8, "aria-hidden": "true" }, element("line", { x1: 0, x2: 36, y1: 4, y2: 4, stroke, "stroke-width": 2.5, "stroke-dasharray": dash })), ` ${name}`));
  const said = element("p", { class: "cf-readout", "aria-live": "polite" });
  el.append(depth.node, gain.node, group("residual", ways.buttons), group("norm", norms.buttons), again,
    element("div", { class: "cf-row" }, element("div", { class: "cf-side", style: "flex-basis:300px" }, picture.node, ...key), element("div", {}, bottom.node, same.node)), said);
  return (numbers, now) => {
    seed = now.seed;
    depth.set(now.depth); gain.set(now.gain); ways.set(+now.residual); norms.set(NORMS.indexOf(now.norm));
    same.set(numbers.alike);
    numbers.bottom.forEach((row, i) => row.forEach((p, j) => {
      bottom.cells[i][j].textContent = plain(p);
      for (const { cells } of [bottom, same]) cells[i][j].classList.toggle("cf-changed", i === +now.residual && NORMS[j] === now.norm);
    }));
    const words = `At the bottom of ${now.depth} block${now.depth === 1 ? "" : "s"} the gradient is ${plain(numbers.gradient[0])} times that at the top; the state at the top is ${plain(numbers.state.at(-1))} times as large as the input.`;
    picture.set(numbers, now.depth, words);
    said.textContent = words;
  };
}

export default { render: (context) => mount(context, ["depth", "residual", "norm", "gain", "seed"], compute, build) };
