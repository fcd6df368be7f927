// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Tables with sorting, filters and keyboard navigation.

// A click on a head sorts the table; the next click reverses the order.
const value = (row, column, numeric) => {
  const text = row.cells[column].textContent;
  return numeric ? (text === "" ? -Infinity : parseFloat(text.replaceAll(",", ""))) : text;
};
const sort = (head) => {
  const table = head.closest("table"), numeric = head.classList.contains("number");
  const order = head.getAttribute("aria-sort");
  // Numbers are sorted in descending order first, but steps in ascending order, the order of the program.
  const descends = order === "none" ? numeric && head.cellIndex > 0 : order === "ascending";
  const keyed = Array.from(table.tBodies[0].rows, (row) => [value(row, head.cellIndex, numeric), row]);
  const compare = numeric ? (a, b) => a - b || 0 : (a, b) => a.localeCompare(b);
  keyed.sort((a, b) => descends ? compare(b[0], a[0]) : compare(a[0], b[0]));
  // Remove the body first, so that the browser does not lay out thousands of rows at each move.
  const body = table.tBodies[0];
  body.remove();
  for (const [, row] of keyed) body.append(row);
  table.append(body);
  for (const other of all(table, "th")) other.setAttribute("aria-sort", "none");
  head.setAttribute("aria-sort", descends ? "descending" : "ascending");
  head.dispatchEvent(new Event("sorted", {bubbles: true}));
};
for (const head of all(document, "th[aria-sort]"))
  head.firstElementChild.addEventListener("click", () => sort(head));

// The rows of remarks in the order of the data, not in the displayed order.
const remarkRows = all(document, "#remarks-table tbody tr");

// Filters: a displayed row contains every word of the box, and its first column equals the chosen text. Only the first
// rows of a large table are displayed, because a browser takes a second to lay out thousands.
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

const linkOfRow = (target) => {
  const row = target && target.closest("tbody tr");
  return row ? row.querySelector('a[href^="#op-"]') : null;
};

// In a table, arrow keys move from row to row; Enter or Space opens the operation of the row.
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
    const rows = Array.from(body.rows).filter((row) => !row.hidden), number = rows.indexOf(at), link = linkOfRow(at);
    const steps = {
      ArrowDown: number + 1, ArrowUp: number - 1, PageDown: number + 15, PageUp: number - 15, Home: 0, End: rows.length,
    };
    if (event.key in steps && rows.length) mark(rows[clamp(steps[event.key], 0, rows.length - 1)]);
    else if (["Enter", " "].includes(event.key) && link) link.click();
    else return;
    event.preventDefault();
  });
  frame.addEventListener("blur", () => mark(null));
}
