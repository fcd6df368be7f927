// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The pane about one operation, and the links that open it.

const tableOf = (heads, rows) => {
  const cell = (tag) => (value) =>
    typeof value === "number" ? element(tag, {class: "number"}, digits(value)) : element(tag, {}, value);
  const line = (cells, tag) => element("tr", {}, ...cells.map(cell(tag)));
  const body = element("tbody", {}, ...rows.map((row) => line(row, "td")));
  const names = element("tr", {}, ...heads.map((name) => element("th", {scope: "col"}, name)));
  return element("table", {}, element("thead", {}, names), body);
};

const told = (operation) => {
  const {cores, slices, ps, alonePs, runs, iterations, bound, read, written, spilled} = operation;
  const moved = `${digits(read)} bytes read, ${digits(written)} written`;
  return terms([
    ["cores", slices ? `${cores}: ${slices}` : String(cores)],
    ["time", `${microseconds(ps)} in ${plural(runs, "run")}${iterations && `, ${iterations} iterations`}; alone it takes ${microseconds(alonePs)}`],
    ["bound by", bound],
    ["device memory", `${moved}, ${digits(spilled)} of them of spilled buffers`],
  ]);
};

// The lines of the source around the line of the operation, if the file existed when the page was made.
const listing = (operation) => {
  if (operation.file < 0) return [element("p", {}, "The bundle does not have the source line of this operation.")];
  const lines = Object.entries(data.sources[operation.file][1]).map(([number, text]) => [Number(number), text])
    .filter(([number]) => Math.abs(number - operation.line) <= 4);
  const name = element("p", {}, element("code", {class: "place"}, page.source(operation)));
  if (lines.length === 0) return [name, element("p", {}, "The file was missing when this page was made.")];
  const width = String(lines[lines.length - 1][0]).length;
  const shown = lines.map(([number, text]) =>
    element(number === operation.line ? "mark" : "span", {}, `${String(number).padStart(width)}  ${text}\n`));
  return [name, element("pre", {tabindex: "0"}, ...shown)];
};

const inBundle = (operation) => {
  const {firstLine, lastLine} = operation;
  const where = firstLine === lastLine ? `line ${lastLine}` : `line ${lastLine}, its addresses from line ${firstLine}`;
  return [
    terms([["bundle.mlir", where], ["design", operation.design]]),
    element("pre", {tabindex: "0"}, `${String(lastLine)}  ${operation.text}`),
  ];
};

const place = (operand, buffer) => {
  if (buffer.memory === "LX") return `LX, address ${digits(buffer.address)} of each core`;
  const from = operand.place.includes(" from ") ? `, ${operand.place.slice(operand.place.indexOf(" from ") + 1)}` : "";
  if (buffer.memory === "argument") return `argument${from}`;
  return `device memory, address ${digits(buffer.address)} of the ${buffer.memory}${from}`;
};

const OPERAND_HEADS = ["operand", "layout, innermost first", "owners", "placement", "bytes"];
const operandRows = (operation) => operation.operands.map((operand) => {
  const buffer = page.buffers[operand.buffer];
  const {name, layout, format, owners, bytes} = operand;
  return [`${name}: ${buffer.name}`, `${layout}, ${format}`, owners, place(operand, buffer), bytes];
});

// The reasons why operands are in device memory, each buffer once.
const spilled = (operation) => {
  const buffers = new Set(operation.operands.map((operand) => page.buffers[operand.buffer]));
  return Array.from(buffers).filter((buffer) => buffer.reasons)
    .map((buffer) => element("p", {}, `${buffer.name} is not in LX: ${buffer.reasons}.`));
};

const remarksOf = (operation) => {
  const rows = operation.remarks.map((number) => remarkRows[number]).filter(Boolean);
  if (rows.length === 0) return [element("p", {}, "There are no remarks for this source line.")];
  const cells = rows.map((row) => [0, 1, 3].map((at) => row.cells[at].textContent));
  return [tableOf(["pass", "decision", "reason"], cells)];
};

const head = (operation) => {
  const bar = element("p", {class: "tools"});
  const {position} = operation;
  if (position > 0) bar.append(button("← previous", () => page.open(position - 1)));
  if (position + 1 < operations.length) bar.append(button("next →", () => page.open(position + 1)));
  if (find("timeline")) bar.append(button("in the timeline", () => reveal(position)));
  if (find("division")) bar.append(button("division", () => find("division").scrollIntoView()));
  bar.append(button("close", () => page.close(), {"aria-keyshortcuts": "Escape"}));
  return [element("h2", {}, operation.title), bar];
};

// Show the bars of an operation, and half of their time before and after.
const reveal = (position) => {
  const chart = page.charts.find((each) => each.box.id === "timeline-chart");
  if (!chart) return;
  const isOf = (bar) => !bar.node && bar.bars === 1 && bar.first === position;
  const bars = Array.from(chart.scene.tracks().values()).flatMap(({spans}) => spans.filter(isOf));
  if (bars.length) {
    const from = Math.min(...bars.map((bar) => bar.begin)), to = Math.max(...bars.map((bar) => bar.end));
    chart.show(from - (to - from) / 2, to + (to - from) / 2);
  }
  find("timeline").scrollIntoView();
};

const openPane = (operation) => {
  const pane = find("pane"), part = (name, inside) => [element("h3", {}, name), ...inside];
  pane.replaceChildren(
    ...head(operation),
    told(operation),
    ...part("Source", listing(operation)),
    ...part("Bundle", inBundle(operation)),
    ...part("Operands", [tableOf(OPERAND_HEADS, operandRows(operation)), ...spilled(operation)]),
    ...find("remarks") ? part("Remarks of its source line", remarksOf(operation)) : [],
  );
  if (pane.hidden) leftFrom = document.activeElement;
  pane.hidden = false;
  pane.scrollTop = 0;
  pane.focus({preventScroll: true});
};

// The element that had the focus before the pane was opened; it gets the focus again when the pane is closed.
let leftFrom = null;
const closePane = () => {
  if (!find("pane").hidden && leftFrom) leftFrom.focus({preventScroll: true});
  find("pane").hidden = true;
};

// Open the operation that the address of the page names.
let row = null;
const follow = () => {
  const match = /^#op-(\d+)$/.exec(location.hash), operation = match ? operations[Number(match[1])] : undefined;
  if (row) row.classList.remove("opened");
  page.operation = operation ? operation.position : null;
  if (operation) {
    openPane(operation);
    if (page.provenance) page.provenance.follow(operation.position);
    divideBy(operation.position);
    row = find(`op-${operation.position}`);
    if (row) row.classList.add("opened");
  } else closePane();
  page.redraw();
  if (page.graph) page.graph.focusable(false);
};
window.addEventListener("popstate", follow);
follow();

// A click on a link to an operation, or on a row with such a link, opens the pane without scrolling.
document.addEventListener("click", (event) => {
  const plain = !event.ctrlKey && !event.metaKey && !event.shiftKey;
  const isText = !getSelection().isCollapsed || event.target.closest("a");
  const link = event.target.closest('a[href^="#op-"]') || (isText ? null : linkOfRow(event.target));
  if (!link || !plain) return;
  event.preventDefault();
  page.open(Number(link.getAttribute("href").slice(4)));
});
