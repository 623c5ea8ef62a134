// `weights` is [layer][head][target][source]; head −1 stands for the mean of all heads.
export function compute({ weights, layer, head }) {
  const heads = weights[layer];
  const map = head < 0
    ? heads[0].map((row, t) => row.map((_, s) => heads.reduce((sum, h) => sum + h[t][s], 0) / heads.length))
    : heads[head];
  return { map, best: map.map((row) => row.reduce((b, w, i) => (w > row[b] ? i : b), 0)) };
}

// One row of buttons of which one is pressed; the arrow keys go from one to the next.
function choice(name, texts, change) {
  const buttons = texts.map((text, i) => element("button", { type: "button", onclick: () => change(i) }, text));
  const node = element("div", { class: "cf-words", role: "group", "aria-label": name }, element("strong", {}, `${name}: `), ...buttons);
  node.addEventListener("keydown", (e) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[e.key], at = buttons.indexOf(e.target);
    if (!step || at < 0) return;
    e.preventDefault();
    const next = (at + step + buttons.length) % buttons.length;
    buttons[next].focus();
    change(next);
  });
  return { node, set: (place) => buttons.forEach((b, i) => b.setAttribute("aria-pressed", i === place)) };
}

function build(el, { weights, number }, set) {
  const input = element("input", { type: "number", min: 0, max: 999999, step: 1, "aria-label": "number to translate", style: "width: 8em; font: inherit" });
  input.value = number;
  const go = () => { if (input.value !== "" && input.checkValidity()) set("number", Math.round(+input.value)); };
  input.addEventListener("change", go);
  input.addEventListener("keydown", (e) => { if (e.key === "Enter") go(); });
  const layers = choice("layer", weights.map((_, i) => `${i + 1}`), (i) => set("layer", i));
  const heads = choice("head", ["mean", ...weights[0].map((_, i) => `${i + 1}`)], (i) => set("head", i - 1));
  const said = element("p", { class: "cf-readout", "aria-live": "polite" });
  const holder = element("div", { style: "overflow-x: auto" });
  el.append(element("label", { class: "cf-control" }, "number ", input), layers.node, heads.node, said, holder);
  let words = "", shown = null;
  return ({ map, best }, { source, target, layer, head, note, number: now }) => {
    if (document.activeElement !== input) input.value = now;
    layers.set(layer);
    heads.set(head + 1);
    const key = JSON.stringify([source, target]);
    if (key !== words) {
      shown = table("rows write, columns are read", target, source);
      shown.node.caption.style.whiteSpace = "nowrap";
      shown.node.querySelectorAll("th[scope=col]").forEach((th) => { th.style.writingMode = "vertical-rl"; th.style.textAlign = "left"; });
      holder.replaceChildren(shown.node);
      words = key;
    }
    shown.set(map, true);
    map.forEach((row, t) => row.forEach((_, s) => shown.cells[t][s].style.fontWeight = s === best[t] ? "700" : "400"));
    said.textContent = note || `${source.join(" ")} → ${target.filter((w) => w !== "<eos>").join(" ")}`;
  };
}

export default { render: (context) => mount(context, ["number", "layer", "head", "source", "target", "weights", "note"], compute, build) };
