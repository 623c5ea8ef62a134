// A pseudo-random number for each pair of blocks, the same as in NumPy: whole numbers of 32 bits.
function hash(seed, a, b) {
  let h = Math.imul(a + 1, 0x9e3779b1) ^ Math.imul(b + 1, 0x85ebca77) ^ Math.imul(seed + 1, 0xc2b2ae3d);
  for (const [shift, factor] of [[15, 0x2c1b3c6d], [12, 0x297a2d39]]) h = Math.imul(h ^ (h >>> shift), factor);
  return (h ^ (h >>> 15)) >>> 0;
}

// 0 is left out, 1 a neighbour, 2 global, 3 random.
function kindsOf({ size, radius, global_blocks, random_blocks, causal, seed }, length) {
  const blocks = Math.ceil(length / size), all = [...Array(blocks).keys()];
  const layout = all.map((a) => {
    const drawn = random_blocks ? all.map((b) => [hash(seed, a, b), b]).sort((x, y) => x[0] - y[0]).slice(0, random_blocks) : [];
    const row = all.map((b) => (Math.min(a, b) < global_blocks ? 2 : Math.abs(a - b) <= radius ? 1 : 0));
    drawn.forEach(([, b]) => { row[b] = row[b] || 3; });
    return row;
  });
  const words = [...Array(length).keys()];
  return words.map((i) => words.map((j) => (causal && j > i ? 0 : layout[Math.floor(i / size)][Math.floor(j / size)])));
}

const countPairs = (kinds) => kinds.reduce((sum, row) => sum + row.reduce((s, k) => s + (k ? 1 : 0), 0), 0);

// Layers until word i has heard of every word that it should: the longest of all shortest ways. -1 for never.
function layersOf(kinds, causal) {
  const n = kinds.length, sees = kinds.map((row) => row.flatMap((k, j) => (k ? [j] : [])));
  let most = 1;
  for (let i = 0; i < n; i++) {
    const far = new Int32Array(n).fill(-1);
    let found = 0, depth = 0, edge = [i];
    const wanted = causal ? i + 1 : n, known = new Uint8Array(n);
    while (edge.length && found < wanted) {
      depth++;
      const next = [];
      for (const a of edge) for (const b of sees[a]) if (!known[b]) { known[b] = 1; far[b] = depth; next.push(b); found++; }
      edge = next;
    }
    if (found < wanted) return -1;
    most = Math.max(most, ...far);
  }
  return most;
}

export function compute(state) {
  const n = state.length, kinds = kindsOf(state, n), pairs = countPairs(kinds);
  return {
    kinds, pairs, share: pairs / n ** 2, growth: countPairs(kindsOf(state, 2 * n)) / pairs, layers: layersOf(kinds, state.causal),
    cost: [2 * pairs * 1000, 2 * n * n * 1000], seen: kinds[state.chosen[0]].filter(Boolean).length,
  };
}

const KINDS = [["left out", "#d9d9d9"], ["neighbours", "#31688e"], ["global", "#fde725"], ["random", "#D55E00"]];
const EXAMPLES = {
  "all pairs": { size: 1, radius: 96, global_blocks: 0, random_blocks: 0 },
  window: { size: 1, radius: 2, global_blocks: 0, random_blocks: 0 },
  "window + global": { size: 1, radius: 2, global_blocks: 1, random_blocks: 0 },
  BigBird: { size: 4, radius: 1, global_blocks: 1, random_blocks: 1 },
};
const SIDE = 384; // pixels

// A mark besides the colour: a line through global pairs, a dot in random ones.
function drawPattern(canvas, kinds, [ci, cj]) {
  const n = kinds.length, c = SIDE / n, g = canvas.getContext("2d");
  g.clearRect(0, 0, SIDE, SIDE);
  kinds.forEach((row, i) => row.forEach((k, j) => {
    g.fillStyle = KINDS[k][1];
    g.fillRect(j * c, i * c, c - (c > 5 ? 0.6 : 0), c - (c > 5 ? 0.6 : 0));
    if (k < 2) return;
    g.fillStyle = "#222";
    if (k === 2) g.fillRect(j * c, (i + 0.5) * c - 0.4, c, 0.8);
    else { g.beginPath(); g.arc((j + 0.5) * c, (i + 0.5) * c, c / 5, 0, 7); g.fill(); }
  }));
  g.lineWidth = 2; g.strokeStyle = "#000"; g.strokeRect(cj * c - 1, ci * c - 1, c + 2, c + 2);
  g.lineWidth = 1; g.strokeStyle = "#fff"; g.strokeRect(cj * c - 2.5, ci * c - 2.5, c + 5, c + 5);
}

function build(el, start, set) {
  let now = start;
  const clip = (v) => Math.max(0, Math.min(now.length - 1, v));
  const choose = (i, j) => { if (clip(i) !== now.chosen[0] || clip(j) !== now.chosen[1]) set("chosen", [clip(i), clip(j)]); };
  const control = (name, trait, min, max, step = 1) => {
    const s = slider(name, { min, max, step, value: start[trait], text: String, change: (v) => set(trait, v) });
    return { node: narrow(s.node), paint: (state) => s.set(state[trait]) };
  };
  const narrow = (node) => { node.style.flexWrap = "nowrap"; const input = node.querySelector("input[type=range]"); if (input) input.style.width = "7em"; return node; };
  const length = slider("words n", { min: 8, max: 96, step: 8, value: start.length, text: String, change: (v) => {
    now.length = v; choose(...now.chosen); set("length", v); } });
  const controls = [control("block size", "size", 1, 16), control("window, each side", "radius", 0, 24),
    control("global blocks", "global_blocks", 0, 6), control("random blocks, each", "random_blocks", 0, 6)];
  const causal = element("input", { type: "checkbox", "aria-label": "causal" });
  causal.addEventListener("change", () => set("causal", causal.checked));
  const again = element("button", { type: "button", onclick: () => set("seed", now.seed + 1) }, "draw again");
  const examples = Object.entries(EXAMPLES).map(([name, values]) =>
    element("button", { type: "button", onclick: () => Object.entries(values).forEach(([k, v]) => set(k, v)) }, name));
  const canvas = element("canvas", { width: SIDE, height: SIDE, tabindex: 0, role: "img", class: "cf-handle" });
  canvas.dataset.lmSuppressShortcuts = "true";
  canvas.style.cssText = "width:384px;max-width:100%;display:block;cursor:crosshair;touch-action:none";
  const at = (e) => { const box = canvas.getBoundingClientRect(), c = box.width / now.length;
    choose(Math.floor((e.clientY - box.top) / c), Math.floor((e.clientX - box.left) / c)); };
  canvas.addEventListener("mousemove", at);
  canvas.addEventListener("pointerdown", at);
  canvas.addEventListener("keydown", (e) => {
    const move = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[e.key];
    if (!move) return;
    e.preventDefault();
    choose(now.chosen[0] + move[0], now.chosen[1] + move[1]);
  });
  const legend = element("div", { class: "cf-words" }, ...KINDS.map(([name, colour]) => {
    const patch = element("span");
    patch.style.cssText = `display:inline-block;width:.9em;height:.9em;margin-right:.3em;border:1px solid;background:${colour}`;
    return element("span", {}, patch, { global: "global (line)", random: "random (dot)" }[name] ?? name);
  }));
  const here = element("p", { class: "cf-readout" }), cost = element("p", { class: "cf-readout", "aria-live": "polite" });
  const side = element("div", { class: "cf-side" }, narrow(length.node), ...controls.map((c) => c.node),
    narrow(element("label", { class: "cf-control" }, causal, " causal: nothing of the future")), again, cost);
  const axis = element("div", {}, "rows: query (attends) · columns: key (attended to)");
  axis.style.fontSize = "12px";
  el.append(element("div", { class: "cf-words", role: "group", "aria-label": "examples" }, ...examples),
    element("div", { class: "cf-row" }, element("div", { style: `max-width:${SIDE}px` }, canvas, axis, legend, here), side));
  return (numbers, state) => {
    now = { ...state };
    length.set(state.length); controls.forEach((c) => c.paint(state)); causal.checked = state.causal;
    drawPattern(canvas, numbers.kinds, state.chosen);
    const [i, j] = state.chosen, kind = KINDS[numbers.kinds[i][j]][0], reach = numbers.layers;
    canvas.setAttribute("aria-label", `pattern: query ${i + 1}, key ${j + 1}: ${kind}`);
    here.textContent = `Query ${i + 1}, key ${j + 1}: ${kind}. This query sees ${numbers.seen} of ${state.length} words.`;
    cost.textContent = `${numbers.pairs.toLocaleString("en")} pairs: ${show(100 * numbers.share, 1)} % of all. `
      + `For d = 1,000 that is ${show(numbers.cost[0] / 1e6, 2)} million multiplications, all pairs ${show(numbers.cost[1] / 1e6, 2)}. `
      + `Twice as many words: ${show(numbers.growth, 2)} × the pairs. `
      + (reach > 0 ? `After ${reach} layer${reach === 1 ? "" : "s"} every word knows ${state.causal ? "all before it" : "every other"}.` : "Some words never hear of some others.");
  };
}

export default { render: (context) => mount(context, ["length", "size", "radius", "global_blocks", "random_blocks", "causal", "seed", "chosen"], compute, build) };
