export function compute({ q, k, v, query }) {
  const scores = k.map((key) => dot(q[query], key)), weights = softmax(scores);
  return { scores, weights, parts: weights.map((w, j) => v[j].map((x) => w * x)), output: weighted(weights, v) };
}

function build(el, { v, tokens }, set) {
  const pick = tokens.map((token, i) => element("button", { type: "button", "aria-label": `query ${token}`, onclick: () => set("query", i) }, token));
  pick.forEach((b, i) => b.addEventListener("keydown", (e) => {
    const step = { ArrowDown: 1, ArrowRight: 1, ArrowUp: -1, ArrowLeft: -1 }[e.key];
    if (!step) return;
    e.preventDefault();
    const next = (i + step + pick.length) % pick.length;
    pick[next].focus(); set("query", next);
  }));
  const columns = v[0].map((_, c) => `${c + 1}`), weights = bars(tokens);
  const values = table("values", tokens, columns), parts = table("weight × value", tokens, columns), sum = table("their sum", ["output"], columns);
  el.append(element("div", { class: "cf-words" }, "The query of ", ...pick, " asks."), weights.node,
    element("div", { class: "cf-row" }, values.node, parts.node), sum.node);
  values.set(v);
  return (numbers, state) => {
    pick.forEach((b, i) => b.setAttribute("aria-pressed", i === state.query));
    weights.set(numbers.weights); parts.set(numbers.parts, false, 3); sum.set([numbers.output], false, 4);
  };
}

export default { render: (context) => mount(context, ["q", "k", "v", "tokens", "query"], compute, build) };
