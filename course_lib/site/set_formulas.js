// A line of JSON in, {formula, display}; a line of JSON out, {html} or {error}. Used by mathematics.py.
const katex = require("katex");
const lines = require("readline").createInterface({ input: process.stdin });

lines.on("line", (line) => {
  const { formula, display } = JSON.parse(line);
  let answer;
  try {
    answer = { html: katex.renderToString(formula, { displayMode: display, strict: "ignore" }) };
  } catch (error) {
    answer = { error: error.message };
  }
  process.stdout.write(JSON.stringify(answer) + "\n");
});
