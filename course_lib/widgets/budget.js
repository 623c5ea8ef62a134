const KINDS = ["parameters", "gradients", "Adam's averages", "kept by the layers", "kept by the loss"];
const PRECISIONS = ["float32", "bfloat16"];

export function compute({ models, model, batch, parts, again, precision, budget }) {
  const [, parameters, layers, width, inner, heads, length, words] = models[model], half = precision === "bfloat16";
  const tokens = Math.ceil(batch / parts) * length;
  const wide = 2 * width + heads + 4, rest = 6 * width + inner;
  const layer = 4 * wide + (half ? 2 : 4) * rest, inputs = 4 * width;
  const kept = again ? layers * inputs + layer - inputs : layers * layer;
  const bytes = [parameters * (half ? 6 : 4), parameters * 4, parameters * 8, tokens * kept, tokens * words * 4];
  const total = bytes.reduce((a, b) => a + b, 0);
  return { bytes, total, share: total / budget, work: again ? 4 / 3 : 1 };
}

const told = (amount) => {
  for (const [unit, size] of [["GB", 1e9], ["MB", 1e6], ["kB", 1e3]]) if (amount >= size) return `${show(amount / size, 1)} ${unit}`;
  return `${show(amount, 0)} B`;
};

function build(el, { models, budget }, set) {
  const models_ = choices("model", models.map(([name]) => name), (i) => set("model", i));
  const power = (name, most, trait) => slider(name, {
    min: 0, max: most, step: 1, value: 0, text: (v) => `${2 ** v}`, change: (v) => set(trait, 2 ** v),
  });
  const batch = power("batch", 8, "batch"), parts = power("parts", 8, "parts");
  const again = choices("checkpointing", ["off", "on"], (i) => set("again", i === 1));
  const precision = choices("precision", PRECISIONS, (i) => set("precision", PRECISIONS[i]));
  const rows = [...KINDS, "all"].map((name) => {
    const fill = element("div", { class: "cf-fill" }), number = element("span", { class: "cf-number", style: "min-width:5.5em" });
    const label = element("span", { class: "cf-name", style: "min-width:9.5em" }, name);
    return { fill, number, node: element("div", { class: "cf-bar" }, label, element("div", { class: "cf-track" }, fill), number) };
  });
  const picture = element("div", { class: "cf-bars", role: "img" }, ...rows.map((r) => r.node));
  const said = element("p", { class: "cf-readout", "aria-live": "polite" });
  el.append(group("model", models_.buttons), batch.node, parts.node,
    group("checkpointing", again.buttons), group("precision", precision.buttons),
    element("strong", {}, `bytes, a full bar is ${told(budget)}`), picture, said);
  return (numbers, now) => {
    models_.set(now.model); again.set(now.again ? 1 : 0); precision.set(PRECISIONS.indexOf(now.precision));
    batch.set(Math.log2(now.batch)); parts.set(Math.log2(now.parts));
    [...numbers.bytes, numbers.total].forEach((value, i) => {
      const share = value / now.budget;
      rows[i].fill.style.width = `${100 * Math.min(1, share)}%`;
      rows[i].fill.style.background = viridis(share > 1 ? 1 : 0.35).fill;
      rows[i].number.textContent = `${told(value)}${share > 1 ? " ✗" : ""}`;
    });
    const fits = numbers.share <= 1 ? "It fits." : `It does not fit: ${show(numbers.share, 1)} times the budget.`;
    const at = Math.ceil(now.batch / now.parts), work = now.again ? ", and a step takes about 4/3 of the work" : "";
    said.textContent = `${told(numbers.total)} of ${told(now.budget)}. ${fits} ${at} ${at === 1 ? "sentence is" : "sentences are"} in memory at a time${work}.`;
    picture.setAttribute("aria-label", `${KINDS.map((kind, i) => `${kind} ${told(numbers.bytes[i])}`).join(", ")}. ${said.textContent}`);
  };
}

export default { render: (context) => mount(context, ["models", "model", "batch", "parts", "again", "precision", "budget"], compute, build) };
