"""The style and the script of the page about a program. The script has no character that XML would escape."""

from __future__ import annotations

STYLE = """
body { font: 13px 'DejaVu Sans', Verdana, Arial, sans-serif; color: #1a1a1a; }
body { margin: 12px 20px 96px; max-width: 1240px; }
h1 { font-size: 19px; margin: 0 0 8px; }
h2 { font-size: 16px; margin: 30px 0 8px; padding-top: 8px; border-top: 2px solid #d9d9d9; }
h3 { font-size: 14px; margin: 16px 0 6px; }
p { margin: 6px 0; max-width: 1100px; }
nav a { margin-right: 14px; color: #0b4f8a; }
code { font-size: 12px; background: #f2f2f2; padding: 1px 3px; }
svg { max-width: 100%; height: auto; display: block; }
svg text { font: 12px 'DejaVu Sans', Verdana, Arial, sans-serif; fill: #1a1a1a; }
svg .name { font-weight: bold; }
svg .label { font-size: 11px; fill: #404040; }
svg .inside { font-size: 11px; pointer-events: none; }
svg .sample { stroke: #595959; stroke-width: 0.8; }
svg .tick { stroke: #e0e0e0; stroke-width: 0.8; fill: none; }
svg .axis { stroke: #595959; stroke-width: 1; fill: none; }
svg .time { fill: #9ecae1; }
.cards { display: grid; grid-template-columns: repeat(3, 1fr); gap: 10px; margin: 0; }
.cards div { border: 1px solid #d9d9d9; border-radius: 6px; padding: 8px 12px; }
.cards dt { color: #404040; }
.cards dd { margin: 2px 0; font-size: 12px; color: #404040; overflow-wrap: anywhere; }
.cards dt + dd { font-size: 20px; font-weight: bold; color: #1a1a1a; }
.scroll { overflow: auto; max-height: 560px; border: 1px solid #d9d9d9; }
table { border-collapse: collapse; font-size: 12px; }
.scroll table { width: 100%; table-layout: fixed; }
th, td { border-bottom: 1px solid #e6e6e6; padding: 3px 8px; text-align: left; vertical-align: top; }
.scroll thead { position: sticky; top: 0; background: #f2f2f2; }
.scroll td { overflow-wrap: break-word; }
.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
th button { font: inherit; font-weight: bold; border: 0; background: none; padding: 2px 0; cursor: pointer; }
th[aria-sort=ascending] button::after { content: " \\25B2"; }
th[aria-sort=descending] button::after { content: " \\25BC"; }
[hidden] { display: none; }
:focus-visible { outline: 3px solid #f59e0b; outline-offset: 1px; }
.row .ground { fill: #000000; fill-opacity: 0; }
.row { cursor: pointer; }
.row .node { stroke: #333333; stroke-width: 0.9; }
.row:hover .ground, .row.current .ground { fill-opacity: 0.07; }
.lane path, .lane circle { color: inherit; }
.lane .line { fill: none; stroke: currentColor; stroke-width: 1.6; }
.lane .reach { fill: none; stroke: #000000; stroke-opacity: 0; stroke-width: 7; }
.lane .arrow { fill: currentColor; }
.lane .argument { fill: #ffffff; stroke: currentColor; stroke-width: 1.6; }
.lane:hover .line, .lane.current .line { stroke-width: 4; }
.bar .work { stroke: #595959; stroke-width: 0.5; }
.bar:hover rect, .bar.current rect { stroke: #000000; stroke-width: 2; }
.owner { stroke: #ffffff; stroke-width: 1.2; }
.roof { stroke: #1a1a1a; stroke-width: 1.6; fill: none; }
.dotted { stroke: #333333; stroke-width: 1; }
.program { fill: #1a1a1a; }
.point:hover circle, .point.current circle, .point.current path { stroke: #000000; stroke-width: 3; }
#details { position: fixed; left: 20px; right: 20px; bottom: 0; max-width: 1200px; margin: 0; padding: 8px 12px;
  background: #1a1a1a; color: #ffffff; white-space: pre-line; border-radius: 6px 6px 0 0; }
"""

SCRIPT = """
{
  const all = (scope, selector) => Array.from(scope.querySelectorAll(selector));
  const details = document.getElementById("details");

  // Tables: a click on a head sorts, the next one turns the order around.
  const value = (row, column, numeric) => {
    const text = row.cells[column].textContent;
    return numeric ? (text === "" ? -Infinity : Number(text.replaceAll(",", ""))) : text;
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
      if (chooser) if (chooser.value) if (row.cells[0].textContent !== chooser.value) return false;
      return box.value.toLowerCase().split(" ").every((word) => texts.get(row).includes(word));
    };
    const show = () => {
      let count = 0;
      for (const row of body.rows) {
        const fitting = fits(row);
        count += fitting;
        row.hidden = fitting ? count > limit : true;
      }
      found.textContent = `${count.toLocaleString("en")} of ${rows.length.toLocaleString("en")}`;
      more.hidden = limit >= count;
    };
    box.addEventListener("input", show);
    if (chooser) chooser.addEventListener("change", show);
    more.addEventListener("click", () => { limit += PART; show(); });
    listing.addEventListener("sorted", show);
    show();
  }

  // The division of the chosen operation.
  const divided = document.getElementById("divided");
  const divide = () => {
    const number = divided.selectedOptions[0].dataset.division;
    for (const each of all(document, ".division")) each.hidden = each.dataset.division !== number;
  };
  if (divided) divided.addEventListener("change", divide);
  const choose = (row) => {
    divided.value = row.dataset.operation;
    if (divided.selectedIndex !== -1) divide();
    document.getElementById("division").scrollIntoView();
  };
  for (const row of all(document, ".row")) row.addEventListener("click", () => choose(row));

  // Pictures: arrow keys go from item to item, whose tooltip is shown below; Enter is a click.
  const steps = {ArrowDown: 1, ArrowRight: 1, ArrowUp: -1, ArrowLeft: -1};
  for (const picture of all(document, "svg.walk")) {
    const items = all(picture, ".item");
    let at = -1;
    const mark = (next) => {
      if (items[at]) items[at].classList.remove("current");
      at = next;
      details.hidden = at === -1;
      if (at === -1) return;
      items[at].classList.add("current");
      items[at].scrollIntoView({block: "nearest"});
      details.textContent = items[at].querySelector("title").textContent;
    };
    picture.addEventListener("keydown", (event) => {
      if (event.key === "Escape") mark(-1);
      if (event.key === "Enter") if (items[at]) items[at].dispatchEvent(new Event("click"));
      if (!steps[event.key] || items.length === 0) return;
      event.preventDefault();
      mark(at === -1 ? 0 : (at + steps[event.key] + items.length) % items.length);
    });
    picture.addEventListener("blur", () => mark(-1));
  }
}
"""
