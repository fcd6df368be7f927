// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The page: the chosen operation, the core of all pictures, and the keys.

const data = JSON.parse(find("data").textContent);
const operations = rowsOf(data, data.operations, data.fields.operation);
operations.forEach((each, position) => Object.assign(each, {
  position, title: `step ${position}: ${each.opcode}${each.module && ` in ${each.module}`}`, operands: rowsOf(data, each.operands, data.fields.operand),
}));

const page = {
  operations,
  errors: data.errors, buffers: rowsOf(data, data.buffers, data.fields.buffer),
  core: 0,
  operation: null, // the position of the operation in the pane
  tree: null, // the modules
  charts: [],

  source(operation) {
    if (operation.file < 0) return "";
    return `${data.sources[operation.file][0]}:${operation.line}`;
  },

  // Show a text in the line at the bottom; an empty text hides the line.
  tell(text) {
    const line = find("details");
    line.textContent = text;
    line.hidden = text === "";
  },

  // Show a text next to the pointer; an empty text hides the box.
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

  // Open an operation, with an entry in the history of the browser.
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
page.tree = new ModuleTree(data, operations);

// -- pictures ----------------------------------------------------------------------------------------------

// Arrow keys move from item to item and show the tooltip in the line below; Enter is a click.
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

// The views that open and close with the modules.
if (find("module-graph")) page.graph = new Graph(find("module-graph"), page.tree, page);
if (find("source-lines")) page.provenance = new Provenance(data, page);
if (find("modules-table")) new ModuleTable(find("modules-table"), page.tree, page);
page.tree.listeners.push(() => page.redraw());

// Choose the core of all pictures: its slices, its engines and its buffers.
const chooseCore = (core) => {
  page.core = core;
  for (const slider of all(document, "input.core")) {
    slider.value = String(core);
    slider.nextElementSibling.textContent = String(core);
  }
  for (const cell of all(document, ".cell")) {
    const owned = cell.dataset.cores.split(" ").includes(String(core));
    cell.classList.toggle("mine", owned);
    if (owned) cell.parentNode.append(cell); // draw its frame over its neighbours
  }
  page.redraw();
};
for (const slider of all(document, "input.core"))
  slider.addEventListener("input", () => chooseCore(Number(slider.value)));
chooseCore(0);

// Copy the text next to a button; without access to the clipboard, select the text.
for (const copy of all(document, ".copy"))
  copy.addEventListener("click", async () => {
    const text = copy.previousElementSibling;
    try {
      await navigator.clipboard.writeText(text.textContent);
      page.tell("copied");
    } catch {
      getSelection().selectAllChildren(text);
      page.tell("selected: copy it with the keys of the system");
    }
  });

// -- keys --------------------------------------------------------------------------------------------------

// The filter of the section on the screen, else the filter of the operations.
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
