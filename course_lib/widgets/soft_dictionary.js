export function compute({ query, key_vectors: keys, values, temperature }) {
  const scores = keys.map((key) => dot(query, key));
  const weights = softmax(scores.map((s) => s / temperature));
  return { scores, weights, value: dot(weights, values) };
}

function build(el, { key_vectors: keys, titles }, set) {
  const map = plane(2.5);
  const places = keys.map((_, i) => map.point(titles[i], viridis(0.3).fill, false, (p) => move(i, p)));
  const query = map.point("query", "#D55E00", true, (p) => set("query", p));
  let now = keys;
  const move = (i, p) => set("key_vectors", now.map((key, j) => (j === i ? p : key)));
  const heat = slider("temperature", {
    min: -2, max: 2, step: 0.05, value: 0, text: (v) => show(10 ** v), change: (v) => set("temperature", 10 ** v),
  });
  const weights = bars(titles), answer = element("p", { class: "cf-readout", "aria-live": "polite" });
  el.append(element("div", { class: "cf-row" }, map.node, element("div", { class: "cf-side" }, heat.node, weights.node, answer)));
  return (numbers, state) => {
    now = state.key_vectors;
    state.key_vectors.forEach((key, i) => places[i](key));
    query(state.query);
    heat.set(Math.log10(state.temperature));
    weights.set(numbers.weights);
    answer.textContent = `The dictionary returns ${show(numbers.value, 1)}.`;
  };
}

export default { render: (context) => mount(context, ["query", "key_vectors", "values", "titles", "temperature"], compute, build) };
