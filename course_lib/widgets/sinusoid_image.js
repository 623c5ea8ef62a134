export function compute({ d_model: d, base, length, position }) {
  const rate = Array.from({ length: d }, (_, c) => base ** (-2 * Math.floor(c / 2) / d));
  const table = Array.from({ length }, (_, t) => rate.map((w, c) => (c % 2 ? Math.cos(t * w) : Math.sin(t * w))));
  const waves = rate.filter((_, c) => c % 2 === 0).map((w) => (2 * Math.PI) / w);
  return { table, row: table[position], waves };
}

function build(el, { length }, set) {
  const canvas = element("canvas", { role: "img" });
  canvas.style.cssText = "box-sizing:border-box;width:100%;max-width:420px;height:260px;image-rendering:pixelated;border:1px solid;cursor:crosshair";
  canvas.addEventListener("click", (e) => {
    const box = canvas.getBoundingClientRect();
    set("position", Math.min(length - 1, Math.max(0, Math.floor(((e.clientY - box.top) / box.height) * length))));
  });
  const width = slider("width D", { min: 2, max: 64, step: 2, value: 32, text: (v) => `${v}`, change: (v) => set("d_model", v) });
  const base = slider("base", { min: 0.3, max: 5, step: 0.1, value: 4, text: (v) => show(10 ** v, v < 2 ? 1 : 0), change: (v) => set("base", 10 ** v) });
  const place = slider("position t", { min: 0, max: length - 1, step: 1, value: 0, text: (v) => `${v}`, change: (v) => set("position", v) });
  const axis = element("p", { class: "cf-readout" }, "→ columns, in pairs sin, cos; ↓ positions t; the arrow marks the chosen row. Dark is −1, bright is 1.");
  const said = element("p", { class: "cf-readout", "aria-live": "polite" });
  const mark = element("span", { "aria-hidden": "true" }, "▶");
  mark.style.cssText = "position:absolute;left:0;transform:translateY(-50%);font-size:12px";
  const frame = element("div", {}, mark, canvas);
  frame.style.cssText = "box-sizing:border-box;position:relative;padding-left:16px;flex:1 1 300px;min-width:0;max-width:440px";
  el.append(element("div", { class: "cf-row" }, frame, element("div", { class: "cf-side" }, width.node, base.node, place.node, said)), axis);
  return ({ table, row, waves }, state) => {
    width.set(state.d_model); base.set(Math.log10(state.base)); place.set(state.position);
    canvas.width = state.d_model; canvas.height = table.length;
    const pen = canvas.getContext("2d");
    table.forEach((row, t) => row.forEach((x, c) => { pen.fillStyle = viridis((x + 1) / 2).fill; pen.fillRect(c, t, 1, 1); }));
    mark.style.top = `${(100 * (state.position + 0.5)) / table.length}%`;
    const start = row.slice(0, 4).map((x) => show(x)).join(", ");
    canvas.setAttribute("aria-label", `table of sinusoids, ${table.length} positions by ${state.d_model} columns`);
    said.textContent = `PE(${state.position}) begins ${start}. The first pair repeats after ${show(waves[0], 1)} positions, the last after ${show(waves.at(-1), 1)}.`;
  };
}

export default { render: (context) => mount(context, ["d_model", "base", "length", "position"], compute, build) };
