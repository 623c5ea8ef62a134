const grid = (layers, length, value) => Array.from({ length: layers + 1 }, (_, l) => Array.from({ length }, (_, t) => value(l, t)));

export function compute({ kind, length, layers, window, clock, chosen }) {
  const steps = grid(layers, length, (l, t) => (l > 0 ? l + (kind === "rnn" ? t : 0) : 0)), [top, at] = chosen;
  const knows = {
    rnn: (l, t) => (top > 0 ? l <= top && t <= at : l === 0 && t === at), // a bare word knows itself alone
    window: (l, t) => Math.abs(t - at) <= (top - l) * ((window - 1) / 2),
    attention: (l, t) => l < top || (l === top && t === at),
  }[kind];
  const distance = { rnn: length, attention: 1, window: Math.ceil((length - 1) / (window - 1)) }[kind];
  return {
    steps,
    done: steps.map((row) => row.map((s) => (s <= clock ? 1 : 0))),
    known: grid(layers, length, (l, t) => (knows(l, t) ? 1 : 0)),
    counts: [kind === "rnn" ? length : 1, distance],
  };
}

const KINDS = { rnn: "RNN", window: "word window", attention: "attention" };

function build(el, start, set) {
  const { words } = start;
  let now = start;
  const pick = (layer, word) => set("chosen", [Math.min(now.layers, Math.max(0, layer)), Math.min(now.length - 1, Math.max(0, word))]);
  const last = () => (now.kind === "rnn" ? now.layers + now.length - 1 : now.layers);
  const kinds = Object.entries(KINDS).map(([kind, name]) => element("button", { type: "button", onclick: () => set("kind", kind) }, name));
  const length = slider("words", { min: 2, max: words.length, step: 1, value: start.length, text: String, change: (v) => {
    pick(now.chosen[0], Math.min(now.chosen[1], v - 1)); set("length", v); } });
  const layers = slider("layers", { min: 1, max: 6, step: 1, value: start.layers, text: String, change: (v) => {
    pick(Math.min(now.chosen[0], v), now.chosen[1]); set("layers", v); } });
  const window_ = slider("window", { min: 3, max: 7, step: 2, value: start.window, text: (v) => `${v} words`, change: (v) => set("window", v) });
  const clock = slider("clock", { min: 0, max: 19, step: 1, value: start.clock, text: (v) => `after ${v} step${v === 1 ? "" : "s"}`, change: (v) => set("clock", v) });
  const picture = element("div"), said = element("p", { class: "cf-readout", "aria-live": "polite" }), counts = element("p", { class: "cf-readout" });
  el.append(element("div", { class: "cf-words", role: "group", "aria-label": "kind of network" }, ...kinds), length.node, layers.node, window_.node, clock.node, picture, said, counts);

  let shape = "", cells = [];
  function lay() {
    const X = 42, Y = 40, left = 60, width = left + now.length * X + 4, height = (now.layers + 1) * Y + 74;
    const svg = element("svg", { viewBox: `0 0 ${width} ${height}`, style: `width: ${width}px; max-width: 100%`, role: "group", "aria-label": "states, the words at the bottom" });
    cells = grid(now.layers, now.length, (l, t) => {
      const cx = left + (t + 0.5) * X, cy = (now.layers - l + 0.5) * Y + 4; // large letters: with 13 words the picture shrinks on a narrow page
      const circle = element("circle", { cx, cy, r: 15, class: "cf-handle", role: "button", "aria-label": `layer ${l}, word ${t + 1}`, onclick: () => { pick(l, t); circle.focus(); },
        onkeydown: (e) => {
          const move = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [1, 0], ArrowDown: [-1, 0] }[e.key];
          if (!move) return;
          e.preventDefault();
          pick(l + move[0], t + move[1]);
          const [a, b] = now.chosen;
          cells[a][b].circle.focus();
        } });
      const number = element("text", { x: cx, y: cy + 5, "text-anchor": "middle", class: "cf-label", style: "font-size: 16px" });
      const ring = element("circle", { cx, cy, r: 18.5, fill: "none", stroke: "#D55E00", "stroke-width": 2.5, "pointer-events": "none" });
      svg.append(circle, number, ring);
      return { circle, number, ring };
    });
    for (let l = 0; l <= now.layers; l++)
      svg.append(element("text", { x: 0, y: (now.layers - l + 0.5) * Y + 9, class: "cf-label", style: "font-size: 15px" }, l ? `layer ${l}` : "words"));
    words.slice(0, now.length).forEach((word, t) => {
      const x = left + (t + 0.5) * X, y = (now.layers + 1) * Y + 16;
      svg.append(element("text", { x, y, class: "cf-label", "text-anchor": "end", style: "font-size: 15px", transform: `rotate(-38 ${x} ${y})` }, word));
    });
    picture.replaceChildren(svg);
  }

  return (numbers, state) => {
    now = state;
    const wanted = `${state.layers} ${state.length}`;
    if (shape !== wanted) { lay(); shape = wanted; }
    Object.keys(KINDS).forEach((kind, i) => kinds[i].setAttribute("aria-pressed", kind === state.kind));
    length.set(state.length); layers.set(state.layers); window_.set(state.window); clock.set(state.clock);
    window_.node.style.visibility = state.kind === "window" ? "visible" : "hidden";
    cells.forEach((row, l) => row.forEach(({ circle, number, ring }, t) => {
      const done = numbers.done[l][t], known = numbers.known[l][t], here = l === state.chosen[0] && t === state.chosen[1];
      circle.setAttribute("fill", done ? "#31688e" : "transparent");
      number.style.fill = done ? "#fff" : "";
      number.textContent = numbers.steps[l][t];
      ring.style.display = known ? "" : "none";
      ring.setAttribute("stroke-dasharray", here ? "" : "4 3");
      circle.setAttribute("tabindex", here ? 0 : -1);
      circle.setAttribute("aria-pressed", here);
    }));
    const [top, at] = state.chosen, seen = numbers.known[0].reduce((a, b) => a + b, 0), all = numbers.done.flat();
    said.textContent = `After ${Math.min(state.clock, last())} of ${last()} steps, ${all.reduce((a, b) => a + b, 0) - state.length} of ${all.length - state.length} states are there (filled). `
      + `The state of “${words[at]}” in layer ${top} knows ${seen} word${seen === 1 ? "" : "s"} (dashed rings).`;
    counts.textContent = `${KINDS[state.kind]}, ${state.length} words: ${numbers.counts[0]} step${numbers.counts[0] === 1 ? "" : "s"} in a layer${numbers.counts[0] === 1 ? "" : ", one after the other"}; interaction distance ${numbers.counts[1]}.`;
  };
}

export default { render: (context) => mount(context, ["words", "kind", "length", "layers", "window", "clock", "chosen"], compute, build) };
