const SHOWN = 12, MOST = 30; // bars; and the largest top_k of the slider, one more is "all"

export function compute({ logits, text, temperature, top_k, luck }) {
  const row = logits[text], order = row.map((_, i) => i).sort((a, b) => row[b] - row[a] || a - b);
  const kept = temperature === 0 ? 1 : top_k || row.length, p = row.map(() => 0);
  softmax(order.slice(0, kept).map((i) => row[i] / (temperature || 1))).forEach((x, n) => { p[order[n]] = x; });
  let sum = 0, place = 0;
  while (place < kept - 1 && (sum += p[order[place]]) <= luck) place += 1;
  const entropy = -p.reduce((total, x) => total + (x > 0 ? x * Math.log(x) : 0), 0);
  return { p, order: order.slice(0, SHOWN), kept, equal: Math.exp(entropy), drawn: order[place] };
}

function build(el, { tokens, texts: names }, set) {
  const choice = choices("text", names.map((name) => `${name}…`), (i) => set("text", i)), most = Math.min(MOST, tokens.length - 1);
  const heat = slider("temperature", { min: 0, max: 3, step: 0.05, value: 1, text: (v) => show(v), change: (v) => set("temperature", v) });
  const top = slider("top-k", { min: 1, max: most + 1, step: 1, value: most + 1, text: (v) => (v > most ? "all" : `${v}`), change: (v) => set("top_k", v > most ? 0 : v) });
  const draw = element("button", { type: "button", onclick: () => set("luck", Math.random()) }, "draw a token");
  const holder = element("div"), said = element("p", { class: "cf-readout", "aria-live": "polite" });
  el.append(group("after", choice.buttons), heat.node, top.node, draw, holder, said);
  let key = "", rows = null;
  return ({ p, order, kept, equal, drawn }, { text, temperature, top_k }) => {
    choice.set(text); heat.set(temperature); top.set(top_k || most + 1);
    if (order.join() !== key) {
      key = order.join();
      rows = bars(order.map((i) => tokens[i]));
      rows.node.setAttribute("aria-label", "probabilities of the likeliest tokens");
      holder.replaceChildren(rows.node);
    }
    rows.set(order.map((i) => p[i]));
    order.forEach((i, n) => {
      const bar = rows.node.children[n], out = n >= kept;
      bar.classList.toggle("cf-hidden", out);
      if (out) bar.querySelector(".cf-number").textContent = "out";
      bar.style.fontWeight = i === drawn ? "700" : "400";
    });
    const shown = order.reduce((sum, i) => sum + p[i], 0), rest = kept > order.length ? ` The ${kept - order.length} others together: ${show(1 - shown, 3)}.` : "";
    said.textContent = `Kept: ${kept} of ${tokens.length} tokens.${rest} As undecided as between ${show(equal, 1)} equal choices. Drawn (bold): ${tokens[drawn]}`;
  };
}

export default { render: (context) => mount(context, ["tokens", "texts", "logits", "text", "temperature", "top_k", "luck"], compute, build) };
