// What the page does: tables that sort and filter, one core for all pictures, and a pane about one operation.

const all = (scope, selector) => Array.from(scope.querySelectorAll(selector));
const find = (identifier) => document.getElementById(identifier);

const element = (tag, attributes, ...inside) => {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...inside);
  return made;
};

// The rows of the data as objects; texts are places in one list.
const data = JSON.parse(find("data").textContent);
const rowsOf = (rows, fields) => rows.map((row) => Object.fromEntries(fields.map((name, at) =>
  name.startsWith("$") ? [name.slice(1), data.texts[row[at]]] : [name, row[at]])));
const operations = rowsOf(data.operations, data.fields.operation);
operations.forEach((each, position) => Object.assign(each, {
  position, title: `step ${position}: ${each.opcode}`, operands: rowsOf(each.operands, data.fields.operand),
}));

const page = {
  operations,
  buffers: rowsOf(data.buffers, data.fields.buffer),
  core: 0,
  operation: null, // the position of the one in the pane
  charts: [],

  source(operation) {
    if (operation.file < 0) return "";
    const shared = operation.sharing > 1 ? ` (first of ${operation.sharing} steps of this design)` : "";
    return `${data.sources[operation.file][0]}:${operation.line}${shared}`;
  },

  // A text in the line at the bottom; empty hides it.
  tell(text) {
    const line = find("details");
    line.textContent = text;
    line.hidden = text === "";
  },

  // A text beside the pointer; empty hides it.
  hint(text, event) {
    const box = find("hint");
    box.textContent = text;
    box.hidden = text === "";
    if (box.hidden) return;
    const {clientWidth, clientHeight} = document.documentElement;
    box.style.left = `${clamp(event.clientX + 14, 0, clientWidth - box.offsetWidth - 4)}px`;
    const below = event.clientY + 18;
    box.style.top = `${below + box.offsetHeight > clientHeight ? event.clientY - box.offsetHeight - 10 : below}px`;
  },

  // Open an operation as a place that the browser can come back to.
  open(position) {
    if (position === null || position === undefined || position === page.operation) return;
    history.pushState(null, "", `#op-${position}`);
    follow();
  },

  close() {
    if (page.operation === null) return;
    history.pushState(null, "", location.href.split("#")[0]);
    follow();
  },

  redraw() {
    for (const chart of page.charts) chart.draw();
  },
};

// -- tables ------------------------------------------------------------------------------------------------

// A click on a head sorts, the next one turns the order around.
const value = (row, column, numeric) => {
  const text = row.cells[column].textContent;
  return numeric ? (text === "" ? -Infinity : parseFloat(text.replaceAll(",", ""))) : text;
};
const sort = (head) => {
  const table = head.closest("table"), numeric = head.classList.contains("number");
  const order = head.getAttribute("aria-sort");
  const descends = order === "none" ? numeric : order === "ascending";
  const keyed = Array.from(table.tBodies[0].rows, (row) => [value(row, head.cellIndex, numeric), row]);
  const compare = numeric ? (a, b) => a - b || 0 : (a, b) => a.localeCompare(b);
  keyed.sort((a, b) => descends ? compare(b[0], a[0]) : compare(a[0], b[0]));
  table.tBodies[0].append(...keyed.map((each) => each[1]));
  for (const other of all(table, "th")) other.setAttribute("aria-sort", "none");
  head.setAttribute("aria-sort", descends ? "descending" : "ascending");
  head.dispatchEvent(new Event("sorted", {bubbles: true}));
};
for (const head of all(document, "th[aria-sort]"))
  head.firstElementChild.addEventListener("click", () => sort(head));

// As they are in the data, whatever the order shown.
const remarkRows = all(document, "#remarks-table tbody tr");

// Filters: a row has every word of the box, and in its first column what is chosen. Of a large table only the first
// rows are shown, for a browser takes a second to lay out thousands.
const PART = 500;
for (const listing of all(document, ".listing")) {
  const body = listing.querySelector("tbody"), rows = Array.from(body.rows);
  const texts = new Map(rows.map((row) => [row, row.textContent.toLowerCase()]));
  const box = listing.querySelector("input"), chooser = listing.querySelector("select");
  const found = listing.querySelector(".found"), more = listing.querySelector(".more");
  let limit = PART;
  const fits = (row) => {
    if (chooser && chooser.value && row.cells[0].textContent !== chooser.value) return false;
    return box.value.toLowerCase().split(" ").every((word) => texts.get(row).includes(word));
  };
  const show = () => {
    let count = 0;
    for (const row of body.rows) {
      const fitting = fits(row);
      count += fitting;
      row.hidden = !fitting || count > limit;
    }
    found.textContent = `${digits(count)} of ${digits(rows.length)}`;
    more.hidden = limit >= count;
  };
  box.addEventListener("input", show);
  box.addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    event.stopPropagation();
    if (box.value) { box.value = ""; show(); } else box.blur();
  });
  if (chooser) chooser.addEventListener("change", show);
  more.addEventListener("click", () => { limit += PART; show(); });
  listing.addEventListener("sorted", show);
  show();
}

// In a table, arrow keys go from row to row; Enter or Space opens its operation.
for (const frame of all(document, ".scroll")) {
  const body = frame.querySelector("tbody");
  if (!body) continue;
  for (const link of all(body, "a")) link.tabIndex = -1;
  let at = null;
  const mark = (row) => {
    if (at) at.classList.remove("current");
    at = row;
    if (!row) return;
    row.classList.add("current");
    row.scrollIntoView({block: "nearest"});
  };
  frame.addEventListener("keydown", (event) => {
    if (event.target !== frame) return;
    const rows = Array.from(body.rows).filter((row) => !row.hidden), number = rows.indexOf(at);
    const steps = {ArrowDown: number + 1, ArrowUp: Math.max(number - 1, 0), Home: 0, End: rows.length - 1, PageDown: number + 15, PageUp: Math.max(number - 15, 0)};
    if (event.key in steps && rows.length) mark(rows[Math.min(steps[event.key], rows.length - 1)]);
    else if (["Enter", " "].includes(event.key) && at) { const link = at.querySelector("a"); if (link) link.click(); }
    else return;
    event.preventDefault();
  });
  frame.addEventListener("blur", () => mark(null));
}

// -- pictures ----------------------------------------------------------------------------------------------

// Arrow keys go from item to item, whose tooltip is shown below; Enter is a click.
const steps = {ArrowDown: 1, ArrowRight: 1, ArrowUp: -1, ArrowLeft: -1};
for (const picture of all(document, "svg.walk")) {
  const items = all(picture, ".item");
  for (const link of all(picture, "a")) link.setAttribute("tabindex", "-1");
  let at = -1;
  const mark = (next) => {
    if (items[at]) items[at].classList.remove("current");
    at = next;
    page.tell(at === -1 ? "" : items[at].querySelector("title").textContent);
    if (at === -1) return;
    items[at].classList.add("current");
    items[at].scrollIntoView({block: "nearest"});
  };
  picture.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && at !== -1) { event.stopPropagation(); mark(-1); }
    if (["Enter", " "].includes(event.key) && items[at]) {
      event.preventDefault();
      items[at].dispatchEvent(new MouseEvent("click", {bubbles: true, cancelable: true}));
    }
    if (!steps[event.key] || items.length === 0) return;
    event.preventDefault();
    mark(at === -1 ? 0 : (at + steps[event.key] + items.length) % items.length);
  });
  picture.addEventListener("blur", () => mark(-1));
}

// The division of the chosen operation.
const divided = find("divided");
const divide = () => {
  const number = divided.selectedOptions[0].dataset.division;
  for (const each of all(document, ".division")) each.hidden = each.dataset.division !== number;
};
const divideBy = (position) => {
  if (!divided || !divided.querySelector(`option[value="${position}"]`)) return;
  divided.value = String(position);
  divide();
};
if (divided) divided.addEventListener("change", divide);

for (const [name, scene] of [["timeline-chart", Timeline], ["lx-chart", Scratchpad]])
  if (find(name)) page.charts.push(new Chart(find(name), new scene(data, page), page));

// The core of all pictures: what it owns, what its engines do, what it holds.
const chooseCore = (core) => {
  page.core = core;
  for (const slider of all(document, "input.core")) {
    slider.value = String(core);
    slider.nextElementSibling.textContent = String(core);
  }
  for (const cell of all(document, ".cell")) cell.classList.toggle("mine", cell.dataset.cores.split(" ").includes(String(core)));
  page.redraw();
};
for (const slider of all(document, "input.core"))
  slider.addEventListener("input", () => chooseCore(Number(slider.value)));
chooseCore(0);

// -- the pane of an operation ------------------------------------------------------------------------------

const terms = (pairs) => {
  const list = element("dl", {class: "terms"});
  for (const [name, text] of pairs) list.append(element("dt", {}, name), element("dd", {}, text));
  return list;
};

const tableOf = (heads, rows) => {
  const cell = (tag) => (text) => element(tag, typeof text === "number" ? {class: "number"} : {}, typeof text === "number" ? digits(text) : text);
  const line = (cells, tag) => element("tr", {}, ...cells.map(cell(tag)));
  return element("table", {}, element("thead", {}, line(heads, "th")), element("tbody", {}, ...rows.map((row) => line(row, "td"))));
};

const told = (operation) => terms([
  ["cores", `${operation.cores}${operation.slices ? `: ${operation.slices}` : ""}`],
  ["time", `${microseconds(operation.ps)} of the program's, in ${plural(operation.runs, "run")}; alone ${microseconds(operation.alonePs)}`],
  ["bound by", operation.bound],
  ["device memory", `${digits(operation.read)} bytes read, ${digits(operation.written)} written, ${digits(operation.spilled)} of them of spilled buffers`],
]);

// The lines of the source around that of the operation, where the file was there when the page was made.
const listing = (operation) => {
  if (operation.file < 0) return [element("p", {}, "The bundle does not say from which line it comes.")];
  const lines = Object.entries(data.sources[operation.file][1]).map(([number, text]) => [Number(number), text])
    .filter(([number]) => Math.abs(number - operation.line) <= 4);
  const name = element("p", {}, element("code", {class: "place"}, page.source(operation)));
  if (lines.length === 0) return [name, element("p", {}, "The file was not there when this page was made.")];
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
  return buffer.memory === "argument" ? `argument${from}` : `device memory, address ${digits(buffer.address)} of the ${buffer.memory}${from}`;
};

const operandRows = (operation) => operation.operands.map((operand) => {
  const buffer = page.buffers[operand.buffer];
  const why = buffer.reasons ? `. Not in LX: ${buffer.reasons}` : "";
  return [`${operand.name}: ${buffer.name}`, `${operand.layout}, ${operand.format}`, operand.owners, `${place(operand, buffer)}${why}`, operand.bytes];
});

const remarksOf = (operation) => {
  const rows = operation.remarks.map((number) => remarkRows[number]).filter(Boolean);
  if (rows.length === 0) return [element("p", {}, "No remark is about its line of the source.")];
  const cells = rows.map((row) => [0, 1, 3].map((at) => row.cells[at].textContent));
  return [tableOf(["pass", "decision", "reason"], cells)];
};

const button = (text, act, attributes = {}) => {
  const made = element("button", {type: "button", ...attributes}, text);
  made.addEventListener("click", act);
  return made;
};

const head = (operation) => {
  const bar = element("p", {class: "tools"});
  const {position} = operation;
  if (position > 0) bar.append(button("← previous", () => page.open(position - 1)));
  if (position + 1 < operations.length) bar.append(button("next →", () => page.open(position + 1)));
  bar.append(button("in the timeline", () => reveal(position)), button("division", () => find("division").scrollIntoView()));
  bar.append(button("close", () => page.close(), {"aria-keyshortcuts": "Escape"}));
  return [element("h2", {}, operation.title), bar];
};

// Show the bars of an operation, with as much time around them.
const reveal = (position) => {
  const chart = page.charts.find((each) => each.box.id === "timeline-chart");
  if (!chart) return;
  const bars = Array.from(chart.scene.tracks().values()).flatMap(({spans}) => spans.filter((bar) => bar.bars === 1 && bar.first === position));
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
    ...part("Operands", [tableOf(["operand", "layout, innermost first", "split over the cores", "placement", "bytes"], operandRows(operation))]),
    ...part("Remarks of its source line", remarksOf(operation)),
  );
  pane.hidden = false;
  pane.scrollTop = 0;
};

// Show what the address of the page names.
const marked = new Set();
const follow = () => {
  const match = /^#op-(\d+)$/.exec(location.hash), operation = match ? operations[Number(match[1])] : undefined;
  for (const each of marked) each.classList.remove("opened");
  marked.clear();
  page.operation = operation ? operation.position : null;
  if (operation) {
    openPane(operation);
    divideBy(operation.position);
    for (const each of all(document, `tr#op-${operation.position}, .row[data-operation="${operation.position}"]`)) marked.add(each);
    for (const each of marked) each.classList.add("opened");
  } else find("pane").hidden = true;
  page.redraw();
};
window.addEventListener("popstate", follow);
follow();

// A link to an operation, or a row that has one, opens the pane where the reader is.
document.addEventListener("click", (event) => {
  const plain = !event.ctrlKey && !event.metaKey && !event.shiftKey;
  const link = event.target.closest('a[href^="#op-"]') || (getSelection().isCollapsed && !event.target.closest("a") && linkOfRow(event.target));
  if (!link || !plain) return;
  event.preventDefault();
  page.open(Number(link.getAttribute("href").slice(4)));
});
const linkOfRow = (target) => {
  const row = target.closest("tbody tr");
  return row ? row.querySelector('a[href^="#op-"]') : null;
};

// -- keys --------------------------------------------------------------------------------------------------

// The filter of the section that is on the screen, else that of the operations.
const nearestFilter = () => {
  const seen = all(document, ".listing input").find((box) => {
    const {top, bottom} = box.closest("section").getBoundingClientRect();
    return top < innerHeight / 2 && bottom > innerHeight / 2;
  });
  return seen || document.querySelector("#operations .listing input");
};
find("help").addEventListener("click", () => find("keys").showModal());
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, select, dialog")) return;
  const box = nearestFilter();
  if (event.key === "/" && box) { box.focus(); box.select(); }
  else if (event.key === "?") find("keys").showModal();
  else if (event.key === "Escape") page.close();
  else return;
  event.preventDefault();
});
for (const each of all(document, ".scripted")) each.hidden = false;
