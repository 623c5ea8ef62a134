export function compute({ q, k, v }) {
  const weights = q.map((query) => softmax(k.map((key) => dot(query, key))));
  return { weights, output: weights.map((row) => weighted(row, v)) };
}

const columns = (rows) => rows[0].map((_, c) => `${c + 1}`);
const names = (rows, letter) => rows.map((_, i) => `${letter}${i + 1}`);

// A table of native number inputs; `change` receives the whole edited matrix.
function inputs(caption, rows, letter, change) {
  const grid = table(caption, names(rows, letter), columns(rows));
  let now = rows;
  const fields = grid.cells.map((row, i) => row.map((cell, j) => {
    const field = element("input", { type: "number", step: 1, "aria-label": `${letter}${i + 1}, column ${j + 1}` });
    field.addEventListener("input", () => {
      if (field.value === "" || !Number.isFinite(+field.value)) return;
      change(now.map((r, a) => (a === i ? r.map((x, b) => (b === j ? +field.value : x)) : r)));
    });
    cell.append(field);
    return field;
  }));
  const set = (values) => {
    now = values;
    fields.forEach((row, i) => row.forEach((field, j) => { if (+field.value !== values[i][j] || field.value === "") field.value = values[i][j]; }));
  };
  return { node: grid.node, set };
}

function build(el, first, set) {
  const before = compute(first), start = { k: first.k, v: first.v };
  const k = inputs("K, edit me", first.k, "k", (x) => set("k", x)), v = inputs("V, edit me", first.v, "v", (x) => set("v", x));
  const weights = table("weights", names(first.q, "q"), names(first.k, "k")), output = table("outputs", names(first.q, "y"), columns(first.v));
  const undo = element("button", { type: "button", onclick: () => { set("k", start.k); set("v", start.v); } }, "as it was");
  const said = element("p", { class: "cf-readout", "aria-live": "polite" });
  el.append(element("div", { class: "cf-row" }, k.node, v.node), undo, element("div", { class: "cf-row" }, weights.node, output.node), said);
  const mark = (grid, now, old) => now.map((row, i) => row.map((x, j) => {
    const moved = Math.abs(x - old[i][j]) > 1e-9;
    grid.cells[i][j].classList.toggle("cf-changed", moved);
    return moved;
  })).flat().filter(Boolean).length;
  return (numbers, state) => {
    k.set(state.k); v.set(state.v);
    weights.set(numbers.weights, true); output.set(numbers.output);
    const moved = [mark(weights, numbers.weights, before.weights), mark(output, numbers.output, before.output)];
    said.textContent = `Changed from the start: ${moved[0]} weights, ${moved[1]} output numbers (dashed).`;
  };
}

export default { render: (context) => mount(context, ["q", "k", "v"], compute, build) };
