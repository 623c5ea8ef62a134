// `chosen` is ["target", i] or ["source", j] while a word is pointed at, or [] for the newest target word.
export function compute({ weights, step, chosen }) {
  const [side, place] = chosen.length ? chosen : ["target", step];
  const shown = weights.slice(0, step + 1);
  return side === "target"
    ? { source: weights[place], target: shown.map((_, i) => (i === place ? 1 : 0)) }
    : { source: weights[0].map((_, j) => (j === place ? 1 : 0)), target: shown.map((row) => row[place]) };
}

function words(list, side, set) {
  return list.map((word, i) => {
    const point = () => set("chosen", [side, i]), leave = () => set("chosen", []);
    const number = element("small", {}, "");
    const button = element("button", { type: "button", class: "cf-word", onmousemove: point, onmouseleave: leave, onfocus: point, onblur: leave }, word, number);
    return { button, number };
  });
}

function build(el, { source, target }, set) {
  const from = words(source, "source", set), to = words(target, "target", set);
  const steps = slider("step", { min: 0, max: target.length - 1, step: 1, value: 0, text: (v) => `${v + 1} of ${target.length}`, change: (v) => { set("chosen", []); set("step", v); } });
  const said = element("p", { class: "cf-readout", "aria-live": "polite" });
  el.append(steps.node, element("div", { class: "cf-words" }, element("strong", {}, "reads: "), ...from.map((w) => w.button)),
    element("div", { class: "cf-words" }, element("strong", {}, "writes: "), ...to.map((w) => w.button)), said);
  const paint = (word, weight) => {
    const { fill, ink } = viridis(weight);
    word.button.style.background = fill; word.button.style.color = ink;
    word.number.textContent = show(weight);
  };
  return (numbers, { step, chosen }) => {
    steps.set(step);
    numbers.source.forEach((w, j) => paint(from[j], w));
    to.forEach((word, i) => {
      word.button.disabled = i > step;
      word.button.classList.toggle("cf-hidden", i > step);
      paint(word, i > step ? 0 : numbers.target[i]);
    });
    const [side, place] = chosen.length ? chosen : ["target", step];
    const best = (side === "target" ? numbers.source : numbers.target).reduce((b, w, i, all) => (w > all[b] ? i : b), 0);
    said.textContent = side === "target"
      ? `While writing “${target[place]}” it reads “${source[best]}” most.`
      : `“${source[place]}” is read most while writing “${target[best]}”.`;
  };
}

export default { render: (context) => mount(context, ["source", "target", "weights", "step", "chosen"], compute, build) };
