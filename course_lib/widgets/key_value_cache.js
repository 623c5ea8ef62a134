const BYTES = 4, COLUMNS = 20, SIZE = 17, LEFT = 86; // float32; the longest text; a cell's side; room for the layers' names
const KINDS = [
  { sign: "", fill: "transparent", name: "not there yet" },
  { sign: "●", fill: "#D55E00", name: "computed now" },
  { sign: "■", fill: "#31688e", name: "from the cache" },
  { sign: "×", fill: "transparent", name: "no longer kept" },
];

export function compute({ layers, d_model, prompt, step, band, cached }) {
  const seen = prompt + step, isBanded = (layer) => band > 0 && layer % 2 === 1;
  const cell = (layer, token) => {
    if (!cached || step === 0 || token === seen - 1) return 1;
    return isBanded(layer) && seen - 1 - token > band - 1 ? 3 : 2;
  };
  const grid = Array.from({ length: layers }, (_, l) => Array.from({ length: seen }, (_, t) => cell(l, t)));
  const kept = grid.reduce((sum, _, l) => sum + (isBanded(l) ? Math.min(seen, band - 1) : seen), 0);
  let total = 0;
  for (let n = prompt; n <= seen; n += 1) total += n;
  return { grid, now: cached && step ? 1 : seen, total: cached ? seen : total, bytes: cached ? kept * 2 * d_model * BYTES : 0 };
}

// The grid: a row for each layer, the first at the bottom, a column for each token.
function picture() {
  const svg = element("svg", { role: "img", style: "width: 100%; max-width: 620px; display: block" });
  const set = (grid, { prompt, band }, alt) => {
    const height = (grid.length + 1.3) * SIZE;
    svg.setAttribute("viewBox", `0 0 ${LEFT + COLUMNS * SIZE} ${height}`);
    svg.setAttribute("aria-label", alt);
    const cells = grid.flatMap((row, l) => Array.from({ length: COLUMNS }, (_, t) => {
      const kind = KINDS[row[t] ?? 0], x = LEFT + t * SIZE, y = (grid.length - 1 - l) * SIZE;
      const box = element("rect", { x: x + 1, y: y + 1, width: SIZE - 2, height: SIZE - 2, fill: kind.fill, stroke: "currentColor", "stroke-opacity": 0.35 });
      const sign = element("text", { x: x + SIZE / 2, y: y + SIZE - 5, "text-anchor": "middle", "font-size": 10, fill: kind.fill === "transparent" ? "currentColor" : "#fff" }, kind.sign);
      return [box, sign];
    }).flat());
    const names = grid.map((_, l) => element("text", { x: 0, y: (grid.length - l) * SIZE - 5, "font-size": 11, fill: "currentColor" }, `layer ${l + 1}${band > 0 && l % 2 === 1 ? " (band)" : ""}`));
    const places = Array.from({ length: COLUMNS }, (_, t) => element("text", {
      x: LEFT + (t + 0.5) * SIZE, y: height - 8, "text-anchor": "middle", "font-size": 9, fill: "currentColor", "font-weight": t < prompt ? 700 : 400,
    }, `${t + 1}`));
    svg.replaceChildren(...cells, ...names, ...places);
  };
  return { node: svg, set };
}

const size = (bytes) => (bytes < 10_000 ? `${bytes} bytes` : `${show(bytes / 1000, 1)} kB`);

function build(el, state, set) {
  const turn = (name, trait, min, max, text = (v) => `${v}`) => slider(name, { min, max, step: 1, value: state[trait], text, change: (v) => set(trait, v) });
  const controls = {
    step: turn("new tokens", "step", 0, 12, (v) => (v ? `${v}` : "0, the prompt is read")),
    prompt: turn("prompt", "prompt", 1, 8),
    layers: turn("layers", "layers", 1, 6),
    band: slider("band of every second layer", {
      min: 1, max: 8, step: 1, value: state.band || 1, text: (v) => (v < 2 ? "none" : `${v}`), change: (v) => set("band", v < 2 ? 0 : v),
    }),
  };
  const box = element("input", { type: "checkbox", "aria-label": "cache" });
  box.addEventListener("change", () => set("cached", box.checked));
  const grid = picture(), said = element("p", { class: "cf-readout", "aria-live": "polite" });
  const legend = element("p", { class: "cf-readout" }, KINDS.slice(1).map(({ sign, name }) => `${sign} ${name}`).join("   "));
  legend.style.whiteSpace = "pre-wrap";
  el.append(element("label", { class: "cf-control" }, box, " keep keys and values (cache)"), ...Object.values(controls).map((c) => c.node), grid.node, legend, said);
  return (numbers, now) => {
    box.checked = now.cached;
    ["step", "prompt", "layers"].forEach((name) => controls[name].set(now[name]));
    controls.band.set(now.band || 1);
    said.textContent = `Read in this step: ${numbers.now} ${numbers.now === 1 ? "token" : "tokens"}; so far: ${numbers.total}. Kept: ${size(numbers.bytes)} (D = ${now.d_model}, 4 bytes a number).`;
    grid.set(numbers.grid, now, `Layers by tokens. ${said.textContent}`);
  };
}

export default { render: (context) => mount(context, ["layers", "d_model", "prompt", "step", "band", "cached"], compute, build) };
