const LENGTHS = Array.from({ length: 14 }, (_, i) => 2 ** (i + 4));
const NAMES = ["attention, all pairs: n²d + nd²", "attention, few keys: n·few·d + nd²", "recurrent: nd²", "convolution of 3 words: 3nd²"];
const COLOURS = ["#D55E00", "#21918c", "#5b8ff9", "#b58900"], DASHES = ["", "8 4", "2 3", "10 3 2 3"];

function costsOf(n, d, few) {
  const rows = n * d * d;
  return [n * n * d + rows, n * Math.min(n, few) * d + rows, rows, 3 * rows];
}

export function compute({ length, width, few }) {
  const costs = costsOf(length, width, few), twice = costsOf(2 * length, width, few), all = LENGTHS.map((n) => costsOf(n, width, few));
  return {
    costs, curves: costs.map((_, i) => all.map((c) => c[i])), growth: twice.map((c, i) => c / costs[i]),
    share: length / (length + width), bytes: 4 * length ** 2, steps: [1, 1, length, 1],
  };
}

// A curve's own dashes as a background, for the line beside its name.
const dashed = (colour, dashes) => {
  let at = 0;
  const stops = dashes.split(" ").filter(Boolean).map((size, i) => `${i % 2 ? "transparent" : colour} ${at}px ${(at += Number(size))}px`);
  return stops.length ? `repeating-linear-gradient(90deg, ${stops.join(", ")})` : colour;
};

const draw = (tag, attributes) => {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  Object.entries(attributes).forEach(([name, value]) => node.setAttribute(name, value));
  return node;
};
const POWER = ["", " thousand", " million", " billion", " trillion", " quadrillion"];
const spoken = (x) => { const p = Math.max(0, Math.min(5, Math.floor(Math.log10(x) / 3 + 1e-9))); return `${(x / 1000 ** p).toPrecision(3)}${POWER[p]}`; };
const bytes = (x) => { const p = Math.floor(Math.log10(x) / 3 + 1e-9); return `${(x / 1000 ** p).toPrecision(3)} ${["B", "kB", "MB", "GB"][p]}`; };

function build(el, start, set) {
  const W = 520, H = 340, L = 52, R = 10, T = 10, B = 40;
  const svg = element("svg", { viewBox: `0 0 ${W} ${H}`, role: "img", style: `width:${W}px;max-width:100%;cursor:crosshair` });
  const x = (n) => L + ((Math.log2(n) - 4) / 13) * (W - L - R);
  let low = 6, high = 14; // powers of ten at the ends of the upright axis: as the curves need them
  const y = (c) => H - B - ((Math.log10(c) - low) / (high - low)) * (H - B - T);
  const grid = element("g");
  const raised = (p) => [...String(p)].map((digit) => "⁰¹²³⁴⁵⁶⁷⁸⁹"[digit]).join("");
  const rule = () => grid.replaceChildren(...Array.from({ length: high - low + 1 }, (_, i) => low + i).flatMap((p) => [
    element("line", { x1: L, x2: W - R, y1: y(10 ** p), y2: y(10 ** p), class: "cf-axis" }),
    element("text", { x: L - 6, y: y(10 ** p) + 4, "text-anchor": "end", class: "cf-label" }, `10${raised(p)}`)]));
  svg.append(grid);
  [16, 128, 1024, 8192, 65536].forEach((n) => svg.append(element("line", { x1: x(n), x2: x(n), y1: T, y2: H - B, class: "cf-axis" }),
    element("text", { x: x(n), y: H - B + 16, "text-anchor": "middle", class: "cf-label" }, n.toLocaleString("en"))));
  svg.append(element("text", { x: (L + W) / 2, y: H - 6, "text-anchor": "middle", class: "cf-label" }, "words n"));
  const lines = COLOURS.map((colour, i) => draw("polyline", { fill: "none", stroke: colour, "stroke-width": 2.5, "stroke-dasharray": DASHES[i] }));
  const mark = element("line", { y1: T, y2: H - B, stroke: "currentColor", "stroke-width": 1.5 });
  const meet = element("line", { y1: T, y2: H - B, stroke: "currentColor", "stroke-dasharray": "1 4", "stroke-width": 1.5 });
  const dots = COLOURS.map((colour) => element("circle", { r: 4.5, fill: colour, stroke: "currentColor" }));
  const label = element("text", { y: T + 12, class: "cf-label" }, "n = d");
  svg.append(...lines, meet, mark, ...dots, label);
  const pick = (e) => {
    if (e.type === "pointermove" && !(e.buttons & 1)) return;
    const box = svg.getBoundingClientRect(), at = ((e.clientX - box.left) * (W / box.width) - L) / (W - L - R);
    set("length", Math.round(2 ** (4 + 13 * Math.min(1, Math.max(0, at)))));
  };
  svg.addEventListener("pointerdown", pick); svg.addEventListener("pointermove", pick);
  const log = (name, trait, min, max) => {
    const s = slider(name, { min: Math.log2(min), max: Math.log2(max), step: 0.05, value: Math.log2(start[trait]),
      text: (v) => Math.round(2 ** v).toLocaleString("en"), change: (v) => set(trait, Math.round(2 ** v)) });
    return { node: s.node, paint: (state) => s.set(Math.log2(state[trait])) };
  };
  const controls = [log("words n", "length", 16, 131072), log("width d", "width", 16, 8192), log("few: keys for each query", "few", 16, 2048)];
  const numbers_ = [[30, "a sentence: 30"], [512, "a usual bound: 512"], [10000, "a document: 10,000"]].map(([n, name]) =>
    element("button", { type: "button", onclick: () => { set("width", 1000); set("length", n); } }, name));
  const heads = ["multiplications", "twice the words", "steps in a row"];
  const cells = NAMES.map(() => heads.map(() => element("td")));
  const body = cells.map((row, i) => {
    const swatch = element("span");
    swatch.style.cssText = `display:inline-block;width:36px;height:3px;margin-right:.4em;vertical-align:middle;background:${dashed(COLOURS[i], DASHES[i])}`;
    const name = element("th", { scope: "row" }, swatch, NAMES[i]);
    name.style.textAlign = "left";
    return element("tr", {}, name, ...row);
  });
  const head = element("tr", {}, element("th"), ...heads.map((h) => element("th", { scope: "col" }, h)));
  const node = element("table", { class: "cf-table" }, element("caption", {}, "One layer"), head, ...body);
  node.style.fontSize = "12.5px";
  const said = element("p", { class: "cf-readout", "aria-live": "polite" });
  el.append(element("div", { class: "cf-words" }, ...numbers_), ...controls.map((c) => c.node), svg, node, said);
  return (numbers, state) => {
    controls.forEach((c) => c.paint(state));
    const tens = numbers.curves.flat().map(Math.log10);
    low = Math.floor(Math.min(...tens)); high = Math.ceil(Math.max(...tens));
    rule();
    lines.forEach((line, i) => line.setAttribute("points", numbers.curves[i].map((c, j) => `${x(LENGTHS[j]).toFixed(1)},${y(c).toFixed(1)}`).join(" ")));
    [[mark, state.length], [meet, state.width]].forEach(([line, n]) => { line.setAttribute("x1", x(n)); line.setAttribute("x2", x(n)); });
    const left = x(state.width) > W - 60;
    label.setAttribute("x", x(state.width) + (left ? -4 : 4)); label.setAttribute("text-anchor", left ? "end" : "start");
    dots.forEach((dot, i) => { dot.setAttribute("cx", x(state.length)); dot.setAttribute("cy", y(numbers.costs[i])); });
    cells.forEach((row, i) => {
      row[0].textContent = spoken(numbers.costs[i]); row[1].textContent = `× ${show(numbers.growth[i], 2)}`;
      row[2].textContent = numbers.steps[i].toLocaleString("en");
    });
    svg.setAttribute("aria-label", `multiplications against words, marked at ${state.length} words`);
    said.textContent = `The pairs, n²d, are ${show(100 * numbers.share, 1)} % of attention's multiplications; the rest is nd². `
      + `The weights of one head, stored, take ${bytes(numbers.bytes)}.`;
  };
}

export default { render: (context) => mount(context, ["length", "width", "few"], compute, build) };
