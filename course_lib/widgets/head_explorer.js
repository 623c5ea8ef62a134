// `head` counts from 0; the one after the last is the mean of all heads.
export function compute({ weights, layer, head, query }) {
  const heads = weights[layer].map((rows) => rows[Math.min(query, rows.length - 1)]);
  const mean = heads[0].map((_, j) => heads.reduce((sum, row) => sum + row[j], 0) / heads.length);
  return { weights: heads[head] ?? mean, heads };
}

// All that belongs to one layer: its heads, its words, and a table with a column for each head.
function panel({ query_words, key_words, weights, seen }, layer, set) {
  const count = weights[layer].length, names = [...weights[layer].keys()].map((h) => `head ${h + 1}`);
  const heads = choices("show", [...names, "mean"], (h) => set("head", h));
  const asks = choices("word", query_words[layer], (i) => set("query", i), { hover: true, style: "cf-word" });
  const read = key_words[layer].map((word) => {
    const number = element("small", {}, "");
    return { node: element("span", { class: "cf-word", style: "padding:.25em .6em;border-radius:4px" }, word, number), number };
  });
  const all = table("the same word in every head", key_words[layer], names), titles = [...all.node.querySelectorAll("th[scope=col]")];
  const said = element("p", { class: "cf-readout", "aria-live": "polite" });
  const node = element("div", {}, group("head", heads.buttons), group("asks (query)", asks.buttons), group("is read (key)", read.map((r) => r.node)), said, all.node);
  const paint = (numbers, state) => {
    const query = Math.min(state.query, query_words[layer].length - 1), head = Math.min(state.head, count);
    const visible = seen[layer][query], best = numbers.weights.reduce((b, w, j, row) => (w > row[b] ? j : b), 0);
    heads.set(head); asks.set(query);
    numbers.weights.forEach((w, j) => {
      const { fill, ink } = viridis(w);
      read[j].node.style.background = visible[j] ? fill : "repeating-linear-gradient(45deg, #bbb 0 4px, #ddd 4px 8px)";
      read[j].node.style.color = visible[j] ? ink : "#333";
      read[j].number.textContent = visible[j] ? show(w) : "hidden";
    });
    all.set(numbers.heads[0].map((_, j) => numbers.heads.map((row) => row[j])), true);
    titles.forEach((title, h) => { title.style.textDecoration = h === head ? "underline 3px" : ""; });
    all.cells.forEach((row, j) => row.forEach((cell) => {
      if (!visible[j]) { cell.textContent = "–"; cell.style.background = ""; cell.style.color = ""; }
    }));
    const who = head < count ? `Head ${head + 1}` : "The mean of the heads";
    said.textContent = `${who}: “${query_words[layer][query]}” reads “${key_words[layer][best]}” most (${show(numbers.weights[best])}).`;
  };
  return { node, paint };
}

function build(el, state, set) {
  const layers = choices("layer", state.names, (i) => set("layer", i));
  const panels = state.names.map((_, i) => panel(state, i, set));
  if (panels.length > 1) el.append(group("layer", layers.buttons));
  el.append(...panels.map((p) => p.node));
  return (numbers, now) => {
    layers.set(now.layer);
    panels.forEach((p, i) => { p.node.style.display = i === now.layer ? "" : "none"; });
    panels[now.layer].paint(numbers, now);
  };
}

const TRAITS = ["names", "query_words", "key_words", "weights", "seen", "layer", "head", "query"];
export default { render: (context) => mount(context, TRAITS, compute, build) };
