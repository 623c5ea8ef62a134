export function compute({ query, key_vectors: keys }) {
  const scores = keys.map((key) => dot(query, key));
  return { scores, weights: softmax(scores) };
}

function build(el, { key_vectors: keys }, set) {
  const map = plane(2.5), names = keys.map((_, i) => `key ${i + 1}`);
  let now = keys;
  const arrows = names.map((name, i) => map.point(name, viridis(0.35).fill, true, (p) => set("key_vectors", now.map((k, j) => (j === i ? p : k)))));
  const query = map.point("query", "#D55E00", true, (p) => set("query", p));
  const scores = table("scores and weights", names, ["score", "weight"]), weights = bars(names);
  el.append(element("div", { class: "cf-row" }, map.node, element("div", { class: "cf-side" }, scores.node, weights.node)));
  return (numbers, state) => {
    now = state.key_vectors;
    state.key_vectors.forEach((key, i) => arrows[i](key));
    query(state.query);
    scores.set(numbers.scores.map((s, i) => [s, numbers.weights[i]]));
    weights.set(numbers.weights);
  };
}

export default { render: (context) => mount(context, ["query", "key_vectors"], compute, build) };
