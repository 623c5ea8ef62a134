// Figures without a kernel. A page holds, for each figure, its picture and its saved state; here the figure's own module
// is fetched when the reader comes near, and drawn in the picture's place. What it changes stays in the page.

const here = document.currentScript.src.replace(/[^/]*$/, "");

// Modules come as text inside a plain script, since a page opened from a disk may load no other.
const courseFigures = {
  waiting: new Map(),
  define(name, source) { this.waiting.get(name).resolve(source); },
  load(name) {
    if (!this.waiting.has(name)) {
      const entry = {};
      entry.module = new Promise((resolve, reject) => Object.assign(entry, { resolve, reject }))
        .then((source) => import(URL.createObjectURL(new Blob([source], { type: "text/javascript" }))));
      this.waiting.set(name, entry);
      const script = document.createElement("script");
      script.src = `${here}figures/${name}.js`;
      script.onerror = () => entry.reject(new Error(`${script.src} is missing`));
      document.head.append(script);
    }
    return this.waiting.get(name).module;
  },
};
window.courseFigures = courseFigures;

// The part of a widget's model that figures use: they read traits, change them, and listen for changes.
class SavedModel {
  constructor(state) { this.state = state; this.listeners = new Map(); }
  get(name) { return this.state[name]; }
  set(name, value) {
    if (JSON.stringify(this.state[name]) === JSON.stringify(value)) return;
    this.state[name] = value;
    for (const call of [...(this.listeners.get(`change:${name}`) ?? [])]) call();
  }
  on(event, call) { this.listeners.set(event, [...(this.listeners.get(event) ?? []), call]); }
  off(event, call) { this.listeners.set(event, (this.listeners.get(event) ?? []).filter((other) => other !== call)); }
  save_changes() {} // there is no kernel to save them to
}

async function bringToLife(box) {
  const picture = box.querySelector("img"), el = document.createElement("div");
  try {
    const figure = (await courseFigures.load(box.dataset.script)).default;
    const model = new SavedModel(JSON.parse(box.querySelector("script").textContent));
    el.setAttribute("role", "group");
    el.setAttribute("aria-label", "figure to move");
    await figure.render({ model, el });
    picture.replaceWith(el);
    box.dataset.live = Math.round(performance.now()); // milliseconds since the page was asked for
  } catch (error) {
    console.error("A figure stays a picture:", error); // which still says what the text needs
  }
}

// Near the reader first; those further down when they come closer.
const watcher = new IntersectionObserver((seen) => {
  for (const { isIntersecting, target } of seen) {
    if (!isIntersecting) continue;
    watcher.unobserve(target);
    bringToLife(target);
  }
}, { rootMargin: "800px" });

// What is too wide scrolls by itself, and whoever has no mouse must be able to reach it.
function reachable() {
  for (const wide of document.querySelectorAll(".katex-display, .pst-scrollable-table-container, .output, .cell pre")) {
    if (wide.scrollWidth > wide.clientWidth + 1) wide.tabIndex = 0;
    else wide.removeAttribute("tabindex");
  }
}

document.addEventListener("DOMContentLoaded", () => {
  document.querySelectorAll(".course-figure").forEach((box) => watcher.observe(box));
  reachable();
  addEventListener("resize", reachable);
});
