// `blocks` are { side, name, letters, shape, values }: the tensor that leaves each block, in the order of the arithmetic.
export function compute({ blocks, chosen }) {
  const { shape, values } = blocks[chosen];
  const largest = Math.max(...values.flat().map(Math.abs));
  return { shape, count: shape.reduce((a, b) => a * b, 1), values, largest };
}

function build(el, { blocks }, set) {
  const buttons = blocks.map(({ name, letters }, i) => element("button", {
    type: "button", onclick: () => set("chosen", i), "aria-label": `block ${name}`, style: "display: block; width: 100%; margin: .15em 0; text-align: left",
  }, name, element("small", { style: "float: right; padding-left: .6em" }, [...letters].join(" × "))));
  const sides = [...new Set(blocks.map((b) => b.side))].map((side) => element("div", { class: "cf-side", role: "group", "aria-label": side },
    element("strong", {}, side), ...buttons.filter((_, i) => blocks[i].side === side)));
  const flow = element("div", { class: "cf-row" }, ...sides);
  flow.addEventListener("keydown", (e) => {
    const step = { ArrowUp: -1, ArrowDown: 1 }[e.key], at = buttons.indexOf(e.target);
    if (!step || at < 0) return;
    e.preventDefault();
    const next = (at + step + buttons.length) % buttons.length;
    buttons[next].focus();
    set("chosen", next);
  });
  const said = element("p", { class: "cf-readout", "aria-live": "polite" }), holder = element("div", { style: "overflow-x: auto" });
  el.append(flow, said, holder);
  return ({ shape, count, values, largest }, { chosen }) => {
    const { side, name, letters } = blocks[chosen];
    buttons.forEach((b, i) => b.setAttribute("aria-pressed", i === chosen));
    const whole = values.flat().every(Number.isInteger);
    said.textContent = `${name} (${side}): shape (${[...letters].join(", ")}) = (${shape.join(", ")}), ${count} numbers. Below, the first of them` +
      `${shape.length > 2 ? ", of the first sentence" : ""}${letters.includes("H") ? " and the first head" : ""}; the largest of these is ${show(largest, whole ? 0 : 2)}.`;
    const rows = values.map((_, i) => `${i + 1}`), columns = values[0].map((_, i) => `${i + 1}`);
    const shown = table(`rows ${letters.at(-2) ?? "one"}, columns ${letters.at(-1)}`, rows, columns);
    shown.node.caption.style.whiteSpace = "nowrap";
    shown.set(values, letters.includes("H"), whole ? 0 : 2);
    holder.replaceChildren(shown.node);
  };
}

export default { render: (context) => mount(context, ["blocks", "chosen"], compute, build) };
