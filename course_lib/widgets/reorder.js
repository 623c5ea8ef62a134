const attend = (x) => {
  const weights = x.map((a) => softmax(x.map((b) => dot(a, b))));
  return { weights, output: weights.map((row) => weighted(row, x)) };
};
const farthest = (a, b) => Math.max(...a.flatMap((row, i) => row.map((x, c) => Math.abs(x - b[i][c]))));

// `order[place]` is the number that the token in this place had at the start.
export function compute({ vectors, order }) {
  const before = attend(vectors).output, now = attend(order.map((i) => vectors[i]));
  return { ...now, by_token: farthest(now.output, order.map((i) => before[i])), by_place: farthest(now.output, before) };
}

// The place that a held token should take, now that the pointer is here: a neighbour gives way at its middle.
function placeAt(chips, held, x, y) {
  const boxes = chips.map((chip) => chip.getBoundingClientRect());
  const level = boxes.map((box, p) => p).filter((p) => p !== held && y > boxes[p].top - 8 && y < boxes[p].bottom + 8);
  const middle = (p) => (boxes[p].left + boxes[p].right) / 2;
  const before = level.filter((p) => p < held && x < middle(p)), after = level.filter((p) => p > held && x > middle(p));
  return before.length ? Math.min(...before) : after.length ? Math.max(...after) : held;
}

// One button for each place; the words move through them, so that the tab order is always the order of the words.
function row(count, move, seen) {
  const chips = Array.from({ length: count }, (_, p) => element("button", {
    type: "button", class: "cf-word", style: "touch-action:none;cursor:grab", "aria-roledescription": "word to move",
    onfocus: () => seen(p),
    onkeydown: (e) => {
      const to = p + ({ ArrowLeft: -1, ArrowUp: -1, ArrowRight: 1, ArrowDown: 1 }[e.key] ?? 0);
      if (to === p) return;
      e.preventDefault();
      if (to >= 0 && to < count) take(p, to);
    },
  }));
  const list = element("div", { class: "cf-words", role: "group", "aria-label": "words in their order" }, ...chips);
  const take = (from, to) => { move(from, to); chips[to].focus(); };
  let held = -1;
  chips.forEach((chip, p) => chip.addEventListener("pointerdown", (e) => {
    held = p;
    list.setPointerCapture(e.pointerId);
    e.preventDefault();
    chip.focus();
  }));
  list.addEventListener("pointermove", (e) => {
    if (held < 0 || !list.hasPointerCapture(e.pointerId)) return;
    const to = placeAt(chips, held, e.clientX, e.clientY);
    if (to !== held) { take(held, to); held = to; }
  });
  list.addEventListener("lostpointercapture", () => { held = -1; });
  return { list, chips };
}

function build(el, first, set) {
  const { tokens, vectors } = first, count = tokens.length;
  let order = first.order, chosen = order[0];
  const move = (from, to) => {
    const next = order.filter((_, p) => p !== from);
    next.splice(to, 0, order[from]);
    chosen = order[from];
    set("order", next);
  };
  const mark = () => order.forEach((i, p) => {
    weights.cells[p].forEach((cell, q) => cell.classList.toggle("cf-changed", i === chosen || order[q] === chosen));
    output.cells[p].forEach((cell) => cell.classList.toggle("cf-changed", i === chosen));
  });
  const { list, chips } = row(count, move, (p) => { chosen = order[p]; mark(); });
  const weights = table("weights (row attends to column)", tokens, tokens);
  const output = table("new vectors", tokens, vectors[0].map((_, c) => `${c + 1}`));
  const names = [weights, output].map((t) => [...t.node.querySelectorAll("th[scope=row]")]);
  names.push([...weights.node.querySelectorAll("th[scope=col]")]);
  const button = (text, to) => element("button", { type: "button", onclick: () => set("order", to()) }, text);
  const reverse = button("reverse", () => [...order].reverse()), undo = button("as it was", () => tokens.map((_, i) => i));
  const where = element("p", { class: "cf-readout", "aria-live": "polite" }), said = element("p", { class: "cf-readout" });
  list.prepend(element("strong", {}, "drag: "));
  el.append(list, element("div", { class: "cf-words" }, element("strong", {}, "or: "), reverse, undo), where, element("div", { class: "cf-row" }, weights.node, output.node), said);
  return (numbers, state) => {
    order = state.order;
    order.forEach((i, p) => {
      chips[p].textContent = tokens[i];
      chips[p].setAttribute("aria-label", `${tokens[i]}, word ${p + 1} of ${count}`);
      names.forEach((cells) => { cells[p].textContent = tokens[i]; });
    });
    weights.set(numbers.weights, true); output.set(numbers.output);
    mark();
    where.textContent = `In this order: ${order.map((i) => tokens[i]).join(" ")}. Dashed: “${tokens[chosen]}”, word ${order.indexOf(chosen) + 1}.`;
    said.textContent = `Largest change of a new vector since the start: ${show(numbers.by_token)} word by word, ${show(numbers.by_place)} place by place.`;
  };
}

export default { render: (context) => mount(context, ["tokens", "vectors", "order"], compute, build) };
